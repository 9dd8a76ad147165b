"""The numbers that a run writes."""

import json

from official_bert.training.summaries import ScalarLog, write_results


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_resumed_run_forgets_what_lies_ahead_of_it(tmp_path):
    log = ScalarLog(str(tmp_path))
    log.forget_after(0)  # nothing written yet
    for step in (10, 20, 30):
        log.write("train", step, {"loss": step / 10})
    with open(tmp_path / "metrics.jsonl", "a") as sink:
        sink.write('{"split": "train", "st')  # as a killed run may leave it
    resumed = ScalarLog(str(tmp_path))
    resumed.forget_after(20)
    resumed.write("train", 30, {"loss": 7.0})
    assert lines(tmp_path) == [
        {"split": "train", "step": 10, "loss": 1.0},
        {"split": "train", "step": 20, "loss": 2.0},
        {"split": "train", "step": 30, "loss": 7.0},
    ]


def test_damaged_lines_are_counted_and_dropped(tmp_path, caplog):
    log = ScalarLog(str(tmp_path))
    log.write("train", 10, {"loss": 1.0})
    with open(tmp_path / "metrics.jsonl", "ab") as sink:
        sink.write(b'{"split": "train", "st\n\xff\xfe\n[1, 2]\n7\n{"split": "eval"}\n\n' + b"[" * 100_000 + b"\n")
        sink.write(b'{"split": "eval", "step": "20"}\n{"split": "eval", "step": 1e999}\n')
    log.write("train", 20, {"loss": 2.0})
    log.replace("eval", 20, {"loss": 3.0})
    log.forget_after(20)
    assert lines(tmp_path) == [
        {"split": "train", "step": 10, "loss": 1.0},
        {"split": "train", "step": 20, "loss": 2.0},
        {"split": "eval", "step": 20, "loss": 3.0},
    ]
    assert caplog.messages == [f"{tmp_path}/metrics.jsonl: dropped 9 damaged lines"]


def test_an_evaluation_made_again_replaces_the_first(tmp_path):
    log = ScalarLog(str(tmp_path))
    log.write("train", 10, {"loss": 1.0})
    for loss in (2.0, 3.0):
        log.replace("eval", 10, {"loss": loss})
    assert lines(tmp_path) == [
        {"split": "train", "step": 10, "loss": 1.0},
        {"split": "eval", "step": 10, "loss": 3.0},
    ]


def test_results_are_sorted_lines(tmp_path):
    write_results(str(tmp_path / "eval_results.txt"), {"loss": 0.5, "global_step": 7})
    assert (tmp_path / "eval_results.txt").read_text() == "global_step = 7\nloss = 0.5\n"
