"""Reading `metrics.jsonl`."""

import json

import pytest

from official_bert.support.metrics_file import Metrics, Series, parse_line, read_metrics


def test_numbers_are_read_by_split_and_name_and_the_last_line_of_a_step_counts(tmp_path):
    lines = [
        {"split": "train", "step": 20, "loss": 3, "gradient_norm": 7.5},
        {"split": "eval", "step": 20, "loss": 0.5},
        {"split": "train", "step": 10, "loss": 4.0, "gradient_norm": float("nan")},
        {"split": "train", "step": 20, "loss": 2.0, "gradient_norm": float("inf")},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"split": "train", "st')
    assert read_metrics(str(path)) == Metrics(
        {
            ("train", "loss"): Series([10, 20], [4.0, 2.0]),
            ("train", "gradient_norm"): Series([20], [7.5]),
            ("eval", "loss"): Series([20], [0.5]),
        },
        num_damaged=1,
        num_not_finite=2,
    )


@pytest.mark.parametrize(
    "line",
    [
        b'{"split": "train", "step": 1}',
        b"[1]\n",
        b"\xff\n",
        b"[" * 100_000 + b"\n",
        b'{"split": "train"}\n',
        b'{"step": 1}\n',
        b'{"split": 1, "step": 1}\n',
        b'{"split": "train", "step": true}\n',
        b'{"split": "train", "step": -1}\n',
        b'{"split": "train", "step": 1.0}\n',
        b'{"split": "train", "step": 1' + b"0" * 30 + b"}\n",
        b'{"split": "train", "step": 1, "loss": "2"}\n',
        b'{"split": "train", "step": 1, "loss": null}\n',
        b'{"split": "train", "step": 1, "loss": false}\n',
        b'{"split": "train", "step": 1, "loss": 1' + b"0" * 400 + b"}\n",
    ],
)
def test_lines_that_no_run_writes_are_damaged(line):
    assert parse_line(line) is None
    assert parse_line(b'{"split": "train", "step": 0, "loss": 1e999}\n')
