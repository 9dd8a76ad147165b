"""Reads the vocabulary and text settings in a model's folder.

The folder is that of a released checkpoint, the output folder of a run, or a Hugging Face folder.
"""

import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from official_bert.config import model_formats
from official_bert.config.sentence_modules import read_encoder_settings
from official_bert.config.text_settings import TextSettings
from official_bert.families.family import FAMILY_KEY, MODEL_TYPE, all_families
from official_bert.support import files, text_files
from official_bert.support.errors import UserError
from official_bert.tokenization.hf_tokenizer import (
    ADDED_TOKENS_FILE,
    BPE,
    BPE_FILE,
    JAPANESE,
    KOBERT_FILE,
    PIECES_FILE,
    SPECIALS,
    SPLIT_AT_WHITE_SPACE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    UNIGRAM,
    VOCAB_FILE,
    WORDPIECE,
    WORDPIECE_FILE,
    not_supported,
    read_steps,
    read_tokenizer_config,
    read_unigram,
    read_wordpiece_json,
    type_of,
)
from official_bert.tokenization.vocab import Vocabulary
from official_bert.tokenization.word_splitters import morphemes_of

# Released checkpoints whose names do not give their casing.
_UNCASED_NAMES = ("multilingual_L-12_H-768_A-12", "chinese_L-12_H-768_A-12")
_STEPS = {
    "normalizer": {
        "BertNormalizer": {
            "clean_text": (True,),
            "handle_chinese_chars": (True, False),
            "strip_accents": (True, False, None),
            "lowercase": (True, False),
        }
    },
    "pre_tokenizer": {
        "BertPreTokenizer": {},
        "WhitespaceSplit": {},
        "Punctuation": {"behavior": ("Isolated",)},
        "Split": {name: (value,) for name, value in SPLIT_AT_WHITE_SPACE.items()},
    },
}
_CASED_FRACTION = 0.01  # fraction of the wordpieces with Latin letters; a few uppercase ones may be placeholders
_PRETRAINING = "pretraining"  # the task whose runs may have no vocabulary
_RUN_CONFIG_FILE = "run_config.json"  # `training.run_folder` writes it


def check_casing(vocabulary: Vocabulary, settings: TextSettings, *, init_checkpoint: str | None) -> None:
    """Raise if lowercasing the text is certainly wrong; warn if keeping its case probably is."""
    do_lower_case = settings.do_lower_case
    folder, name = os.path.split(init_checkpoint or "")
    if name.startswith("bert_model.ckpt") and settings.basic_tokenize:  # else words may be lowercased already
        released = os.path.basename(folder)
        named_uncased = released.removeprefix("wwm_").startswith("uncased_L-") or released in _UNCASED_NAMES
        named_cased = released.removeprefix("wwm_").startswith(("cased_L-", "multi_cased_L-"))
        if (named_uncased and not do_lower_case) or (named_cased and do_lower_case):
            raise UserError(
                f"do_lower_case={str(do_lower_case).lower()}, but init_checkpoint={init_checkpoint} is "
                f"{'an uncased' if named_uncased else 'a cased'} model; give do_lower_case={str(named_uncased).lower()}"
            )
    num_upper, num_with_letters = _count_upper(vocabulary)
    if do_lower_case and is_cased(vocabulary):
        raise UserError(
            f"do_lower_case=true, but {vocabulary.source} is cased ({num_upper:,} wordpieces have capital letters, "
            "which lowercased text never has); give do_lower_case=false"
        )
    if not (do_lower_case or settings.morphemes) and num_with_letters and not num_upper:
        logging.warning(
            "%s, but %s has no capital letters: words with capitals become [UNK]", settings, vocabulary.source
        )


def is_cased(vocabulary: Vocabulary) -> bool:
    num_upper, num_with_letters = _count_upper(vocabulary)
    return num_upper > _CASED_FRACTION * num_with_letters


def _count_upper(vocabulary: Vocabulary) -> tuple[int, int]:
    """Count the wordpieces with capital Latin letters, and those with any Latin letters."""
    words = map(vocabulary.characters_of, vocabulary.token_to_id)
    words = [word for word in words if word.isascii() and word.isalpha()]
    return sum(word != word.lower() for word in words), len(words)


def tokenizer_kinds() -> dict[str, Any]:
    """Return the tokenizer classes of all families, keyed by the name of the vocabulary file."""
    kinds = (family.tokenizer() for family in all_families().values())
    kinds = {kind.vocabulary_class.file_name: kind for kind in kinds}
    return {WORDPIECE_FILE: kinds[VOCAB_FILE], **kinds}


