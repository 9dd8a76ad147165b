"""Keras callbacks of `Trainer.train`."""

import csv
import json

import keras

from tests.training.sum_runs import saved_steps, train


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_callbacks_see_the_lines_of_the_log_and_the_optimizer(tmp_path):
    events = []
    recorder = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: events.append("begin"),
        on_epoch_begin=lambda epoch, logs: events.append(epoch),
        on_train_batch_end=lambda batch, logs: events.append(("step", batch + 1)),
        on_train_end=lambda logs: events.append(recorder.model.optimizer.get_config()["beta_2"]),
    )
    assert train(tmp_path, callbacks=[keras.callbacks.CSVLogger(tmp_path / "log.csv"), recorder], num_train_steps=10)
    lines = lines_of(tmp_path)
    assert [line["step"] for line in lines] == [4, 8, 10]
    with open(tmp_path / "log.csv") as source:
        rows = list(csv.DictReader(source))
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2]
    for row, line in zip(rows, lines, strict=True):
        assert {name: float(row[name]) for name in ("loss", "learning_rate")} == {
            name: line[name] for name in ("loss", "learning_rate")
        }
    assert events == ["begin", 0, ("step", 4), 1, ("step", 8), 2, ("step", 10), 3, 0.999]


def test_a_callback_ends_training_with_a_checkpoint(tmp_path):
    stopping = keras.callbacks.EarlyStopping(monitor="loss", mode="max", patience=1)  # the loss falls
    assert train(tmp_path, callbacks=[stopping])
    assert saved_steps(tmp_path)[-1] == 8
    assert train(tmp_path)  # without it, training continues
    assert saved_steps(tmp_path)[-1] == 14
