"""Edits of a model's weights: averaging checkpoints, and changing layers, vocabulary or number of positions."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.config.bert_config import BertConfig
from official_bert.support.errors import UserError

_POSITIONS = "bert/embeddings/position_embeddings"
# Arrays with one row per token.
_BY_TOKEN = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")
_LAYER = re.compile(r"(.*/layer_)(\d+)(/.*)")


def read_model(reader: CheckpointReader) -> dict[str, np.ndarray]:
    """Read the arrays of a checkpoint, without those only needed to resume training or newly initialized."""
    return {name: reader.read(name) for name in _names(reader)}


def _names(reader: CheckpointReader) -> list[str]:
    names = sorted(reader.shapes.keys() - reader.weights.new)
    return [name for name in names if not is_training_state(name, reader.shapes)]


def averaged(readers: Sequence[CheckpointReader]) -> dict[str, np.ndarray]:
    """Average the arrays of several checkpoints of one architecture.

    Source: "Averaging Weights Leads to Wider Optima and Better Generalization"; "Attention Is All You Need", 6.1.
    """
    first = readers[0]
    sums = {name: array.astype(np.float64) for name, array in read_model(first).items()}
    shapes = {name: array.shape for name, array in sums.items()}
    for reader in readers[1:]:
        other = {name: reader.shapes[name] for name in _names(reader)}
        if other != shapes:
            name = min(name for name in other.keys() | shapes.keys() if other.get(name) != shapes.get(name))
            first_shape, second_shape = (str(list(of[name])) if name in of else "missing" for of in (shapes, other))
            raise UserError(
                f"{first.prefix} and {reader.prefix} are of different models: {name} is {first_shape} in the first and "
                f"{second_shape} in the second"
            )
        for name in sums:
            sums[name] += reader.read(name)
    return {name: (total / len(readers)).astype(np.float32) for name, total in sums.items()}


def num_layers(arrays: Iterable[str]) -> int:
    """Return the number of layers of the encoder whose arrays have these names."""
    return max((int(match[2]) + 1 for name in arrays if (match := _LAYER.fullmatch(name))), default=0)


def with_layers(arrays: Mapping[str, np.ndarray], layers: Sequence[int]) -> dict[str, np.ndarray]:
    """Build a model whose encoder has selected layers of another one, in any order, possibly repeated.

    `[0, 2, 4]` of six layers initializes a student (DistilBERT, section 3); `[0, 1, 0, 1]` of two layers initializes a
    deeper model, which learns faster than from random layers ("Efficient Training of BERT by Progressively Stacking").
    Everything else, such as embeddings and heads, is kept.
    """
    made = {name: array for name, array in arrays.items() if not _LAYER.fullmatch(name)}
    for name, array in arrays.items():
        if match := _LAYER.fullmatch(name):
            for place, chosen in enumerate(layers):
                if chosen == int(match[2]):
                    made[f"{match[1]}{place}{match[3]}"] = array
    return made


def with_vocabulary(arrays: Mapping[str, np.ndarray], sources: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Build a model for another vocabulary; each new row is the mean of the old rows `sources`."""
    made = dict(arrays)
    for name in _BY_TOKEN:
        if name in arrays:
            rows = [arrays[name][list(source)].mean(axis=0, dtype=np.float64) for source in sources]
            made[name] = np.stack(rows).astype(arrays[name].dtype)
    return made


def with_positions(arrays: Mapping[str, np.ndarray], old: BertConfig, num_positions: int) -> dict[str, np.ndarray]:
    """Build a model for longer sequences by repeating the position embeddings.

    Position 512 of a model of 512 is initialized as position 0, position 513 as position 1. Attention between
    neighbours then works from the start, except at the seams ("Longformer: The Long-Document Transformer", section 5).
    """
    table, first = arrays[_POSITIONS], old.first_position
    if len(table) != old.max_position_embeddings:
        raise UserError(
            f"{_POSITIONS} has {len(table)} rows, but the model config has "
            f"{old.max_position_embeddings} positions; use matching files"
        )
    repeated = np.arange(num_positions - first) % (len(table) - first) + first
    return {**arrays, _POSITIONS: table[[*range(first), *repeated]]}
