"""Reads and writes a checkpoint: a file of arrays by name, in the reference's format (TensorFlow's V2 bundle).

All weights, of every format, pass here. A reader lists what its file declares: `check_declared` compares it with the
file's size, and a `StoredArray` accepts only floating-point numbers. Then names and shapes are compared with the model.
Only after that, and only for the arrays that the model needs, is data read, cast to float32 and required to be finite.

A checkpoint is identified by its prefix: `out/model.ckpt-1000` consists of `out/model.ckpt-1000.index` and
`out/model.ckpt-1000.data-00000-of-00001`.
"""

import dataclasses
import functools
import itertools
import math
import os
import re
import zipfile
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from official_bert.checkpoints.locate import DATA_SUFFIX, STATE_FILE, Source, check_path, locate, step_of
from official_bert.checkpoints.tensor_bundle import TensorBundle
from official_bert.config.bert_config import BertConfig
from official_bert.families.family import canonical_name, stored_names
from official_bert.support import files, writing
from official_bert.support.errors import UserError, import_tensorflow, plain_message
from official_bert.support.files import fault_point

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
GLOBAL_STEP = "global_step"
LOSS_SCALE = "loss_scale/"  # prefix of the names of the loss-scaling state in float16
UNLOGGED_STEPS = "unlogged_steps/"  # prefix of the names of scalars of the steps since the last log line
TRAIN_SECONDS = "train_seconds"  # in checkpoints of earlier versions
NUM_EXAMPLES = "num_examples"  # examples used so far; only in checkpoints of runs with variable batch sizes
_SLOTS = ("/adam_m", "/adam_v", "/lamb_m", "/lamb_v")
_RESUMED = "checkpoint"  # name in messages for a run's own checkpoint

