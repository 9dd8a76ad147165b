"""Fused attention on JAX, by cuDNN's kernels on NVIDIA GPUs, as layouts for `modeling.encoder`.

The kernels store no probabilities and drop none out. They get the number of tokens of each sequence, not the bias: they
would need all of it, [B, 1, T, T], compute its gradient too, and some would return NaN. Therefore the tokens are moved
before the padding, wherever that is. Attention does not depend on their order; left to right, they keep it.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from absl import logging

from official_bert.modeling.encoder_options import FlatLayout
from official_bert.modeling.transformer import TransformerStack, attend

_log = functools.cache(logging.info)  # each message once, not for each layer


@dataclasses.dataclass(frozen=True)
class AutoLayout(FlatLayout):
    """Layout with fused attention wherever there is a kernel and no probabilities are dropped out."""

    order: Any  # int32 [B, S], positions of the tokens, then of the padding
    lengths: Any  # int32 [B], number of tokens

    @classmethod
    def from_mask(cls, input_mask, stack: TransformerStack) -> FlatLayout:
        if stack.scores_distances:
            _log("attention: plain, because it depends on relative positions")
            return FlatLayout.from_mask(input_mask, stack)
        is_padding = input_mask == 0
        lengths = jnp.sum(~is_padding, axis=1, dtype="int32")
        # Without any token, the bias is the same at all positions, as if there were no padding.
        lengths = jnp.where(lengths == 0, input_mask.shape[1], lengths)
        return cls(*input_mask.shape, jnp.argsort(is_padding, axis=1, stable=True), lengths)

    def attended(self, input_mask):
        return (jnp.arange(input_mask.shape[1]) < self.lengths[:, None]).astype("int32")

    def pack(self, sequences):
        return super().pack(_reorder(sequences, self.order))

    def unpack(self, x):
        return _reorder(super().unpack(x), jnp.argsort(self.order, axis=1))

    def attend(self, query, key, value, bias, drop_out=None):
        """Compute attention like `transformer.attend`, but return no probabilities if it is fused."""
        if query.shape[2] == 1:  # the last layer for a pooled output, too small to matter
            return attend(query, key, value, bias, drop_out)
        is_fused = not drop_out and _has_kernel(query.dtype.name, query.shape[3])
        dropout = " with dropout of probabilities" if drop_out else ""
        plain = f"plain, in {query.dtype.name} on {jax.local_devices()[0].device_kind}"
        _log("attention%s: %s", dropout, "fused, by cuDNN" if is_fused else plain)
        if not is_fused:
            return attend(query, key, value, bias, drop_out)
        context = jax.nn.dot_product_attention(
            *(heads.transpose(0, 2, 1, 3) for heads in (query, key, value)),  # [B, T, N, H]
            key_value_seq_lengths=self.lengths,
            is_causal=bias.shape[2] > 1,  # the bias of padding alone is [B, 1, 1, T]
            implementation="cudnn",
        )
        return context.transpose(0, 2, 1, 3), None


class FusedLayout(AutoLayout):
    """Layout that drops no probabilities out, so that attention can be fused in training, too."""

    def attend(self, query, key, value, bias, drop_out=None):
        if drop_out:
            _log("attention=fused: attention_probs_dropout_prob has no effect")
        return super().attend(query, key, value, bias)


LAYOUTS = {"auto": AutoLayout, "fused": FusedLayout, "plain": FlatLayout}  # by --attention


def _has_kernel(dtype: str, head_width: int) -> bool:
    """Return True if cuDNN has a kernel for such heads on this GPU; see JAX's `fused_attention_stablehlo.py`."""
    device = jax.local_devices()[0]
    is_new = "cuda" in device.client.platform_version and float(device.compute_capability) >= 8.0
    return is_new and dtype in ("bfloat16", "float16") and head_width <= 128 and head_width % 8 == 0


def _reorder(sequences, order):
    def reorder(sequence, order):  # unlike that of `take_along_axis`, its gradient relies on unique indices
        return sequence.at[order].get(unique_indices=True, mode="promise_in_bounds")

    return jax.vmap(reorder)(sequences, order)
