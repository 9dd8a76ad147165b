"""The Trainer and its small helpers."""

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


def make_trainer(model_dir, *, seed=1, strategy=None):
    config = BertConfig.from_json_file(str(model_dir / "bert_config.json"))
    task = PretrainingTask(config, max_seq_length=64, max_predictions_per_seq=10, eval_batch_size=8)
    return task, Trainer(task, strategy or tf.distribute.get_strategy(), seed=seed)


def weights(trainer):
    return np.concatenate([np.asarray(variable).ravel() for variable in trainer.model.trainable_variables])


def test_the_seed_decides_the_random_weights(model_dir):
    first, again, other = (weights(make_trainer(model_dir, seed=seed)[1]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


@pytest.mark.slow
def test_predictions_keep_the_order_and_the_number_of_records_on_any_devices(model_dir, records_file, two_devices):
    predictions = []
    num_records = sum(1 for _ in tf.data.TFRecordDataset([records_file]))
    for strategy in (None, two_devices):
        task, trainer = make_trainer(model_dir, strategy=strategy)
        trainer.load_initial(str(model_dir / "bert_model.ckpt"))
        for batch_size in (8, 22):
            batches = evaluation_batches([records_file], task.schema, batch_size=batch_size)
            predictions.append(trainer.predict(batches, num_records=num_records))
    assert num_records % 8 and num_records % 22 == 0  # with and without a padded last batch
    for other in predictions:
        assert other["masked_lm_loss"].shape == (num_records, 10)
        assert other["next_sentence_hit"].shape == (num_records,)
        for name in other:
            np.testing.assert_allclose(other[name], predictions[0][name], atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "records_at_once"),
    [("_RECORDS_AT_ONCE", 8), pytest.param("_BYTES_AT_ONCE", 10, marks=pytest.mark.endurance)],
)
def test_streamed_results_are_in_record_order(
    model_dir, records_file, two_devices, monkeypatch, limit, records_at_once
):
    bytes_per_record = 1 if limit == "_RECORDS_AT_ONCE" else 100
    monkeypatch.setattr(loop, limit, bytes_per_record * records_at_once)
    num_records = 21  # a last chunk of one or five, and a padded last batch
    strategy = two_devices if records_at_once == 10 else None
    task, trainer = make_trainer(model_dir, strategy=strategy)
    trainer.load_initial(str(model_dir / "bert_model.ckpt"))
    asked = []

    def batches(numbers):
        asked.append(numbers)
        return evaluation_batches(
            [records_file],
            task.schema,
            batch_size=4,
            lengths=[24, 40, 64],
            num_replicas=trainer.num_replicas,
            numbers=numbers,
        )

    def vectors(batch):
        return trainer.model.encoder(batch["input_ids"], batch["input_mask"], batch["segment_ids"])["sequence_output"]

    found = list(
        trainer.compute_by_record(vectors, batches, num_records, bytes_per_record=bytes_per_record, label="encoding")
    )
    assert len(found) == num_records
    assert [number for numbers in asked for number in numbers] == list(range(num_records))
    assert {len(numbers) for numbers in asked[:-1]} <= {records_at_once}
    records = list(tf.data.TFRecordDataset([records_file]).take(num_records))
    whole = task.schema.decode(tf.stack(records))
    expected = vectors(whole).numpy()
    for row, mask, of_model in zip(found, whole["input_mask"].numpy(), expected, strict=True):
        extent = mask.sum()
        assert row.shape[0] == next(length for length in (24, 40, 64) if length >= extent)
        np.testing.assert_allclose(row[:extent], of_model[:extent], atol=1e-5)
    assert len({len(row) for row in found}) > 1


def test_batches_must_divide_among_devices(two_devices):
    check_divisible(6, two_devices, "train_batch_size")
    with pytest.raises(UserError, match="^train_batch_size=7 is not a multiple of the 2 devices"):
        check_divisible(7, two_devices, "train_batch_size")


def test_calls_grow_to_a_second_but_not_beyond_the_limit():
    pace = StepsPerCall(limit=12, is_cut_short=True)
    assert pace.num_steps == 1 and pace.is_first_call
    pace.add(1, 8.0)  # the compiling call
    assert pace.num_steps == 1 and not pace.is_first_call
    pace.add(1, 0.1)
    assert pace.num_steps == 2
    pace.add(2, 0.2)
    pace.add(4, 0.4)
    assert pace.num_steps == 8
    pace.add(8, 0.8)
    assert pace.num_steps == 10
    pace.add(10, 0.1)
    assert pace.num_steps == 12
    assert StepsPerCall(limit=1000, is_cut_short=False).num_steps == 1000


def test_the_speed_counts_the_examples_of_batches_that_differ():
    window = StepWindow(batch_size=None)
    part = {"loss": [1.0, 3.0], "learning_rate": [0.1, 0.2], "tokens": [10.0, 30.0], "examples": [4.0, 14.0]}
    window.add({name: np.array(values) for name, values in part.items()}, seconds=None)
    assert window.scalars() == {"loss": 2.0, "learning_rate": 0.2}
    window.add({name: np.array(values) for name, values in part.items()}, seconds=2.0)
    expected = {"loss": 2.0, "learning_rate": 0.2, "examples_per_second": 9.0, "tokens_per_second": 20.0}
    assert window.scalars() == expected
    assert window.arrays()["unlogged_steps/examples"].tolist() == [4.0, 14.0, 4.0, 14.0]  # a resumed run logs the same


def test_a_window_averages_over_all_its_steps():
    window = StepWindow(batch_size=4)
    part = {"loss": [1.0, 3.0], "gradient_norm": [2.0, 2.0], "learning_rate": [0.1, 0.2], "tokens": [10.0, 30.0]}
    window.add({name: np.array(values) for name, values in part.items()}, seconds=1.0)
    window.add({name: np.array(values[:1]) for name, values in part.items()}, seconds=1.0)
    expected = {
        "loss": pytest.approx(5 / 3),
        "gradient_norm": 2.0,
        "learning_rate": 0.1,
        "examples_per_second": 6.0,
        "tokens_per_second": 25.0,
    }
    assert window.scalars() == expected
    # The compiling call counts for means, but not for speed.
    window.add({name: np.array(values[:1]) for name, values in part.items()}, seconds=None)
    assert window.scalars() == {**expected, "loss": pytest.approx(6 / 4)}


def test_padding_is_a_share_of_all_positions_that_were_counted():
    window = StepWindow(batch_size=4)
    counted = {"tokens": np.array([10.0, 30.0]), "positions": np.array([20.0, 80.0])}
    window.add({"loss": np.zeros(2), "learning_rate": np.zeros(2), **counted}, seconds=1.0)
    assert window.scalars()["padding"] == pytest.approx(0.6)
    # Checkpoints of earlier versions have no positions.
    resumed = StepWindow(batch_size=4)
    resumed.add({"loss": np.zeros(1), "learning_rate": np.zeros(1), "tokens": np.array([7.0])}, seconds=None)
    assert "padding" not in resumed.scalars()
    resumed.add({"loss": np.zeros(2), "learning_rate": np.zeros(2), **counted}, seconds=1.0)
    assert resumed.scalars()["padding"] == pytest.approx(0.6)


def test_precomputed_features_have_no_token_speed():
    window = StepWindow(batch_size=4)
    names = ("loss", "gradient_norm", "learning_rate", "tokens", "positions")
    window.add({name: np.zeros(2) for name in names}, seconds=1.0)
    assert window.scalars()["examples_per_second"] == 8.0
    assert not {"tokens_per_second", "padding"} & window.scalars().keys()
