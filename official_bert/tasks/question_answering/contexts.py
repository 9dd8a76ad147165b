"""Tokenize each context once, in several processes that start quickly because they do not import TensorFlow."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.support.processes import Workers, available_cores
from official_bert.support.progress import Progress
from official_bert.tasks.question_answering.examples import split_words
from official_bert.tokenization import Tokenizer

ALIGNMENTS = ("reference", "offsets")

_CHARACTERS_WORTH_A_PROCESS = 2_000_000  # takes about as long to tokenize as a process takes to start
_CONTEXTS_IN_A_TASK = 64


class TokenizedContext(NamedTuple):
    """The P wordpieces of a context of W words.

    Attributes:
      ids: int32 [P], wordpiece ids.
      word_of_piece: int32 [P], index of the word that contains each wordpiece.
      word_starts: int32 [W], offset of each word's first character.
      starts: int32 [P], offset of each wordpiece's first character; [0] unless created for "offsets".
      ends: int32 [P], offset after each wordpiece's last character; [0] unless created for "offsets".
    """

    ids: np.ndarray
    word_of_piece: np.ndarray
    word_starts: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def tokenize_contexts(
    contexts: Sequence[str], tokenizer: Tokenizer, *, answer_alignment: str, num_processes: int | None = None
) -> list[TokenizedContext]:
    """Tokenize contexts.

    Args:
      contexts: the texts.
      tokenizer: converts texts to ids.
      answer_alignment: one of `ALIGNMENTS`; "offsets" also stores each wordpiece's offsets in the text.
      num_processes: maximum number of processes; None for one per processor. Small inputs stay in this process.

    Returns:
      One result per context, in order, independent of the number of processes.

    Raises:
      UserError: a process died.
    """
    worth_starting = sum(map(len, contexts)) // _CHARACTERS_WORTH_A_PROCESS
    num_processes = max(1, min(num_processes or available_cores(), worth_starting))
    batches = [contexts[start : start + _CONTEXTS_IN_A_TASK] for start in range(0, len(contexts), _CONTEXTS_IN_A_TASK)]
    tokenized = []
    with (
        Workers(num_processes, tokenizer, answer_alignment, name="tokenizes contexts") as workers,
        Progress("tokenizing", len(contexts), "contexts") as progress,
    ):
        for batch in workers.map(_tokenize_batch, batches):
            tokenized += batch
            progress.update(len(tokenized))
    return tokenized


def _tokenize_batch(contexts: Sequence[str], tokenizer: Tokenizer, answer_alignment: str) -> list[TokenizedContext]:
    return [tokenize_context(context, tokenizer, answer_alignment) for context in contexts]


def tokenize_context(context: str, tokenizer: Tokenizer, answer_alignment: str) -> TokenizedContext:
    """Tokenize one context; see `tokenize_contexts` for the arguments."""
    words = split_words(context)
    word_starts = _integers(words.starts)
    if answer_alignment == "offsets":
        ids, starts, ends = map(_integers, tokenizer.encode_with_offsets(context))
        word_of_piece = _integers(np.searchsorted(word_starts, starts, side="right") - 1)
        return TokenizedContext(ids, word_of_piece, word_starts, starts, ends)
    ids_of_words = [tokenizer.encode(word) for word in words.texts]
    word_of_piece = np.repeat(_integers(range(len(ids_of_words))), _integers(map(len, ids_of_words)))
    ids = _integers(itertools.chain.from_iterable(ids_of_words))
    return TokenizedContext(ids, word_of_piece, word_starts, _integers([]), _integers([]))


def _integers(numbers: Iterable[int]) -> np.ndarray:
    return np.fromiter(numbers, np.int32)
