"""The files of a sentence-transformers folder: its modules and settings."""

import os
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypedDict

from official_bert.config.model_formats import models_inside
from official_bert.support import files, text_files
from official_bert.support.errors import UserError, format_names

MODEL = "model"  # value of `pooling`: use the modules of the folder
MODULES_FILE = "modules.json"
# The poolings of sentence-transformers and their older keys, in the order in which these are concatenated.
OLDER_KEYS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
DENSE, LAYER_NORM, NORMALIZE = "Dense", "LayerNorm", "Normalize"  # modules after the pooling
_ENCODERS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta")
_NO_LENGTH = 10**6  # `model_max_length` is astronomical in tokenizers without a limit
_MAX_MODULES = 32
SPLADE = "splade"
SPLADE_KEYS = ("pooling_strategy", "activation_function")
# Our names of a SpladePooling, with the values of its keys; the first ones are the defaults.
SPLADE_POOLINGS = {
    SPLADE: ("max", "relu"),
    "splade_sum": ("sum", "relu"),
    "splade_log1p": ("max", "log1p_relu"),
    "splade_sum_log1p": ("sum", "log1p_relu"),
}
_TRANSFORMERS = ("Transformer", "MLMTransformer")
QUERY, DOCUMENT = "query", "document"  # names of prompts, and of the routes of a `Router`
ROUTER, STATIC_QUERIES = "Router", "SparseStaticEmbedding"
_ROUTER_FILE = "router_config.json"


