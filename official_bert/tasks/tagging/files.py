"""Which files the flags of `run_ner.py` mean."""

import os

from official_bert.config.run_configs.tagging import TaggingConfig
from official_bert.support import files
from official_bert.support.errors import UserError

_NAMES = {
    "train_file": ("eng.train", "train.txt"),
    "eval_file": ("eng.testa", "dev.txt", "valid.txt"),
    "predict_file": ("eng.testb", "test.txt"),
}


def configured_file(config: TaggingConfig, name: str) -> str:
    """The file that a flag names or, without it, that of the data set's folder.

    Args:
      config: the flags.
      name: "train_file", "eval_file" or "predict_file".

    Raises:
      UserError: there is no such file.
    """
    given = getattr(config, name)
    if given is not None:
        if not files.exists(given):
            raise UserError(f"{name}: there is no file {given}; check the path")
        return given
    for candidate in _NAMES[name]:
        path = os.path.join(config.data_dir, candidate)
        if files.exists(path):
            return path
    raise UserError(
        f"data_dir={config.data_dir} contains neither {' nor '.join(_NAMES[name])}; check the folder, or give {name}"
    )
