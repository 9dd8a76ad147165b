"""Tokenizer files of Hugging Face folders: reads their vocabulary and settings."""

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Required, TypedDict

from official_bert.config.model_formats import vocabulary_folders
from official_bert.families.family import all_families
from official_bert.support import files, text_files
from official_bert.support.errors import UserError, require

TOKENIZER_CONFIG_FILE, TOKENIZER_FILE = "tokenizer_config.json", "tokenizer.json"
VOCAB_FILE, WORDPIECE_FILE = "vocab.txt", "wordpiece.json"  # the latter holds a vocabulary with added tokens
KOBERT_FILE = "tokenizer_78b3253a26.model"  # in some folders of KoBERTs, with the pieces as a `vocab.txt`
PIECES_FILE = "vocab.json"  # used by older folders, with `merges.txt`, instead of `tokenizer.json`
SPECIALS = {
    "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]",
}  # fmt: skip
ADDED_TOKENS_FILE, SPECIALS_FILE = "added_tokens.json", "special_tokens_map.json"
_GENERIC = {"PreTrainedTokenizer", "TokenizersBackend"}  # classes that only follow the tokenizer.json
JAPANESE = "BertJapaneseTokenizer"  # the class that splits texts with MeCab
_MOST_DIGITS_OF_AN_ID = 9
WORDPIECE = "WordPiece"
BPE = "BPE"  # model type of a byte-level tokenizer
BPE_FILE = "bpe.json"  # its `tokenizer.json` beside one of our models
UNIGRAM = "Unigram"
BERT_SPLIT = {"type": "BertPreTokenizer"}
# As `str.split`: the other white space of Python is "\x1c" to "\x1f".
SPLIT_AT_WHITE_SPACE = {
    "type": "Split", "pattern": {"Regex": r"[\s\x1c-\x1f]+"}, "behavior": "Removed", "invert": False,
}  # fmt: skip
_UNKNOWN, _CONTROL = "<unk>", {"<s>", "</s>", "<pad>", "[CLS]", "[SEP]", "[MASK]"}
# Replacements of quotation marks, and of several spaces, by one.
_QUOTES, _SPACES = "quotes", "spaces"
_CHANGING, _OPTIONAL = {_QUOTES, "NFKD", "StripAccents", "Lowercase"}, {_QUOTES, "Lowercase"}
_UNIGRAM_STEPS = {
    "normalizer": {
        _QUOTES: {"pattern": ({"String": "``"}, {"String": "''"}), "content": ('"',)},
        "NFKD": {},
        "StripAccents": {},
        "Lowercase": {},
        "Precompiled": {"precompiled_charsmap": None},
        "Strip": {"strip_left": (True, False), "strip_right": (True,)},
        _SPACES: {"pattern": ({"Regex": " {2,}"},), "content": (" ", "\u2581")},
    },
    "pre_tokenizer": {
        "WhitespaceSplit": {},
        "Metaspace": {
            "replacement": ("\u2581",),
            "str_rep": ("\u2581",),
            "prepend_scheme": ("always",),
            "add_prefix_space": (True,),
            "split": (True,),
        },
    },
}
_UNIGRAM_MODEL = {"type": (UNIGRAM,), "vocab": None, "byte_fallback": (False,)}

_WORDPIECE_MODEL = {
    "type": (WORDPIECE,),
    "vocab": None,
    "unk_token": ("[UNK]",),
    "continuing_subword_prefix": ("##",),
    "max_input_chars_per_word": (100, 200),  # that of transformers, and ours: see docs/differences.md
}


class AddedToken(TypedDict, total=False):
    """A token that is found in a text before it is split."""

    content: Required[str]
    id: int
    lstrip: bool
    rstrip: bool
    single_word: bool
    normalized: bool
    special: bool


class TokenizerModel(TypedDict, total=False):
    """The model of a `tokenizer.json`; the kinds of models have different vocabularies."""

    vocab: Required[dict[str, int] | list]
    type: str
    merges: list


class TokenizerJson(TypedDict, total=False):
    model: Required[TokenizerModel]
    added_tokens: list[AddedToken] | None
    normalizer: dict[str, Any] | None
    pre_tokenizer: dict[str, Any] | None
    post_processor: dict[str, Any] | None
    truncation: dict[str, Any] | None


