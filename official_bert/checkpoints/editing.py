"""New weights from those of other models: averages, other layers, vocabularies or positions, and LoRA adapters.

Adapters are read and written in PEFT's layout: `adapter_config.json` and `adapter_model.safetensors`.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np

from official_bert.checkpoints import safetensors
from official_bert.checkpoints.bundle import CheckpointReader, as_float32, is_training_state
from official_bert.config.bert_config import LORA, LORA_SCALE, BertConfig
from official_bert.config.model_formats import ADAPTER_CONFIG_FILE
from official_bert.families.bert import GENERATOR_HEAD
from official_bert.families.family import Rule
from official_bert.support import text_files
from official_bert.support.errors import UserError, format_arrays, format_names

_POSITIONS = "bert/embeddings/position_embeddings"
# Arrays with one row per token.
_BY_TOKEN = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias", f"{GENERATOR_HEAD}output_bias")
_LAYER = re.compile(r"(.*/layer_)(\d+)(/.*)")
ADAPTER_FILE = "adapter_model.safetensors"  # beside the adapter_config.json
_PREFIX = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"
_TASK_TYPES = {"classifier": "SEQ_CLS", "tagger": "TOKEN_CLS", "span head": "QUESTION_ANS"}


def read_model(reader: CheckpointReader) -> dict[str, np.ndarray]:
    """Read the arrays of a checkpoint, without those only needed to resume training or newly initialized."""
    return {name: reader.read(name) for name in _names(reader)}


def _names(reader: CheckpointReader) -> list[str]:
    names = sorted(reader.shapes.keys() - reader.weights.new)
    return [name for name in names if not is_training_state(name, reader.shapes)]


def averaged(readers: Sequence[CheckpointReader]) -> dict[str, np.ndarray]:
    """Average the weights of checkpoints of one architecture ("Averaging Weights Leads to Wider Optima")."""
    first = readers[0]
    sums = {name: array.astype(np.float64) for name, array in read_model(first).items()}
    shapes = {name: list(array.shape) for name, array in sums.items()}
    for reader in readers[1:]:
        other = {name: list(reader.shapes[name]) for name in _names(reader)}
        if other != shapes:
            differing = sorted(name for name in other.keys() | shapes if other.get(name) != shapes.get(name))
            listed = (
                f"{name} is {shapes.get(name, 'missing')} in the first and {other.get(name, 'missing')} in the second"
                for name in differing
            )
            raise UserError(f"{first.prefix} and {reader.prefix} are of different models: {format_arrays(listed)}")
        for name in sums:
            sums[name] += reader.read(name)
    return {name: (total / len(readers)).astype(np.float32) for name, total in sums.items()}


def num_layers(arrays: Iterable[str]) -> int:
    return max((int(match[2]) + 1 for name in arrays if (match := _LAYER.fullmatch(name))), default=0)


def with_layers(arrays: Mapping[str, np.ndarray], layers: Sequence[int]) -> dict[str, np.ndarray]:
    """Build a model whose encoder has selected layers of another one, in any order, possibly repeated.

    `[0, 2, 4]` of six layers initializes a student (DistilBERT, section 3); `[0, 1, 0, 1]` of two layers initializes a
    deeper model, which learns faster than from random layers ("Efficient Training of BERT by Progressively Stacking").
    Everything else, such as embeddings and heads, is kept.
    """
    made = {name: array for name, array in arrays.items() if not _LAYER.fullmatch(name)}
    parts: dict[int, set[str]] = {}  # the arrays of each layer, without its number
    for match in filter(None, map(_LAYER.fullmatch, arrays)):
        parts.setdefault(int(match[2]), set()).add(match[1] + match[3])
    first_differs = len(parts) > 1 and parts[0] != parts[1]  # ModernBERT's has one normalization less
    if first_differs and [place for place, chosen in enumerate(layers) if chosen == 0] != [0]:
        raise UserError(
            "layers: the first layer of this model has other arrays than the others; take it first, and once"
        )
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
    """Repeat the position embeddings for longer sequences, as the Longformer's (section 5)."""
    if _POSITIONS not in arrays:
        raise UserError(f"max_position_embeddings={num_positions}: {old.family.title} has no embeddings of positions")
    table, first = arrays[_POSITIONS], old.first_position
    if len(table) != old.max_position_embeddings:
        raise UserError(
            f"{_POSITIONS} has {len(table)} rows, but the model config has "
            f"{old.max_position_embeddings} positions; use matching files"
        )
    repeated = np.arange(num_positions - first) % (len(table) - first) + first
    return {**arrays, _POSITIONS: table[[*range(first), *repeated]]}


