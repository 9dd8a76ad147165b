"""Without padding, the last layer only at [CLS], or local attention in blocks: same results."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.families.deberta import DebertaConfig
from official_bert.families.modernbert import ModernBertConfig
from official_bert.families.mpnet import MPNetConfig
from official_bert.modeling.encoder_options import FlatLayout, UnpaddedLayout
from tests.conftest import slow
from tests.modeling.model_cases import random_encoder

TOLERANCE = 1e-6
KINDS = {
    "bert": (BertConfig, {"type_vocab_size": 2}),
    "mpnet": (MPNetConfig, {}),
    "deberta": (DebertaConfig, {"position_buckets": 6}),
    "modernbert": (ModernBertConfig, {"local_attention": 4, "classifier_pooling": "mean"}),
    "in blocks": (ModernBertConfig, {"local_attention": 2}),
    "in blocks, left to right": (ModernBertConfig, {"local_attention": 3, "attention_direction": "left_to_right"}),
}


@pytest.fixture(scope="module", params=["bert", *slow(*[*KINDS][1:])])
def encoders(request):
    """Encoders with the same random weights: with padding and without."""
    config_class, own = KINDS[request.param]
    config = config_class(
        vocab_size=50, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=48,
        max_position_embeddings=20, **own,
    )  # fmt: skip
    made = [random_encoder(config, layout=layout) for layout in (FlatLayout, UnpaddedLayout)]
    # Then texts of more than six positions are long.
    with mock.patch("official_bert.modeling.modernbert._SMALLEST_BLOCK", 1):
        yield made


MASKS = {
    "mixed lengths and holes": [
        *([1] * 12, [1] * 3 + [0] * 9, [1] + [0] * 11, [1] * 11 + [0]),
        *([1, 0, 1] * 4, [1, 1, 0, 0] * 3, [1] + [0] * 10 + [1]),
    ],
    "longer padding": [[1] * 5 + [0] * 7, [0, 1] + [0] * 10, [1, 0, 1, 0, 0, 0, 1] + [0] * 5],
    "one position": [[1]],
    "no sequence": np.zeros([0, 5]),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_tokens_are_what_they_are_with_padding(encoders, mask):
    padded, unpadded = encoders
    mask = np.array(mask, np.int32)
    rng = np.random.default_rng(2)
    inputs = rng.integers(0, 50, mask.shape), mask, rng.integers(0, 2, mask.shape)
    expected, found = padded(*inputs), unpadded(*inputs)
    is_token = mask == 1
    for name in ("sequence_output", "embedding_output"):
        np.testing.assert_allclose(found[name][is_token], expected[name][is_token], atol=TOLERANCE, err_msg=name)
    np.testing.assert_allclose(found["pooled_output"], expected["pooled_output"], atol=TOLERANCE)
    for layer, other in zip(found["encoder_layers"], expected["encoder_layers"], strict=True):
        np.testing.assert_allclose(layer[is_token], other[is_token], atol=TOLERANCE)
    for encoder in encoders:
        np.testing.assert_allclose(encoder.pool(*inputs), expected["pooled_output"], atol=TOLERANCE)


@pytest.mark.parametrize("encoders", slow("in blocks, left to right"), indirect=True)
def test_blocks_give_what_all_pairs_of_positions_give(encoders, monkeypatch):
    padded, unpadded = encoders
    both = lambda ids, mask: (unpadded(ids, mask), unpadded.pool(ids, mask))  # noqa: E731
    compiled = tf.function(both, input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    for length in (3, 7, 12, 20):
        ids = np.random.default_rng(3).integers(0, 50, [3, length])
        mask = (np.arange(length) < [[length], [length - 2], [2]]).astype(np.int32)
        found = [(padded(ids, mask), padded.pool(ids, mask)), compiled(ids, mask)]
        with monkeypatch.context() as patch:
            patch.setattr(padded.transformer, "needs_probabilities", True)
            expected = padded(ids, mask)
        for outputs, pooled in found:
            ranks = [len(layer.shape) for layer in outputs["attention_probabilities"]]
            assert ranks == [4, 5, 5] or length == 3
            sequences = outputs["sequence_output"][mask == 1]
            np.testing.assert_allclose(sequences, expected["sequence_output"][mask == 1], atol=1e-5)
            np.testing.assert_allclose(pooled, expected["pooled_output"], atol=1e-5)


def test_a_sequence_without_any_token_does_not_disturb_the_others(encoders):
    padded, unpadded = encoders
    ids, mask = np.full([3, 4], 7), np.array([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]])
    found, expected = unpadded.pool(ids, mask), padded.pool(ids, mask)
    np.testing.assert_allclose(found[::2], expected[::2], atol=TOLERANCE)
    assert np.isfinite(found).all()


def test_gradients_are_the_same(encoders):
    ids, mask = np.arange(24).reshape(2, 12), np.array(MASKS["mixed lengths and holes"][:2])
    gradients = []
    for encoder in encoders:
        variables = [variable.value for variable in encoder.trainable_variables]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(encoder.pool(ids, mask))
        gradients.append([tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)])
    for gradient, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(gradient, other, atol=1e-4)


def test_padding_is_left_out(encoders):
    layout = UnpaddedLayout.from_mask(tf.constant(MASKS["mixed lengths and holes"][:4]), encoders[1].transformer)
    assert layout.positions.shape == 12 + 3 + 1 + 11
    assert layout.pack(tf.zeros([4, 12, 6])).shape == (27, 6)


def test_attention_is_as_long_as_the_longest_sequence(encoders, monkeypatch):
    _, unpadded = encoders
    monkeypatch.setattr(unpadded.transformer, "needs_probabilities", True)
    mask = np.array(MASKS["longer padding"])
    probabilities = unpadded(np.full(mask.shape, 7), mask)["attention_probabilities"]
    assert {tuple(layer.shape) for layer in probabilities} == {(3, 3, 7, 7)}
