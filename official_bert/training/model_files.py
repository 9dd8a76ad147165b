"""The files that a trained model goes with: its architecture and its vocabulary, checked against each other."""

from typing import Protocol

from official_bert.config.bert_config import BertConfig
from official_bert.config.text_settings import TextSettings
from official_bert.tokenization import Tokenizer, Vocabulary, read_tokenizer, read_vocabulary
from official_bert.tokenization.casing import check_casing


class ModelFlags(Protocol):
    """The flags that name them."""

    bert_config_file: str
    vocab_file: str | None
    spm_model_file: str | None
    text_settings: TextSettings
    init_checkpoint: str | None
    max_seq_length: int


def read_model_files(
    flags: ModelFlags, *, for_training: bool = False, attention_direction: str | None = None
) -> tuple[BertConfig, Tokenizer]:
    """Reads the architecture and the vocabulary, and checks that they and the flags fit each other and the machine.

    Args:
      flags: name the files.
      for_training: whether there must be room for the optimizer, too.
      attention_direction: what takes the place of the file's, if given.

    Raises:
      UserError: a file is missing or damaged, they do not fit, or the model is too large for the machine.
    """
    bert_config = BertConfig.from_json_file(flags.bert_config_file, attention_direction=attention_direction)
    bert_config.check_memory(flags.bert_config_file, for_training=for_training)
    bert_config.check_length(flags.max_seq_length, flags.bert_config_file)
    tokenizer = read_tokenizer(flags)
    bert_config.check_vocab_size(tokenizer.vocabulary.size, tokenizer.vocabulary.source, flags.bert_config_file)
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
    bert_config.check_vocab_size(vocabulary.size, vocabulary.source, flags.bert_config_file)
    return vocabulary
