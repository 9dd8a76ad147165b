"""File checks of several commands, before TensorFlow is imported."""

from official_bert.config.bert_config import BertConfig
from official_bert.options.corpus import CorpusOptions
from official_bert.options.finetuning import FinetuningOptions
from official_bert.options.model import ModelOptions
from official_bert.serving.parts import check_export
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.support.input_files import find_inputs
from official_bert.tasks.pretraining.options import RecordOptions


def check_pretraining_data(config: RecordOptions) -> None:
    """Check the files before TensorFlow is imported."""
    from official_bert.tokenization import read_tokenizer

    check_corpus(config)
    read_tokenizer(config)


def check_model(config: ModelOptions) -> BertConfig:
    """Check the files of a model; return its architecture."""
    from official_bert.checkpoints.state_file import find_checkpoint
    from official_bert.training.model_files import read_model_files

    bert_config, _ = read_model_files(config)
    find_checkpoint(config.init_checkpoint, "init_checkpoint")
    return bert_config


def check_corpus(config: CorpusOptions) -> None:
    """Check that the files of a corpus exist and have a known format."""
    from official_bert.data.corpus_files import corpus_parts

    corpus_parts(find_inputs(config.input_file), file_format=config.input_format, text_field=config.text_field)


def check_finetuning(config: FinetuningOptions) -> None:
    """Check the files of the model, the checkpoint and the teacher of a fine-tuning run."""
    from official_bert.checkpoints.state_file import find_checkpoint
    from official_bert.training.model_files import read_model_files
    from official_bert.training.run_folder import check_has_checkpoint

    bert_config, _ = read_model_files(config)
    check_export(config, bert_config)
    if config.init_checkpoint:
        find_checkpoint(config.init_checkpoint, "init_checkpoint")
    if config.teacher:
        find_checkpoint(config.teacher, "teacher")
    check_has_checkpoint(config)


def check_file(path: str, flag: str) -> None:
    """Raise if a flag's file does not exist."""
    if not files.exists(path):
        raise UserError(f"--{flag}: there is no file {path}; check the path")


def check_folder(path: str, flag: str) -> None:
    """Raise if a flag's folder does not exist."""
    if not files.is_folder(path):
        raise UserError(f"--{flag}: there is no folder {path}; check the path")
