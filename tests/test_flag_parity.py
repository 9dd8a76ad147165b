"""The flags of the scripts, compared with the reference's."""

import dataclasses
import json

import pytest
from absl import flags

from official_bert.commands.extract_features import FeatureConfig
from official_bert.options.command import define_flags, from_flags, to_arguments
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.pretraining.options import PretrainingConfig, PretrainingDataConfig
from official_bert.tasks.question_answering.options import SquadConfig
from tests.conftest import GOLDEN

CONFIGS = {
    "create_pretraining_data": PretrainingDataConfig, "run_pretraining": PretrainingConfig,
    "run_classifier": ClassifierConfig, "run_squad": SquadConfig, "extract_features": FeatureConfig,
}  # fmt: skip
REFERENCE = json.loads((GOLDEN / "reference_flags.json").read_text())


def flag_values(config_class, *arguments):
    values = flags.FlagValues()
    define_flags(config_class, values)
    values(["script", *arguments], known_only=False)
    return values


def test_every_script_of_the_reference_is_there():
    assert set(CONFIGS) == set(REFERENCE)
    assert sum(map(len, REFERENCE.values())) == 101


@pytest.mark.parametrize("script", CONFIGS)
def test_every_reference_flag_is_there_with_its_type_and_default_and_those_required_are_the_same(script):
    values = flag_values(CONFIGS[script])
    for name, wanted in REFERENCE[script].items():
        assert values[name].default == wanted["default"], name
        assert values[name].flag_type() == {"integer": "int"}.get(wanted["type"], wanted["type"]), name
    required = {field.name for field in dataclasses.fields(CONFIGS[script]) if field.metadata["required"]}
    assert required == {name for name, wanted in REFERENCE[script].items() if wanted.get("required")}


def test_a_config_becomes_the_command_line_that_gives_it():
    flags = {"do_lower_case": False, "do_whole_word_mask": True, "dupe_factor": 5}
    config = PretrainingDataConfig(input_file="a b", output_file="c=d", vocab_file="v", **flags)
    arguments = to_arguments(config)
    files = ["--vocab_file=v", "--input_file=a b", "--output_file=c=d"]
    assert arguments == ["--nodo_lower_case", *files, "--do_whole_word_mask", "--dupe_factor=5"]
    assert from_flags(PretrainingDataConfig, flag_values(PretrainingDataConfig, *arguments)) == config


def test_a_number_may_have_a_word_as_well():
    arguments = ["--output_dir=b", "--bert_config_file=c", "--vocab_file=d", "--do_train", "--train_file=a"]
    arguments += ["--version_2_with_negative"]

    def threshold(*more):
        return from_flags(SquadConfig, flag_values(SquadConfig, *arguments, *more)).null_score_diff_threshold

    assert threshold() == 0.0
    assert threshold("--null_score_diff_threshold=-1.5") == -1.5
    assert threshold("--null_score_diff_threshold=auto") == "auto"
    with pytest.raises(flags.IllegalFlagValueError, match="a number or auto"):
        threshold("--null_score_diff_threshold=best")
