"""The tokenizer's rules and vocabulary as integer arrays, for `graph_tokenizer`.

Both tables use letters instead of code points: letter 0 separates words, letter 1 is any character that no wordpiece
contains, the others are the vocabulary's characters. A `CharacterRule` is the result of `characters.rewrite` for
a code point; `PieceTable` stores the vocabulary so that the longest wordpiece is found in few steps.
"""

import functools
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.config.text_settings import TextSettings
from official_bert.tokenization import characters
from official_bert.tokenization.characters import SigmaContext
from official_bert.tokenization.full_tokenizer import is_of_word
from official_bert.tokenization.vocab import CONTINUATION

SEPARATOR, UNKNOWN_LETTER, FIRST_LETTER = 0, 1, 2
CAPITAL_SIGMA, FINAL_SIGMA = "Σ", "ς"
NUM_CODE_POINTS = 0x110000

# Rewriting does not change these, except ideographs: unassigned, private use, surrogates.
_CATEGORIES_WITHOUT_RULES = frozenset(("Cn", "Co", "Cs"))


class CharacterRule(NamedTuple):
    """Treatment of a character."""

    letters: tuple[int, ...]  # the letters that replace it; empty if it is deleted or an accent
    # role of the character next to a capital sigma, if the tokenizer lowercases
    sigma_context: SigmaContext = SigmaContext.OTHER
    is_sigma: bool = False  # whether it is the capital sigma, which has a different lowercase form at the end of a word
    is_accent: bool = False  # whether it is dropped and belongs to the character before it
    blocks_reordering: bool = False  # whether it is dropped but combining characters are not reordered across it
    # for each letter, whether a token of a single word cannot be beside it; only if that is asked for
    are_of_words: tuple[bool, ...] = ()

    @property
    def is_boundary(self) -> bool:
        """True if the character does not affect the tokenization of the text before it."""
        return self.letters[:1] == (SEPARATOR,) and self.sigma_context == SigmaContext.OTHER


@functools.lru_cache(maxsize=4)
def make_character_table(
    numbered_letters: tuple[tuple[str, int], ...], settings: TextSettings, *, marks_words: bool = False
) -> tuple[np.ndarray, tuple[CharacterRule, ...]]:
    """Return the index of every code point's rule, and the distinct rules; this takes seconds, so it is cached."""
    letters = dict(numbered_letters)
    number_of_rule = {CharacterRule((UNKNOWN_LETTER,), are_of_words=(False,) * marks_words): 0}
    rule_of_code_point = np.zeros(NUM_CODE_POINTS, np.int32)

    def number(character: str) -> int:
        return number_of_rule.setdefault(_rule(character, letters, settings, marks_words), len(number_of_rule))

    blocks, others = _characters_with_rules()
    for block in blocks:
        example = next((char for char in block if char not in letters), block[0])
        rule_of_code_point[ord(block[0]) : ord(block[-1]) + 1] = number(example)
    for character in itertools.chain(others, letters):
        rule_of_code_point[ord(character)] = number(character)
    return rule_of_code_point, tuple(number_of_rule)


@functools.cache
def _characters_with_rules() -> tuple[Sequence[str], Sequence[str]]:
    """Return the characters that rewriting may change: blocks that it treats alike, and all others.

    They are an eighth of all code points. Most are ideographs or other letters without case, in blocks.
    """
    cjk = set().union(*characters.cjk_blocks())
    blocks, others = [block for block in characters.cjk_blocks() if characters.is_kept(block)], set(cjk)
    for category, characters_of_run in itertools.groupby(map(chr, range(NUM_CODE_POINTS)), unicodedata.category):
        run = "".join(characters_of_run)
        if category == "Lo" and characters.is_kept(run) and cjk.isdisjoint(run):
            blocks.append(run)
        elif category not in _CATEGORIES_WITHOUT_RULES:
            others.update(run)
    return blocks, sorted(others.difference(*blocks))


