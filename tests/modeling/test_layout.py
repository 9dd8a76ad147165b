"""All vectors of a batch in one matrix: the same numbers."""

import numpy as np
import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import FLAT, PLAIN

CONFIG = BertConfig(
    vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48,
    max_position_embeddings=20, type_vocab_size=2,
)  # fmt: skip
MASKS = {"three sequences": [[1] * 12, [1] * 3 + [0] * 9, [1, 0, 1] * 4], "one": [[1] * 7], "one position": [[1]]}


@pytest.fixture(scope="module")
def encoders():
    """Two of the same random weights: one with sequences as they are, and one with a matrix."""
    plain, flat = create_encoder(CONFIG, PLAIN), create_encoder(CONFIG, FLAT)
    rng = np.random.default_rng(1)
    for variable, other in zip(plain.trainable_variables, flat.trainable_variables, strict=True):
        variable.assign(rng.normal(0, 0.3, variable.shape))
        other.assign(variable)
    return plain, flat


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_matrix_gives_the_same_numbers(encoders, mask):
    plain, flat = encoders
    mask = np.array(mask)
    rng = np.random.default_rng(2)
    inputs = rng.integers(0, 50, mask.shape), mask, rng.integers(0, 2, mask.shape)
    expected, found = plain(*inputs), flat(*inputs)
    for name in ("sequence_output", "embedding_output", "pooled_output"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6, err_msg=name)
    for name in ("encoder_layers", "attention_probabilities"):
        for layer, other in zip(found[name], expected[name], strict=True):
            np.testing.assert_allclose(layer, other, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(flat.pool(*inputs), expected["pooled_output"], atol=1e-6)
