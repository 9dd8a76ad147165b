"""Hugging Face weights: reads and writes the files, and converts names and layout by the family's rules.

Import: `read_folder` -> `from_hf` -> `bundle.write_checkpoint`. Export: `bundle.CheckpointReader` -> `to_hf` ->
`write_file`.
"""

import functools
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, TypedDict

import keras
import ml_dtypes
import numpy as np
import safetensors.numpy
from absl import logging

from official_bert.checkpoints import hdf5, pytorch_pickle
from official_bert.checkpoints.bundle import MAX_DECLARED_BYTES, StoredArray, Weights, check_declared, is_training_state
from official_bert.config.bert_config import BertConfig
from official_bert.config.model_formats import HF_WEIGHTS
from official_bert.families.family import HuggingFace, Rule, check_kind, with_prefix
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_arrays, format_names
from official_bert.support.text_files import check_json

WEIGHTS_FILE = HF_WEIGHTS[0]
_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
# Constants, and in Keras a bias of ALBERT's masked-LM head, which uses predictions/decoder/bias.
_UNUSED = re.compile(r".*embeddings\.(position_ids|token_type_ids)|predictions/bias:0")
_READERS = {".bin": pytorch_pickle.list_tensors, ".h5": hdf5.list_tensors}  # others are safetensors
_LFS_POINTER = b"version https://git-lfs"  # start of the placeholder of a file that was not downloaded
_POOLER_SEED = 0
NEED_POOLER = frozenset({"classifier", "multiple-choice head", "next-sentence head"})


class HfWeights(NamedTuple):
    arrays: dict[str, np.ndarray]  # name to float32 array
    architecture: str  # their model class in `transformers`
    num_classes: int | None  # number of classes of the classifier; None without a classifier


def read_model(folder: str, config: BertConfig) -> Weights:
    """Read the weights of a Hugging Face folder under our names."""
    return from_hf(read_folder(folder, config), config, folder, architecture_of(folder))


def from_hf(
    arrays: Mapping[str, np.ndarray | StoredArray], config: BertConfig, source: str, architecture: str | None = None
) -> Weights:
    """Convert to our names and layout; a missing pooler, as `transformers` drops it, is newly initialized."""
    theirs = config.family.hugging_face
    parts = theirs.parts_with(theirs.heads_of(arrays, architecture))
    arrays = _split_parts(arrays, theirs.joined)
    used = {rule.target for rules in parts.values() for rule in rules}
    unused = {rule.target for rule in theirs.parts.get("pooler", ())} - used  # by a head with a pooler of its own
    weights = _renamed(
        {name: array for name, array in arrays.items() if name not in unused},
        {part: [rule.mirrored() for rule in rules] for part, rules in parts.items()},
        config,
        source,
    )
    lacking = [head for head in theirs.heads_of_class(architecture) if head not in weights.parts]
    if lacking:
        file = os.path.join(source, "config.json")
        weights = weights._replace(lacking=f"{file} says {architecture}, but the weights lack its {lacking[0]}")
    if "pooler" not in weights.parts:
        pooler = _new_pooler(config)
        weights.arrays.update(pooler)
        is_needed = len(weights.parts) == 1 or not NEED_POOLER.union(theirs.poolers).isdisjoint(weights.parts)
        weights = weights._replace(new=frozenset(pooler), idle=frozenset(() if is_needed else pooler))
    return weights


def _new_pooler(config: BertConfig) -> dict[str, np.ndarray]:
    theirs, sizes = config.family.hugging_face, sizes_of(config)
    initializers = {
        "kernel": keras.initializers.TruncatedNormal(stddev=config.initializer_range, seed=_POOLER_SEED),
        "bias": keras.initializers.Zeros(),
        "gamma": keras.initializers.Ones(),
    }
    rules = theirs.parts.get("pooler") or next(iter(theirs.poolers.values()))
    return {
        rule.source: np.array(initializers[rule.source.rpartition("/")[2]]([sizes[letter] for letter in rule.shape]))
        for rule in rules
    }


def _split_parts(arrays: Mapping[str, Any], joined: Mapping[str, int]) -> dict[str, Any]:
    """Split the tensors that hold several variables; see `HuggingFace.joined`."""
    found = {}
    for name, array in arrays.items():
        count = next((count for end, count in joined.items() if name.endswith(end)), 0)
        for part in range(count):

            def change(whole, part=part, count=count):
                return np.array_split(np.atleast_1d(whole), count)[part]

            found[f"{name}[{part}]"] = array.changed(change) if isinstance(array, StoredArray) else change(array)
        found |= {} if count else {name: array}
    return found


