"""Exports what a run trained, in the format and the precision that its flags say."""

import dataclasses

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoders import FLAT, UNPADDED, EncoderOptions
from official_bert.options.training import TrainingOptions
from official_bert.serving.lite import write_lite
from official_bert.serving.saved_model import write_export
from official_bert.serving.servable import Servable


def export_options(config: TrainingOptions) -> EncoderOptions:
    """How the encoder of the `Servable` computes that `write_run_export` takes.

    A SavedModel in bfloat16 has its weights in that format; what LiteRT runs is converted afterwards.
    """
    if config.export_format == "tflite":
        return dataclasses.replace(FLAT, dtype="float32")
    return dataclasses.replace(UNPADDED, dtype=config.export_precision)


def write_run_export(config: TrainingOptions, bert_config: BertConfig, servable: Servable) -> str:
    """Writes the next version of a model into `export_dir`; returns its folder.

    Raises:
      UserError: the folder cannot be written to, or the layers cannot be split into `export_parallelism` parts.
    """
    if config.export_format == "tflite":
        return write_lite(config.export_dir, servable, config.export_precision)
    servable.compute_in_parts(bert_config.export_parts(config.export_parallelism, config.bert_config_file))
    return write_export(config.export_dir, servable)
