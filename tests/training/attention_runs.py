"""Checks of fused attention on JAX, where XLA computes what cuDNN would; see `test_keras_backends`."""

import dataclasses
import sys
from unittest import mock

import jax
import keras
import numpy as np

from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.families.bert import RobertaConfig
from official_bert.families.deberta import DebertaConfig
from official_bert.families.modernbert import ModernBertConfig
from official_bert.families.mpnet import MPNetConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import FlatLayout
from official_bert.training.jax_attention import AutoLayout, FusedLayout, _has_kernel
from tests.modeling.model_cases import SMALL, S, V

# No padding, and padding at the end, in the middle, at the start and everywhere.
MASK = np.array([[1] * S, [1] * 4 + [0] * 3, [1, 0, 1, 0, 0, 1, 1], [0, 1, 1, 1, 0, 1, 1], [0] * S], np.int32)
IDS = np.random.default_rng(1).integers(2, V, MASK.shape)
SMALL = SMALL | {"num_hidden_layers": 1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = BertConfig(**SMALL)
MODERNBERT = ModernBertConfig(
    **SMALL | {"type_vocab_size": 0, "num_attention_heads": 3, "num_hidden_layers": 2, "local_attention": 2}
)
dot_product_attention = jax.nn.dot_product_attention


def by_xla(*heads, implementation, **options):
    assert implementation == "cudnn"
    return dot_product_attention(*heads, implementation="xla", **options)


def encoder_of(config, **options):
    encoder, rng = BertEncoder(config, **options), np.random.default_rng(2)
    for weight in encoder.trainable_variables:
        weight.assign(weight.path.endswith("gamma") + rng.normal(0, 0.3, weight.shape))
    return encoder


def check_same(config, *, tolerance=1e-5, is_fused=True, **options):
    encoder = encoder_of(config, **options)

    def loss(weights):
        with keras.StatelessScope(zip(encoder.trainable_variables, weights, strict=True)):
            encoded, first = encoder(IDS, MASK, training=True), encoder.pool(IDS, MASK, training=True)
        outputs = [encoded["sequence_output"] * MASK[:, :, None], encoded["pooled_output"][:-1], first[:-1]]
        return sum((output.ravel() * np.cos(np.arange(output.size))).sum() for output in outputs), outputs

    def both(weights):
        for encoder.layout in (FusedLayout, FlatLayout):
            encoder.transformer.needs_probabilities = encoder.layout is FlatLayout  # ModernBERT has blocks otherwise
            yield jax.tree.leaves(jax.grad(loss, has_aux=True)(weights))

    weights = [weight.value for weight in encoder.trainable_variables]
    with mock.patch("jax.nn.dot_product_attention", side_effect=by_xla) as fused:
        results = jax.jit(lambda weights: list(both(weights)))(weights)
    assert fused.called == is_fused
    for found, expected in zip(*results, strict=True):
        found, expected = (np.asarray(array, np.float32) for array in (found, expected))
        np.testing.assert_allclose(found, expected, atol=tolerance * max(1, np.abs(expected).max()))


def check_dropout():
    """Check that `fused` leaves the dropout of probabilities out, and `auto` computes them for it."""
    encoder = encoder_of(dataclasses.replace(BERT, attention_probs_dropout_prob=0.5))
    seeds = [(variable, variable.value) for variable in encoder.non_trainable_variables]

    def encoded(layout, *, training):
        encoder.layout = layout
        with keras.StatelessScope(seeds):
            found = encoder(IDS, MASK, training=training)
        return np.array(found["pooled_output"])[[0, 1, -1]], found["attention_probabilities"][0] is not None

    (dropped, _), (kept, _) = (encoded(FlatLayout, training=training) for training in (True, False))
    assert np.abs(dropped - kept).max() > 0.01
    cases = (FusedLayout, True, kept, False), (AutoLayout, True, dropped, True), (AutoLayout, False, kept, False)
    for layout, training, expected, has_probabilities in cases:
        with mock.patch("jax.nn.dot_product_attention", by_xla):
            found = encoded(layout, training=training)
        assert found[1] == has_probabilities
        np.testing.assert_allclose(found[0], expected, atol=2e-3)  # without tokens, -10000 rounds the scores


def check_kernels():
    heads = [("bfloat16", 64), ("float16", 128), ("float32", 64), ("bfloat16", 12), ("bfloat16", 136)]
    expected = {("cuda 12090", "8.0"): [True, True, False, False, False]}
    for platform, capability in (*expected, ("cuda 12090", "7.5"), ("rocm 60300", "9.4")):
        device = mock.Mock(**{"client.platform_version": platform, "compute_capability": capability})
        with mock.patch("jax.local_devices", return_value=[device]):
            found = [_has_kernel(*each) for each in heads]
        assert found == expected.get((platform, capability), [False] * 5)


if __name__ == "__main__":
    keras.initializers.TruncatedNormal = lambda **_: "zeros"  # all weights are assigned, and JAX compiles each shape
    with mock.patch("official_bert.training.jax_attention._has_kernel", lambda *heads: True):
        if sys.argv[1] == "bert":
            check_dropout()
            check_same(BERT, dtype="mixed_bfloat16", tolerance=4e-2)
        else:
            check_same(MPNetConfig(**SMALL | {"type_vocab_size": 0}), is_fused=False)
            check_same(dataclasses.replace(BERT, attention_direction="left_to_right"), recompute_layers=True)
            check_same(RobertaConfig(**SMALL))
            check_same(AlbertConfig(**SMALL, embedding_size=5))
            with mock.patch("official_bert.modeling.modernbert._SMALLEST_BLOCK", 1):
                check_same(MODERNBERT, is_fused=False)
            check_same(DebertaConfig(**SMALL | {"type_vocab_size": 0, "position_buckets": 6}), is_fused=False)
    check_kernels()
