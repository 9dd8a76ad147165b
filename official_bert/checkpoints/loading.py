"""Opens weights in any format, converted while reading, loads them into variables, and reports what was loaded."""

import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from official_bert.checkpoints import safetensors
from official_bert.checkpoints.bundle import CheckpointReader, Weights, as_float32, is_training_state, write_checkpoint
from official_bert.checkpoints.locate import Source, locate
from official_bert.config import model_formats
from official_bert.config.bert_config import LORA, LORA_SCALE, BertConfig, check_memory
from official_bert.families.bert import GENERATOR, GENERATOR_HEAD, ElectraConfig
from official_bert.families.family import check_kind
from official_bert.support import files, writing
from official_bert.support.errors import UserError, format_arrays

_CONFIG_FILE = "bert_config.json"
_CHECKPOINT = "bert_model.ckpt"  # file name in the released archives
_FIRST_QUERY = "encoder/layer_0/attention/self/query/bias"

# A model's variables, whose paths are their names in a checkpoint, or variables by name, such as the optimizer's.
Variables = Iterable[keras.Variable] | Mapping[str, Any]


def merged(reader: CheckpointReader) -> CheckpointReader:
    """Return a reader of the same model with the updates added to the kernels; the reader itself if it has none."""
    return _MergingReader(reader) if LORA_SCALE in reader.shapes else reader


class _MergingReader(CheckpointReader):
    """The arrays of a checkpoint, with its updates added to its kernels."""

    def __init__(self, reader: CheckpointReader):
        self.source, self.prefix, self.name, self._reader = reader.source, reader.prefix, reader.name, reader
        self.shapes = {name: shape for name, shape in reader.shapes.items() if LORA not in name and name != LORA_SCALE}

    def read(self, name: str) -> np.ndarray:
        """Return one array, float32 [in, out] for a kernel."""
        array, layer = self._reader.read(name), name.removesuffix("/kernel")
        first, second = (f"{layer}{LORA}{factor}" for factor in "ab")
        if name == layer or first not in self._reader.shapes:
            return array
        scale = self._reader.read(LORA_SCALE)
        with np.errstate(over="ignore", invalid="ignore"):
            array = array + scale * (self._reader.read(first) @ self._reader.read(second))
        return as_float32(array, name, self.prefix)


def generator_of(reader: CheckpointReader, config: BertConfig) -> tuple[CheckpointReader, BertConfig]:
    """Return ELECTRA's generator as a masked-LM model; the arguments themselves if the checkpoint has none."""
    width = reader.shapes.get(f"{GENERATOR}{_FIRST_QUERY}")
    if width is None or not isinstance(config, ElectraConfig):
        return reader, config
    return _GeneratorReader(reader), config.generator(width[0] / config.hidden_size)


class _GeneratorReader(CheckpointReader):
    """The arrays of an ELECTRA's generator under the names of a model of its own."""

    def __init__(self, reader: CheckpointReader):
        self.source, self.prefix, self.name, self._reader = reader.source, reader.prefix, reader.name, reader
        scopes = {"bert/embeddings/": "bert/embeddings/", GENERATOR: "bert/", GENERATOR_HEAD: "cls/predictions/"}
        self._names = {
            ours + name.removeprefix(scope): name
            for name in reader.shapes
            for scope, ours in scopes.items()
            if name.startswith(scope)
        }
        self.shapes = {ours: reader.shapes[name] for ours, name in self._names.items()}
        self.weights = Weights({}, idle=frozenset(f"bert/pooler/dense/{name}" for name in ("kernel", "bias")))

    def read(self, name: str) -> np.ndarray:
        return self._reader.read(self._names[name])


def open_checkpoint(path: str | Source, what: str, bert_config: BertConfig | None = None) -> CheckpointReader:
    """Open initial weights, found already or at a path; a model in another format is not read until needed."""
    source = path if isinstance(path, Source) else locate(path, what)
    if source.format is None:
        return merged(CheckpointReader(source, what))
    return _ConvertingReader(source, what, bert_config)


class _ConvertingReader(CheckpointReader):
    """The arrays of a model in another format, under our names; its files are opened when the first is needed."""

    def __init__(self, source: Source, what: str, bert_config: BertConfig | None):
        self.prefix, self.name = source.prefix, f"{what} {source.prefix}"
        self.source, self._bert_config = source, bert_config

    @functools.cached_property
    def weights(self) -> Weights:
        config = self._bert_config
        if config is None:
            if self.source.config_file is None:
                raise UserError(
                    f"{self.name} has no config.json, so its architecture is unknown; download all its files"
                )
            config = BertConfig.from_json_file(self.source.config_file)
        return model_formats.load_module(self.source.format).read_model(self.prefix, config)

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: array.shape for name, array in self.weights.arrays.items()}

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self.weights.arrays[name])


