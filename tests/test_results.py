"""What runs leave behind, read again."""

import json

import numpy as np
import pytest

from official_bert.config.run_configs import ClassifierConfig
from official_bert.errors import UserError
from official_bert.results import differing_flags, read_results, read_run_flags
from official_bert.training.summaries import write_results, write_run_config

CONFIG = ClassifierConfig(
    data_dir="d", bert_config_file="b", task_name="mrpc", vocab_file="v", output_dir="o", do_eval=True
)


def test_results_are_read_as_they_were_written(tmp_path):
    results = {"loss": np.float32(0.25), "global_step": 12, "eval_accuracy": 1e-7}
    write_results(str(tmp_path / "eval_results.txt"), results)
    assert read_results(str(tmp_path / "eval_results.txt")) == results


@pytest.mark.parametrize("line", ["eval_accuracy 0.5", "eval_accuracy = high", ""])
def test_a_line_that_is_no_result_is_located(tmp_path, line):
    (tmp_path / "eval_results.txt").write_text(f"loss = 0.5\n{line}\n")
    with pytest.raises(UserError, match="eval_results.txt, line 2:"):
        read_results(str(tmp_path / "eval_results.txt"))


def test_flags_are_read_as_they_were_written(tmp_path):
    assert read_run_flags(str(tmp_path)) is None
    write_run_config(str(tmp_path), CONFIG)
    assert ClassifierConfig(**read_run_flags(str(tmp_path))) == CONFIG


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"flags": 3}'])
def test_damaged_flags_are_a_mistake(tmp_path, text):
    (tmp_path / "run_config.json").write_text(text)
    with pytest.raises(UserError, match="run_config.json is not what a run writes"):
        read_run_flags(str(tmp_path))


def test_flags_differ_by_value_or_by_being_there():
    first = {"same": 1, "rate": 1e-5, "ignored": 1, "gone": None}
    second = {"same": 1, "rate": 2e-5, "ignored": 2, "new": None}
    assert differing_flags(first, second, ignored=["ignored"]) == ["gone", "new", "rate"]
    assert differing_flags(first, json.loads(json.dumps(first)), ignored=[]) == []
