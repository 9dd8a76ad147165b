"""Tokenizes the contexts of questions, each once, in several processes, which start fast without TensorFlow."""

import itertools
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

import numpy as np

from official_bert.support.errors import UserError
from official_bert.support.progress import Progress
from official_bert.tasks.question_answering.examples import split_words
from official_bert.tokenization import FullTokenizer

ALIGNMENTS = ("reference", "offsets")

_CHARACTERS_WORTH_A_PROCESS = 2_000_000  # tokenized in about the time that a process takes to start
_CONTEXTS_IN_A_TASK = 64


class TokenizedContext(NamedTuple):
    """The P wordpieces of a context of W words.

    Attributes:
      ids: int32 [P].
      word_of_piece: int32 [P], the word that each piece is part of.
      word_starts: int32 [W], the character at which each word begins.
      starts: int32 [P], the character at which each piece begins; [0] unless made for "offsets".
      ends: int32 [P], the character after each piece; [0] unless made for "offsets".
    """

    ids: np.ndarray
    word_of_piece: np.ndarray
    word_starts: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def tokenize_contexts(
    contexts: Sequence[str], tokenizer: FullTokenizer, *, answer_alignment: str, num_processes: int | None = None
) -> list[TokenizedContext]:
    """Tokenizes contexts.

    Args:
      contexts: the texts.
      tokenizer: turns them into ids.
      answer_alignment: one of `ALIGNMENTS`; "offsets" also says where each piece stands in the text.
      num_processes: maximum number of processes; None for one per processor. Little work is done in this process.

    Returns:
      As many, in their order, the same for any number of processes.

    Raises:
      UserError: a process died.
    """
    worth_starting = sum(map(len, contexts)) // _CHARACTERS_WORTH_A_PROCESS
    num_processes = min(num_processes or os.cpu_count() or 1, worth_starting)
    if num_processes > 1:
        results = _map_in_processes(num_processes, contexts, tokenizer, answer_alignment)
    else:
        results = (tokenize_context(context, tokenizer, answer_alignment) for context in contexts)
    tokenized = []
    with Progress("tokenizing", len(contexts), "contexts") as progress:
        for context in results:
            tokenized.append(context)
            progress.update(len(tokenized))
    return tokenized


def tokenize_context(context: str, tokenizer: FullTokenizer, answer_alignment: str) -> TokenizedContext:
    """Tokenizes one context; the arguments are those of `tokenize_contexts`."""
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


# What a process needs for all its work is sent to it once, when it starts.
_worker_settings: tuple[FullTokenizer, str] | None = None


def _start_worker(*settings) -> None:
    global _worker_settings
    _worker_settings = settings


def _tokenize_in_worker(context: str) -> TokenizedContext:
    return tokenize_context(context, *_worker_settings)


def _map_in_processes(num_processes: int, contexts: Sequence[str], *settings) -> Iterator[TokenizedContext]:
    """Applies `tokenize_context` with these settings."""
    # Not by forking: a copy of a process in which TensorFlow's threads run may hang.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, mp_context=spawn, initializer=_start_worker, initargs=settings) as pool:
        try:
            yield from pool.map(_tokenize_in_worker, contexts, chunksize=_CONTEXTS_IN_A_TASK)
        except BrokenProcessPool as error:
            raise UserError(
                "a process that tokenizes contexts ended before its work was done, perhaps because memory ran out; "
                "try again with fewer processes"
            ) from error
