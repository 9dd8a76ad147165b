"""Resolves the path of a pretrained model to its weights and architecture.

Used by `BertEncoder.from_checkpoint` and `save_checkpoint`; on the command line each file has its own flag.
"""

import os
from collections.abc import Mapping

import keras
import numpy as np

from official_bert.checkpoints.bundle import CheckpointReader, write_checkpoint
from official_bert.checkpoints.opening import open_checkpoint
from official_bert.checkpoints.state_file import find_config
from official_bert.config.bert_config import BertConfig
from official_bert.config.machine import check_memory
from official_bert.support import files, hub, writing
from official_bert.support.errors import UserError

_CONFIG_FILE = "bert_config.json"
_CHECKPOINT = "bert_model.ckpt"  # file name in the released archives


def open_pretrained(
    path: str | os.PathLike[str],
    bert_config: BertConfig | str | os.PathLike[str] | None = None,
    *,
    parameter: str = "path",
) -> tuple[CheckpointReader, BertConfig]:
    """Find the weights and the architecture of a model, without reading the weights.

    Args:
      path: see `BertEncoder.from_checkpoint`.
      bert_config: the architecture, or its file, if it is not the `bert_config.json` beside the checkpoint.
      parameter: the caller's name for `path`, for messages.

    Returns:
      A reader of the arrays under this package's variable names, and the architecture.

    Raises:
      UserError: either is missing or damaged, or the model is too large for this machine.
    """
    path = hub.local_folder(os.fspath(path))
    if path.endswith((".keras", ".h5")):
        raise UserError(f"{path} is not a checkpoint; load it with keras.models.load_model, or with load_weights")
    prefix = open_checkpoint(path, parameter).prefix
    if isinstance(bert_config, BertConfig):
        config, config_file = bert_config, "bert_config"
    else:
        advice = f"give its path: bert_config='{_CONFIG_FILE}'" if parameter == "path" else "copy it there"
        config_file = _config_file(prefix, advice) if bert_config is None else os.fspath(bert_config)
        config = BertConfig.from_json_file(config_file)
    check_memory(config, config_file, for_training=False)
    return open_checkpoint(path, parameter, config), config


def _config_file(prefix: str, advice: str) -> str:
    """Return the `bert_config.json` beside a checkpoint, or beside the folder `best` that contains it."""
    path = find_config(prefix)
    if path is not None:
        return path
    raise UserError(f"there is no {_CONFIG_FILE} beside {prefix}; {advice}")


def save_pretrained(path: str | os.PathLike[str], variables: Mapping[str, keras.Variable], config: BertConfig) -> str:
    """Write a checkpoint and `bert_config.json` beside it, readable by `open_pretrained`.

    Args:
      path: a folder, for a checkpoint named `bert_model.ckpt`, or a prefix whose last part contains `.ckpt`.
        Missing folders are created.
      variables: name to variable.
      config: the architecture.

    Returns:
      The checkpoint's prefix.

    Raises:
      UserError: the `bert_config.json` of another model is in the same folder, or the files cannot be written.
    """
    path = os.fspath(path)
    prefix = path if ".ckpt" in os.path.basename(path) else os.path.join(path, _CHECKPOINT)
    folder = os.path.dirname(prefix)
    config_file = os.path.join(folder, _CONFIG_FILE)
    has_config = files.exists(config_file)
    if has_config and BertConfig.from_json_file(config_file) != config:
        raise UserError(f"{config_file} describes a different model; save this one in another folder")
    writing.make_folders(folder or ".")
    write_checkpoint(
        prefix, {name: np.asarray(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}
    )
    if not has_config:
        with writing.atomic_write(config_file) as sink:
            sink.write(config.to_json_string())
    return prefix
