"""Reading the recorded flags of a run."""

import dataclasses
import json

import pytest

from official_bert.options.option import config_from_saved
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.question_answering.options import SquadConfig

FILES = {"bert_config_file": "b", "vocab_file": "v", "output_dir": "o"}


@pytest.mark.parametrize(
    "config",
    [
        ClassifierConfig(**FILES, data_dir="d", task_name="mrpc", do_eval=True, num_train_epochs=2),
        SquadConfig(
            **FILES,
            do_predict=True,
            predict_file="p",
            version_2_with_negative=True,
            null_score_diff_threshold="auto",
        ),
        SquadConfig(**FILES, do_predict=True, predict_file="p", null_score_diff_threshold=-1),
    ],
)
def test_a_config_comes_back_as_it_was(config):
    saved = json.loads(json.dumps(dataclasses.asdict(config)))
    assert config_from_saved(type(config), saved, "run_config.json") == config
    without_new = {name: value for name, value in saved.items() if name != "log_steps"}
    assert config_from_saved(type(config), {**without_new, "of_a_later_version": 1}, "run_config.json") == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_seq_length", "128"),
        ("max_seq_length", True),
        ("max_seq_length", 12.5),
        ("max_seq_length", None),
        ("learning_rate", "1e-4"),
        ("learning_rate", False),
        ("do_lower_case", 1),
        ("vocab_file", 7),
        ("vocab_file", ["v"]),
        ("null_score_diff_threshold", "automatic"),
    ],
)
def test_a_value_of_another_type_is_named(name, value):
    saved = {**FILES, "do_predict": True, "predict_file": "p", name: value}
    with pytest.raises(UserError, match=f"^out/run_config.json: {name} is .*restore the file"):
        config_from_saved(SquadConfig, saved, "out/run_config.json")


def test_a_value_out_of_range_is_named_with_its_file():
    with pytest.raises(UserError, match="^out/run_config.json: --max_seq_length=2: must be at least 5"):
        config_from_saved(
            SquadConfig, {**FILES, "do_predict": True, "predict_file": "p", "max_seq_length": 2}, "out/run_config.json"
        )
