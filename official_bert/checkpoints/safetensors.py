"""Hugging Face weights: reads and writes the files, and converts names and layout by the family's rules.

Import: `read_folder` -> `from_hf` -> `bundle.write_checkpoint`. Export: `bundle.CheckpointReader` -> `to_hf` ->
`write_file`.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import pytorch_pickle
from official_bert.checkpoints.bundle import is_training_state
from official_bert.checkpoints.kinds import check_kind
from official_bert.config.bert_config import BertConfig
from official_bert.config.model_formats import HF_WEIGHTS
from official_bert.families.hugging_face import HuggingFace, Rule
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names

WEIGHTS_FILE, _INDEX_FILE, _PICKLE_FILE, _PICKLE_INDEX_FILE = HF_WEIGHTS
_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": tf.bfloat16.as_numpy_dtype}
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")  # constants, not trained
_LFS_POINTER = b"version https://git-lfs"  # start of the placeholder of a file that was not downloaded
_POOLER_SEED = 0
NEED_POOLER = frozenset({"classifier", "multiple-choice head", "next-sentence head"})


class Weights(NamedTuple):
    """The arrays of a model.

    Attributes:
      arrays: name to float32 array.
      parts: parts of the model, for the log: encoder, pooler, heads.
      new: names of arrays that the model lacks; they are newly initialized.
      idle: those of `new` that the model's own heads do not use.
      lacking: what the class in `config.json` has and the weights lack, for messages; usually empty.
    """

    arrays: dict[str, np.ndarray]
    parts: list[str]
    new: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    lacking: str = ""


class HfWeights(NamedTuple):
    """The arrays of a model under Hugging Face's names.

    Attributes:
      arrays: name to float32 array.
      architecture: their model class in `transformers`.
      num_classes: number of classes of the classifier; None without a classifier.
    """

    arrays: dict[str, np.ndarray]
    architecture: str
    num_classes: int | None


def read_model(folder: str, config: BertConfig) -> Weights:
    """Read the weights of a Hugging Face folder under our names.

    Args:
      folder: the folder.
      config: the architecture.

    Raises:
      UserError: see `read_folder` and `from_hf`.
    """
    return from_hf(read_folder(folder, config), config, folder, architecture_of(folder))


def from_hf(
    arrays: Mapping[str, np.ndarray], config: BertConfig, source: str, architecture: str | None = None
) -> Weights:
    """Convert Hugging Face's arrays to our names and layout.

    A missing pooler, which `transformers` drops from models that do not use it, is newly initialized.

    Args:
      arrays: the result of `read_folder`.
      config: the architecture.
      source: the folder, for messages.
      architecture: their model class in `transformers`, if known.

    Returns:
      Arrays for `write_checkpoint`.

    Raises:
      UserError: an array is unknown, missing or has another shape; the message names it.
    """
    theirs = config.family.hugging_face
    parts, constants = theirs.parts_with(theirs.heads_of(arrays, architecture)), theirs.constants(config)
    weights = _renamed(
        arrays, {part: [rule.mirrored() for rule in rules] for part, rules in parts.items()}, config, source
    )
    for name, array in constants.arrays.items():
        if not np.array_equal(weights.arrays.pop(name), array):
            raise UserError(f"{source}: {constants.otherwise}")
    lacking = [head for head in theirs.heads_of_class(architecture) if head not in weights.parts]
    if lacking:
        file = os.path.join(source, "config.json")
        weights = weights._replace(lacking=f"{file} says {architecture}, but the weights lack its {lacking[0]}")
    if "pooler" not in weights.parts:
        pooler = _new_pooler(config)
        weights.arrays.update(pooler)
        is_needed = len(weights.parts) == 1 or not NEED_POOLER.isdisjoint(weights.parts)
        weights = weights._replace(new=frozenset(pooler), idle=frozenset(() if is_needed else pooler))
    return weights


def _new_pooler(config: BertConfig) -> dict[str, np.ndarray]:
    initializer = keras.initializers.TruncatedNormal(stddev=config.initializer_range, seed=_POOLER_SEED)
    width = config.hidden_size
    return {
        "bert/pooler/dense/kernel": np.array(initializer([width, width])),
        "bert/pooler/dense/bias": np.zeros([width], np.float32),
    }


def to_hf(arrays: Mapping[str, np.ndarray], config: BertConfig, source: str) -> HfWeights:
    """Convert our arrays to Hugging Face's names and layout.

    Optimizer state, arrays that the class lacks, and a pooler that was never trained are dropped.

    Args:
      arrays: arrays of a checkpoint.
      config: the architecture.
      source: the checkpoint, for messages.

    Returns:
      Arrays for `write_file`, and their description for `config.json`.

    Raises:
      UserError: an array is unknown, missing, not finite or of another shape, or no class has this combination of
        heads.
    """
    arrays = {name: array for name, array in arrays.items() if not is_training_state(name, arrays)}
    for name, array in arrays.items():
        _check_finite(array, name, source)
    theirs = config.family.hugging_face
    check_kind(source, [rule.source for rule in _rules_of_layers(theirs.parts["encoder"], config)], arrays)
    heads = tuple(head for head in theirs.heads if any(rule.source in arrays for rule in theirs.parts[head]))
    parts = theirs.parts_with(heads)
    arrays = _without_homeless(arrays, heads, config, source) | theirs.constants(config).arrays
    renamed = _renamed(arrays, parts, config, source).arrays
    if heads not in theirs.architectures:
        raise UserError(
            f"{source} has a {' and a '.join(heads)}; no class of transformers has this combination of heads"
        )
    architecture = theirs.architectures[heads]
    if not heads:
        renamed = {name.removeprefix(theirs.prefix): array for name, array in renamed.items()}
    biases = (rule.source for head in heads for rule in parts[head] if rule.shape == "C")
    num_classes = next((len(arrays[name]) for name in biases), None)
    return HfWeights(renamed, architecture, num_classes)


def _without_homeless(
    arrays: Mapping[str, np.ndarray], heads: Collection[str], config: BertConfig, source: str
) -> dict[str, np.ndarray]:
    """Drop arrays that the class with these heads lacks, and a pooler that is as initialized by `from_hf`."""
    theirs = config.family.hugging_face
    named = {rule.source for rules in theirs.parts_with(heads).values() for rule in _rules_of_layers(rules, config)}
    homeless = [name for name in arrays if name.startswith(theirs.left_out) and name not in named]
    if homeless:
        logging.info("%s: dropped %s, which transformers has no place for", source, format_names(sorted(homeless)))
    pooler = _new_pooler(config)
    if not NEED_POOLER.intersection(heads) and all(np.array_equal(arrays.get(name), pooler[name]) for name in pooler):
        homeless += pooler
    return {name: array for name, array in arrays.items() if name not in homeless}


def _renamed(
    arrays: Mapping[str, np.ndarray], rules: Mapping[str, Sequence[Rule]], config: BertConfig, source: str
) -> Weights:
    rules_of_parts = {part: _rules_of_layers(patterns, config) for part, patterns in rules.items()}
    unknown = sorted(set(arrays) - {rule.source for part in rules_of_parts.values() for rule in part})
    if unknown:
        raise UserError(
            f"{source} contains {unknown[0]} ({len(unknown)} unknown arrays), which {_described(config)} does not "
            "have; is it the right model config?"
        )
    known_sizes = sizes_of(config)
    weights = Weights({}, [])
    for part, part_rules in rules_of_parts.items():
        missing = [rule.source for rule in part_rules if rule.source not in arrays]
        if len(missing) == len(part_rules) and part != "encoder":
            continue
        if missing:
            raise UserError(
                f"{source} lacks {missing[0]} of the {part} ({len(missing)} missing in all); is it complete, and is "
                "it the right model config?"
            )
        weights.parts.append(part)
        for rule in part_rules:
            array = arrays[rule.source]
            if not fits(array.shape, rule.shape, known_sizes):
                required = ", ".join(str(known_sizes.get(letter, letter)) for letter in rule.shape)
                raise UserError(
                    f"{source}: {rule.source} has the shape {list(array.shape)}, but the model config requires "
                    f"[{required}]; is it the right model config?"
                )
            weights.arrays[rule.target] = array.T if rule.is_transposed else array
    return weights


def _rules_of_layers(patterns: Sequence[Rule], config: BertConfig) -> list[Rule]:
    projects = config.embedding_width != config.hidden_size
    needed = [pattern for pattern in patterns if projects or not pattern.is_projection]
    return [rule for pattern in needed for rule in pattern.expand_layers(config.layer_numbers)]


def sizes_of(config: BertConfig) -> dict[str, int]:
    """Return the sizes of the dimension letters; C, the number of classes, comes from the first array that has it."""
    return {
        "V": config.vocab_size,
        "T": config.type_vocab_size,
        "S": config.max_position_embeddings,
        "E": config.embedding_width,
        "D": config.hidden_size,
        "I": config.intermediate_size,
        "1": 1,
        "2": 2,
    }


def _described(config: BertConfig) -> str:
    keys = " and ".join(f"{key}={getattr(config, key)}" for key in config.family.layer_keys)
    return f"{config.family.title} with {keys}"


def fits(shape: tuple[int, ...], letters: str, known_sizes: dict[str, int]) -> bool:
    """Return True if a shape is that of a `Rule`; sizes that are not known yet are added to `known_sizes`."""
    return len(shape) == len(letters) and all(
        known_sizes.setdefault(letter, size) == size for letter, size in zip(letters, shape, strict=True)
    )


def read_folder(folder: str, config: BertConfig) -> dict[str, np.ndarray]:
    """Read the weights of a Hugging Face folder: one or several safetensors or PyTorch files.

    Args:
      folder: the folder.
      config: the architecture, whose family defines the tensors' names.

    Returns:
      Name to float32 array, under the names of current models with heads: with `bert.` or the like, LayerNorm's `gamma`
        and `beta` as `weight` and `bias`, each tied variable once, no buffers.

    Raises:
      UserError: there are no such files, one is damaged or has non-finite numbers, or two tensors that must be equal
        differ.
    """
    theirs = config.family.hugging_face
    arrays: dict[str, np.ndarray] = {}
    for stored_name, array in read_tensors(folder):
        name = _todays_name(stored_name, theirs)
        if name in arrays:
            raise UserError(f"{folder}: {stored_name} occurs twice, also in another file or under another name")
        arrays[name] = array
    for copy, original in theirs.tied.items():
        if copy in arrays:
            array = arrays.pop(copy)
            if not np.array_equal(arrays.setdefault(original, array), array):
                raise UserError(f"{folder}: {copy} differs from {original}, but they are one variable here")
    return arrays


def read_tensors(folder: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the unconverted weights of a folder, name and float32 array; see `read_folder` for files and errors."""
    for path in _weight_files(folder):
        yield from read_file(path)


