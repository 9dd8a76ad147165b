"""Vocabulary changes: add wordpieces of a new domain, or remove unused ones."""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from official_bert.data.vocab_learner import SPECIAL_PIECES
from official_bert.support.errors import UserError
from official_bert.tokenization.vocab import CONTINUATION, UNK, Vocabulary
from official_bert.tokenization.wordpiece import WordpieceTokenizer

_UNUSED = re.compile(r"\[unused[0-9]*\]")


class VocabularyChange(NamedTuple):
    """A new vocabulary, and the sources of its embedding rows.

    Attributes:
      tokens: the new tokens, by id.
      sources: old ids for each new id; its embedding is the mean of theirs.
    """

    tokens: list[str]
    sources: list[list[int]]


class Coverage(NamedTuple):
    """Statistics on how a vocabulary splits a text.

    Attributes:
      num_words: number of words of the text.
      num_wordpieces: number of their wordpieces; an unknown word counts as one.
      num_unknown: number of unknown words.
    """

    num_words: int
    num_wordpieces: int
    num_unknown: int

    def __str__(self) -> str:
        return (
            f"{self.num_wordpieces / self.num_words:.3f} wordpieces per word, "
            f"{100 * self.num_unknown / self.num_words:.2f}% of the words unknown"
        )


def coverage(tokens: Collection[str], word_counts: Mapping[str, int]) -> Coverage:
    """Count how a vocabulary splits the words of a text.

    Args:
      tokens: the vocabulary.
      word_counts: word to number of occurrences.

    Raises:
      UserError: there are no words.
    """
    if not word_counts:
        raise UserError("the text has no words")
    tokenizer = WordpieceTokenizer(set(tokens))
    num_wordpieces = num_unknown = 0
    for word, count in word_counts.items():
        wordpieces = tokenizer.split_word(word)
        num_wordpieces += count * len(wordpieces)
        num_unknown += count * (wordpieces == [UNK])
    return Coverage(sum(word_counts.values()), num_wordpieces, num_unknown)


def tokens_by_id(vocabulary: Vocabulary) -> list[str]:
    """Return the tokens of a vocabulary, by id; all but the last of repeated tokens are replaced by unused tokens."""
    return [vocabulary.id_to_token.get(index, f"[unused_line_{index + 1}]") for index in range(vocabulary.size)]


def extended(
    vocabulary: Vocabulary,
    learned: Iterable[str],
    word_counts: Mapping[str, int],
    *,
    num_new_tokens: int,
    use_unused: bool,
) -> VocabularyChange:
    """Add the wordpieces to a vocabulary that shorten a text most.

    Each use of a candidate, with all candidates in the vocabulary, saves the number of old wordpieces it replaces minus
    one; if these are unknown, it saves its number of characters.

    Args:
      vocabulary: the vocabulary.
      learned: the candidates; existing tokens are skipped.
      word_counts: word of the text to number of occurrences.
      num_new_tokens: maximum number of tokens to add.
      use_unused: whether to replace tokens such as [unused7] first; the remaining wordpieces are appended.

    Returns:
      The new vocabulary. The embedding of a new token is the mean of those of its old wordpieces.
    """
    old = WordpieceTokenizer(vocabulary.token_to_id)
    parts = {piece: _split(old, piece) for piece in learned if piece not in vocabulary.token_to_id}
    savings = _savings(vocabulary, parts, word_counts)
    chosen = sorted(savings, key=lambda piece: (-savings[piece], piece))[:num_new_tokens]
    tokens = tokens_by_id(vocabulary)
    sources = [[index] for index in range(len(tokens))]
    unused = [index for index, token in enumerate(tokens) if _UNUSED.fullmatch(token)] if use_unused else []
    for piece, place in itertools.zip_longest(chosen, unused[: len(chosen)]):
        source = vocabulary.ids(parts[piece])
        if place is None:
            tokens.append(piece)
            sources.append(source)
        else:
            tokens[place], sources[place] = piece, source
    return VocabularyChange(tokens, sources)


def _split(tokenizer: WordpieceTokenizer, piece: str) -> list[str]:
    is_continuation = piece.startswith(CONTINUATION)
    return tokenizer.split_word(piece.removeprefix(CONTINUATION), is_continuation=is_continuation)


def _savings(
    vocabulary: Vocabulary, parts: Mapping[str, Sequence[str]], word_counts: Mapping[str, int]
) -> Counter[str]:
    """Count the wordpieces of a text that each candidate saves; see `extended`."""
    tokenizer = WordpieceTokenizer(vocabulary.token_to_id.keys() | parts.keys())
    savings: Counter[str] = Counter()
    for word, count in word_counts.items():
        for piece in tokenizer.split_word(word):
            if piece in parts:
                is_unknown = parts[piece] == [UNK]
                each = len(piece.removeprefix(CONTINUATION)) if is_unknown else len(parts[piece]) - 1
                savings[piece] += count * each
    return savings


def pruned(
    vocabulary: Vocabulary, word_counts: Mapping[str, int], *, min_count: int, keep_characters: bool
) -> VocabularyChange:
    """Remove the wordpieces that a text does not use.

    With `min_count=1` the text is tokenized as before, since every match is a used wordpiece.

    Args:
      vocabulary: the vocabulary.
      word_counts: word of the text to number of occurrences.
      min_count: minimum number of uses for a wordpiece to be kept.
      keep_characters: whether to keep all single-character wordpieces whose character occurs in the text.

    Returns:
      The new vocabulary: special tokens, id 0 (padding), and the used wordpieces, in the old order.
    """
    if not word_counts:
        raise UserError("the text has no words")
    tokenizer = WordpieceTokenizer(vocabulary.token_to_id)
    used: Counter[str] = Counter()
    for word, count in word_counts.items():
        for piece in tokenizer.split_word(word):
            used[piece] += count
    kept = {*SPECIAL_PIECES, *(piece for piece, count in used.items() if count >= min_count)}
    if keep_characters:
        characters = set().union(*word_counts)
        kept |= {piece for piece in vocabulary.token_to_id if piece.removeprefix(CONTINUATION) in characters}
    ids = [index for index, token in enumerate(tokens_by_id(vocabulary)) if index == 0 or token in kept]
    return VocabularyChange([vocabulary.id_to_token[index] for index in ids], [[index] for index in ids])
