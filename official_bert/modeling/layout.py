"""How the vectors of a batch are laid out between attention, which mixes them, and all else, which does not.

The plain layout is `PaddedSequences`. `FlatSequences` keeps padding, too, and has all vectors in one matrix. Another
one, made from the mask of a batch, leaves padding out: see `unpadding`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from keras import ops


class Layout(Protocol):
    """Where the vectors of a batch lie; their width is D = N * H."""

    def pack(self, sequences: Any) -> Any:
        """Brings padded sequences, float [B, S, D], into the layout."""

    def unpack(self, x: Any) -> Any:
        """Gives the padded sequences again, float [B, S, D]."""

    def first(self, x: Any) -> "tuple[Any, Layout]":
        """Selects the first vector of each sequence: B vectors and their layout."""

    def split_heads(self, x: Any, num_heads: int) -> Any:
        """Gives the heads of vectors: float [B, N, S, H]."""

    def join_heads(self, heads: Any) -> Any:
        """Makes vectors in the layout of heads, float [B, N, S, H]."""


class PaddedSequences:
    """The vectors are float [B, S, D]."""

    def pack(self, sequences):
        """Brings padded sequences into the layout."""
        return sequences

    def unpack(self, x):
        """Gives the padded sequences again."""
        return x

    def first(self, x):
        """Selects the first vector of each sequence."""
        return x[:, :1], self

    def split_heads(self, x, num_heads):
        """Gives the heads of vectors."""
        heads = ops.reshape(x, (*ops.shape(x)[:2], num_heads, x.shape[-1] // num_heads))  # [B, S, N, H]
        return ops.transpose(heads, (0, 2, 1, 3))

    def join_heads(self, heads):
        """Makes vectors of heads."""
        joined = ops.transpose(heads, (0, 2, 1, 3))  # [B, S, N, H]
        return ops.reshape(joined, (*ops.shape(joined)[:2], heads.shape[1] * heads.shape[3]))


PADDED = PaddedSequences()


class FlatSequences(NamedTuple):
    """The vectors are float [B * S, D], so that a linear layer is one product of two matrices whatever S is.

    LiteRT runs such a product fast at lengths that it learns only when it is called.

    Attributes:
      batch_size: B.
    """

    batch_size: Any

    @classmethod
    def of(cls, input_mask, num_heads: int) -> "FlatSequences":
        """The layout of sequences with this mask, int32 [B, S]."""
        del num_heads
        return cls(ops.shape(input_mask)[0])

    def pack(self, sequences):
        """Brings padded sequences into the layout."""
        return ops.reshape(sequences, (-1, sequences.shape[-1]))

    def unpack(self, x):
        """Gives the padded sequences again."""
        return ops.reshape(x, (self.batch_size, -1, x.shape[-1]))

    def first(self, x):
        """Selects the first vector of each sequence."""
        return self.unpack(x)[:, 0], self

    def split_heads(self, x, num_heads):
        """Gives the heads of vectors."""
        heads = ops.reshape(x, (self.batch_size, -1, num_heads, x.shape[-1] // num_heads))  # [B, S, N, H]
        return ops.transpose(heads, (0, 2, 1, 3))

    def join_heads(self, heads):
        """Makes vectors of heads."""
        return ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), (-1, heads.shape[1] * heads.shape[3]))


# Makes the layout of a batch, given its mask, int32 [B, S], and the number of heads.
LayoutMaker = Callable[[Any, int], Layout]


def padded_sequences(input_mask, num_heads) -> Layout:
    """The `LayoutMaker` that changes nothing."""
    del input_mask, num_heads
    return PADDED
