"""Resolve and read the files given by the flags of `run_ner.py`."""

import os
import re
from collections.abc import Collection

from absl import logging

from official_bert.metrics.tagging import has_entities
from official_bert.support import files
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.tagging.examples import TaggedFile, read_tagged_file
from official_bert.tasks.tagging.options import TaggingConfig

_OUTSIDE = "O"
_OTHER_NOTATION = re.compile(r"(?i)^(?:[bimelsuw][^a-z0-9]+|o$)")

_NAMES = {
    "train_file": ("eng.train", "train.txt"),
    "eval_file": ("eng.testa", "dev.txt", "valid.txt"),
    "predict_file": ("eng.testb", "test.txt"),
}


def configured_file(config: TaggingConfig, name: str) -> str:
    """Return the file given by a flag or, without the flag, the one in the data folder.

    Args:
      config: the flags.
      name: "train_file", "eval_file" or "predict_file".

    Raises:
      UserError: the file does not exist.
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


def read_configured(config: TaggingConfig, name: str) -> TaggedFile:
    """Read the file given by a flag; only the prediction file may lack tags.

    Raises:
      UserError: the file is missing or invalid.
    """
    return read_tagged_file(
        configured_file(config, name),
        word_column=config.word_column,
        tag_column=config.tag_column,
        file_layout=config.file_layout,
        is_tagged=name != "predict_file",
    )


def tags_of(file: TaggedFile) -> list[str]:
    """Return the tags of a training file, `O` first.

    Raises:
      UserError: there is only one tag.
    """
    tags = {tag for sentence in file.sentences for tag in sentence.tags}
    if len(tags) == 1:
        raise UserError(
            f"{file.path}: all words have the tag {tags.pop()!r}, so there is nothing to learn; check tag_column"
        )
    return sorted(tags, key=lambda tag: (tag != _OUTSIDE, tag))


def warn_of_other_notation(tags: Collection[str]) -> None:
    """Warn if the tags would be entities, were they written as `B-PER` and `O`."""
    usual = {_OTHER_NOTATION.sub(lambda match: match[0][0].upper() + "-" * (len(match[0]) > 1), tag) for tag in tags}
    if has_entities(usual) and not has_entities(tags):
        logging.warning(
            "the tags %s look like IOB2 in another notation, so F1 of entities cannot be computed; "
            "write a capital prefix, a hyphen and the type, and O outside: %s",
            format_names(sorted(tags)),
            format_names(sorted(usual)),
        )


def primary_metric(tags: Collection[str]) -> str:
    """Return the name of the primary metric: F1 for entities, accuracy for other tags."""
    return "f1" if has_entities(tags) else "accuracy"
