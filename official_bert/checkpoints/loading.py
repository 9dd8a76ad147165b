"""Loads the arrays of a checkpoint into variables, and reports what was loaded."""

import dataclasses
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

import keras
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.config.bert_config import LORA
from official_bert.families.family import Family, all_families
from official_bert.support.errors import UserError

_NAMES_SHOWN = 5

# A model's variables, whose paths are their names in a checkpoint, or variables by name, such as the optimizer's.
Variables = Iterable[keras.Variable] | Mapping[str, keras.Variable | tf.Variable]


def check_kind(source: str, missing: Collection[str], there: Collection[str]) -> None:
    """Raise if a checkpoint belongs to a different encoder family than the model."""
    given, wanted = _family_of_names(there), _family_of_names(missing)
    if given and wanted and given != wanted:
        key = f" ({wanted.own_key})" if wanted.own_key else ""
        raise UserError(
            f"{source} has {given.layers}, but the config is {wanted.title}'s{key}; give the {given.config_file} that "
            "belongs to the checkpoint"
        )


def _family_of_names(names: Collection[str]) -> Family | None:
    """Return the first family with matching layer names; None if there is none."""
    return next((family for family in all_families() if any(f"/{family.layer_scope}" in name for name in names)), None)


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """Result of loading a checkpoint."""

    source: str  # the checkpoint
    matched: list[str]  # names of the variables that the checkpoint has
    missing: list[str]  # names of newly initialized variables, which the checkpoint lacks or has in another size
    unused: list[str]  # names in the checkpoint that the model lacks, except optimizer state
    # those of `missing` that matter only beside other missing ones, such as a pooler beside a new classifier
    idle: frozenset[str] = frozenset()

    def log(self, *, is_trained_next: bool = True) -> None:
        """Log the counts and the names to check; with `--verbosity=1` also each variable that was set."""
        logging.info(
            "%s: %d variables loaded, %d newly initialized, %d unused",
            self.source,
            len(self.matched),
            len(self.missing),
            len(self.unused),
        )
        for name in self.matched:
            logging.debug("loaded: %s", name)
        for status, names in (("newly initialized", self.missing), ("unused", self.unused)):
            if names:
                # Updates (LoRA) are the same in every layer.
                shown = [re.sub(r"layer_\d+", "layer_*", name) if LORA in name else name for name in names]
                logging.info("%s: %s", status, ", ".join(dict.fromkeys(shown)))
        if not self.idle.issuperset(self.missing) and not is_trained_next:
            logging.warning(
                "%s lacks %s: newly initialized, to be trained before use", self.source, ", ".join(self.missing)
            )


# Parts of the names of variables that only one kind of head has.
_PARTS_OF_HEADS = {"/lstm_": ("a bidirectional LSTM", "bilstm"), "_transitions": ("the transitions of a CRF", "crf")}


def load(
    reader: CheckpointReader,
    *groups: Variables,
    required: Callable[[str], bool] | None = None,
    makes_new_head: bool = False,
) -> LoadReport:
    """Set variables to the arrays of the same name; see `check_fits` for arguments and errors."""
    named = _by_name(groups)
    report = check_fits(reader, named, required=required, makes_new_head=makes_new_head)
    for name in (*report.matched, *reader.new_names.intersection(named)):
        named[name].assign(reader.read(name))
    return report


def check_fits(
    reader: CheckpointReader,
    *groups: Variables,
    required: Callable[[str], bool] | None = None,
    makes_new_head: bool = False,
) -> LoadReport:
    """Raise unless a checkpoint fits variables; does not set them."""
    named, shapes = _by_name(groups), reader.shapes
    missing = [name for name in named if name not in shapes]
    required_missing = [name for name in missing if required is None or required(name)]
    if required_missing:
        check_kind(reader.name, required_missing, shapes)
        advice = _advice(required_missing, named, shapes)
        raise UserError(f"{reader.name} lacks {_some(required_missing)}: {reader.lacking or advice}")
    for part, (what, head) in _PARTS_OF_HEADS.items():
        if required is None and any(part in name for name in shapes) and not any(part in name for name in named):
            raise UserError(f"{reader.name} has {what}; give head={head}, as in training")
    matched = [name for name in named if name in shapes]
    wrong = [name for name in matched if shapes[name] != tuple(named[name].shape)]
    if wrong:
        sizes = _some([f"{name} is {list(shapes[name])} there and {list(named[name].shape)} here" for name in wrong])
        is_head = not any(name.startswith("bert/") or is_training_state(name, named) for name in wrong)
        if not (is_head and makes_new_head):
            advice = "use the bert_config.json that belongs to it, or another output_dir"
            if is_head:
                advice = "its head has another number of classes; give a matching model, or train a new head"
            raise UserError(f"{reader.name} does not fit the model: {sizes}; {advice}")
        logging.warning("%s: its head has another size, so a new one is initialized: %s", reader.name, sizes)
        missing = [name for name in named if name in missing or name in wrong]
        matched = [name for name in matched if name not in wrong]
    missing += [name for name in matched if name in reader.new_names]
    matched = [name for name in matched if name not in reader.new_names]
    unused = sorted(name for name in set(shapes) - set(named) if not is_training_state(name, shapes))
    return LoadReport(reader.prefix, matched, missing, unused, reader.idle_names)


def _by_name(groups: Iterable[Variables]) -> dict[str, keras.Variable | tf.Variable]:
    named = {}
    for group in groups:
        named.update(group if isinstance(group, Mapping) else {variable.path: variable for variable in group})
    return named


def _advice(missing: Sequence[str], names: Container[str], there: Collection[str]) -> str:
    """Return advice about a checkpoint that has the names `there`, but lacks some of the required ones."""
    if not all(is_training_state(name, names) for name in missing):
        if any(name.startswith("bert/") for name in missing):
            return "it belongs to another model; use the bert_config.json that belongs to it, or another output_dir"
        if any(name.startswith(("cls/predictions/", "cls/seq_relationship/")) for name in missing):
            return "it belongs to another model, or was saved without this head; give a pretrained checkpoint"
        return "it belongs to another model, or was not fine-tuned"
    lacked, other = (
        any(name.rpartition("/")[0] in names for name in group)  # slots
        for group in (missing, [name for name in there if name not in names])
    )
    if lacked and other:
        return (
            "it was trained with another optimizer; use that optimizer, or give it as init_checkpoint of a "
            "new output_dir"
        )
    return "its training state was stripped; give it as init_checkpoint of a new output_dir"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
