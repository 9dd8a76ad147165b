"""Overlapping windows over texts that are too long for the model; `graph_windows.py` has the same in TensorFlow.

A wordpiece may be in several windows. With windows of 6 wordpieces and a stride of 3, the fourth wordpiece has three
wordpieces before it in the first window and none in the second, so the first window gives it more context.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class SlidingWindow(NamedTuple):
    """Windows of a text of `num_wordpieces`, of at most `max_tokens` each, one every `stride` wordpieces."""

    num_wordpieces: int
    max_tokens: int
    stride: int

    @classmethod
    def from_lengths(cls, num_wordpieces: int, max_tokens: int, stride: int | None = None) -> "SlidingWindow":
        """Cut a text into windows; a stride of None is half a window, and the stride is at most a window."""
        return cls(num_wordpieces, max_tokens, min(stride or (max_tokens + 1) // 2, max_tokens))

    @property
    def num_windows(self) -> int:
        """Number of windows; at least one, even for an empty text."""
        return 1 + max(0, -(-(self.num_wordpieces - self.max_tokens) // self.stride))  # rounds up

    def first(self, number: int | np.ndarray) -> int | np.ndarray:
        """Return the first wordpiece of a window."""
        return number * self.stride

    def length(self, number: int | np.ndarray) -> int | np.ndarray:
        """Return the number of wordpieces in a window."""
        return np.minimum(self.max_tokens, self.num_wordpieces - self.first(number))

    def windows(self) -> list[range]:
        """Return the wordpieces of each window."""
        starts = range(0, self.num_windows * self.stride, self.stride)
        return [range(start, min(start + self.max_tokens, self.num_wordpieces)) for start in starts]

    def best_windows(self, wordpieces: Sequence[int] | np.ndarray, length_weight: float = 0.0) -> np.ndarray:
        """Find the window that gives each wordpiece the most context on its shorter side; the first if tied.

        Args:
          wordpieces: int [P], of the text.
          length_weight: score added for each wordpiece of a window.

        Returns:
          int [P], window numbers.
        """
        wordpieces = np.asarray(wordpieces, np.int64)[:, None]
        last = np.minimum(wordpieces // self.stride, self.num_windows - 1)
        # All windows that may hold each wordpiece, [P, N].
        numbers = last - np.arange((self.max_tokens - 1) // self.stride, -1, -1)
        inside, length = wordpieces - self.first(numbers), self.length(numbers)
        poorer_side = np.minimum(inside, length - 1 - inside)
        scores = np.where((poorer_side >= 0) & (numbers >= 0), poorer_side + length_weight * length, -1.0)
        return np.take_along_axis(numbers, scores.argmax(axis=1)[:, None], axis=1)[:, 0]


def split_windows(
    num_first: int, num_second: int, max_num_tokens: int, stride: int | None = None
) -> list[tuple[range, range]]:
    """Cut the longer of two texts into windows, each beside the whole shorter one, or the half that fits.

    Args:
      num_first: number of ids of the first text.
      num_second: number of ids of the second text; 0 if there is none.
      max_num_tokens: maximum number of ids of both together in a window.
      stride: ids from the start of one window to the start of the next; None for half of the ids that a window has
        beside the other text. A text of 7 ids alone, in windows of 4, gives wordpieces from 0 to 4, 2 to 6 and 4 to 7.

    Returns:
      For each window, its ranges of ids in the first and the second text.
    """
    whole = range(min(num_first, num_second, max_num_tokens // 2))  # this may leave less room than the stride
    wordpieces = SlidingWindow.from_lengths(max(num_first, num_second), max_num_tokens - len(whole), stride).windows()
    return [(piece, whole) if num_first > num_second else (whole, piece) for piece in wordpieces]