class _Needed(TypedDict):
    r: int
    lora_alpha: float


class _Config(_Needed, total=False):
    peft_type: Literal["LORA"]
    bias: Literal["none"]
    use_rslora: bool | None
    task_type: str | None
    # Other initializations, such as "pissa", change the base model, too.
    init_lora_weights: bool | Literal["gaussian", "eva", "orthogonal"] | None


# Keys without effect on a trained adapter, whose arrays show the layers; all others must be unset.
_UNUSED_KEYS = {
    "auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules", "inference_mode", "layers_pattern",
    "layers_to_transform", "lora_dropout", "megatron_core", "modules_to_save", "peft_version", "qalora_group_size",
    "revision", "runtime_config", "target_modules",
}  # fmt: skip


class Adapter(NamedTuple):
    values: dict[str, Any]  # the keys of the config
    arrays: dict[str, np.ndarray]  # float32 arrays by their names


def read_adapter(folder: str) -> Adapter:
    path = os.path.join(folder, ADAPTER_CONFIG_FILE)
    values = text_files.read_json_as(path, "adapter config", _Config)
    text_files.check_declared(values, dict.fromkeys(_Config.__annotations__.keys() | _UNUSED_KEYS), path)
    for key in ("r", "lora_alpha"):
        if values[key] <= 0:
            raise UserError(f"{path}: {key} is {values[key]}; it must be above 0")
    arrays = {name: np.asarray(array) for name, array in safetensors.read_file(os.path.join(folder, ADAPTER_FILE))}
    if not arrays:
        raise UserError(f"{os.path.join(folder, ADAPTER_FILE)} has no arrays; save the adapter again")
    return Adapter(values, arrays)


def with_adapter(
    arrays: Mapping[str, np.ndarray], adapter: Adapter, config: BertConfig, folder: str
) -> dict[str, np.ndarray]:
    theirs = config.family.hugging_face
    head = _head_of(adapter, folder)
    rules = {rule.target: rule for rule in _rules(config, [head] if head else theirs.heads)}
    made, replaced, sizes = dict(arrays), set(), safetensors.sizes_of(config)
    misfits: dict[str, list[str]] = {"unknown": [], "without its other factor": [], "other shapes": []}
    for stored, array in adapter.arrays.items():
        factor = next((factor for factor in (_A, _B) if stored.endswith(factor)), "")
        if factor == _B and stored.removesuffix(_B) + _A in adapter.arrays:
            continue  # added with A
        name = theirs.with_prefix(stored.removeprefix(_PREFIX).removesuffix(factor)) + (".weight" if factor else "")
        rule = rules.get(name)
        if rule is None or (factor and rule.source not in made):
            misfits["unknown"].append(stored)
            continue
        if factor:
            factors = [adapter.arrays.get(stored.removesuffix(factor) + other) for other in (_A, _B)]
            if any(other is None for other in factors):
                misfits["without its other factor"].append(stored)
                continue
            if factors[0].shape[:1] != (adapter.values["r"],) or factors[1].shape[-1:] != (adapter.values["r"],):
                shapes = " and ".join(str(list(other.shape)) for other in factors)
                misfits["other shapes"].append(f"the factors of {name} are {shapes}, but r={adapter.values['r']}")
                continue
            array = _update(adapter.values, *factors)
        array = array.T if rule.is_transposed else array
        if not safetensors.fits(array.shape, rule.shape, sizes):
            misfits["other shapes"].append(f"{stored} gives {rule.source} the shape {list(array.shape)}")
            continue
        if rule.source in replaced:
            raise UserError(f"{folder} has {rule.source} twice, also as {stored}; save the adapter again")
        made[rule.source] = as_float32(made[rule.source] + array if factor else array, rule.source, folder)
        replaced.add(rule.source)
    safetensors.check_misfits(misfits, config, folder, "give the adapter's own base model, or save the adapter again")
    for part in theirs.heads:
        own = {rule.source for rule in theirs.parts[part]}
        if (head in (None, part)) and replaced & own and own - made.keys():
            raise UserError(f"{folder} lacks {format_names(sorted(own - made.keys()))} of the {part}; save it again")
    return made


