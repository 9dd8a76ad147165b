"""Metrics written by a run."""

import pytest

from official_bert.training.monitoring import ScalarLog
from tests.faults.killing import scalars


def logged(folder):
    return [(line["split"], line["step"], line["loss"]) for line in scalars(folder)]


def test_a_resumed_run_drops_later_log_lines(tmp_path):
    log = ScalarLog(str(tmp_path))
    log.discard_after(0)  # nothing written yet
    for step in (10, 20, 30):
        log.write("train", step, {"loss": step / 10})
    with open(tmp_path / "metrics.jsonl", "a") as sink:
        sink.write('{"split": "train", "st')  # as a killed run may leave it
    resumed = ScalarLog(str(tmp_path))
    resumed.discard_after(20)
    resumed.write("train", 30, {"loss": 7.0})
    assert logged(tmp_path) == [("train", 10, 1.0), ("train", 20, 2.0), ("train", 30, 7.0)]


def test_damaged_lines_are_counted_and_dropped(tmp_path, caplog):
    log = ScalarLog(str(tmp_path))
    log.write("train", 10, {"loss": 1.0})
    with open(tmp_path / "metrics.jsonl", "ab") as sink:
        sink.write(b'{"split": "train", "st\n\xff\xfe\n[1, 2]\n7\n{"split": "eval"}\n\n' + b"[" * 100_000 + b"\n")
        for step in (b'"20"', b"1e999", b"true", b"-1", b'1, "loss": null', b'1, "loss": 1' + b"0" * 400):
            sink.write(b'{"split": "eval", "step": ' + step + b"}\n")
    log.write("train", 20, {"loss": 2.0})
    log.replace("eval", 20, {"loss": 3.0})
    log.discard_after(20)
    assert logged(tmp_path) == [("train", 10, 1.0), ("train", 20, 2.0), ("eval", 20, 3.0)]
    assert caplog.messages == [f"{tmp_path}/metrics.jsonl: dropped 13 damaged lines"]


def test_an_evaluation_made_again_replaces_the_first(tmp_path):
    log = ScalarLog(str(tmp_path))
    log.write("train", 10, {"loss": 1.0})
    for loss in (2.0, 3.0):
        log.replace("eval", 10, {"loss": loss})
    assert logged(tmp_path) == [("train", 10, 1.0), ("eval", 10, 3.0)]


def test_tensorboard_reads_the_events(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = ScalarLog(str(tmp_path))
    for step in (10, 20):
        log.write("train", step, {"loss": 1.0})
    log.write("eval", 20, {"loss": 2.0})
    for folder, expected in (("", [(10, 1.0), (20, 1.0)]), ("eval", [(20, 2.0)])):
        of_run = accumulator.EventAccumulator(str(tmp_path / folder)).Reload()
        assert [(event.step, event.value) for event in of_run.Scalars("loss")] == expected