def kind_of_file(vocab_file: str, flag: str | None = None) -> Any:
    """Return the tokenizer class of a vocabulary file by its content, its name or, for any name, its flag."""
    kinds = tokenizer_kinds()
    if vocab_file.endswith(".json") and files.exists(vocab_file):
        return kinds[_kind_of_json(vocab_file)]
    flag = flag or ("spm_model_file" if vocab_file.endswith((".model", ".spm")) else Vocabulary.flag)
    if flag == Vocabulary.flag:
        return kinds[VOCAB_FILE]
    models = {kind: kind.vocabulary_class for kind in kinds.values() if kind.vocabulary_class.flag == flag}
    fitting = [kind for kind, of in models.items() if vocab_file.endswith((of.file_name, of.their_file_name))] or [
        *models
    ]
    # If several kinds use this file name in a Hugging Face folder, the model's class decides.
    family = _family_beside(vocab_file) if len(fitting) > 1 else None
    return family if family in fitting else fitting[0]


def _kind_of_json(vocab_file: str) -> str:
    """Return the file name that identifies the kind of a `tokenizer.json` or `vocab.json`."""
    model = text_files.read_json(vocab_file, "tokenizer", max_bytes=text_files.MAX_VOCAB_BYTES).get("model", {})
    if isinstance(model, int):  # a token of a vocab.json
        return BPE_FILE
    if not isinstance(model, dict):
        return Vocabulary.file_name
    kind = type_of(model) or (UNIGRAM if isinstance(model.get("vocab"), list) else BPE)
    if kind == UNIGRAM:
        unigram, kinds = read_unigram(vocab_file), [kind.vocabulary_class for kind in tokenizer_kinds().values()]
        fitting = (kind.file_name for kind in kinds if kind.flag == "spm_model_file" and unigram.is_of(kind))
        if (file_name := next(fitting, None)) is None:
            raise not_supported(vocab_file)
        return file_name
    return BPE_FILE if kind == BPE else Vocabulary.file_name


def _family_beside(vocab_file: str) -> Any:
    """Return the tokenizer class of the family given by the `config.json` of a file's model, or None."""
    path = os.path.join(model_formats.model_folder(vocab_file), "config.json")
    values = text_files.read_json(path, "model config") if files.exists(path) else {}
    row = model_formats.config_format(path)
    name = model_formats.load_module(row).config_values(path).get(FAMILY_KEY) if row else values.get(MODEL_TYPE)
    return all_families()[name].tokenizer() if isinstance(name, str) and name in all_families() else None


def content_of_copy(path: str) -> bytes:
    """Return the content for the copy of a model file; a Hugging Face tokenizer is rewritten as our vocabulary."""
    name = os.path.basename(path)
    if name == VOCAB_FILE and name_of_copy(path) != VOCAB_FILE:
        return Vocabulary.from_file(path).file_content
    if name in (TOKENIZER_FILE, PIECES_FILE, model_formats.PRESET_PIECES_FILE):
        return kind_of_file(path).vocabulary_class.from_file(path).file_content
    with files.open_file(path, "rb") as source:
        return source.read()


def name_of_copy(path: str, flag: str | None = None) -> str:
    """Return the file name of a vocabulary beside a model of ours; for the arguments see `kind_of_file`."""
    kind = kind_of_file(path, flag).vocabulary_class
    folder, name = os.path.split(path)
    beside = (ADDED_TOKENS_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE)
    is_theirs = name == VOCAB_FILE and any(files.exists(os.path.join(folder, name)) for name in beside)
    if kind is Vocabulary and (is_theirs or name.endswith(".json")):
        files.check_regular(path)
        return kind.from_file(path).file_name
    return kind.file_name


def find_vocabulary(folder: str) -> str:
    if not files.exists(folder):
        raise UserError(f"there is no folder {folder}; write a model of the Hugging Face Hub as hf://owner/name")
    if not files.is_folder(folder):
        raise UserError(f"{folder} is a file; give its folder, or read a vocab.txt with FullTokenizer(vocab_file)")
    path = try_find_vocabulary(folder)
    if path is None:
        if instead := model_formats.described(folder):
            raise UserError(f"{folder} {instead}")
        names = [*_vocabulary_files(folder), *model_formats.vocabulary_folders(folder)]
        raise UserError(f"{folder} has no vocabulary: neither {' nor '.join(names)} exists")
    return path


def try_find_vocabulary(folder: str) -> str | None:
    """Find the vocabulary as `find_vocabulary` does; return None if there is none."""
    paths = (os.path.join(folder, name) for name in (KOBERT_FILE, *_vocabulary_files(folder)))
    return model_formats.find_vocabulary(folder) or next((path for path in paths if files.exists(path)), None)


def _vocabulary_files(folder: str) -> list[str]:
    """Return the possible names of a vocabulary file; the first that exists is used."""
    # The tokenizer.json of a KerasHub preset has only settings.
    theirs = [] if model_formats.vocabulary_folders(folder) else [TOKENIZER_FILE, PIECES_FILE]
    return [*tokenizer_kinds(), *theirs]


