"""The question-answering task: its loss compared with NumPy, and logits for any batch length."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.tasks.question_answering.answers import LOGITS
from official_bert.tasks.question_answering.data import TRAINING_SCHEMA
from official_bert.tasks.question_answering.task import QuestionAnsweringTask

LOWEST = np.finfo(np.float32).min


def make_task(model_dir, *, is_padding_scored=True):
    config = BertConfig.from_json_file(str(model_dir / "bert_config.json"))
    lengths = {"max_seq_length": 12, "is_padding_scored": is_padding_scored}
    return QuestionAnsweringTask(config, TRAINING_SCHEMA, **lengths)


@pytest.fixture
def outputs():
    rng = np.random.default_rng(1)
    return {name: tf.constant(rng.normal(size=[3, 7]), tf.float32) for name in LOGITS}


def cross_entropy(logits, position):
    logits = np.asarray(logits, np.float64)
    return np.log(np.exp(logits).sum()) - logits[position]


def test_the_loss_is_the_mean_of_two_cross_entropies_over_all_positions(model_dir, outputs):
    starts, ends = [0, 2, 5], [0, 6, 5]
    batch = {
        "input_ids": np.zeros([3, 7], np.int32),
        "input_mask": np.array([[1] * 3 + [0] * 4] * 3, np.int32),  # padding still counts, as in the reference
        "start_positions": np.array(starts, np.int32),
        "end_positions": np.array(ends, np.int32),
    }
    (loss,) = make_task(model_dir).losses(outputs, batch).values()
    expected = [
        cross_entropy(outputs[name][row], positions[row]) / 2
        for name, positions in zip(LOGITS, (starts, ends), strict=True)
        for row in range(3)
    ]
    assert float(loss.total) == pytest.approx(sum(expected), rel=1e-6)
    assert float(loss.weight) == 3


@pytest.mark.parametrize("is_padding_scored", [True, False])
def test_logits_are_as_long_as_a_window_and_lowest_beyond_the_batch(model_dir, outputs, is_padding_scored):
    """Padding competes only where it is wanted."""
    task = make_task(model_dir, is_padding_scored=is_padding_scored)
    mask = np.array([[1] * 7, [1] * 3 + [0] * 4, [1] * 5 + [0] * 2], np.int32)
    predictions = task.predictions(outputs, {"input_ids": np.zeros([3, 7], np.int32), "input_mask": mask})
    assert tuple(predictions) == LOGITS
    for name, logits in predictions.items():
        expected = np.where(mask | is_padding_scored, outputs[name], LOWEST)
        assert logits.dtype == tf.float32
        np.testing.assert_array_equal(logits, np.pad(expected, [(0, 0), (0, 5)], constant_values=LOWEST))
