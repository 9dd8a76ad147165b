"""WordPiece tokenizers of Hugging Face folders: their text settings and added tokens; what is not supported is refused.

`tokenizer.json` comes before `tokenizer_config.json`. `Vocabulary.from_file` and the reading of text settings use it.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from official_bert.config import model_formats
from official_bert.config.sentence_modules import read_encoder_settings
from official_bert.families.family import Family, all_families
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tokenization.hf_tokenizer import (
    SPECIALS,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    WORDPIECE,
    AddedToken,
    TokenizerJson,
    check_declared,
    check_specials,
    check_template,
    content_of,
    declared_class,
    read_added_tokens,
    read_specials_map,
    read_tokenizer_config,
    read_tokenizer_json,
    steps_of,
    template_of,
    type_of,
)

VOCAB_FILE, WORDPIECE_FILE = "vocab.txt", "wordpiece.json"  # the latter holds a vocabulary with added tokens
_CLASSES = (
    *("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "SqueezeBert", "RetriBert", "LayoutLM", "Lxmert"),
    *("DPRContextEncoder", "DPRQuestionEncoder", "DPRReader", "PreTrained"),
)
_SUPPORTED_CLASSES = {"TokenizersBackend", *(f"{name}Tokenizer{fast}" for name in _CLASSES for fast in ("", "Fast"))}
_MODEL_KEYS = {
    "type": None,
    "vocab": None,
    "unk_token": ("[UNK]",),
    "continuing_subword_prefix": ("##",),
    "max_input_chars_per_word": (100, 200),  # that of transformers, and ours: see docs/differences.md
}
BERT_SPLIT = {"type": "BertPreTokenizer"}
# As `str.split`: the other white space of Python is "\x1c" to "\x1f".
SPLIT_AT_WHITE_SPACE = {
    "type": "Split", "pattern": {"Regex": r"[\s\x1c-\x1f]+"}, "behavior": "Removed", "invert": False,
}  # fmt: skip
_SPLITS_AT_PUNCTUATION = (
    [BERT_SPLIT],
    [{"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}],
)
_SPLITS_AT_WHITE_SPACE = ([SPLIT_AT_WHITE_SPACE], [{"type": "WhitespaceSplit"}])


def bert_normalizer(*, strip_accents: bool | None, lowercase: bool, handle_chinese_chars: bool) -> dict[str, Any]:
    """Return the `normalizer` of a `tokenizer.json`."""
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": handle_chinese_chars,
        "strip_accents": strip_accents,
        "lowercase": lowercase,
    }


def bert_post_processor(token_to_id: Mapping[str, int]) -> dict[str, Any]:
    """Return the `post_processor` of a `tokenizer.json` that joins texts as BERT does."""
    cls, sep = ((name, token_to_id.get(name)) for name in (SPECIALS["cls_token"], SPECIALS["sep_token"]))
    return template_of(cls, sep, num_between=1, second_segment=1)


def _read_json(folder: str) -> TokenizerJson | None:
    """Read the `tokenizer.json` of a folder; None if it is missing."""
    path = os.path.join(folder, TOKENIZER_FILE)
    is_theirs = files.exists(path) and not model_formats.vocabulary_folders(folder)
    return read_tokenizer_json(path) if is_theirs else None


def read_settings(folder: str) -> dict[str, bool]:
    """Read the text settings of `tokenizer.json` and `tokenizer_config.json`."""
    found, declared = _settings_of_config(folder), _settings_of_json(folder)
    for name in found.keys() & declared.keys():
        if found[name] != declared[name]:
            raise UserError(
                f"{os.path.join(folder, TOKENIZER_CONFIG_FILE)} means {name}={str(found[name]).lower()}, but "
                f"{TOKENIZER_FILE} means {str(declared[name]).lower()}; correct one of them"
            )
    found |= declared
    is_cased = found.get("do_lower_case") is False and found.get("basic_tokenize", True)
    if is_cased and read_encoder_settings(folder).get("do_lower_case") is True:
        found |= {"do_lower_case": True, "strip_accents": found.pop("strip_accents_only", False)}
    return found


def _settings_of_config(folder: str) -> dict[str, bool]:
    config, path = read_tokenizer_config(folder), os.path.join(folder, TOKENIZER_CONFIG_FILE)
    if others := set(config.get("never_split") or ()) - set(SPECIALS.values()):
        raise UserError(f"{path}: never_split has {min(others)!r:.80}, which is not supported; make it an added token")
    if config.get("keep_accents"):
        raise UserError(f"{path}: keep_accents is true, which is not supported: accents are dropped")
    if config.get("do_basic_tokenize") is False:  # then the other keys have no effect
        return {"do_lower_case": False, "basic_tokenize": False}
    lowercase = config.get("do_lower_case")
    found = {
        "do_lower_case": lowercase,
        "strip_accents_only" if lowercase is False else "strip_accents": config.get("strip_accents"),
        "tokenize_chinese_chars": config.get("tokenize_chinese_chars"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _settings_of_json(folder: str) -> dict[str, bool]:
    path, values = os.path.join(folder, TOKENIZER_FILE), _read_json(folder)
    if values is None or type_of(values["model"]) != WORDPIECE or not {"normalizer", "pre_tokenizer"} & values.keys():
        return {}
    normalizers, splits = steps_of(values, "normalizer", path), steps_of(values, "pre_tokenizer", path)
    split = [step for _, step in splits]
    if not normalizers and split in _SPLITS_AT_WHITE_SPACE:
        return {"do_lower_case": False, "basic_tokenize": False}
    if split not in _SPLITS_AT_PUNCTUATION:
        raise _not_supported(path, "pre_tokenizer", split)
    if [step.get("type") for _, step in normalizers] != ["BertNormalizer"]:
        raise _not_supported(path, "normalizer", [step for _, step in normalizers])
    ((place, normalizer),) = normalizers
    flags = ("handle_chinese_chars", "lowercase")
    known = {"type": None, "clean_text": (True,), "strip_accents": (True, False, None)}
    check_declared(normalizer, known | dict.fromkeys(flags, (True, False)), path, place)
    lowercase = normalizer.get("lowercase", True)
    strips = normalizer.get("strip_accents")
    return {
        "do_lower_case": lowercase,
        "strip_accents" if lowercase else "strip_accents_only": lowercase if strips is None else strips,
        "basic_tokenize": True,
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
    }


def _not_supported(path: str, part: str, steps: list[dict[str, Any]]) -> UserError:
    kinds = " and ".join(str(step.get("type"))[:40] for step in steps) or "null"
    return UserError(
        f"{path}: the {part} is {kinds}, which is not supported here; a WordPiece model needs BertNormalizer with "
        "BertPreTokenizer, or WhitespaceSplit without a normalizer"
    )


def added_tokens(vocab_file: str, token_to_id: Mapping[str, int]) -> list[AddedToken]:
    """Return the tokens that are added to a WordPiece vocabulary, without the special tokens of BERT."""
    folder, name = os.path.split(vocab_file)
    if name in (VOCAB_FILE, TOKENIZER_FILE):
        values = _read_json(folder)
        _check_folder(folder, values, token_to_id)
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
            raise UserError(
                f"{vocab_file}: the added token {content!r:.80} has {'no id' if index is None else f'the id {index}'}; "
                f"it must have {right}, "
                f"{'as in the vocabulary' if content in token_to_id else 'the first free one'}"
            )
        if content in SPECIALS.values():
            continue
        if content != content.strip() or not content or "\n" in content:
            raise UserError(
                f"{vocab_file}: the added token {content!r:.80} is empty, or begins or ends with white space"
            )
        next_id += content not in token_to_id
        special = token.get("special", content in named)
        flags = {name: token.get(name, False) for name in ("single_word", "lstrip", "rstrip")}
        normalized = token.get("normalized", not special)
        added.append({"id": index, "content": content, **flags, "normalized": normalized, "special": special})
    return added


def _named_specials(folder: str) -> dict[str, Any]:
    """Return the further special tokens that a folder names, as `transformers` reads its files."""
    config, named = read_tokenizer_config(folder), []
    for values in (config, {} if "added_tokens_decoder" in config else read_specials_map(folder)):
        extra = values.get("extra_special_tokens") or ()
        extra = extra.values() if isinstance(extra, dict) else extra
        named += [values.get("bos_token"), values.get("eos_token")]
        named += [*(values.get("additional_special_tokens") or ()), *extra]
    return dict.fromkeys(filter(None, map(content_of, named)))


def _check_folder(folder: str, values: TokenizerJson | None, token_to_id: Mapping[str, int]) -> None:
    """Raise UserError if the files beside a vocabulary declare another tokenizer than BERT's."""
    config, kind = read_tokenizer_config(folder), declared_class(folder)
    others = {"word_tokenizer_type": ("basic",), "subword_tokenizer_type": ("wordpiece",)}
    families = {
        family.hugging_face.tokenizer_class for family in all_families() if family.tokenizer == Family.tokenizer
    }
    if kind is not None and kind not in _SUPPORTED_CLASSES | families:
        what = f"tokenizer_class is {kind!r:.80}"
    elif other := next((key for key in others if config.get(key) not in (None, *others[key])), None):
        what = f"{other} is {config[other]!r:.80}"
    elif _count(token_to_id, "\u2581") > _count(token_to_id, "##"):
        what = "the vocabulary has pieces of SentencePiece, which begin with \u2581"
    elif values is not None and (other := type_of(values["model"])) != WORDPIECE:
        what = f"the {TOKENIZER_FILE} is of type {other!r:.80}"
    else:
        what = ""
    if what:
        raise UserError(
            f"{folder}: {what}; its tokenizer is not supported, only BERT's. For text that another program split into "
            "words, copy the vocab.txt alone to another folder and give basic_tokenize=false"
        )
    check_specials(folder, SPECIALS)
    if values is None:
        return
    path = os.path.join(folder, TOKENIZER_FILE)
    check_declared(values["model"], _MODEL_KEYS, path, "model")
    check_template(values, path, bert_post_processor(token_to_id))
    ids = values["model"]["vocab"]
    different = next((token for token in ids if ids[token] != token_to_id.get(token.strip())), None)
    if different is not None:
        raise UserError(f"{path} and the {VOCAB_FILE} beside it have different ids for {different!r:.80}; restore them")


def _count(tokens: Iterable[str], prefix: str) -> int:
    return sum(token.startswith(prefix) and token != prefix for token in tokens)
