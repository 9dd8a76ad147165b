"""Options of an encoder's computation that affect speed and memory but not the results or the architecture.

Padding can be left out: the tokens of all sequences of a batch are then stored one after another. Everything but
attention treats each position independently, so the cost of a batch is proportional to its tokens. Their number varies
between batches, which TensorFlow handles well on CPU and GPU; XLA and TPUs need fixed shapes.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert.config.bert_config import LORA
from official_bert.modeling.transformer import TransformerLayer, TransformerStack, attend

# B: sequences, S: positions, T: tokens, A: tokens of the longest sequence, N: heads, H: head width, D = N * H.


class LoraSettings(NamedTuple):
    """The size and the places of the updates."""

    rank: int  # rank of each update
    alpha: float  # numerator of the factor alpha / rank, by which the updates are multiplied
    # the dense layers of each transformer layer that have one: "query", "key", "value" of attention; "dense" for
    # all others
    layers: Sequence[str] = ("query", "value")


def add_lora(encoder: keras.Model, settings: LoraSettings) -> None:
    """Add updates to the kernels of an encoder, and freeze its other weights, except those of its pooler.

    A kernel W, float [in, out], becomes W + alpha / rank * A @ B, with A float [in, rank] and B float [rank, out]. B is
    0 at first, so that the encoder computes the same as before. The paths of the other variables stay. The pooler is
    trained, since in some families it belongs to the head and is newly initialized.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2022.
    """
    layers = encoder.transformer.layers
    for dense in {id(dense): dense for layer in layers for dense in _chosen(layer, settings.layers)}.values():
        with contextlib.ExitStack() as scopes:
            for scope in dense.kernel.path.split("/")[:-2]:  # the layer itself adds its own
                scopes.enter_context(keras.name_scope(scope))
            dense.enable_lora(settings.rank, lora_alpha=settings.alpha)
    for weight in encoder.weights:
        weight.trainable = LORA in weight.path or "/pooler/" in weight.path


def lora_scale(model: keras.Model) -> float | None:
    """Return the factor alpha / rank of a model's updates; None if it has none."""
    with_updates = (layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False))
    return next((layer.lora_alpha / layer.lora_rank for layer in with_updates), None)


def _chosen(layer: TransformerLayer, names: Sequence[str]) -> Iterator[keras.layers.Dense]:
    attention = layer.attention.self_attention
    yield from (getattr(attention, name) for name in ("query", "key", "value") if name in names)
    yield from layer.dense_layers if "dense" in names else ()


@dataclasses.dataclass(frozen=True)  # not a tuple, whose members must all be tensors or none in a Keras call
class FlatLayout:
    """Layout with the vectors of all positions, float [B * S, D], so that a linear layer is one matrix product.

    With vectors of shape [B, S, D], TensorFlow computes shapes for each product, and LiteRT is slow if the length is
    known only at run time.
    """

    batch_size: Any  # B
    length: Any  # S
    attend = staticmethod(attend)

    @classmethod
    def from_mask(cls, input_mask, stack: TransformerStack) -> "FlatLayout":
        del stack
        return cls(*ops.shape(input_mask))

    def attended(self, input_mask):
        """Return the mask of the positions in attention: all of them."""
        return input_mask

    def pack(self, sequences):
        return ops.reshape(sequences, (-1, sequences.shape[-1]))

    def unpack(self, x):
        return ops.reshape(x, (self.batch_size, self.length, x.shape[-1]))

    def first(self, x) -> tuple[Any, "FlatLayout"]:
        """Select the first vector of each sequence: float [B, D]; also return their layout."""
        return self.unpack(x)[:, 0], dataclasses.replace(self, length=1)

    def split_heads(self, x, num_heads):
        heads = ops.reshape(x, (self.batch_size, self.length, num_heads, x.shape[-1] // num_heads))  # [B, S, N, H]
        return ops.transpose(heads, (0, 2, 1, 3))

    def join_heads(self, heads):
        return ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), (-1, heads.shape[1] * heads.shape[3]))