# All keys of a `tokenizer.json`, and the sides on which long texts may be truncated.
_TOKENIZER = dict.fromkeys((*TokenizerJson.__annotations__, "version", "padding", "decoder"))
_RIGHT = (None, "right", "Right")
_Special = str | AddedToken
# A `tokenizer_config.json`.
TokenizerConfig = TypedDict(
    "TokenizerConfig",
    {
        **dict.fromkeys(("tokenizer_class", "word_tokenizer_type", "subword_tokenizer_type"), str | None),
        **dict.fromkeys(("do_lower_case", "strip_accents", "do_basic_tokenize", "tokenize_chinese_chars"), bool | None),
        **dict.fromkeys(("keep_accents", "add_prefix_space", "do_word_tokenize"), bool | None),
        **dict.fromkeys((*SPECIALS, "bos_token", "eos_token"), _Special | None),
        **dict.fromkeys(("model_max_length", "type_vocab_size"), float | None),  # the latter in a config.json
        "truncation_side": str | None,
        "never_split": list[str] | None,
        "mecab_kwargs": dict[str, Any] | None,
        "additional_special_tokens": list[_Special] | None,
        "extra_special_tokens": list[_Special] | dict[str, _Special] | None,
        "added_tokens_decoder": dict[str, AddedToken],
    },
    total=False,
)


def read_tokenizer_json(path: str) -> TokenizerJson:
    return text_files.read_json_as(path, "tokenizer", TokenizerJson, max_bytes=text_files.MAX_VOCAB_BYTES)


def type_of(model: Mapping[str, Any]) -> Any:
    """Return the type of a tokenizer's model; that of the released BERT models, which is older, does not say it."""
    is_wordpiece = "continuing_subword_prefix" in model and "merges" not in model
    return model.get("type", WORDPIECE if is_wordpiece else None)


def read_tokenizer_config(folder: str, name: str = TOKENIZER_CONFIG_FILE) -> TokenizerConfig:
    """Read a file of settings in a folder; empty if there is none."""
    path = os.path.join(folder, name)
    return text_files.read_json_as(path, "tokenizer config", TokenizerConfig) if files.exists(path) else {}


def content_of(token: str | AddedToken | None) -> str | None:
    """Return the text of a special token, which some files write as an object."""
    return token["content"] if isinstance(token, dict) else token


def check_folder(vocabulary: Any, values: TokenizerJson | None) -> None:
    """Raise UserError if the files beside a vocabulary declare another tokenizer, or other special tokens.

    `values` are those of its `tokenizer.json`: it must join texts as the tokenizers of the vocabulary do.
    """
    folder, path = os.path.dirname(vocabulary.source), vocabulary.source
    config, model = read_tokenizer_config(folder), read_tokenizer_config(folder, "config.json")
    kind = type(vocabulary)
    families = (of for of in all_families().values() if of.tokenizer().vocabulary_class is kind)
    known = {
        "tokenizer_class": {*kind.other_classes, *(family.hugging_face.tokenizer_class for family in families)},
        "word_tokenizer_type": {"basic"},
        "subword_tokenizer_type": {"wordpiece"},
    }
    if (config.get("tokenizer_class") or model.get("tokenizer_class")) == JAPANESE:
        known |= {"word_tokenizer_type": {"basic", "mecab"}, "subword_tokenizer_type": {"wordpiece", "character"}}
    for key, names in known.items():
        value = config.get(key) or model.get(key)
        if value is not None and value.removesuffix("Fast") not in names | _GENERIC:
            raise UserError(
                f"{folder}: {key} is {value!r:.80}, which is not supported. For text that another program split into "
                "words, copy config.json (without tokenizer_class), weights and vocab.txt to another folder and give "
                "do_lower_case=false and basic_tokenize=false"
            )
    names = {key: (None, vocabulary.name_of(special)) for key, special in SPECIALS.items()}
    for specials in (config, read_tokenizer_config(folder, SPECIALS_FILE)):
        text_files.check_declared({key: content_of(specials.get(key)) for key in SPECIALS}, names, folder)
    text_files.check_declared({"truncation_side": config.get("truncation_side")}, {"truncation_side": _RIGHT}, folder)
    if values is None:
        return
    path, (cls, sep) = path if path.endswith(".json") else os.path.join(folder, TOKENIZER_FILE), vocabulary.ends
    if os.path.basename(path) == TOKENIZER_FILE:
        text_files.check_declared(values, _TOKENIZER, path)
        side = {"direction": (values.get("truncation") or {}).get("direction")}
        text_files.check_declared(side, {"direction": _RIGHT}, path, "truncation")
    if values.get("post_processor") is None:
        named = config.get("tokenizer_class") or ""
        if named.removesuffix("Fast") in _GENERIC and os.path.basename(path) == TOKENIZER_FILE:
            raise UserError(
                f"{path}: post_processor is missing, so {named} adds no special tokens, which is not supported; if the "
                "model was trained with them, set the tokenizer_class of its family in tokenizer_config.json, such as "
                "BertTokenizer"
            )
        return
    older = "BertProcessing" if vocabulary.layout["num_between"] == 1 else "RobertaProcessing"
    steps = [step for step in steps_of(values, "post_processor", path) if step[1].get("type") != "ByteLevel"]
    has_segments = kind.has_segments and model.get("type_vocab_size") != 1
    layouts = [vocabulary.layout] + ([] if has_segments else [{**vocabulary.layout, "second_segment": 0}])
    templates = [template_of(*vocabulary.ends, **layout) for layout in layouts]
    for place, step in steps:
        template = {key: [values[key] for values in templates] for key in templates[0]}
        if step.get("type") == older:
            template = {"type": None, "cls": (cls,), "sep": (sep,), "trim_offsets": None, "add_prefix_space": None}
        text_files.check_declared(step, template, path, place)
    if len(steps) != 1:
        raise UserError(f"{path}: post_processor has {len(steps)} steps that add special tokens; there must be one")


