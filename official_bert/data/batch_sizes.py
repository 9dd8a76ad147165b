"""Sizes of batches: padded lengths for similar records, and budgets of positions per batch."""

import dataclasses
import random
from collections.abc import Sequence

import numpy as np

_SHORTEST = 8  # positions; the smallest length that batches are cut to


def padded_lengths(max_length: int, unit: int = _SHORTEST) -> list[int]:
    """Return a short list of padded lengths for batches of similar texts, so that few shapes are compiled."""
    lengths, length, step = [], unit, unit
    while length < max_length:
        lengths.append(length)
        if length == 16 * step:  # end of an octave
            step *= 2
        length += step
    return [*lengths, max_length]


@dataclasses.dataclass(frozen=True)
class TokenBudget:
    num_tokens: int  # maximum number of positions per batch, padding included, over all replicas
    multiple: int = 1  # batch sizes are multiples of this, so that replicas and their parts can share a batch

    def minimum(self, longest: int) -> int:
        return longest * self.multiple

    def split(self, extents: np.ndarray, lengths: Sequence[int], seed: str) -> list[np.ndarray]:
        """Split a pool of examples into batches of similar lengths, in random order.

        The longest come first. Each batch takes as many of the next examples as fit, and the last two share the
        remainder. For example, extents 5 8 2 7 1 1 3 (positions up to the last real one), lengths 4 and 8 and a budget
        of 16 tokens give the batches 8 7, 5 3 and 2 1 1; with another example of length 4, 8 7, 5 4 and 3 2 1 1.
        """
        order = np.argsort(-extents, kind="stable")
        widths = self.widths(extents[order], lengths)
        if self.num_tokens < self.minimum(widths[0]):
            raise ValueError(f"{self} is less than the {self.minimum(widths[0])} tokens that the longest examples need")
        ends = [0]
        while ends[-1] < len(order):
            num_fitting = self._rounded(self.num_tokens // widths[ends[-1]])
            ends.append(min(ends[-1] + num_fitting, len(order)))
        if len(ends) > 2:
            ends[-2] = min(ends[-2], ends[-3] + self._rounded((ends[-1] - ends[-3]) // 2))
        batches = np.split(order, ends[1:-1])
        random.Random(seed).shuffle(batches)
        return batches

    @staticmethod
    def widths(extents: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
        """Return the first of the lengths that holds each extent; int [B]."""
        return np.asarray(lengths)[np.searchsorted(lengths, extents)]

    def _rounded(self, number: int) -> int:
        """Return the largest batch size, up to a limit."""
        return int(number) // self.multiple * self.multiple