def find_settings(folder: str, vocabulary: Vocabulary, given: Mapping[str, bool]) -> TextSettings:
    if given.keys() >= TextSettings().recorded.keys():
        return TextSettings(**given).check()
    found, sources = recorded_settings(folder)
    if not vocabulary.changes_text:
        if read_encoder_settings(folder).get("do_lower_case"):
            raise UserError(
                f"{folder}: do_lower_case is true in the settings of sentence-transformers, which is not supported "
                f"with {os.path.basename(vocabulary.source)}: its tokenizer takes text as it is"
            )
        return TextSettings(**{"do_lower_case": False, **given})
    found |= vocabulary.declared
    sources |= dict.fromkeys(vocabulary.declared, TOKENIZER_FILE)
    if "do_lower_case" not in found:
        is_lower = found["do_lower_case"] = not is_cased(vocabulary)
        sources["do_lower_case"] = (
            f"the vocabulary, which has {'no' if is_lower else 'wordpieces with'} capital letters"
        )
    settings = TextSettings(**found).updated(**given).check()
    for name, value in settings.changed.items():
        if name not in given:
            source = sources[name] if found[name] == value else "basic_tokenize=false"
            logging.info("%s: %s=%s according to %s", folder, name, str(value).lower(), source)
    return settings


def recorded_settings(folder: str) -> tuple[dict[str, bool], dict[str, str]]:
    """Return the settings recorded in a folder's files, and the name of the file for each."""
    found, sources, names = {}, {}, (TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)
    for values, source in (
        (_settings_of_run(folder), _RUN_CONFIG_FILE),
        (read_settings(folder), next((name for name in names if files.exists(os.path.join(folder, name))), "")),
        model_formats.text_settings(folder),
    ):
        found |= values
        sources |= dict.fromkeys(values, source)
    return found, sources


def _settings_of_run(folder: str) -> dict[str, bool]:
    path = os.path.join(folder, _RUN_CONFIG_FILE)
    if not files.exists(path):
        return {}
    run = text_files.read_json(path, "settings of a run", finite=False)
    flags = run.get("flags")
    has_vocabulary = isinstance(flags, dict) and (flags.get("vocab_file") or flags.get("spm_model_file"))
    if run.get("task") == _PRETRAINING and not has_vocabulary:
        return {}  # it read records, which do not record the text settings
    values = {name: flags.get(name) for name in TextSettings._fields} if isinstance(flags, dict) else {"": "missing"}
    if not all(isinstance(value, bool | None) or name == "morphemes" for name, value in values.items()):
        raise UserError(f"{path} was not written by a run; restore it or pass {', '.join(TextSettings._fields)}")
    return {name: value for name, value in values.items() if value is not None}


def read_settings(folder: str) -> dict[str, bool]:
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


def _settings_of_config(folder: str) -> dict[str, bool | str]:
    config, path = read_tokenizer_config(folder), os.path.join(folder, TOKENIZER_CONFIG_FILE)
    if others := set(config.get("never_split") or ()) - set(SPECIALS.values()):
        raise UserError(f"{path}: never_split has {min(others)!r:.80}, which is not supported; make it an added token")
    if config.get("keep_accents"):
        raise UserError(f"{path}: keep_accents is true, which is not supported: accents are dropped")
    named = config.get("tokenizer_class") or read_tokenizer_config(folder, "config.json").get("tokenizer_class")
    if named == JAPANESE:
        if morphemes := morphemes_of(config, path):
            return {"do_lower_case": False, "basic_tokenize": False, "morphemes": morphemes}
        config = {"do_lower_case": False, **config, "tokenize_chinese_chars": False}
        config["do_basic_tokenize"] = config.get("do_word_tokenize")
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
    path, values = os.path.join(folder, TOKENIZER_FILE), read_wordpiece_json(folder)
    if values is None or type_of(values["model"]) != WORDPIECE or not {"normalizer", "pre_tokenizer"} & values.keys():
        return {}
    steps = read_steps(values, _STEPS, path)
    if steps.keys() in ({"WhitespaceSplit"}, {"Split"}):
        return {"do_lower_case": False, "basic_tokenize": False}
    splits = steps.keys() - {"BertNormalizer"}
    if len(splits) == len(steps) or splits not in ({"BertPreTokenizer"}, {"WhitespaceSplit", "Punctuation"}):
        raise UserError(
            f"{path}: the steps are {', '.join(steps) or 'none'}; a WordPiece model needs BertNormalizer and "
            "BertPreTokenizer, or WhitespaceSplit alone"
        )
    normalizer = steps["BertNormalizer"]
    lowercase, strips = normalizer.get("lowercase", True), normalizer.get("strip_accents")
    return {
        "do_lower_case": lowercase,
        "strip_accents" if lowercase else "strip_accents_only": lowercase if strips is None else strips,
        "basic_tokenize": True,
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
    }
