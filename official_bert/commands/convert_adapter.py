"""`convert_adapter`: write the adapter of a run for PEFT, or merge an adapter of PEFT into a model."""

import json
import os

from absl import logging

from official_bert.commands.shared.edited_model import EditedModel, EditedModelOptions, read_edited_model
from official_bert.options.command import Command
from official_bert.options.option import option, options
from official_bert.support import writing
from official_bert.support.errors import UserError


@options(group="model")
class AdapterConfig(EditedModelOptions):
    """Flags of `convert_adapter`."""

    adapter_dir: str | None = option(
        None,
        "Folder of PEFT to read, with adapter_config.json and adapter_model.safetensors; it is merged into "
        "--init_checkpoint, its base model. By default, the adapter of --init_checkpoint, a run with --lora_rank, is "
        "written to --output_dir in this layout.",
        is_path=True,
    )


def check(config: AdapterConfig) -> None:
    """Check the files before TensorFlow is imported."""
    _model(config)


def run(config: AdapterConfig) -> None:
    """Convert in the direction that the flags select."""
    model = _model(config)
    if config.adapter_dir is None:
        _write_adapter(config, model)
    else:
        _merge_adapter(config, model)


def _write_adapter(config: AdapterConfig, model: EditedModel) -> None:
    from official_bert.checkpoints import peft, safetensors
    from official_bert.checkpoints.bundle import CheckpointReader
    from official_bert.checkpoints.state_file import model_folders
    from official_bert.training.run_folder import read_run_config

    trained = read_run_config(model_folders(config.init_checkpoint)[-1])
    base_model = trained and trained.flags.get("init_checkpoint")
    reader = CheckpointReader(config.init_checkpoint, "init_checkpoint")
    adapter = peft.adapter_of(reader, model.bert_config, base_model)
    with writing.complete_folder(config.output_dir, "output_dir") as folder:
        safetensors.write_file(os.path.join(folder, peft.WEIGHTS_FILE), adapter.arrays)
        with writing.atomic_write(os.path.join(folder, peft.CONFIG_FILE)) as sink:
            sink.write(json.dumps(adapter.values, indent=2, sort_keys=True) + "\n")
    size = sum(array.nbytes for array in adapter.arrays.values())
    logging.info("wrote %s: %d arrays, %.1f MB", config.output_dir, len(adapter.arrays), size / 1e6)


def _merge_adapter(config: AdapterConfig, model: EditedModel) -> None:
    from official_bert.checkpoints import peft
    from official_bert.checkpoints.editing import read_model
    from official_bert.checkpoints.opening import open_checkpoint
    from official_bert.training.model_folder import write_model

    adapter = peft.read_adapter(config.adapter_dir)
    arrays = read_model(open_checkpoint(config.init_checkpoint, "init_checkpoint"))
    merged = peft.with_adapter(arrays, adapter, model.bert_config, config.adapter_dir)
    prefix = write_model(config.output_dir, merged, model.bert_config, model.vocabulary)
    logging.info("wrote %s with the adapter of %s", prefix, config.adapter_dir)


def _model(config: AdapterConfig) -> EditedModel:
    model = read_edited_model(config)
    if model.bert_config is None:
        raise UserError("give --bert_config_file, the model's configuration, since none is beside the checkpoint")
    return model


COMMAND = Command(
    name="convert_adapter",
    config_class=AdapterConfig,
    summary="Writes the LoRA adapter of a run for PEFT, or merges one of PEFT into a model.",
    usage=r"""
Writes adapter_model.safetensors and adapter_config.json, a few megabytes:

  {command} --init_checkpoint=out/classifier --output_dir=adapter

Merges an adapter that PEFT has trained into its base model:

  {command} --adapter_dir=adapter --init_checkpoint=bert-base-uncased --output_dir=merged
""",
    check=check,
    run=run,
)
