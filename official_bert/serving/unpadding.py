"""Leaves padding out of the computation: the tokens of all sequences of a batch are stored one after another.

Everything but attention treats each position on its own, so a batch costs what its tokens cost, without padding. Their
number differs from batch to batch, which TensorFlow handles well on CPU and GPU.
"""

from typing import NamedTuple

import tensorflow as tf

# B: sequences, S: positions, T: tokens, N: heads, H: head width, D = N * H.


class UnpaddedLayout(NamedTuple):
    """A `Layout`: the vectors of all tokens are float [T, D].

    Attributes:
      positions: int32 [T], each token's index among the B * S positions.
      tokens: int32 [B, S], each position's index among the tokens; at padding that of the last token before it, whose
        vector `unpack` repeats there.
      split: int32 [B, N, S], each position's heads among the T * N of all tokens.
      join: int32 [T, N], each token's heads among the B * N * S of all positions.
    """

    positions: tf.Tensor
    tokens: tf.Tensor
    split: tf.Tensor
    join: tf.Tensor

    @classmethod
    def of(cls, input_mask: tf.Tensor, num_heads: int) -> "UnpaddedLayout":
        """Finds the tokens of padded sequences; the first position of each is one, so that none is empty.

        Args:
          input_mask: int32 [B, S], 1 for a real position and 0 for padding.
          num_heads: N.
        """
        input_mask = tf.cast(input_mask, tf.int32)
        is_token = tf.concat([tf.ones_like(input_mask[:, :1]), input_mask[:, 1:]], axis=1)  # [B, S]
        positions = tf.cast(tf.where(tf.reshape(is_token, [-1]))[:, 0], tf.int32)
        tokens = tf.reshape(tf.cumsum(tf.reshape(is_token, [-1])) - 1, tf.shape(input_mask))
        return cls._with_heads(positions, tokens, num_heads)

    @classmethod
    def _with_heads(cls, positions: tf.Tensor, tokens: tf.Tensor, num_heads: int) -> "UnpaddedLayout":
        heads, length = tf.range(num_heads), tf.shape(tokens)[1]
        split = tokens[:, tf.newaxis] * num_heads + heads[:, tf.newaxis]  # [B, N, S]
        rows_before = (positions // length * num_heads)[:, tf.newaxis] + heads  # [T, N]
        return cls(positions, tokens, split, rows_before * length + (positions % length)[:, tf.newaxis])

    def pack(self, sequences: tf.Tensor) -> tf.Tensor:
        """Leaves the padding of sequences out: float [B, S, D] to [T, D]."""
        return tf.gather(tf.reshape(sequences, [-1, sequences.shape[-1]]), self.positions)

    def unpack(self, x: tf.Tensor) -> tf.Tensor:
        """Puts the padding back: float [T, D] to [B, S, D]."""
        return tf.gather(x, self.tokens)

    def first(self, x: tf.Tensor) -> tuple[tf.Tensor, "UnpaddedLayout"]:
        """Selects the first token of each sequence: float [T, D] to [B, D], and their layout."""
        rows = self.tokens[:, 0]
        numbers = tf.range(tf.size(rows))
        return tf.gather(x, rows), self._with_heads(numbers, numbers[:, tf.newaxis], self.split.shape[1])

    # Gathering single heads instead of whole vectors also brings them into the order that attention needs.

    def split_heads(self, x: tf.Tensor, num_heads: int) -> tf.Tensor:
        """Splits vectors into heads: float [T, D] to [B, N, S, H]."""
        return tf.gather(tf.reshape(x, [-1, x.shape[-1] // num_heads]), self.split)

    def join_heads(self, heads: tf.Tensor) -> tf.Tensor:
        """Joins heads into vectors: float [B, N, S, H] to [T, D]."""
        num_heads, head_width = heads.shape[1], heads.shape[3]
        joined = tf.gather(tf.reshape(heads, [-1, head_width]), self.join)  # [T, N, H]
        return tf.reshape(joined, [-1, num_heads * head_width])