def architecture_of(folder: str) -> str | None:
    """Return the first `transformers` class in the `config.json` of a folder; None if there is none."""
    path = os.path.join(folder, "config.json")
    named = text_files.read_json(path, "model config").get("architectures") if files.exists(path) else None
    return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None


def _weight_files(folder: str) -> list[str]:
    for whole, index in ((WEIGHTS_FILE, _INDEX_FILE), (_PICKLE_FILE, _PICKLE_INDEX_FILE)):
        if files.exists(path := os.path.join(folder, whole)):
            return [path]
        if files.exists(path := os.path.join(folder, index)):
            shards = [os.path.join(folder, name) for name in _shard_names(path)]
            missing = [shard for shard in shards if not files.exists(shard)]
            if missing:
                raise UserError(
                    f"{missing[0]} is missing ({len(missing)} of {len(shards)} files listed in {path}); download the "
                    "folder again"
                )
            return shards
    raise UserError(f"{folder} has no {WEIGHTS_FILE}, nor a {_PICKLE_FILE}")


def _shard_names(index: str) -> list[str]:
    """Return the files listed in an index of shards, all in its folder."""
    names = text_files.read_json(index, "index of weights").get("weight_map")
    if not isinstance(names, dict) or not names:
        raise UserError(f"{index} has no weight_map, from name to file")
    for tensor, name in names.items():
        if not isinstance(name, str):
            raise UserError(f"{index}: weight_map has {name!r:.80} for {tensor}, which is not a file name")
        if name in ("", ".", "..") or not name.isprintable() or os.path.basename(name) != name:
            raise UserError(
                f"{index}: weight_map has {name!r:.80} for {tensor}; only files in the same folder are allowed"
            )
    return sorted(set(names.values()))