MAX_DECLARED_BYTES = 2 << 20  # of all names and shapes together; 50 KiB are usual
MAX_ARRAYS = 1 << 14
_MAX_NAME, _MAX_RANK, _MAX_SIZE = 1000, 8, 1 << 31
_STORED_TWICE = 2  # variables that are one, such as word embeddings and output weights, may share their bytes
# In the order of every family's table, each with its two variables.
_PARTS = ("query", "key", "value", "attention_output", "attention_norm", "intermediate", "output", "output_norm")


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """An array in a file: float32 when NumPy reads it, from any floating-point type; `read` returns it as stored."""

    path: str
    name: str
    dtype: Any
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def __post_init__(self):
        if getattr(self.dtype, "kind", "") != "f" and self.dtype != ml_dtypes.bfloat16:
            raise UserError(
                f"{self.path}: {self.name} contains {self.dtype}, not floating-point numbers; is it quantized?"
            )

    @property
    def T(self) -> "StoredArray":  # noqa: N802 (as of NumPy's arrays)
        return self.changed(np.transpose)

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> "StoredArray":
        shape = change(np.broadcast_to(np.float32(0), self.shape)).shape
        return dataclasses.replace(self, shape=shape, read=lambda: change(self.read()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return as_float32(self.read(), self.name, self.path)


def as_float32(array: np.ndarray, name: str, path: str) -> np.ndarray:
    """Return an array as float32, in C order; raise UserError if a number is not finite then."""
    with np.errstate(over="ignore"):
        array = np.asarray(array).astype(np.float32, order="C", copy=False)
    if not np.isfinite(array).all():
        raise UserError(
            f"{path}: {name} contains NaN or infinity, or numbers beyond float32; did the training diverge, or is the "
            "file damaged?"
        )
    return array


def check_declared(path: str, arrays: Mapping[str, tuple[tuple[int, ...], int]], num_bytes: int) -> None:
    """Raise UserError if a file of `num_bytes` cannot hold the arrays that it declares: shape and bytes a number."""
    if len(arrays) > MAX_ARRAYS:
        raise UserError(f"{path} declares {len(arrays):,} arrays; the limit is {MAX_ARRAYS:,}: it contains no BERT")
    for name, (shape, _) in arrays.items():
        if len(name) > _MAX_NAME or len(shape) > _MAX_RANK or not all(0 <= size < _MAX_SIZE for size in shape):
            raise UserError(f"{path} declares {name!r:.80} of the shape {list(shape)!s:.80}, which no BERT has")
    declared = sum(math.prod(shape) * itemsize for shape, itemsize in arrays.values())
    if declared > _STORED_TWICE * num_bytes:
        raise UserError(
            f"{path} declares arrays of {declared:,} bytes, but has {num_bytes:,}; it is damaged or truncated; get "
            "it again"
        )


def check_stored(path: str, members: Iterable[zipfile.ZipInfo], num_bytes: int) -> None:
    """Raise UserError unless the members of a zip file are stored uncompressed, as in all files of weights, and fit it.

    Python decompresses a member beyond its declared size.
    """
    total = 0
    for member in members:
        total += member.file_size
        if member.compress_type != zipfile.ZIP_STORED or total > num_bytes:
            raise UserError(f"{path}: {member.filename:.80} is compressed or does not fit the file; save it again")


class LayerVariable(NamedTuple):
    """A variable of a layer: the layer's number (None if the name has none), its part, and 1 for a bias or beta."""

    number: int | None
    part: str
    index: int


def find_layer_variable(name: str, pattern: re.Pattern, parts: Mapping[str, str]) -> LayerVariable | None:
    """Return the variable of a layer that a name denotes; None for another name."""
    match = pattern.fullmatch(name)
    if match is None or match[2] not in parts:
        return None
    return LayerVariable(match[1] and int(match[1]), parts[match[2]], int(match[3] in ("1", "bias", "beta")))


def to_ours(variable: str | LayerVariable, array: StoredArray, config: BertConfig) -> tuple[str, StoredArray] | None:
    """Return a variable, with axes for the heads, under our name and in our layout; None without such a layer."""
    if isinstance(variable, str):
        return variable, array.T if variable.endswith("output_weights") else array
    number, part, index = variable
    names = [rule.source for rule in config.family.hugging_face.parts["encoder"] if "{}" in rule.source]
    layers = config.layer_numbers[number or 0 :]
    if not layers:
        return None
    shape = array.shape
    if part in ("query", "key", "value") and len(shape) > 1:
        array = array.changed(lambda numbers: numbers.reshape(*shape[:-2], shape[-2] * shape[-1]))
    elif part == "attention_output" and len(shape) == 3:
        array = array.changed(lambda numbers: numbers.reshape(shape[0] * shape[1], shape[2]))
    return dict(zip(itertools.product(_PARTS, (0, 1)), names, strict=True))[part, index].format(*layers[0]), array


class Weights(NamedTuple):
    arrays: dict[str, np.ndarray | StoredArray]  # name to float32 array, some of which are read from a file when needed
    parts: Sequence[str] = ()  # parts of the model, for the log: encoder, pooler, heads
    new: frozenset[str] = frozenset()  # names of arrays that the model lacks; they are newly initialized
    idle: frozenset[str] = frozenset()  # those of `new` that the model's own heads do not use
    lacking: str = ""  # what the class in `config.json` has and the weights lack, for messages; usually empty


class CheckpointReader:
    weights = Weights({})  # of a model in another format, with what it lacks

    def __init__(self, path: str | Source, what: str = _RESUMED, *, of_objects: bool = False):
        self.source = path if isinstance(path, Source) else locate(path, what)
        self.prefix = self.source.prefix  # the checkpoint's name
        self.name = f"{what} {self.prefix}"  # the prefix, preceded by the parameter that named it, for messages
        _check_files(self.prefix)
        try:
            self._bundle = TensorBundle(self.prefix)
            declared = {
                name: (entry.shape, 1 if entry.dtype == object else entry.dtype.itemsize)
                for name, entry in self._bundle.entries.items()
            }
            check_declared(self.prefix, declared, self._bundle.num_bytes)
        except (ValueError, OSError) as error:
            raise UserError(f"{self.name} cannot be read as a checkpoint: {_reason(error)}{self._way_out()}") from error
        shapes = {name: shape for name, (shape, _) in declared.items()}
        if not of_objects and OBJECT_GRAPH in shapes:
            raise UserError(
                f"{self.name} is an object checkpoint of TensorFlow 2, from which runs cannot resume; "
                "give it as init_checkpoint of a new output_dir"
            )
        self._stored_names = {canonical_name(name): name for name in shapes}
        for name in shapes:
            if self._stored_names[canonical_name(name)] != name:
                raise UserError(f"{self.name} has {canonical_name(name)} twice, also under another name")
        # variable name to shape, for every array
        self.shapes = {ours: shapes[stored] for ours, stored in self._stored_names.items()}

    @property
    def step(self) -> int:
        """Number of training steps; 0 if the step was stripped."""
        if GLOBAL_STEP not in self.shapes:
            return 0
        step = np.asarray(self.read(GLOBAL_STEP))
        if step.ndim or not np.can_cast(step.dtype, np.float64) or not np.isfinite(step):
            raise UserError(f"{self.name}: {GLOBAL_STEP} is {step.tolist()!r:.80}, not a number of steps")
        return int(step)

    def read(self, name: str) -> np.ndarray:
        """Read one array: weights as finite float32, and training state as stored."""
        if is_training_state(name, self.shapes):
            return self.read_stored(name)
        return np.asarray(self.stored_array(name))

    def stored_array(self, name: str) -> StoredArray:
        """Return an array of weights that is read when needed."""
        dtype = self._bundle.entries[self._stored_names.get(name, name)].dtype
        return StoredArray(self.prefix, name, dtype, self.shapes[name], functools.partial(self.read_stored, name))

    def read_stored(self, name: str) -> np.ndarray:
        """Read one array as it is stored, also one without weights."""
        try:
            return self._bundle.read(self._stored_names.get(name, name))
        except (ValueError, OSError) as error:
            raise UserError(f"{self.prefix}: {name} cannot be read: {_reason(error)}{self._way_out()}") from error

    def _way_out(self) -> str:
        """Return advice about earlier checkpoints, if this one is damaged."""
        folder, step = os.path.dirname(self.prefix), step_of(self.prefix)
        if step is None:
            return ""
        names = (entry.removesuffix(".index") for entry in files.list_folder(folder or ".") if entry.endswith(".index"))
        earlier = sorted(other for name in names if (other := step_of(name)) is not None and other < step)
        prefixes = (os.path.join(folder, f"model.ckpt-{other}") for other in reversed(earlier))
        whole = next(filter(is_whole, prefixes), None)
        if whole is None:
            return "; no earlier checkpoint in its folder is intact"
        return (
            f"; {whole}, the last one before it, is intact: give it, or to resume from it, replace the contents of "
            f'{os.path.join(folder, STATE_FILE)} with the line model_checkpoint_path: "{os.path.basename(whole)}"'
        )


def is_whole(prefix: str) -> bool:
    """Return True if the whole checkpoint can be read and matches its checksums."""
    try:
        _check_files(prefix)
        bundle = TensorBundle(prefix)
        for name in bundle.entries:
            bundle.read(name)
    except (ValueError, OSError):  # a UserError is a ValueError
        return False
    return True


def _reason(error: Exception) -> str:
    is_of_file = isinstance(error, OSError) and error.filename
    return f"{error.filename}: {error.strerror}" if is_of_file else str(error)


def _check_files(prefix: str) -> None:
    """Raise if a checkpoint cannot have this name, or one of its files is not a regular file."""
    check_path(prefix)
    for suffix in (".index", DATA_SUFFIX):
        files.check_name(prefix + suffix)
        files.check_regular(prefix + suffix)


def write_checkpoint(prefix: str, tensors: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically and durably: data first, index last, each by renaming."""
    tf = import_tensorflow(f"{prefix}, a checkpoint of TensorFlow,", ", or use model.safetensors")
    _check_files(prefix)
    num_bytes = sum(math.prod(tensor.shape) * tf.as_dtype(tensor.dtype).size for tensor in tensors.values())
    writing.check_disk_space(prefix, num_bytes, "checkpoint")
    partial = writing.partial_name(prefix)
    partials, paths = ([name + suffix for suffix in (DATA_SUFFIX, ".index")] for name in (partial, prefix))
    try:
        with tf.device("CPU"):
            tf.raw_ops.SaveV2(
                prefix=partial,
                tensor_names=stored_names(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=[tf.convert_to_tensor(tensor) for tensor in tensors.values()],
            )
        fault_point(f"verify {os.path.basename(prefix)}")
        if not is_whole(partial):  # faulty memory, or a file system that silently loses data
            raise UserError(
                f"the checkpoint {prefix} was damaged while it was written, as reading it back shows; the previous one "
                "is kept. Check memory and disk"
            )
        writing.publish(partials, paths)
    except tf.errors.OpError as error:
        writing.discard_beginning_with(partial)  # TensorFlow writes to further names first
        reason = plain_message(error).replace(partial, prefix)
        raise UserError(f"cannot write the checkpoint {prefix}: {reason}") from error
    finally:
        writing.discard(partials)  # already renamed if all went well


def is_training_state(name: str, names: Container[str]) -> bool:
    """Return True if an array is only needed to resume training: a slot, the step, a loss scale, unlogged steps."""
    variable, _, _ = name.rpartition("/")
    is_slot = variable in names or name.endswith(_SLOTS)  # these are recognized even without their variable
    is_count = name in (GLOBAL_STEP, NUM_EXAMPLES, TRAIN_SECONDS)
    return is_slot or is_count or name.startswith((UNLOGGED_STEPS, LOSS_SCALE))
