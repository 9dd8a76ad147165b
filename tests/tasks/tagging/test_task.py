"""The tagging task: loss and tags compared with plain arithmetic, for any padding or sharding of a batch."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.tagging import TRANSITION_SCALE
from official_bert.tasks.tagging.task import TaggingTask

MAX_SEQ_LENGTH = 12
TAGS = 3
# A label is the tag's number plus one; 0 marks positions that do not begin a word.
LABELS = np.array([[0, 1, 0, 3, 0], [0, 2, 2, 0, 0], [0, 0, 0, 0, 0]], np.int32)


def make_task(model_dir, **options):
    config = BertConfig.from_json_file(str(model_dir / "bert_config.json"))
    return TaggingTask(config, num_tags=TAGS, max_seq_length=MAX_SEQ_LENGTH, **options)


def cross_entropies(logits):
    """Return the loss of each position's label, 0 without a label."""
    shares = np.exp(np.asarray(logits, np.float64))
    shares /= shares.sum(axis=-1, keepdims=True)
    losses = np.zeros(LABELS.shape)
    for place in zip(*np.nonzero(LABELS), strict=True):
        losses[place] = -np.log(shares[place][LABELS[place] - 1])
    return losses


def test_the_loss_is_that_of_the_words_alone(model_dir):
    task = make_task(model_dir)
    logits = tf.Variable(np.random.default_rng(1).normal(size=[*LABELS.shape, TAGS]), dtype=tf.float32)
    with tf.GradientTape() as tape:
        ((name, loss),) = task.losses(logits, {"label_ids": LABELS}).items()
    assert name == "tagging"
    np.testing.assert_allclose(loss.total, cross_entropies(logits).sum(), rtol=1e-6)
    assert loss.weight == 4
    gradient = np.abs(tape.gradient(loss.total, logits)).sum(axis=-1)
    assert ((gradient > 0) == (LABELS > 0)).all()


def test_predictions_are_the_best_tags_and_what_they_cost(model_dir):
    task = make_task(model_dir)
    logits = np.random.default_rng(2).normal(size=[*LABELS.shape, TAGS]).astype(np.float32)
    found = {name: np.asarray(values) for name, values in task.predictions(logits, {"label_ids": LABELS}).items()}
    assert set(found) == {"tag_numbers", "loss_sum", "num_labelled"}
    assert found["tag_numbers"].shape == (3, MAX_SEQ_LENGTH) and found["tag_numbers"].dtype == np.int32
    np.testing.assert_array_equal(found["tag_numbers"][:, :5], logits.argmax(axis=-1))
    assert not found["tag_numbers"][:, 5:].any()
    np.testing.assert_allclose(found["loss_sum"], cross_entropies(logits).sum(axis=1), rtol=1e-6)
    assert found["num_labelled"].tolist() == [2, 2, 0]


def test_a_crf_scores_the_words_of_a_window_as_a_sequence(model_dir):
    task = make_task(model_dir, head="crf", decodes_sequences=True)
    model = task.build_model()
    rng = np.random.default_rng(3)
    for variable in (model.start_transitions, model.between_transitions, model.end_transitions):
        variable.assign(rng.normal(size=variable.shape) / TRANSITION_SCALE)
    start, between, end = map(np.asarray, model.transitions)
    assert np.abs(between).max() > 0.5
    logits = rng.normal(size=[*LABELS.shape, TAGS]).astype(np.float32)

    def score(row, tags):
        places = np.flatnonzero(LABELS[row])  # the words, among other positions
        pairs = sum(between[pair] for pair in itertools.pairwise(tags))
        return start[tags[0]] + end[tags[-1]] + pairs + logits[row, places, list(tags)].sum()

    expected = [
        np.log(sum(np.exp(score(row, tags)) for tags in itertools.product(range(TAGS), repeat=2))) - score(row, own)
        for row, own in ((0, (0, 2)), (1, (1, 1)))
    ]
    with tf.GradientTape() as tape:
        (loss,) = task.losses(tf.constant(logits), {"label_ids": LABELS}).values()
    np.testing.assert_allclose(loss.total, sum(expected), rtol=1e-5)
    assert loss.weight == 4
    gradient = tape.gradient(loss.total, model.between_transitions.value)
    assert np.abs(gradient).max() > 1  # of the unscaled variable
    found = {name: np.asarray(values) for name, values in task.predictions(logits, {"label_ids": LABELS}).items()}
    assert set(found) == {"tag_scores", "loss_sum", "num_labelled"}
    np.testing.assert_allclose(found["loss_sum"], [*expected, 0], rtol=1e-5)
    np.testing.assert_array_equal(found["tag_scores"][:, :5], logits)


def batch_of(length):
    """Return three windows of 4, 7 and 5 positions, padded to a length."""
    rng = np.random.default_rng(3)
    extents = (4, 7, 5)
    batch = {name: np.zeros((3, length), np.int32) for name in ("input_ids", "input_mask", "segment_ids", "label_ids")}
    for row, extent in enumerate(extents):
        batch["input_ids"][row, :extent] = rng.integers(5, 1000, size=extent)
        batch["input_mask"][row, :extent] = 1
        batch["label_ids"][row, 1 : extent - 1] = rng.integers(0, TAGS + 1, size=extent - 2)
    return batch


@pytest.mark.slow
def test_padding_changes_neither_tags_nor_loss(model_dir):
    keras.utils.set_random_seed(1)
    task = make_task(model_dir, head="bilstm", lstm_units=8)
    model = task.build_model()
    for variable in model.trainable_variables:
        if variable.path.startswith("tagging/"):
            variable.assign(tf.random.stateless_normal(variable.shape, seed=[1, len(variable.path)]))
    outcomes = []
    for length in (7, MAX_SEQ_LENGTH):
        batch = batch_of(length)
        outputs = model(batch)
        predictions = task.predictions(outputs, batch)
        tags = np.asarray(predictions["tag_numbers"])[batch["input_mask"].nonzero()]
        (loss,) = task.losses(outputs, batch).values()
        outcomes.append((tags, loss.total, loss.weight, predictions["loss_sum"], predictions["num_labelled"]))
    assert len(set(outcomes[0][0])) > 1
    for found, expected in zip(*outcomes, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_frozen_encoder_gives_what_the_model_reads(model_dir):
    task = make_task(model_dir, trainable_encoder=False, feature_layers="weighted_sum", head="bilstm", lstm_units=4)
    model = task.build_model()
    assert not any(variable.path.startswith("bert/") for variable in model.trainable_variables)
    batch = batch_of(8)
    features = np.asarray(model.features({name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}))
    schema = task.feature_schema(model)
    assert [field.shape for field in schema.fields] == [(MAX_SEQ_LENGTH, 3 * 32), (MAX_SEQ_LENGTH,), (MAX_SEQ_LENGTH,)]
    records = [
        schema.encode({"features": features[row, :extent].ravel(), "input_mask": [1] * extent, "label_ids": [0, 1]})
        for row, extent in enumerate((4, 7, 5))
    ]
    decoded = schema.decode(records)
    logits = np.asarray(model(decoded))[:, :8]
    is_real = batch["input_mask"] == 1
    np.testing.assert_allclose(logits[is_real], np.asarray(model(batch))[is_real], atol=1e-5)
