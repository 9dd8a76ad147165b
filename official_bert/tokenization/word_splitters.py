"""Splits texts into words before a WordPiece vocabulary is applied: the flag `--morphemes`.

Kiwi splits Korean texts, MeCab Japanese ones. Both run in Python only, so exports read texts that are split already.
"""

import functools
import importlib
import itertools
import os
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from official_bert.support import text_files
from official_bert.support.errors import UserError, require
from official_bert.tokenization import characters
from official_bert.tokenization.hf_tokenizer import JAPANESE, TokenizerConfig
from official_bert.tokenization.vocab import UNK

_KIWI, _MECAB, _LOWER, _CHARACTERS = "kiwi", "mecab", "lower", "characters"
_DICTIONARIES = {f"{_MECAB}-{name}": name for name in ("unidic_lite", "ipadic", "unidic")}
_ONE_AT_A_TIME = threading.Lock()  # MeCab's words are gone when it splits the next text


class WordSplitter:
    """Splits texts as a value of `--morphemes` says: a name, and steps after commas.

    Examples: `"kiwi"`, `"mecab-unidic_lite"`, `"mecab-ipadic,lower,characters"`.
    """

    def __init__(self, morphemes: str):
        self._name, *self._steps = morphemes.split(",")
        self._is_korean = morphemes == _KIWI
        if not self._is_korean and (self._name not in _DICTIONARIES or not {*self._steps} <= {_LOWER, _CHARACTERS}):
            raise UserError(
                f"morphemes={morphemes!r:.80} is unknown; choose from {_KIWI}, {', '.join(_DICTIONARIES)}; all but the "
                f"first also with ,{_LOWER} and ,{_CHARACTERS}"
            )
        _analyser(self._name)  # raises if it is not installed

    def split(self, text: str, begin: int = 0) -> tuple[str, Sequence[int], Sequence[int]]:
        """Return the words of a text separated by blanks, and the range in the text that each character stands for."""
        form, find_spans = ("NFC", _spans_of_kiwi) if self._is_korean else ("NFKC", _spans_of_mecab)
        units = _normalized_apart(text, form)
        traced = [(part, at) for at, unit in enumerate(units) for part in unicodedata.normalize(form, unit)]
        traced = [pair for pair in traced if not "\ud800" <= pair[0] <= "\udfff"]  # lone surrogates
        with _ONE_AT_A_TIME:
            spans = [*find_spans("".join(pair[0] for pair in traced), _analyser(self._name))]
        words = self._finished(traced[start:end] for start, end in spans)
        spaced = [pair for word in words for pair in (*word, (" ", word[-1][1]))][:-1]
        ends = [*itertools.accumulate(map(len, units), initial=begin)]
        starts, ends = ([ends[at + side] for _, at in spaced] for side in (0, 1))
        return "".join(pair[0] for pair in spaced), starts, ends

    def _finished(self, words: Iterable[list[tuple[str, int]]]) -> Iterator[list[tuple[str, int]]]:
        for word in words:
            if _LOWER in self._steps:
                word = characters.lower_traced(word)
            if _CHARACTERS in self._steps:
                yield from (_unknown([pair]) if pair[0].isspace() else [pair] for pair in word)
            else:
                yield word

    def to_hugging_face(self) -> dict[str, Any]:
        """Return the keys of a `tokenizer_config.json` for MeCab; `transformers` does not know Kiwi."""
        if self._is_korean:
            return {}
        return {
            "tokenizer_class": JAPANESE,
            "do_lower_case": _LOWER in self._steps,
            "word_tokenizer_type": _MECAB,
            "subword_tokenizer_type": "character" if _CHARACTERS in self._steps else "wordpiece",
            "mecab_kwargs": {"mecab_dic": _DICTIONARIES[self._name], "mecab_option": None},
        }


def morphemes_of(config: TokenizerConfig, path: str) -> str | None:
    """Return the value of `--morphemes` for the `tokenizer_config.json` of a BertJapaneseTokenizer with MeCab."""
    is_of_characters = config.get("subword_tokenizer_type") == "character"
    if config.get("word_tokenizer_type") != _MECAB or config.get("do_word_tokenize") is False:
        if is_of_characters:
            raise UserError(f"{path}: subword_tokenizer_type is 'character', which is supported only for MeCab's words")
        return None
    values = config.get("mecab_kwargs") or {}
    known = {"mecab_dic": _DICTIONARIES.values(), "mecab_option": (None, ""), "normalize_text": (True,)}
    text_files.check_declared(values, known, path, "mecab_kwargs")
    steps = {_LOWER: config.get("do_lower_case"), _CHARACTERS: is_of_characters}
    return ",".join([f"{_MECAB}-{values.get('mecab_dic', 'unidic_lite')}", *filter(steps.get, steps)])


def _normalized_apart(text: str, form: str) -> list[str]:
    """Split a text where its normalization does not combine characters."""
    parts: list[str] = []
    for character in text:
        if parts and _combines(parts[-1], character, form):
            parts[-1] += character
        else:
            parts.append(character)
    return parts


@functools.lru_cache(maxsize=1 << 16)
def _combines(text: str, character: str, form: str) -> bool:
    both, first, second = (unicodedata.normalize(form, part) for part in (text + character, text, character))
    return both != first + second or unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


def _unknown(word: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [*((character, word[0][1]) for character in UNK[:-1]), (UNK[-1], word[-1][1])]


def _spans_of_kiwi(text: str, kiwi: Any) -> Iterator[tuple[int, int]]:
    """Cut a text at its morphemes; those that share a character stay together, and what is between them is kept.

    갔다 has the morphemes 가, 었 and 다. The first two share 갔, so that the words are 갔 and 다.
    """
    cuts, last = [0], 0
    for token in kiwi.tokenize(text):
        if token.start >= last:
            cuts += [last, token.start]
        last = max(last, token.start + token.len)
    return (span for span in itertools.pairwise([*cuts, last, len(text)]) if text[slice(*span)].strip())


def _spans_of_mecab(text: str, mecab: Any) -> Iterator[tuple[int, int]]:
    last = 0
    for word in mecab(text.replace("\0", " ")):  # else the text would end there
        start = text.index(word.surface, last)
        last = start + len(word.surface)
        yield start, last


@functools.cache
def _analyser(name: str) -> Any:
    if name == _KIWI:
        require("kiwipiepy", "korean")
        return importlib.import_module("kiwipiepy").Kiwi(num_workers=1)
    require("fugashi", "japanese")
    try:
        folder = importlib.import_module(_DICTIONARIES[name]).DICDIR
        options = f'-d "{folder}" -r "{os.path.join(folder, "mecabrc")}"'
        return importlib.import_module("fugashi").GenericTagger(options)
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"morphemes={name}: MeCab finds no dictionary; run: pip install 'official-bert[japanese]' for ipadic and "
            "unidic_lite, or pip install unidic && python -m unidic download"
        ) from error