@dataclasses.dataclass(frozen=True)
class LoadReport:
    source: str  # the checkpoint
    matched: list[str]  # names of the variables that the checkpoint has
    missing: list[str]  # names of newly initialized variables, which the checkpoint lacks or has in another size
    unused: list[str]  # names in the checkpoint that the model lacks, except optimizer state
    # those of `missing` that matter only beside other missing ones, such as a pooler beside a new classifier
    idle: frozenset[str] = frozenset()

    def log(self, *, is_trained_next: bool = True) -> None:
        """Log the counts and the names to check; with `--verbosity=1` also each variable that was set."""
        message = "%s: %d variables loaded, %d newly initialized, %d unused"
        logging.info(message, self.source, len(self.matched), len(self.missing), len(self.unused))
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
    for name in (*report.matched, *reader.weights.new.intersection(named)):
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
    matched = [name for name in named if name in shapes]
    wrong = [name for name in matched if shapes[name] != tuple(named[name].shape)]
    sizes = format_arrays(f"{name} is {list(shapes[name])} there and {list(named[name].shape)} here" for name in wrong)
    if required_missing:
        check_kind(reader.name, required_missing, shapes)
        advice = reader.weights.lacking or _advice(required_missing, named, shapes)
        more = f", and {sizes}" if wrong else ""
        raise UserError(f"{reader.name} lacks {format_arrays(required_missing)}{more}: {advice}")
    for part, (what, head) in _PARTS_OF_HEADS.items():
        if required is None and any(part in name for name in shapes) and not any(part in name for name in named):
            raise UserError(f"{reader.name} has {what}; give head={head}, as in training")
    if wrong:
        is_generator = any(name.startswith((GENERATOR, GENERATOR_HEAD)) for name in wrong)
        is_encoder = any(name.startswith("bert/") or is_training_state(name, named) for name in wrong)
        is_head = not (is_generator or is_encoder)
        if not (is_head and makes_new_head):
            advice = "use the bert_config.json that belongs to it, or another output_dir"
            if is_generator and not is_encoder:
                width, whole = (shapes[f"{scope}{_FIRST_QUERY}"][0] for scope in (GENERATOR, "bert/"))
                advice = f"use generator_size={width / whole:g}, which belongs to it"
            elif is_head:
                advice = "its head has another number of classes; give a matching model, or train a new head"
            raise UserError(f"{reader.name} does not fit the model: {sizes}; {advice}")
        logging.warning("%s: its head has another size, so a new one is initialized: %s", reader.name, sizes)
        missing = [name for name in named if name in missing or name in wrong]
        matched = [name for name in matched if name not in wrong]
    missing += [name for name in matched if name in reader.weights.new]
    matched = [name for name in matched if name not in reader.weights.new]
    unused = sorted(name for name in set(shapes) - set(named) if not is_training_state(name, shapes))
    return LoadReport(reader.prefix, matched, missing, unused, reader.weights.idle)


def _by_name(groups: Iterable[Variables]) -> dict[str, Any]:
    named = {}
    for group in groups:
        named.update(group if isinstance(group, Mapping) else {variable.path: variable for variable in group})
    return named


def _advice(missing: Sequence[str], names: Container[str], there: Collection[str]) -> str:
    """Return advice about a checkpoint that has the names `there`, but lacks some of the required ones."""
    if not all(is_training_state(name, names) for name in missing):
        if any(name.startswith(GENERATOR) for name in missing):
            return "it has no generator of an ELECTRA; leave out objective=replaced_tokens, or use another output_dir"
        if f"{GENERATOR}{_FIRST_QUERY}" in there and "cls/predictions/output_bias" in missing:
            return "it is of ELECTRA's pretraining; give objective=replaced_tokens"
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


def open_pretrained(
    path: str | os.PathLike[str],
    bert_config: BertConfig | str | os.PathLike[str] | None = None,
    *,
    parameter: str = "path",
) -> tuple[CheckpointReader, BertConfig]:
    """Find the weights and the architecture of a model, without reading the weights."""
    path = files.local_folder(os.fspath(path))
    source = locate(path, parameter)
    if isinstance(bert_config, BertConfig):
        config, config_file = bert_config, "bert_config"
    else:
        config_file = source.config_file if bert_config is None else os.fspath(bert_config)
        if config_file is None:
            advice = f"give its path: bert_config='{_CONFIG_FILE}'" if parameter == "path" else "copy it there"
            raise UserError(f"there is no {_CONFIG_FILE} beside {source.prefix}; {advice}")
        config = BertConfig.from_json_file(config_file)
    check_memory(config, config_file, for_training=False)
    return open_checkpoint(source, parameter, config), config


def save_pretrained(path: str | os.PathLike[str], variables: Mapping[str, keras.Variable], config: BertConfig) -> str:
    """Write a checkpoint, in one of the forms of `save_checkpoint`, and its config."""
    path = os.fspath(path)
    name = os.path.basename(path)
    is_theirs = name == safetensors.WEIGHTS_FILE
    if name.endswith(".safetensors") and not is_theirs:
        raise UserError(f"{path}: name it {safetensors.WEIGHTS_FILE}, under which a folder's weights are found")
    prefix = path if is_theirs or ".ckpt" in name else os.path.join(path, _CHECKPOINT)
    folder = os.path.dirname(prefix)
    config_file = os.path.join(folder, "config.json" if is_theirs else _CONFIG_FILE)
    arrays = {name: np.asarray(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}
    weights = safetensors.to_hf(arrays, config, prefix) if is_theirs else None
    has_config = files.exists(config_file)
    if has_config and (
        BertConfig.from_json_file(config_file) != config
        or (weights and safetensors.architecture_of(folder) != weights.architecture)
    ):
        raise UserError(f"{config_file} describes a different model; save this one in another folder")
    writing.make_folders(folder or ".")
    if weights is None:
        write_checkpoint(prefix, arrays)
        text = config.to_json_string()
    else:
        safetensors.write_file(prefix, weights.arrays)
        values = config.to_hugging_face(weights.architecture, weights.num_classes)
        text = json.dumps(values, indent=2, sort_keys=True) + "\n"
    if not has_config:
        writing.write_file(config_file, text)
    return prefix
