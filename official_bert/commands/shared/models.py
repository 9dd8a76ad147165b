"""The checks of the model that a command reads, and the run of the commands that fine-tune one."""

import functools
import importlib
from typing import TYPE_CHECKING

from official_bert.checkpoints.locate import locate
from official_bert.config.bert_config import BertConfig
from official_bert.options.groups import ModelOptions, check_export
from official_bert.options.training import FinetuningOptions
from official_bert.training.model_files import read_model_files
from official_bert.training.run_folder import check_has_checkpoint

if TYPE_CHECKING:
    from official_bert.training.job import FinetuningJob


def check_model(config: ModelOptions) -> BertConfig:
    bert_config, _ = read_model_files(config)
    locate(config.init_checkpoint, "init_checkpoint")
    return bert_config


def run_finetuning(job_class: "type[FinetuningJob]", config: FinetuningOptions) -> None:
    from official_bert.serving.exports import check_export_dir, export_run
    from official_bert.training.finetuning import finetune

    if config.do_export:
        check_export_dir(config.export_dir)
    servable_module = importlib.import_module(f"official_bert.tasks.{config.task}.servable")
    finetune(job_class, config, functools.partial(export_run, servable_module.servable_of_run))


def check_finetuning(config: FinetuningOptions) -> None:
    """Check the files of the model, the checkpoint and the teacher of a fine-tuning run."""
    bert_config, _ = read_model_files(config)
    check_export(config, bert_config)
    if config.init_checkpoint:
        locate(config.init_checkpoint, "init_checkpoint")
    if config.teacher:
        locate(config.teacher, "teacher")
    check_has_checkpoint(config)
