"""Overlapping windows over texts that are too long for the model; `graph_windows.py` has the same for the graph.

A piece may be in several windows. With windows of 6 pieces and a stride of 3, the fourth piece has three pieces before
it in the first window, and none in the second; so the first shows more around it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class SlidingWindow(NamedTuple):
    """A text of `num_pieces`, cut into windows of `room` pieces, one every `stride` pieces; the last one is shorter."""

    num_pieces: int
    room: int
    stride: int

    @classmethod
    def of(cls, num_pieces: int, room: int, stride: int | None = None) -> "SlidingWindow":
        """Cut a text; a stride of None is half a window, and one that is larger than a window is a window."""
        return cls(num_pieces, room, min(stride or (room + 1) // 2, room))

    @property
    def num_windows(self) -> int:
        """At least one, so that an empty text has one, too."""
        return 1 + max(0, -(-(self.num_pieces - self.room) // self.stride))  # rounds up

    def first(self, number: int | np.ndarray) -> int | np.ndarray:
        """Return the piece with which a window begins."""
        return number * self.stride

    def length(self, number: int | np.ndarray) -> int | np.ndarray:
        """Return the number of wordpieces that a window holds."""
        return np.minimum(self.room, self.num_pieces - self.first(number))

    def windows(self) -> list[range]:
        """Return the pieces of each window."""
        starts = range(0, self.num_windows * self.stride, self.stride)
        return [range(start, min(start + self.room, self.num_pieces)) for start in starts]

    def best_windows(self, pieces: Sequence[int] | np.ndarray, length_weight: float = 0.0) -> np.ndarray:
        """Find the windows that show most around pieces: on the poorer side of each; of equal windows the first.

        Args:
          pieces: int [P], of the text.
          length_weight: what each piece that a window holds adds to what it shows.

        Returns:
          int [P], their numbers.
        """
        pieces = np.asarray(pieces, np.int64)[:, None]
        last = np.minimum(pieces // self.stride, self.num_windows - 1)
        numbers = last - np.arange((self.room - 1) // self.stride, -1, -1)  # [P, N], all that may hold the piece
        inside, length = pieces - self.first(numbers), self.length(numbers)
        poorer_side = np.minimum(inside, length - 1 - inside)
        scores = np.where((poorer_side >= 0) & (numbers >= 0), poorer_side + length_weight * length, -1.0)
        return np.take_along_axis(numbers, scores.argmax(axis=1)[:, None], axis=1)[:, 0]


def split_windows(
    num_first: int, num_second: int, max_num_tokens: int, stride: int | None = None
) -> list[tuple[range, range]]:
    """Cut the longer of two texts into windows, each beside the whole other one, or the half that fits.

    Args:
      num_first: number of ids of the first text.
      num_second: number of ids of the second text; 0 if there is none.
      max_num_tokens: maximum number of ids of both together in a window.
      stride: ids from the start of one window to the start of the next; None for half of what a window has room for
        beside the other text. A text of 7 ids alone, in windows of 4, gives pieces from 0 to 4, 2 to 6 and 4 to 7.

    Returns:
      The windows: which ids of the first text and which of the second one stands for.
    """
    whole = range(min(num_first, num_second, max_num_tokens // 2))  # beside it there may be less room than a stride
    pieces = SlidingWindow.of(max(num_first, num_second), max_num_tokens - len(whole), stride).windows()
    return [(piece, whole) if num_first > num_second else (whole, piece) for piece in pieces]
