"""Compressed records of fine-tuning: same results, fewer bytes."""

import os
import random

import pytest

from official_bert.commands import run_classifier
from official_bert.data.record_files import compression_type, read_records
from official_bert.tasks.classification.options import ClassifierConfig
from tests.sentences import sentence


@pytest.mark.slow
@pytest.mark.endurance
def test_compressed_records_give_the_same_numbers(model_dir, one_layer_config_file, vocab_file, tmp_path):
    """Records of examples, and of features from a frozen encoder."""
    rng = random.Random(1)
    for split, count in (("train", 24), ("dev", 11)):
        labels = [rng.randrange(2) for _ in range(count)]
        rows = "".join(f"{sentence(rng, label)}\t{label}\n" for label in labels)
        (tmp_path / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
    folders = {}
    for compression in ("none", "gzip"):
        folders[compression] = folder = tmp_path / compression
        config = ClassifierConfig(
            task_name="SST-2",
            data_dir=str(tmp_path),
            bert_config_file=one_layer_config_file,
            vocab_file=vocab_file,
            output_dir=str(folder),
            init_checkpoint=str(model_dir / "bert_model.ckpt"),
            max_seq_length=32,
            train_batch_size=8,
            num_train_epochs=1.0,
            do_train=True,
            do_eval=True,
            trainable_encoder=False,
            compression=compression,
        )
        run_classifier.run(config)
    names = sorted(name for name in os.listdir(folders["none"]) if name.endswith(".tf_record"))
    assert len(names) == 4
    for name in names:
        plain, compressed = (str(folders[compression] / name) for compression in folders)
        assert (compression_type(plain), compression_type(compressed)) == ("", "GZIP")
        assert list(read_records(plain)) == list(read_records(compressed))
    results = [(folder / "eval_results.txt").read_text() for folder in folders.values()]
    assert results[0] == results[1]