def _update(values: Mapping[str, Any], first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the update of a dense layer's weight, alpha / rank * B @ A, float32 [out, in]."""
    rank = values["r"]
    with np.errstate(over="ignore", invalid="ignore"):  # refused when it is added
        return values["lora_alpha"] / (math.sqrt(rank) if values.get("use_rslora") else rank) * (second @ first)


def _head_of(adapter: Adapter, folder: str) -> str | None:
    """Return the head that an adapter replaces, as far as its name can be read in several ways."""
    task_type = adapter.values.get("task_type")
    if task_type is not None:
        return next((head for head, task in _TASK_TYPES.items() if task == task_type), None)
    weights = adapter.arrays.get(f"{_PREFIX}classifier.weight")
    if weights is None:
        return None
    if len(weights) != 1:
        raise UserError(
            f"{os.path.join(folder, ADAPTER_CONFIG_FILE)}: the adapter has a classifier, but no task_type; set it to "
            "SEQ_CLS or TOKEN_CLS"
        )
    return "multiple-choice head"


def adapter_of(reader: CheckpointReader, config: BertConfig, base_model: str | None = None) -> Adapter:
    """Return the adapter of a checkpoint of a run with `lora_rank`, with the head and the pooler that it trained."""
    if LORA_SCALE not in reader.shapes:
        raise UserError(
            f"{reader.name} has no low-rank updates (LoRA); give the output folder of a run that trained them, or to_hf"
            " to convert the whole model"
        )
    theirs = config.family.hugging_face
    heads = [head for head in theirs.heads if any(rule.source in reader.shapes for rule in theirs.parts[head])]
    rules = _rules(config, heads)
    known = {LORA_SCALE, *(rule.source for rule in rules)}
    for name in reader.shapes:
        if not (name in known or name.startswith("bert/") or is_training_state(name, reader.shapes)):
            raise UserError(f"{reader.name} has {name}, which no class of transformers has; it has no adapter of PEFT")
    trained_parts = {*heads, *(["pooler"] if safetensors.NEED_POOLER.intersection(heads) else [])}
    trained = {
        rule.source
        for part in trained_parts
        for rule in safetensors.rules_of_layers(theirs.parts_with(heads)[part], config)
    }
    prefix = theirs.prefix if not heads else ""  # a bare encoder has none
    arrays, targets, rank = {}, set(), 0
    for rule in rules:
        target = rule.target.removeprefix(prefix)
        names = [rule.source.removesuffix("/kernel") + LORA + factor for factor in "ab"]
        if rule.source.endswith("/kernel") and names[0] in reader.shapes:
            first, second = (reader.read(name).T for name in names)  # [rank, in], [out, rank]
            layer, rank = target.removesuffix(".weight"), len(first)
            arrays |= {f"{_PREFIX}{layer}{_A}": first, f"{_PREFIX}{layer}{_B}": second}
            targets.add(layer)
        elif rule.source in trained and rule.source in reader.shapes:
            array = reader.read(rule.source)
            arrays[_PREFIX + target] = array.T if rule.is_transposed else array
    others = [name.removeprefix(_PREFIX) for name in arrays if not name.endswith((_A, _B))]
    modules = {name.removeprefix(theirs.prefix).partition(".")[0] for name in others}
    values = {
        "peft_type": "LORA",
        "base_model_name_or_path": base_model,
        "task_type": next((_TASK_TYPES[head] for head in heads if head in _TASK_TYPES), None),
        "r": rank,
        "lora_alpha": float(reader.read(LORA_SCALE)) * rank,
        "target_modules": sorted({re.split(r"\.\d+\.", layer)[-1] for layer in targets}),
        "modules_to_save": sorted(modules) or None,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    return Adapter(values, arrays)


def _rules(config: BertConfig, heads: Sequence[str]) -> list[Rule]:
    parts = config.family.hugging_face.parts_with(heads).values()
    return [rule for part in parts for rule in safetensors.rules_of_layers(part, config)]
