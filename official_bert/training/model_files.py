"""The files that a trained model goes with: its architecture and its vocabulary, checked against each other."""

from typing import Protocol

from official_bert.checkpoints.state_file import folders_of
from official_bert.config.bert_config import BertConfig
from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tokenization import Tokenizer, Vocabulary, read_tokenizer, read_vocabulary
from official_bert.tokenization.casing import check_casing
from official_bert.training.run_folder import knows_vocabulary, other_vocabulary


class CheckpointFlags(Protocol):
    """The flags that name weights and their architecture."""

    bert_config_file: str
    init_checkpoint: str | None


class ModelFlags(CheckpointFlags, Protocol):
    """The flags that name all files of a model."""

    vocab_file: str | None
    spm_model_file: str | None
    text_settings: TextSettings


def read_model_files(
    flags: ModelFlags, *, for_training: bool = False, attention_direction: str | None = None, is_trained: bool = False
) -> tuple[BertConfig, Tokenizer]:
    """Reads the architecture and the vocabulary, and checks that they and the flags fit each other and the machine.

    Args:
      flags: name the files.
      for_training: whether there must be room for the optimizer, too.
      attention_direction: what takes the place of the file's, if given.
      is_trained: whether weights were trained with these files: what those began with does not matter any more.

    Raises:
      UserError: a file is missing or damaged, they do not fit, or the model is too large for the machine.
    """
    bert_config = BertConfig.from_json_file(flags.bert_config_file, attention_direction=attention_direction)
    bert_config.check_memory(flags.bert_config_file, for_training=for_training)
    if hasattr(flags, "max_seq_length"):  # not where a text decides on the length
        bert_config.check_length(flags.max_seq_length, flags.bert_config_file)
    tokenizer = read_tokenizer(flags)
    check_fits(tokenizer.vocabulary, bert_config, flags, is_trained=is_trained)
    check_casing(tokenizer.vocabulary, tokenizer.settings, init_checkpoint=flags.init_checkpoint)
    return bert_config, tokenizer


def read_fitting_vocabulary(flags: ModelFlags, bert_config: BertConfig) -> Vocabulary:
    """Reads the vocabulary alone, for a run that reads no texts.

    Args:
      flags: name the files.
      bert_config: the architecture, which must have room for it.

    Raises:
      UserError: the file is missing or damaged, or does not fit.
    """
    vocabulary = read_vocabulary(flags)
    check_fits(vocabulary, bert_config, flags)
    return vocabulary


def check_fits(
    vocabulary: Vocabulary, bert_config: BertConfig, flags: CheckpointFlags, *, is_trained: bool = False
) -> None:
    """Raises if a vocabulary is not that of a checkpoint, or has not the size of the architecture.

    Args:
      vocabulary: the vocabulary.
      bert_config: the architecture.
      flags: name the checkpoint, if there is one: where its folder says which vocabulary it has, it must be this one.
      is_trained: as of `read_model_files`.

    Raises:
      UserError: they do not belong together; the message names both files.
    """
    is_known = is_trained or flags.init_checkpoint is None
    for folder in [] if is_known else folders_of(flags.init_checkpoint):
        is_same = knows_vocabulary(folder, vocabulary)
        if is_same is False:
            whose = f"init_checkpoint={flags.init_checkpoint} was trained with"
            raise UserError(other_vocabulary(vocabulary, folder, whose))
        is_known = is_known or is_same is True
    bert_config.check_vocab_size(vocabulary.size, vocabulary.source, flags.bert_config_file, is_of_model=is_known)
