"""The files of the model that a command reads, and the run of the commands that fine-tune one."""

import functools
import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from official_bert.config.bert_config import BertConfig
from official_bert.options.groups import ModelOptions, SentenceOptions, check_export
from official_bert.options.training import FinetuningOptions

if TYPE_CHECKING:
    from official_bert.tokenization import Tokenizer
    from official_bert.training.job import FinetuningJob


class ModelFiles(NamedTuple):
    bert_config: BertConfig
    tokenizer: "Tokenizer"


def prepare_model(config: ModelOptions) -> ModelFiles:
    from official_bert.checkpoints.locate import locate
    from official_bert.training.model_files import read_model_files

    model = ModelFiles(*read_model_files(config))
    if isinstance(config, SentenceOptions):
        model.bert_config.check_layers(config.layer_indices, config.bert_config_file)
    locate(config.init_checkpoint, "init_checkpoint")
    return model


def prepare_finetuning(config: FinetuningOptions, *, reads_pairs: bool = False) -> ModelFiles:
    """Read the files of the model, which must read pairs if the task does; check that checkpoints and teacher exist."""
    from official_bert.checkpoints.locate import locate
    from official_bert.training.model_files import read_model_files
    from official_bert.training.run_folder import check_has_checkpoint

    direction = config.attention_direction
    model = ModelFiles(*read_model_files(config, for_training=config.trains_encoder, attention_direction=direction))
    if reads_pairs:
        model.tokenizer.specials.check_pairs()
    check_export(config, model.bert_config)
    for path in config.ensemble:
        locate(path, "ensemble_checkpoints")
    for name in () if config.ensemble else ("init_checkpoint", "teacher"):
        if path := getattr(config, name):
            locate(path, name)
    if not config.ensemble:
        check_has_checkpoint(config)
    return model


def run_finetuning(job_class: "type[FinetuningJob]", config: FinetuningOptions, inputs: tuple[Any, ...]) -> None:
    """Train, evaluate, predict and export; `inputs` are those of `prepare_finetuning` and the data of the task."""
    from official_bert.serving.exports import check_export_dir, export_run
    from official_bert.training.finetuning import finetune

    if config.do_export:
        check_export_dir(config.export_dir)
    servable_module = importlib.import_module(f"official_bert.tasks.{config.task}.servable")
    finetune(job_class, config, inputs, functools.partial(export_run, servable_module.servable_of_run))
