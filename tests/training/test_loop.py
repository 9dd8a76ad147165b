"""The Trainer and its small helpers."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.data.pipeline import evaluation_batches
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.training import loop
from official_bert.training.loop import Trainer, check_divisible
from official_bert.training.monitoring import StepsPerCall, StepWindow
from official_bert.training.task import TrainingPlan


def make_trainer(model_dir, *, seed=1, strategy=None):
    config = BertConfig.from_json_file(str(model_dir / "bert_config.json"))
    config = dataclasses.replace(config, num_hidden_layers=1)
    task = PretrainingTask(config, max_seq_length=64, max_predictions_per_seq=10, eval_batch_size=8)
    return task, Trainer(task, strategy or tf.distribute.get_strategy(), seed=seed)


def weights(trainer):
    return np.concatenate([np.asarray(variable).ravel() for variable in trainer.model.trainable_variables])


@pytest.mark.slow
def test_the_seed_decides_the_random_weights(model_dir):
    first, again, other = (weights(make_trainer(model_dir, seed=seed)[1]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


def test_wrong_arguments_are_named(model_dir, tmp_path):
    for task in ([1], PretrainingTask):
        with pytest.raises(UserError, match="task is .*; give an object with build_model, losses and predictions"):
            Trainer(task)
    settings = {"train_batch_size": 4, "num_train_steps": 3}
    for changes, message in (
        ({"train_batch_size": 0}, "train_batch_size=0: must be at least 1"),
        ({"train_batch_size": 2.5}, "train_batch_size is 2.5; it must be a whole number"),
        ({"num_train_steps": "3"}, "num_train_steps is '3'; it must be a whole number"),
        ({"num_train_steps": 0}, "num_train_steps=0: must be at least 1"),
        ({"learning_rate": float("nan")}, "learning_rate=nan: must be a finite number"),
        ({"end_learning_rate": 1.0}, "end_learning_rate=1.0 is above learning_rate=5e-05"),
        ({"nan_policy": "ignore"}, "nan_policy=ignore: must be one of stop, skip$"),
        ({"log_steps": True}, "log_steps is True; it must be a whole number"),
    ):
        with pytest.raises(UserError, match=message):
            TrainingPlan(**{**settings, **changes})
    assert TrainingPlan(**{**settings, "train_batch_size": None, "num_train_steps": np.int64(3)}).learning_rate == 5e-5
    _, trainer = make_trainer(model_dir)
    with pytest.raises(UserError, match=r"batches is \[\]; give a function from the number of examples used so far"):
        trainer.train(TrainingPlan(**settings), [], output_dir=str(tmp_path / "out"), init_checkpoint=None)
    assert not (tmp_path / "out").exists()


@pytest.mark.endurance
def test_streamed_results_are_in_record_order(model_dir, records_file, two_devices, monkeypatch):
    monkeypatch.setattr(loop, "_BYTES_AT_ONCE", 1000)
    num_records = 21  # a last chunk of one, and a padded last batch
    task, trainer = make_trainer(model_dir, strategy=two_devices)
    trainer.load_initial(str(model_dir / "bert_model.ckpt"))
    asked = []

    def batches(numbers):
        asked.append(numbers)
        sizes = {"batch_size": 4, "lengths": [24, 40, 64], "num_replicas": trainer.num_replicas}
        return evaluation_batches([records_file], task.schema, **sizes, numbers=numbers)

    def vectors(batch):
        return trainer.model.encoder(batch["input_ids"], batch["input_mask"], batch["segment_ids"])["sequence_output"]

    found = list(trainer.compute_by_record(vectors, batches, num_records, bytes_per_record=100, label="encoding"))
    assert len(found) == num_records
    assert [number for numbers in asked for number in numbers] == list(range(num_records))
    assert {len(numbers) for numbers in asked[:-1]} == {10}
    records = list(tf.data.TFRecordDataset([records_file]).take(num_records))
    whole = task.schema.decode(tf.stack(records))
    expected = vectors(whole).numpy()
    for row, mask, of_model in zip(found, whole["input_mask"].numpy(), expected, strict=True):
        extent = mask.sum()
        assert row.shape[0] == next(length for length in (24, 40, 64) if length >= extent)
        np.testing.assert_allclose(row[:extent], of_model[:extent], atol=1e-5)
    assert len({len(row) for row in found}) > 1


def test_batches_must_divide_among_devices():
    check_divisible(6, 2, "train_batch_size")
    with pytest.raises(UserError, match="^train_batch_size=7 is not a multiple of the 2 devices; the next one is 8$"):
        check_divisible(7, 2, "train_batch_size")


def test_calls_grow_to_a_second_but_not_beyond_the_limit():
    pace, sizes = StepsPerCall(limit=12, is_cut_short=True), []
    for seconds in (8.0, 0.1, 0.2, 0.4, 0.8, 0.1):  # the first call compiles
        assert pace.is_first_call is not bool(sizes)
        sizes.append(pace.num_steps)
        pace.add(pace.num_steps, seconds)
    assert [*sizes, pace.num_steps] == [1, 1, 2, 4, 8, 10, 12]
    assert StepsPerCall(limit=1000, is_cut_short=False).num_steps == 1000


def window_of(batch_size, *parts):
    """Return a window of calls, each its seconds and its reports: name to list of numbers."""
    window = StepWindow(batch_size=batch_size)
    for seconds, part in parts:
        window.add({name: np.array(values) for name, values in part.items()}, seconds=seconds)
    return window


def test_a_window_averages_over_all_its_steps_but_takes_no_speed_from_the_compiling_call():
    part = {"loss": [1.0, 3.0], "gradient_norm": [2.0, 2.0], "learning_rate": [0.1, 0.2], "tokens": [10.0, 30.0]}
    first = {name: values[:1] for name, values in part.items()}
    speeds = {"examples_per_second": 6.0, "tokens_per_second": 25.0}
    expected = {"loss": pytest.approx(5 / 3), "gradient_norm": 2.0, "learning_rate": 0.1, **speeds}
    assert window_of(4, (1.0, part), (1.0, first)).scalars() == expected
    compiling = window_of(4, (1.0, part), (1.0, first), (None, first))
    assert compiling.scalars() == {**expected, "loss": pytest.approx(6 / 4)}
    # Precomputed features have no tokens.
    features = window_of(4, (1.0, {**part, "tokens": [0, 0], "positions": [0, 0]})).scalars()
    assert features["examples_per_second"] == 8.0
    assert not {"tokens_per_second", "padding"} & features.keys()


def test_the_speed_counts_the_examples_of_batches_that_differ():
    part = {"loss": [1.0, 3.0], "learning_rate": [0.1, 0.2], "tokens": [10.0, 30.0], "examples": [4.0, 14.0]}
    assert window_of(None, (None, part)).scalars() == {"loss": 2.0, "learning_rate": 0.2}
    window = window_of(None, (None, part), (2.0, part))
    expected = {"loss": 2.0, "learning_rate": 0.2, "examples_per_second": 9.0, "tokens_per_second": 20.0}
    assert window.scalars() == expected
    assert window.arrays()["unlogged_steps/examples"].tolist() == [4.0, 14.0, 4.0, 14.0]  # a resumed run logs the same


def test_padding_is_a_share_of_all_positions_that_were_counted():
    part = {"loss": [0, 0], "learning_rate": [0, 0], "tokens": [10.0, 30.0], "positions": [20.0, 80.0]}
    assert window_of(4, (1.0, part)).scalars()["padding"] == pytest.approx(0.6)
    # Checkpoints of earlier versions have no positions.
    old = {"loss": [0], "learning_rate": [0], "tokens": [7.0]}
    assert "padding" not in window_of(4, (None, old)).scalars()
    assert window_of(4, (None, old), (1.0, part)).scalars()["padding"] == pytest.approx(0.6)