def steps_of(values: TokenizerJson, part: str, path: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the steps of a `normalizer`, `pre_tokenizer` or `post_processor`, each with its place in the file."""
    step = values.get(part)
    if step is None or step.get("type") != "Sequence":
        return [] if step is None else [(part, {"type": None, **step})]
    place = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}[part]
    text_files.check_json(step.get(place), list[dict[str, Any]], path, f"{part}.{place}")
    return [(f"{part}.{place}[{index}]", {"type": None, **inner}) for index, inner in enumerate(step[place])]


def read_steps(
    values: TokenizerJson, known: Mapping[str, Mapping[str, Mapping]], path: str
) -> dict[str, Mapping[str, Any]]:
    """Return the steps of both parts by their kinds; UserError for an unknown kind or option, or another order."""
    found: dict[str, Mapping[str, Any]] = {}
    for part, kinds in known.items():
        for place, step in steps_of(values, part, path):
            kind = str(step.get("type"))
            if kind == "Replace":
                kind = _SPACES if "Regex" in str(step.get("pattern")) else _QUOTES
            text_files.check_declared(step, {"type": None, **kinds[kind]} if kind in kinds else {}, path, place)
            later = [*kinds][[*kinds].index(kind) :]
            if not found.keys().isdisjoint(later) and kind != _QUOTES:
                raise UserError(f"{path}: {place} ({kind}) comes too late, or twice")
            found[kind] = step
    return found


def template_of(cls: Sequence, sep: Sequence, *, num_between: int, second_segment: int) -> dict[str, Any]:
    """Return the post-processor that joins texts; `cls` and `sep` are names with ids, for the rest see `Specials`."""

    def part(kind: str, name: str, segment: int) -> dict[str, Any]:
        return {kind: {"id": name, "type_id": segment}}

    first = [part("SpecialToken", cls[0], 0), part("Sequence", "A", 0), part("SpecialToken", sep[0], 0)]
    second = [part("Sequence", "B", second_segment), part("SpecialToken", sep[0], second_segment)]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, *first[-1:] * (num_between - 1), *second],
        "special_tokens": {name: {"id": name, "ids": [index], "tokens": [name]} for name, index in (cls, sep)},
    }


def read_added_tokens(folder: str, values: TokenizerJson | None = None) -> list[AddedToken]:
    """Return the tokens that the files of a Hugging Face folder add, specials included, in the order of their ids.

    As in `transformers`: `added_tokens_decoder` comes before `added_tokens.json`, and both before `tokenizer.json`,
    whose content may be given.
    """
    added: dict[str, AddedToken] = {}
    if values is None and files.exists(path := os.path.join(folder, TOKENIZER_FILE)):
        values = read_tokenizer_json(path)
    added |= {token["content"]: token for token in (values or {}).get("added_tokens") or ()}
    if files.exists(path := os.path.join(folder, ADDED_TOKENS_FILE)):
        ids = text_files.read_json(path, "added tokens")
        text_files.check_json(ids, dict[str, int], path)
        added |= {token: AddedToken(id=index, content=token) for token, index in ids.items() if token not in added}
    path = os.path.join(folder, TOKENIZER_CONFIG_FILE)
    for index, token in read_tokenizer_config(folder).get("added_tokens_decoder", {}).items():
        if not index.isdecimal() or len(index) > _MOST_DIGITS_OF_AN_ID:
            raise UserError(f"{path}: added_tokens_decoder[{index!r:.80}] is not an id")
        added[token["content"]] = {**token, "id": int(index)}
    return sorted(added.values(), key=lambda token: token.get("id", -1))


def added_tokens(vocabulary: Any) -> list[AddedToken]:
    """Return the tokens that files add to a WordPiece vocabulary, without its special tokens."""
    vocab_file, token_to_id = vocabulary.source, vocabulary.token_to_id
    folder, name = os.path.split(vocab_file)
    if name in (VOCAB_FILE, TOKENIZER_FILE):
        values = read_wordpiece_json(folder)
        _check_folder(folder, values, vocabulary)
        found, named = read_added_tokens(folder, values or {}), _named_specials(folder)
    elif name.endswith(".json"):
        found, named = read_tokenizer_json(vocab_file).get("added_tokens") or [], {}
    else:
        return []
    unnumbered = [{"content": content, "id": token_to_id.get(content)} for content in named]
    found += [token for token in unnumbered if token["content"] not in {other["content"] for other in found}]
    added, next_id = [], max(token_to_id.values()) + 1
    for token in found:
        content = token["content"]
        index = token.get("id")
        right = token_to_id.get(content, next_id)
        if index != right:
            which = "as in the vocabulary" if content in token_to_id else "the first free one"
            raise UserError(
                f"{vocab_file}: the added token {content!r:.80} has {'no id' if index is None else f'the id {index}'}; "
                f"it must have {right}, {which}"
            )
        if content in vocabulary.names_of_specials:
            continue
        if content != content.strip() or not content or "\n" in content:
            raise UserError(
                f"{vocab_file}: the added token {content!r:.80} is empty, or begins or ends with white space"
            )
        next_id += content not in token_to_id
        special = token.get("special", content in named)
        added.append({"id": index, **complete_token(token, special=special, normalized=not special)})
    return added


def _named_specials(folder: str) -> dict[str, Any]:
    """Return the further special tokens that a folder names, as `transformers` reads its files."""
    config, named = read_tokenizer_config(folder), []
    for values in (config, {} if "added_tokens_decoder" in config else read_tokenizer_config(folder, SPECIALS_FILE)):
        extra = values.get("extra_special_tokens") or ()
        extra = extra.values() if isinstance(extra, dict) else extra
        named += [values.get("bos_token"), values.get("eos_token")]
        named += [*(values.get("additional_special_tokens") or ()), *extra]
    return dict.fromkeys(filter(None, map(content_of, named)))


def read_wordpiece_json(folder: str) -> TokenizerJson | None:
    """Read the `tokenizer.json` of a folder; None if it is missing, or a KerasHub preset's."""
    path = os.path.join(folder, TOKENIZER_FILE)
    return read_tokenizer_json(path) if files.exists(path) and not vocabulary_folders(folder) else None


def _check_folder(folder: str, values: TokenizerJson | None, vocabulary: Any) -> None:
    """Raise UserError if the files beside a vocabulary declare another tokenizer than BERT's."""
    check_folder(vocabulary, values)
    token_to_id = vocabulary.token_to_id
    num_pieces, num_wordpieces = (
        sum(token.startswith(mark) and token != mark for token in token_to_id) for mark in ("\u2581", "##")
    )
    if num_pieces > num_wordpieces:
        raise UserError(
            f"{folder}: the vocabulary has pieces of SentencePiece, which begin with \u2581; give the model "
            "that it was made from: spiece.model"
        )
    if values is None:
        return
    path, ids = os.path.join(folder, TOKENIZER_FILE), values["model"]["vocab"]
    text_files.check_declared(values["model"], _WORDPIECE_MODEL, path, "model")
    text_files.check_json(ids, dict[str, int], path, "model.vocab")
    different = next((token for token in ids if ids[token] != token_to_id.get(token.strip())), None)
    if different is not None:
        raise UserError(f"{path} and the {VOCAB_FILE} beside it have different ids for {different!r:.80}; restore them")


def complete_token(token: Mapping[str, Any], **defaults: bool) -> dict[str, Any]:
    """Return an added token without its id, with all flags; missing ones are false, or have these defaults."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False) | defaults
    return {"content": token["content"], **{flag: token.get(flag, value) for flag, value in flags.items()}}


def tokenizer_json(*, added_tokens: list[AddedToken], model: dict[str, Any], **steps: Any) -> dict[str, Any]:
    """Make the content of a `tokenizer.json`; `steps` are the normalizer, pre-tokenizer, post-processor and decoder."""
    values = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens}
    return {**values, **steps, "model": model}


class Unigram(NamedTuple):
    pieces: list[tuple[str, float]]  # all tokens with their scores, in the order of their ids
    charsmap: bytes  # the normalization rules, as SentencePiece compiles them
    steps: frozenset[str]  # the types of the steps before these rules
    content: TokenizerJson  # the content of the file

    def is_of(self, kind: Any) -> bool:
        """Return True if the special tokens and normalization steps are those of a vocabulary class."""
        names = tuple(piece for piece, _ in self.pieces)
        first, last = kind.specials_first, kind.specials_last
        has_specials = names[: len(first)] == first and names[len(names) - len(last) :] == last
        has_steps = kind.text_steps - _OPTIONAL <= self.steps <= kind.text_steps
        return has_specials and has_steps and bool(self.charsmap or kind.changes_text)

    def to_sentencepiece(self, kind: Any) -> bytes:
        require("sentencepiece", "sentencepiece")
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        own = [(name, 0.0) for name in kind.own_pieces]
        types = ModelProto.SentencePiece
        named = {_UNKNOWN: types.UNKNOWN, **dict.fromkeys(_CONTROL, types.CONTROL)}
        proto = ModelProto()
        for piece, score in [*own, *self.pieces[len(kind.specials_first) : len(self.pieces) - len(kind.specials_last)]]:
            proto.pieces.add(piece=piece, score=score, type=named.get(piece, types.NORMAL))
        proto.normalizer_spec.precompiled_charsmap = self.charsmap
        return proto.SerializeToString(deterministic=True)


def read_unigram(tokenizer_file: str) -> Unigram:
    """Read a `tokenizer.json` of this type; UserError if its tokenizer differs from a SentencePiece model's."""
    content = read_tokenizer_json(tokenizer_file)
    model = content["model"]
    pieces = model["vocab"]
    kinds = ([str, float], [str, int])
    if type(pieces) is not list or not all(type(piece) is list and [*map(type, piece)] in kinds for piece in pieces):
        raise UserError(f"{tokenizer_file}: model.vocab must be a list of tokens with their scores")
    unknown = next((index for index, (name, _) in enumerate(pieces) if name == _UNKNOWN), None)
    text_files.check_declared(model, {**_UNIGRAM_MODEL, "unk_id": (unknown,)}, tokenizer_file, "model")
    found = read_steps(content, _UNIGRAM_STEPS, tokenizer_file)
    if "Metaspace" not in found or not ("WhitespaceSplit" in found or {"Strip", _SPACES} <= found.keys()):
        raise UserError(f"{tokenizer_file}: pre_tokenizer does not treat spaces as a SentencePiece model does")
    rules = found.get("Precompiled", {}).get("precompiled_charsmap") or ""
    try:
        charsmap = base64.b64decode(rules, validate=True)
    except (TypeError, ValueError) as error:
        raise UserError(f"{tokenizer_file}: the precompiled_charsmap of the normalizer is damaged: {error}") from error
    return Unigram(pieces, charsmap, frozenset(found) & _CHANGING, content)


def not_supported(tokenizer_file: str) -> UserError:
    """Return the error for a tokenizer that cannot be converted to a SentencePiece model."""
    return UserError(
        f"{tokenizer_file} is a {UNIGRAM} tokenizer, but unlike those of ALBERT, XLM-RoBERTa and CamemBERT; put the "
        "SentencePiece model that it was made from beside it: spiece.model, sentencepiece.bpe.model or spm.model"
    )
