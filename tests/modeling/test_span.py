"""The question-answering model, compared with the reference's activations."""

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import SpanModel
from tests.conftest import GOLDEN, golden_arrays

NAMES = ("start_logits", "end_logits")
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def config(model_dir):
    return BertConfig.from_json_file(str(model_dir / "bert_config.json"))


@pytest.fixture(scope="module")
def model(config):
    model = SpanModel(BertEncoder(config))
    report = load(CheckpointReader(str(GOLDEN / "squad" / "model.ckpt")), model.weights)
    assert not report.missing and not report.unused
    assert {"cls/squad/output_weights", "cls/squad/output_bias"} <= set(report.matched)
    return model


@pytest.fixture(scope="module")
def batch():
    arrays = golden_arrays("pretraining_model/activations.npz")
    return {name: arrays[f"in/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}


def test_variables_and_logits_are_those_of_the_reference(model, batch):
    golden, logits = golden_arrays("squad/activations.npz"), model(batch)
    for name in NAMES:
        np.testing.assert_allclose(logits[name], golden[name], atol=TOLERANCE)
    assert np.abs(golden["start_logits"] - golden["end_logits"]).max() > 0.01  # so that swapping them is noticed


def test_padding_changes_no_logit_of_a_real_position(model, batch):
    logits = model(batch)
    for row, length in enumerate(batch["input_mask"].sum(axis=1)):
        for padded in {length, length + 3, 64}:
            alone = model(
                {
                    name: np.pad(values[row : row + 1, :length], [[0, 0], [0, padded - length]])
                    for name, values in batch.items()
                }
            )
            for name in NAMES:
                assert alone[name].shape == (1, padded)
                np.testing.assert_allclose(alone[name][0, :length], logits[name][row, :length], atol=TOLERANCE)


def test_one_hot_embeddings_give_the_same_logits(config, model, batch):
    other = SpanModel(BertEncoder(config, use_one_hot_embeddings=True))
    for target, source in zip(other.weights, model.weights, strict=True):
        target.assign(source)
    for name in NAMES:
        np.testing.assert_allclose(other(batch)[name], model(batch)[name], atol=TOLERANCE)


def test_a_new_head_begins_with_the_references_spread_and_no_bias(config):
    head = SpanModel(BertEncoder(config)).head
    weights = np.asarray(head.output_weights)
    assert weights.shape == (2, config.hidden_size)
    assert 0 < np.abs(weights).max() <= 0.04  # a normal distribution of 0.02, truncated at twice that
    assert abs(weights.std() - 0.0176) < 0.004
    np.testing.assert_array_equal(head.output_bias, [0, 0])
