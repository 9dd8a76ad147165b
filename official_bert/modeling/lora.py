"""LoRA: trainable low-rank updates of the kernels of an encoder's layers, on top of Keras's own for dense layers."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import keras

from official_bert.config.tensor_names import LORA

if TYPE_CHECKING:
    from official_bert.modeling.transformer import TransformerLayer


class LoraSettings(NamedTuple):
    """The size and the places of the updates.

    Attributes:
      rank: rank of each update.
      alpha: numerator of the factor alpha / rank, by which the updates are multiplied.
      layers: the dense layers of each transformer layer that have one: "query", "key", "value" of attention; "dense"
        for all others.
    """

    rank: int
    alpha: float
    layers: Sequence[str] = ("query", "value")


def add_lora(encoder: keras.Model, transformer_layers: "Iterable[TransformerLayer]", settings: LoraSettings) -> None:
    """Add updates to the kernels of an encoder, and freeze its other weights, except those of its pooler.

    A kernel W, float [in, out], becomes W + alpha / rank * A @ B, with A float [in, rank] and B float [rank, out]. B is
    0 at first, so that the encoder computes the same as before. The paths of the other variables stay. The pooler is
    trained, since in some families it belongs to the head and is newly initialized.

    Args:
      encoder: the encoder, built.
      transformer_layers: its layers; those that share their weights share the updates.
      settings: the size and the places of the updates.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2022.
    """
    dense_layers = {id(dense): dense for layer in transformer_layers for dense in _chosen(layer, settings.layers)}
    for dense in dense_layers.values():
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


def _chosen(layer: "TransformerLayer", names: Sequence[str]) -> Iterator[keras.layers.Dense]:
    attention = layer.attention.self_attention
    yield from (getattr(attention, name) for name in ("query", "key", "value") if name in names)
    if "dense" in names:
        yield from (layer.attention.residual_output.dense, layer.intermediate.dense, layer.residual_output.dense)
