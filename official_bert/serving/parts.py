"""Checks of the flags of an export, without TensorFlow, and the number of parts of its layers; see `export_stack`."""

from typing import Protocol

from official_bert.config.bert_config import BertConfig
from official_bert.support.errors import UserError
from official_bert.support.extras import check_installed


class ExportFlags(Protocol):
    """Flags for an export; see `options.export.VersionOptions`."""

    bert_config_file: str
    export_dir: str
    export_format: str
    export_precision: str
    export_parallelism: int


def check_export(config: ExportFlags, bert_config: BertConfig) -> None:
    """Check what an export needs.

    Raises:
      UserError: see `export_parts`; or the format's extra is not installed.
    """
    export_parts(bert_config, config.export_parallelism, config.bert_config_file)
    if config.export_format == "onnx":
        check_installed("tf2onnx", extra="onnx")


def export_parts(config: BertConfig, parallelism: int, config_file: str) -> int:
    """Return the number of parts that split the layers of an exported model.

    Args:
      config: the architecture.
      parallelism: number of parts, or 0 for 2 if the sizes allow it.
      config_file: the architecture file, for messages.

    Raises:
      UserError: the heads or feed-forward width cannot be divided into this many equal parts.
    """
    sizes = {name: getattr(config, name) for name in ("num_attention_heads", "intermediate_size")}
    undivided = [name for name in sizes if sizes[name] % (parallelism or 2)]
    if undivided and parallelism:
        raise UserError(
            f"export_parallelism={parallelism} does not divide {undivided[0]}={sizes[undivided[0]]} of "
            f"{config_file}; give a number that does"
        )
    return 1 if undivided else parallelism or 2