def join_parts(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Undo `_split_parts`, given the parts in order."""
    whole: dict[str, list[np.ndarray]] = {}
    for name, array in arrays.items():
        whole.setdefault(name.partition("[")[0], []).append(array)
    return {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in whole.items()}


def to_hf(arrays: Mapping[str, np.ndarray], config: BertConfig, source: str) -> HfWeights:
    """Convert to Hugging Face's names and layout, without optimizer state and what the class does not have."""
    arrays = {name: array for name, array in arrays.items() if not is_training_state(name, arrays)}
    theirs = config.family.hugging_face
    check_kind(source, [rule.source for rule in rules_of_layers(theirs.parts["encoder"], config)], arrays)
    heads = tuple(head for head in theirs.heads if any(rule.source in arrays for rule in theirs.parts[head]))
    parts = theirs.parts_with(heads)
    arrays = _without_homeless(arrays, heads, config, source)
    renamed = join_parts(_renamed(arrays, parts, config, source).arrays)
    if heads not in theirs.architectures:
        raise UserError(
            f"{source} has a {' and a '.join(heads)}; no class of transformers has this combination of heads"
        )
    architecture = theirs.architectures[heads]
    if not heads:
        renamed = {name.removeprefix(theirs.prefix): array for name, array in renamed.items()}
    biases = (rule.source for head in heads for rule in parts[head] if rule.shape == "C")
    num_classes = next((arrays[name].shape[0] for name in biases), None)
    return HfWeights(renamed, architecture, num_classes)


def _without_homeless(
    arrays: Mapping[str, np.ndarray], heads: Collection[str], config: BertConfig, source: str
) -> dict[str, np.ndarray]:
    """Drop arrays that the class with these heads lacks, and a pooler that is as initialized by `from_hf`."""
    theirs = config.family.hugging_face
    named = {rule.source for rules in theirs.parts_with(heads).values() for rule in rules_of_layers(rules, config)}
    homeless = [name for name in arrays if name.startswith(theirs.left_out) and name not in named]
    if homeless:
        logging.info("%s: dropped %s, which transformers has no place for", source, format_names(sorted(homeless)))
    pooler = _new_pooler(config)
    if not NEED_POOLER.intersection(heads) and all(np.array_equal(arrays.get(name), pooler[name]) for name in pooler):
        homeless += pooler
    return {name: array for name, array in arrays.items() if name not in homeless}


def _renamed(
    arrays: Mapping[str, np.ndarray | StoredArray], rules: Mapping[str, Sequence[Rule]], config: BertConfig, source: str
) -> Weights:
    rules_of_parts = {part: rules_of_layers(patterns, config) for part, patterns in rules.items()}
    known_sizes, weights = sizes_of(config), Weights({}, [])
    misfits: dict[str, list[str]] = {"missing": [], "unknown": [], "other shapes": []}
    misfits["unknown"] += sorted(set(arrays) - {rule.source for part in rules_of_parts.values() for rule in part})
    for part, part_rules in rules_of_parts.items():
        if part != "encoder" and not any(rule.source in arrays for rule in part_rules):
            continue
        weights.parts.append(part)
        for rule in part_rules:
            if (array := arrays.get(rule.source)) is None:
                misfits["missing"].append(rule.source)
            elif fits(array.shape, rule.shape, known_sizes):
                weights.arrays[rule.target] = array.T if rule.is_transposed else array
            else:
                required = ", ".join(str(known_sizes.get(letter, letter)) for letter in rule.shape)
                misfits["other shapes"].append(f"{rule.source} is {list(array.shape)} there and [{required}] here")
    check_misfits(misfits, config, source, "is it complete, and is it the right model config?")
    return weights


def rules_of_layers(patterns: Sequence[Rule], config: BertConfig) -> list[Rule]:
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
        "N": config.num_attention_heads,
        **config.own_sizes,
        "1": 1,
        "2": 2,
    }


def check_misfits(misfits: Mapping[str, Sequence[str]], config: BertConfig, source: str, advice: str) -> None:
    """Raise UserError that lists all arrays of a file, by kind, that do not fit the model."""
    if listed := "; ".join(f"{kind}: {format_arrays(names)}" for kind, names in misfits.items() if names):
        keys = " and ".join(f"{key}={getattr(config, key)}" for key in config.family.layer_keys)
        raise UserError(f"{source} does not fit {config.family.title} with {keys}: {listed}; {advice}")


def fits(shape: tuple[int, ...], letters: str, known_sizes: dict[str, int]) -> bool:
    """Return True if a shape is that of a `Rule`; sizes that are not known yet are added to `known_sizes`."""
    return len(shape) == len(letters) and all(
        known_sizes.setdefault(letter, size) == size for letter, size in zip(letters, shape, strict=True)
    )


def read_folder(folder: str, config: BertConfig) -> dict[str, StoredArray]:
    """List the weights of a folder under the names of current models with heads, each variable once."""
    theirs = config.family.hugging_face
    arrays: dict[str, StoredArray] = {}
    for stored_name, array in read_tensors(folder):
        name = _todays_name(stored_name, theirs)
        if name.startswith(theirs.ignored):
            continue
        if name in arrays:
            raise UserError(f"{folder}: {stored_name} occurs twice, also in another file or under another name")
        arrays[name] = array
    for copy, original in theirs.tied.items():
        if copy in arrays:
            array = arrays.pop(copy)
            kept = arrays.setdefault(original, array)
            if kept.shape != array.shape or not (kept is array or np.array_equal(np.asarray(kept), np.asarray(array))):
                raise UserError(f"{folder}: {copy} differs from {original}, but they are one variable here")
    return arrays


