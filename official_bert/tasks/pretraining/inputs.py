"""Input files of a pretraining run, read and checked without TensorFlow."""

from typing import NamedTuple

from official_bert.config.bert_config import BertConfig
from official_bert.config.machine import check_memory
from official_bert.serving.parts import check_export
from official_bert.support.input_files import find_inputs, is_no_sidecar
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.pretraining.vocabulary import with_vocabulary
from official_bert.tokenization import Tokenizer, Vocabulary
from official_bert.training.model_files import read_fitting_vocabulary, read_model_files


class PretrainingInputs(NamedTuple):
    """Input files and settings of a run.

    Attributes:
      config: the flags, completed from the records' vocabulary settings.
      bert_config: the architecture.
      paths: the record files; empty when only exporting a finished run.
      vocabulary: None if unknown.
      tokenizer: None unless the model is exported.
    """

    config: PretrainingConfig
    bert_config: BertConfig
    paths: list[str]
    vocabulary: Vocabulary | None = None
    tokenizer: Tokenizer | None = None


def read_inputs(config: PretrainingConfig) -> PretrainingInputs:
    """Read the files given by flags, except records and weights, and check that they match.

    Raises:
      UserError: a file is missing or corrupt, or the files do not match.
    """
    direction = config.attention_direction
    bert_config = BertConfig.from_json_file(config.bert_config_file, attention_direction=direction)
    check_memory(bert_config, config.bert_config_file, for_training=config.do_train and config.trains_all_weights)
    bert_config.check_length(config.max_seq_length, config.bert_config_file)
    paths = find_inputs(config.input_file, is_input=is_no_sidecar) if config.do_train or config.do_eval else []
    config = with_vocabulary(config, paths)
    inputs = PretrainingInputs(config, bert_config, paths)
    if config.do_export:
        check_export(config, bert_config)
        _, tokenizer = read_model_files(config, attention_direction=direction)
        return inputs._replace(vocabulary=tokenizer.vocabulary, tokenizer=tokenizer)
    if config.vocab_file or config.spm_model_file:
        return inputs._replace(vocabulary=read_fitting_vocabulary(config, bert_config))
    return inputs
