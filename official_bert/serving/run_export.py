"""Export a run's model in the format and precision given by flags."""

import dataclasses
from collections.abc import Callable

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder_options import PLAIN, UNPADDED
from official_bert.serving.lite import write_lite
from official_bert.serving.onnx_export import write_onnx
from official_bert.serving.parts import ExportFlags, export_parts
from official_bert.serving.saved_model import write_export
from official_bert.serving.servable import Servable
from official_bert.tokenization import Tokenizer

# Functions that write models without a tokenizer, by `export_format`.
_WRITERS = {"tflite": write_lite, "onnx": write_onnx}


def export_run(
    servable_of_run: Callable[..., Servable],
    config: ExportFlags,
    bert_config: BertConfig,
    tokenizer: Tokenizer,
    checkpoint: str,
) -> str:
    """Write a model as the next version in `export_dir`; return the version's folder.

    A bfloat16 SavedModel stores bfloat16 weights; LiteRT and ONNX models are converted afterwards.

    Args:
      servable_of_run: the task's function; see `tasks.task_registry`.
      config: the flags.
      bert_config: the architecture.
      tokenizer: the tokenizer.
      checkpoint: prefix of the weights.

    Raises:
      UserError: the folder is not writable, or the layers cannot be split into `export_parallelism` parts.
    """
    if write := _WRITERS.get(config.export_format):
        options = dataclasses.replace(PLAIN, dtype="float32")
        servable = servable_of_run(config, bert_config, tokenizer, checkpoint, options)
        return write(config.export_dir, servable, config.export_precision)
    options = dataclasses.replace(UNPADDED, dtype=config.export_precision)
    servable = servable_of_run(config, bert_config, tokenizer, checkpoint, options)
    servable.use_export_stack(export_parts(bert_config, config.export_parallelism, config.bert_config_file))
    return write_export(config.export_dir, servable)