def read_tensors(folder: str) -> Iterator[tuple[str, StoredArray]]:
    """Yield the names and unconverted weights of a folder; see `read_folder` for files and errors."""
    for path in _weight_files(folder):
        yield from read_file(path)


def architecture_of(folder: str) -> str | None:
    """Return the first `transformers` class in the `config.json` of a folder; None if there is none."""
    path = os.path.join(folder, "config.json")
    named = text_files.read_json_as(path, "model config", _Config).get("architectures") if files.exists(path) else None
    return named[0] if named else None


class _Config(TypedDict, total=False):
    architectures: list[str] | None


class _Index(TypedDict):
    weight_map: dict[str, str]


def _weight_files(folder: str) -> list[str]:
    for whole, index in zip(HF_WEIGHTS[::2], HF_WEIGHTS[1::2], strict=True):
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
    raise UserError(f"{folder} has no {', nor a '.join(HF_WEIGHTS[::2])}")


def _shard_names(index: str) -> list[str]:
    """Return the files listed in an index of shards, all in its folder."""
    names = text_files.read_json_as(index, "index of weights", _Index)["weight_map"]
    if not names:
        raise UserError(f"{index} has no weight_map, from name to file")
    for tensor, name in names.items():
        if name in ("", ".", "..") or not name.isprintable() or os.path.basename(name) != name:
            raise UserError(
                f"{index}: weight_map has {name!r:.80} for {tensor}; only files in the same folder are allowed"
            )
    return sorted(set(names.values()))


def read_file(path: str) -> Iterator[tuple[str, StoredArray]]:
    """Yield the names and arrays of a file; their data is read when needed."""
    num_bytes = files.size(path) if files.exists(path) else 0
    with files.open_file(path, "rb") as source:
        if source.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise UserError(f"{path} is only a Git LFS pointer; run git lfs pull in its folder")
        source.seek(0)
        listed = _READERS.get(os.path.splitext(path)[1], _list_safetensors)(path, source, num_bytes)
    floats = [StoredArray(path, *tensor) for tensor in listed if not _UNUSED.fullmatch(tensor[0])]
    check_declared(path, {array.name: (array.shape, array.dtype.itemsize) for array in floats}, num_bytes)
    yield from map(hdf5.in_pytorch, floats)


class _Tensor(TypedDict):
    dtype: str
    shape: list[int]
    data_offsets: list[int]


def _list_safetensors(path: str, source: IO[bytes], num_bytes: int) -> list[tuple[Any, ...]]:
    """List the tensors of a safetensors file: name, dtype, shape, and a function that reads it."""
    length = int.from_bytes(source.read(8), "little")
    damaged = f"{path} is damaged, truncated or not a safetensors file; get it again"
    if length > min(num_bytes - 8, MAX_DECLARED_BYTES):
        raise UserError(f"{damaged}: its header has {length:,} bytes, the limit is {MAX_DECLARED_BYTES:,}")
    try:
        text = source.read(length).decode()
    except UnicodeDecodeError as error:
        raise UserError(damaged) from error
    header = text_files.parse_json(text, f"the header of {path}")
    check_json(header, dict[str, Any], f"the header of {path}")
    header.pop("__metadata__", None)
    check_json(header, dict[str, _Tensor], f"the header of {path}")
    position, listed = 8 + length, []
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, offsets = tensor["dtype"], tuple(tensor["shape"]), tensor["data_offsets"]
        start, position = position, 8 + length + max(offsets, default=0)
        kind = _DTYPES.get(dtype)
        is_whole = kind is None or position - start == math.prod(shape) * kind.itemsize
        if offsets != [start - 8 - length, position - 8 - length] or not is_whole:
            raise UserError(f"{damaged}: {name!r:.80} of {dtype:.20} and shape {shape!s:.80} is at {offsets!s:.80}")
        listed.append((name, kind or dtype, shape, functools.partial(_read_numbers, path, start, kind, shape)))
    if position != num_bytes:
        raise UserError(f"{damaged}: it has {num_bytes:,} bytes instead of {position:,}")
    return listed


def _read_numbers(path: str, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(files.read_part(path, start, math.prod(shape) * dtype.itemsize), dtype).reshape(shape)


def _todays_name(name: str, theirs: HuggingFace) -> str:
    for old, new in ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias")):
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return with_prefix(theirs.with_prefix(name), theirs.other_names)


def write_file(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}  # the writer ignores strides
    data = safetensors.numpy.save(contiguous, metadata={"format": "pt"})  # transformers refuses files without it
    writing.write_file(path, data)
