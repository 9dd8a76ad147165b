"""Tokenizes the contexts of questions, each once, in several processes; needs no TensorFlow, so those start fast."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official_bert.tokenization import FullTokenizer

ALIGNMENTS = ("reference", "offsets")


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
      num_processes: processes to share the work; None takes one a processor. Little work is done in this process.

    Returns:
      As many, in their order, the same for any number of processes.
    """
    raise NotImplementedError
