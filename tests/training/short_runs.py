"""Short runs of `run_pretraining.py`: their flags, and what their checkpoints hold."""

from official_bert.checkpoints.bundle import CheckpointReader


def pretraining_flags(records_file, model_dir, **more):
    """Flags of a run with dropout."""
    return {
        "input_file": records_file,
        "bert_config_file": model_dir / "bert_config.json",
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
        "train_batch_size": 8,
        "num_warmup_steps": 4,
        "learning_rate": 1e-3,
        "do_train": True,
        **more,
    }


def arrays_of(folder, step):
    """Name to array of a checkpoint."""
    reader = CheckpointReader(str(folder / f"model.ckpt-{step}"))
    return {name: reader.read(name) for name in reader.shapes}