class UnpaddedLayout(NamedTuple):
    """Layout with the vectors of all tokens, float [T, D], without padding.

    In attention, sequences are padded to the longest of the batch.
    """

    positions: Any  # int32 [T], index of each token among the B * S positions
    # int32 [B, S], index of each position among the tokens; at padding, that of the last token before it, whose
    # vector `unpack` repeats there
    tokens: Any
    split: Any  # int32 [B, N, A], index of each position's heads among the T * N heads of all tokens
    join: Any  # int32 [T, N], index of each token's heads among the B * N * A heads of all positions
    attend = staticmethod(attend)

    @classmethod
    def from_mask(cls, input_mask, stack: TransformerStack) -> "UnpaddedLayout":
        """Find the tokens of padded sequences; the first position always counts, so that no sequence is empty.

        Args:
          input_mask: int32 [B, S], 1 for a real position and 0 for padding.
        """
        input_mask = ops.cast(input_mask, "int32")
        is_token = ops.concatenate([ops.ones_like(input_mask[:, :1]), input_mask[:, 1:]], axis=1)  # [B, S]
        (positions,) = ops.nonzero(ops.reshape(is_token, (-1,)))
        tokens = ops.reshape(ops.cumsum(ops.reshape(is_token, (-1,))) - 1, ops.shape(input_mask))
        return cls._with_heads(ops.cast(positions, "int32"), tokens, stack.num_heads)

    @staticmethod
    def gather_rows(x, indices):
        """Gather rows of x; indices must not be negative."""
        return ops.take(x, indices, axis=0)

    @classmethod
    def _with_heads(cls, positions, tokens, num_heads: int) -> "UnpaddedLayout":
        heads, length = ops.arange(num_heads, dtype="int32"), ops.shape(tokens)[1]
        rows, columns = positions // length, positions % length  # [T]
        longest = ops.max(columns, initial=0) + 1  # 1 without sequences
        split = tokens[:, None, :longest] * num_heads + heads[:, None]  # [B, N, A]
        rows_before = (rows * num_heads)[:, None] + heads  # [T, N]
        return cls(positions, tokens, split, rows_before * longest + columns[:, None])

    def attended(self, input_mask):
        """Return the mask of the positions in attention: int32 [B, S] to [B, A]."""
        return input_mask[:, : ops.shape(self.split)[2]]

    def pack(self, sequences):
        """Remove the padding of sequences: float [B, S, D] to [T, D]."""
        return self.gather_rows(ops.reshape(sequences, (-1, sequences.shape[-1])), self.positions)

    def unpack(self, x):
        """Restore the padding: float [T, D] to [B, S, D]."""
        return self.gather_rows(x, self.tokens)

    def first(self, x) -> tuple[Any, "UnpaddedLayout"]:
        """Select the first token of each sequence: float [T, D] to [B, D]; also return their layout."""
        rows = self.tokens[:, 0]
        numbers = ops.arange(ops.shape(rows)[0], dtype="int32")
        return self.gather_rows(x, rows), self._with_heads(numbers, numbers[:, None], self.split.shape[1])

    # Gathering single heads instead of whole vectors also produces the order that attention needs.

    def split_heads(self, x, num_heads: int):
        """Split vectors into heads: float [T, D] to [B, N, A, H]."""
        return self.gather_rows(ops.reshape(x, (-1, x.shape[-1] // num_heads)), self.split)

    def join_heads(self, heads):
        """Join heads into vectors: float [B, N, A, H] to [T, D]."""
        num_heads, head_width = heads.shape[1], heads.shape[3]
        joined = self.gather_rows(ops.reshape(heads, (-1, head_width)), self.join)  # [T, N, H]
        return ops.reshape(joined, (-1, num_heads * head_width))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """Options of an encoder's computation; the weights are the same for all of them."""

    use_one_hot_embeddings: bool = False  # see `BertEncoder`
    layout: Any = FlatLayout  # see `BertEncoder`
    # Keras dtype policy, such as "mixed_bfloat16", also used by models built on the encoder. None for the default
    dtype: str | None = None
    recompute_layers: bool = False  # see `BertEncoder`
    lora: LoraSettings | None = None  # see `BertEncoder`


PLAIN = EncoderOptions()

UNPADDED = EncoderOptions(layout=UnpaddedLayout)