def read_file(path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the weights of a file, name and float32 array; see `read_folder` for errors."""
    try:
        with files.open_file(path, "rb") as source:
            data = source.read()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    for name, dtype, array in (_of_pickle if path.endswith(".bin") else _of_safetensors)(data, path):
        if name.endswith(_BUFFERS):
            continue
        if array is None:
            raise UserError(f"{path}: {name} contains {dtype}, not floating-point numbers; is it quantized?")
        with np.errstate(over="ignore"):  # float64 values that become infinite are refused later
            array = array.astype(np.float32, order="C", copy=False)
        _check_finite(array, name, path)
        yield name, array


def _of_safetensors(data: bytes, path: str) -> Iterator[tuple[str, str, np.ndarray | None]]:
    """Yield the name, dtype and values of each tensor; values are None if not floating-point."""
    try:
        tensors = safetensors.deserialize(data)
    except safetensors.SafetensorError as error:
        if data.startswith(_LFS_POINTER):
            raise UserError(f"{path} is only a Git LFS pointer; run git lfs pull in its folder") from error
        raise UserError(f"{path} is damaged, truncated or not a safetensors file: {error}; get it again") from error
    for name, tensor in tensors:
        dtype = _DTYPES.get(tensor["dtype"])
        array = dtype and np.frombuffer(tensor["data"], dtype).reshape(tensor["shape"])
        yield name, tensor["dtype"], array


def _of_pickle(data: bytes, path: str) -> Iterator[tuple[str, str, np.ndarray | None]]:
    """Do the same as `_of_safetensors` for a pickle."""
    try:
        tensors = pytorch_pickle.read_tensors(data)
    except pytorch_pickle.PickleError as error:
        raise UserError(f"{path} {error}") from error
    for name, array in tensors.items():
        yield name, str(array.dtype), array if array.dtype in _DTYPES.values() else None


def _check_finite(array: np.ndarray, name: str, source: str) -> None:
    if not np.isfinite(array).all():
        raise UserError(f"{source}: {name} contains NaN or infinity; did the training diverge, or is the file damaged?")


def _todays_name(name: str, theirs: HuggingFace) -> str:
    for old, new in ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias")):
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return theirs.with_prefix(name)


def write_file(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a safetensors file atomically.

    Args:
      path: the file.
      arrays: name to array.
    """
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}  # the writer ignores strides
    data = safetensors.numpy.save(contiguous, metadata={"format": "pt"})  # transformers refuses files without it
    with writing.atomic_write(path, "wb") as sink:
        sink.write(data)
