"""The heads of classes and answers, compared with the reference's activations; other inputs and heads of classes."""

import dataclasses

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, SpanModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.support.errors import UserError
from tests.conftest import GOLDEN, golden_arrays

PADDING_TOLERANCE = 1e-5


def make_model(config, *, trainable=True, **options):
    model = ClassificationModel(BertEncoder(config, trainable=trainable), num_outputs=3, **options)
    load(
        CheckpointReader(str(GOLDEN / "classifier" / "model.ckpt")),
        model.weights,
        required=lambda name: name.startswith("bert/"),
    )
    return model


@pytest.fixture(scope="module")
def model(config):
    return make_model(config)


@pytest.fixture(scope="module")
def batch():
    arrays = golden_arrays("pretraining_model/activations.npz")
    return {name: arrays[f"in/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}


def test_variables_and_logits_are_those_of_the_reference(config, model, batch):
    report = load(CheckpointReader(str(GOLDEN / "classifier" / "model.ckpt")), model.weights)
    assert not report.missing and not report.unused
    assert {"output_weights", "output_bias"} <= set(report.matched)
    np.testing.assert_allclose(model(batch), golden_arrays("classifier/activations.npz")["logits"], atol=1e-5)


def test_answers_are_scored_as_by_the_reference(config, batch):
    model = SpanModel(BertEncoder(config))
    weights = np.asarray(model.head.output_weights)  # new ones
    assert 0 < np.abs(weights).max() <= 0.04  # a normal distribution of 0.02, truncated at twice that
    assert abs(weights.std() - 0.0176) < 0.004
    np.testing.assert_array_equal(model.head.output_bias, [0, 0])
    report = load(CheckpointReader(str(GOLDEN / "squad" / "model.ckpt")), model.weights)
    assert not report.missing and not report.unused
    assert {"cls/squad/output_weights", "cls/squad/output_bias"} <= set(report.matched)
    golden, logits = golden_arrays("squad/activations.npz"), model(batch)
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(logits[name], golden[name], atol=1e-5)
    assert np.abs(golden["start_logits"] - golden["end_logits"]).max() > 0.01  # so that swapping them is noticed


@pytest.mark.parametrize("pooling", [pytest.param("mean", marks=pytest.mark.slow), "max"])
def test_windows_are_scored_one_by_one_and_pooled(config, batch, pooling):
    model = make_model(config, window_length=40, window_pooling=pooling)
    plain = np.asarray(make_model(config)(batch))  # six sequences of 40
    # Three windows, one, and two; windows of only padding do not count.
    blank = np.zeros_like(batch["input_ids"][0])
    rows = [[0, 1, 2], [3, None, None], [4, 5, None]]
    windows = {
        name: np.stack([np.concatenate([blank if i is None else values[i] for i in row]) for row in rows])
        for name, values in batch.items()
    }
    reduce = np.mean if pooling == "mean" else np.max
    expected = [reduce(plain[[i for i in row if i is not None]], axis=0) for row in rows]
    np.testing.assert_allclose(model(windows), expected, atol=PADDING_TOLERANCE)
    assert np.isfinite(model({name: np.zeros_like(values) for name, values in windows.items()})).all()


def test_features_are_means_of_the_layers_over_real_positions(config, batch):
    encoder = BertEncoder(dataclasses.replace(config, num_hidden_layers=5), trainable=False)
    mask = batch["input_mask"][:, :, None]
    layers = encoder(**batch)["encoder_layers"]
    means = [(np.asarray(layer) * mask).sum(axis=1) / mask.sum(axis=1) for layer in layers]
    for feature_layers, expected in {
        "last": [means[-1]],
        "second_to_last": [means[-2]],
        "sum_last_four": [np.sum(means[-4:], axis=0)],
        "concat_last_four": means[-4:],
        "weighted_sum": means,
    }.items():
        model = ClassificationModel(encoder, num_outputs=3, feature_layers=feature_layers)
        features = np.asarray(model.features(batch))
        np.testing.assert_allclose(features, np.stack(expected, axis=1), atol=1e-5, err_msg=feature_layers)
        logits = np.asarray(model({"features": features.reshape(6, -1)}))
        assert logits.shape == (6, 3)
    begun = features.mean(axis=1) @ np.asarray(model.head.output_weights).T
    np.testing.assert_allclose(logits, begun, atol=1e-5)  # the weighted sum begins as the mean of the layers


def test_a_model_must_have_the_layers_that_are_read(config):
    with pytest.raises(UserError, match="feature_layers=concat_last_four needs 4 layers, but the model has 3"):
        ClassificationModel(BertEncoder(config), num_outputs=3, feature_layers="concat_last_four")


def test_a_frozen_encoder_is_not_trained_and_its_features_can_be_kept(config, batch):
    model = make_model(config, trainable=False)
    assert [variable.path for variable in model.trainable_variables] == ["output_weights", "output_bias"]
    assert len(model.weights) == len(make_model(config).trainable_variables)
    features = np.asarray(model.features(batch))
    np.testing.assert_allclose(model({"features": features.reshape(6, -1)}), model(batch), atol=1e-6)
    # Only the head has dropout.
    np.testing.assert_array_equal(model.features(batch, training=True), features)


@pytest.mark.parametrize("model_class", [ClassificationModel, TaggingModel])
@pytest.mark.parametrize("head_dropout", [None, 0.0, 0.5])  # None: the reference's tenth
def test_training_drops_out_what_is_asked_of_what_the_head_reads(config, model_class, head_dropout):
    options = {} if head_dropout is None else {"head_dropout": head_dropout}
    model = model_class(BertEncoder(dataclasses.replace(config, num_hidden_layers=1)), num_outputs=3, **options)
    ones = np.ones([4000, 1, config.hidden_size], np.float32)
    model.head.output_weights.assign(np.ones(model.head.output_weights.shape))
    model.head.output_bias.assign(np.zeros(model.head.output_bias.shape))
    if model_class is TaggingModel:
        logits = np.asarray(model.tag(ones, np.ones([4000, 1]), training=True))[..., 0]
    else:
        logits = np.asarray(model.classify(ones, training=True))[:, 0]
    share = 0.1 if head_dropout is None else head_dropout
    kept = logits * (1 - share) / config.hidden_size
    assert abs(kept.mean() - (1 - share)) < 0.01
    assert (kept.std() < 1e-6) == (share == 0)
    assert model_class.from_config(model.get_config()).dropout.rate == share