def _rule(character: str, letters: dict[str, int], settings: TextSettings, marks_words: bool) -> CharacterRule:
    rewritten, cleaned = characters.rewrite(character, settings), characters.clean(character)
    is_accent = not rewritten and cleaned != ""
    return CharacterRule(
        tuple([SEPARATOR if part.isspace() else letters.get(part, UNKNOWN_LETTER) for part in rewritten]),
        sigma_context=characters.sigma_context(cleaned) if settings.do_lower_case else SigmaContext.OTHER,
        is_sigma=settings.do_lower_case and character == CAPITAL_SIGMA,
        is_accent=is_accent,
        blocks_reordering=is_accent and characters.blocks_reordering(character),
        # The spaces around punctuation, such as "_", are not in the text.
        are_of_words=tuple(
            is_of_word(character if part == " " and characters.is_punctuation(character) else part)
            for part in (rewritten if marks_words else "")
        ),
    )


def letters_of(tokens: Iterable[str]) -> dict[str, int]:
    """Assign numbers from `FIRST_LETTER` on to the characters of tokens."""
    return {letter: FIRST_LETTER + index for index, letter in enumerate(sorted(set().union(*tokens)))}


class PieceTable:
    """The vocabulary as numbered strings: single letters, blocks of 2, 4, 8, ... letters, and prefixes.

    A wordpiece is matched from its start in strides of halving length: "harbour" is the block "harb" after the start of
    a word, then "ou", then "r". Equal strings share a name; only prefixes that wordpieces need have one.
    """

    def __init__(self, token_to_id: dict[str, int], letters: dict[str, int], *, basic_tokenize: bool):
        # names of the empty prefixes of a word's first wordpiece and of its others
        self.word_start = FIRST_LETTER + len(letters)
        self.inner_start = self.word_start + 1
        # names of a string and of the block after it, to the name of both; also builds blocks from their halves
        self.joins: dict[tuple[int, int], int] = {}
        self.num_strides = 0  # the longest wordpiece has fewer than `2 ** num_strides` letters
        self._num_names = self.inner_start + 1
        self._blocks = dict(letters)
        beginnings: dict[int, tuple[str, str]] = {}  # name -> "" or CONTINUATION, and the letters
        for piece in token_to_id:
            is_inner = piece.startswith(CONTINUATION)
            kinds = [CONTINUATION] if is_inner else []
            if not is_inner or not basic_tokenize:
                kinds.append("")
            for prefix in kinds:
                text = piece.removeprefix(prefix)
                self.num_strides = max(self.num_strides, len(text).bit_length())
                for end, name in self._name_prefixes(self.inner_start if prefix else self.word_start, text):
                    beginnings[name] = prefix, text[:end]
        # int32 [names]: the id of the longest wordpiece that a prefix starts with, and its letters; 0 if there is none
        self.piece_ids, self.piece_lengths = np.zeros((2, self._num_names), np.int32)
        for name, (prefix, text) in beginnings.items():
            for length in range(len(text), 0, -1):
                if prefix + text[:length] in token_to_id:
                    self.piece_ids[name], self.piece_lengths[name] = token_to_id[prefix + text[:length]], length
                    break

    def _name_prefixes(self, name: int, text: str) -> Iterator[tuple[int, int]]:
        """Split a wordpiece into strides: the powers of 2 that add up to its length, largest first."""
        start = 0
        for bit in reversed(range(len(text).bit_length())):
            if len(text) & (1 << bit):
                end = start + (1 << bit)
                name = self._join(name, self._name_block(text[start:end]))
                yield end, name
                start = end

    def _name_block(self, block: str) -> int:
        if block not in self._blocks:
            half = len(block) // 2
            self._blocks[block] = self._join(self._name_block(block[:half]), self._name_block(block[half:]))
        return self._blocks[block]

    def _join(self, left: int, right: int) -> int:
        name = self.joins.setdefault((left, right), self._num_names)
        self._num_names = max(self._num_names, name + 1)
        return name