SETTINGS_FILE = "config_sentence_transformers.json"
_VECTOR = "sentence_embedding"
_ENDS = dict.fromkeys(("module_input_name", "module_output_name"), (_VECTOR, None))
_WIDTHS = dict.fromkeys(("embedding_dimension", "word_embedding_dimension"))
_STEPS = tuple({"method": "forward", "method_output_name": name} for name in ("last_hidden_state", "logits"))
# The keys of each file, or of each module's file, that are applied or have no effect on results, with the values of
# which that is true; None for all. Any other key that is set is refused.
_UNDERSTOOD: dict[str, dict[str, Collection | None]] = {
    SETTINGS_FILE: dict.fromkeys(
        (
            *("__version__", "requirements", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"),
            *("truncate_dim", "activation_fn", "keep_in_fp32_modules"),
        )
    ),
    MODULES_FILE: dict.fromkeys(("idx", "name", "path", "type")),
    "Transformer": {
        **dict.fromkeys(("max_seq_length", "do_lower_case", "unpad_inputs", "cache_dir")),
        "transformer_task": ("feature-extraction", "fill-mask", "sequence-classification"),
        "modality_config": tuple({"text": step} for step in _STEPS),
        "module_output_name": ("token_embeddings", "scores"),
    },
    "Pooling": dict.fromkeys((*_WIDTHS, "pooling_mode", "include_prompt", *OLDER_KEYS.values())),
    "SpladePooling": dict.fromkeys((*_WIDTHS, *SPLADE_KEYS, "chunk_size")),
    DENSE: {**dict.fromkeys(("in_features", "out_features", "bias", "activation_function")), **_ENDS},
    LAYER_NORM: {"dimension": None},
    NORMALIZE: _ENDS,
    ROUTER: {"default_route": (DOCUMENT,), "allow_empty_key": None, "route_mappings": ({},)},
    STATIC_QUERIES: {"frozen": None},
}
# The activations of the logits of a CrossEncoder, by the kind of its classifier.
_ACTIVATIONS = {
    "regression": ("Sigmoid", "Identity"),
    "single_label": ("Identity", "Softmax"),
    "multi_label": ("Identity", "Sigmoid"),
}


class _Module(TypedDict):
    type: str
    path: str


class _Router(TypedDict):
    types: dict[str, str]  # of modules, by their paths
    structure: dict[str, list[str]]  # the paths of the modules of each route
    parameters: dict[str, Any]


_Pooling = TypedDict(
    "_Pooling",
    {"pooling_mode": str | list[str], "include_prompt": bool, **dict.fromkeys(OLDER_KEYS.values(), bool)},
    total=False,
)


class _Length(TypedDict, total=False):
    model_max_length: float | None


class _Settings(TypedDict, total=False):
    default_prompt_name: str | None
    prompts: dict[str, str] | None
    truncate_dim: int | None
    similarity_fn_name: str | None
    activation_fn: str | None


class _OfClassifier(TypedDict, total=False):
    problem_type: str | None
    sentence_transformers: dict[str, str | None] | None
    sbert_ce_default_activation_function: str | None  # of versions before 4


class EncoderSettings(TypedDict, total=False):
    """The text settings of sentence-transformers."""

    max_seq_length: float | None
    do_lower_case: bool | None


class SentenceModules(NamedTuple):
    """The computation of a text's vector from the encoder's outputs."""

    poolings: tuple[str, ...]  # some of `OLDER_KEYS`, of the last layer; several are concatenated in this order
    after: tuple[tuple[str, str], ...]  # each further module: `DENSE`, `LAYER_NORM` or `NORMALIZE`, and its folder
    size: int | None = None  # number of components to which vectors are truncated


def has_modules(folder: str) -> bool:
    """Return True if a folder is a sentence-transformers model."""
    return files.exists(os.path.join(folder, MODULES_FILE))


def is_sentence_encoder(folder: str) -> bool:
    """Return True if a model's modules begin with an encoder and a pooling, whatever class its `config.json` names."""
    return has_modules(folder) and [kind for kind, _ in _modules(folder)[:2]] == ["Transformer", "Pooling"]


def encoder_folder(folder: str) -> str:
    """Return the folder of the encoder and tokenizer; for most models it is the model's folder itself."""
    modules = _modules(folder) if has_modules(folder) else []
    named = next((path for kind, path in modules if kind in _TRANSFORMERS), None)
    if modules and named is None:
        inside = [name for name in models_inside(folder) if name.rpartition("_")[2] in _TRANSFORMERS]
        advice = f"; a model is in {format_names(inside)}" if inside else ""
        raise UserError(f"{folder} is a {modules[0][0]:.80} of sentence-transformers, which is not supported{advice}")
    return named or folder


def read_modules(folder: str) -> SentenceModules:
    """Read the modules after the encoder."""
    (first, *_), *others = _modules(folder)
    if first in _TRANSFORMERS and [kind for kind, _ in others] == ["SpladePooling"]:
        return SentenceModules((_splade(others[0][1]),), ())
    if first != "Transformer" or not others or others[0][0] != "Pooling":
        raise _unsupported(folder, "does not begin with a Transformer and a Pooling")
    for kind, path in others[1:]:
        if kind not in (DENSE, LAYER_NORM, NORMALIZE):
            raise _unsupported(folder, f"has a {kind:.80}")
        if kind != DENSE and files.exists(os.path.join(path, "config.json")):  # that of a dense layer is read later
            read_module(path, kind, dict[str, Any])
    size = _read_settings(folder).get("truncate_dim")
    if size is not None and size < 1:
        raise UserError(f"{os.path.join(folder, SETTINGS_FILE)}: truncate_dim is {size}; it must be at least 1")
    return SentenceModules(_poolings(others[0][1]), tuple(others[1:]), size)


def other_similarity(folder: str) -> str | None:
    """Return the similarity by which a model's vectors are compared, if it is not the cosine, nor equal to it."""
    if not has_modules(folder):
        return None
    name = _read_settings(folder).get("similarity_fn_name")
    return None if name in (None, "cosine") or _modules(folder)[-1][0] == NORMALIZE else name


def score_activation(folder: str, problem: str) -> str:
    """Return the activation of the logits of the classifier in a folder, a key of `_ACTIVATIONS`' rows.

    As in sentence-transformers and in the pipelines of transformers, that of a single output is a sigmoid by default.
    """
    path = os.path.join(folder, "config.json")
    config = text_files.read_json_as(path, "model config", _OfClassifier)
    saved = config.get("sentence_transformers") or {}
    text_files.check_declared(saved, {"activation_fn": None, "version": None}, path, "sentence_transformers")
    if has_modules(folder) and [kind for kind, _ in _modules(folder)] != ["Transformer"]:
        raise UserError(f"{folder} has modules after its classifier, which are not supported")
    named = _read_settings(folder).get("activation_fn") or saved.get("activation_fn")
    named = named or config.get("sbert_ce_default_activation_function")
    if named is None:
        is_sigmoid = problem == "regression" and config.get("problem_type") != "regression"
        return "Sigmoid" if is_sigmoid else "Identity"
    name = named.rpartition(".")[2]
    if name not in _ACTIVATIONS[problem]:
        known = " or ".join(_ACTIVATIONS[problem])
        raise UserError(f"{folder}: activation_fn is {named!r:.80}, which is not supported for this model; use {known}")
    return name


def longest_text(folder: str) -> int | None:
    """Return the number of wordpieces to which the model truncates texts; None if its files do not specify it."""
    folder = encoder_folder(folder)
    tokenizer_file = os.path.join(folder, "tokenizer_config.json")
    length = read_encoder_settings(folder).get("max_seq_length")
    if length is None and files.exists(tokenizer_file):
        length = text_files.read_json_as(tokenizer_file, "tokenizer config", _Length).get("model_max_length")
    if length is not None and length < 1:
        raise UserError(f"{folder}: the maximum number of wordpieces is {length!r:.80}; it must be a positive number")
    return int(length) if length is not None and length <= _NO_LENGTH else None


class Prompts(NamedTuple):
    by_name: Mapping[str, str]  # prefixes that a user may choose
    default: str  # prefix of every text without a choice; "" for none
    are_pooled: bool = True  # whether pooling includes the wordpieces of the prefix


NO_PROMPTS = Prompts({}, "")


def read_prompts(folder: str) -> Prompts:
    file, settings = os.path.join(folder, SETTINGS_FILE), _read_settings(folder)
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    if query_folder(folder) is not None:
        prompts = {QUERY: "", DOCUMENT: "", **prompts}
    default = "" if name is None else prompts.get(name)
    if default is None:
        raise UserError(f"{file}: the default_prompt_name is {name!r:.80}, which is not one of its prompts")
    pooling = next(((path, kind) for kind, path in _modules(folder) if kind in ("Pooling", "SpladePooling")), None)
    if pooling is None:
        raise _unsupported(folder, "has no Pooling")
    return Prompts(prompts, default, read_module(*pooling, _Pooling).get("include_prompt", True))


def read_encoder_settings(folder: str) -> "EncoderSettings":
    """Read `sentence_bert_config.json`, the text settings of sentence-transformers; empty if there is no such file."""
    paths = (os.path.join(folder, f"sentence_{name}_config.json") for name in _ENCODERS)
    found = next(filter(files.exists, paths), None)
    return {} if found is None else _read(found, "Transformer", EncoderSettings)


def _read_settings(folder: str) -> "_Settings":
    file = os.path.join(folder, SETTINGS_FILE)
    return _read(file, SETTINGS_FILE, _Settings) if files.exists(file) else {}


def read_module(folder: str, kind: str, schema: Any) -> Any:
    """Read the settings of a module; UserError for one that is not understood."""
    return _read(os.path.join(folder, "config.json"), kind, schema)


def _read(file: str, kind: str, schema: Any) -> Any:
    values = text_files.read_json_as(file, "settings of sentence-transformers", schema)
    text_files.check_declared(values, _UNDERSTOOD[kind], file)
    return values


def query_folder(folder: str) -> str | None:
    """Return the folder of the weights that inference-free SPLADE gives the wordpieces of queries; None without one."""
    return _layout(folder)[1] if has_modules(folder) else None


def _modules(folder: str) -> list[tuple[str, str]]:
    """Return the type and folder of each module, in order; for a `Router`, those of documents."""
    return _layout(folder)[0]


def _layout(folder: str) -> tuple[list[tuple[str, str]], str | None]:
    file = os.path.join(folder, MODULES_FILE)
    modules = text_files.read_json_list(file, "list of modules")
    if not 0 < len(modules) <= _MAX_MODULES:
        raise UserError(f"{file} names {len(modules):,} modules; it must name 1 to {_MAX_MODULES}")
    text_files.check_json(modules, list[_Module], file)
    for module in modules:
        text_files.check_declared(module, _UNDERSTOOD[MODULES_FILE], file)
    found = [_placed(module["type"], module["path"], file) for module in modules]
    (kind, inner), *others = found
    router_file = os.path.join(inner, _ROUTER_FILE)
    if kind != ROUTER or not files.exists(router_file):
        return found, None
    router = text_files.read_json_as(router_file, "settings of sentence-transformers", _Router)
    text_files.check_declared(router["parameters"], _UNDERSTOOD[ROUTER], router_file)
    routes = {
        name: [_placed(router["types"].get(path, ""), path, router_file) for path in paths]
        for name, paths in router["structure"].items()
    }
    if routes.keys() != {QUERY, DOCUMENT} or [kind for kind, _ in routes[QUERY]] != [STATIC_QUERIES]:
        return found, None
    return [*routes[DOCUMENT], *others], routes[QUERY][0][1]


def _placed(kind: str, path: str, file: str) -> tuple[str, str]:
    """Return the type of a module without its package, and its folder, which is within that of the file."""
    if not kind.startswith(("sentence_transformers.", "sparse_encoder.")):
        raise UserError(
            f"{file} names the module {kind!r:.80}, whose code is not known; only those of sentence_transformers are "
            "supported"
        )
    if os.path.isabs(path) or ".." in path.replace("\\", "/").split("/") or not (path + "x").isprintable():
        raise UserError(f"{file} names the path {path!r:.80}; only folders within this one are read")
    folder = os.path.dirname(file)
    return kind.rpartition(".")[2], os.path.join(folder, path) if path.strip("./") else folder


def _poolings(folder: str) -> tuple[str, ...]:
    values = read_module(folder, "Pooling", _Pooling)
    chosen = values.get("pooling_mode", [name for name, key in OLDER_KEYS.items() if values.get(key)] or "mean")
    chosen = [chosen] if isinstance(chosen, str) else chosen
    if not 0 < len(chosen) <= len(OLDER_KEYS):
        raise UserError(f"{folder}: the pooling is {chosen!r:.80}; it must be 1 to {len(OLDER_KEYS)} names")
    for name in chosen:
        if name not in OLDER_KEYS:
            raise _unsupported(folder, f"has the pooling {name!r:.80}")
    return tuple(chosen)


def _splade(folder: str) -> str:
    values = read_module(folder, "SpladePooling", dict[str, Any])
    chosen = tuple(map(values.get, SPLADE_KEYS, SPLADE_POOLINGS[SPLADE]))
    name = next((name for name, row in SPLADE_POOLINGS.items() if row == chosen), None)
    if name is None:
        raise _unsupported(folder, f"pools with {chosen!r:.80}")
    return name


def _unsupported(source: str, what: str) -> UserError:
    return UserError(f"{source} {what}, which is not supported; use another pooling, such as pooling=mean")
