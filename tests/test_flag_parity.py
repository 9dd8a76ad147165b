"""The flags of the scripts, compared with the reference's."""

import json

import pytest
from absl import flags

from official_bert.commands.extract_features import FeatureConfig
from official_bert.options.command import define_flags, from_flags, to_arguments
from official_bert.support.errors import UserError
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


REQUIRED = {
    "create_pretraining_data": ("--input_file=a", "--output_file=b", "--vocab_file=c"),
    "run_pretraining": ("--input_file=a", "--output_dir=b", "--bert_config_file=c", "--do_train"),
    "run_classifier": (
        "--data_dir=a", "--output_dir=b", "--bert_config_file=c", "--vocab_file=d", "--task_name=cola", "--do_train",
    ),
    "extract_features": (
        "--input_file=a", "--output_file=b", "--bert_config_file=c", "--vocab_file=d", "--init_checkpoint=e",
    ),
    "run_squad": ("--output_dir=b", "--bert_config_file=c", "--vocab_file=d", "--do_train", "--train_file=a"),
}  # fmt: skip


def test_every_script_of_the_reference_is_there():
    assert set(CONFIGS) == set(REFERENCE)
    assert sum(map(len, REFERENCE.values())) == 101


@pytest.mark.parametrize("script", CONFIGS)
def test_every_reference_flag_is_there_with_its_type_and_default_and_required_as_there(script):
    values = flags.FlagValues()
    define_flags(CONFIGS[script], values)
    for name, wanted in REFERENCE[script].items():
        assert values[name].default == wanted["default"], name
        assert values[name].flag_type() == {"integer": "int"}.get(wanted["type"], wanted["type"]), name
    required = {name for name, wanted in REFERENCE[script].items() if wanted.get("required")}
    given = {argument.split("=")[0].removeprefix("--") for argument in REQUIRED[script]}
    assert required <= given
    for name in required:
        arguments = [argument for argument in REQUIRED[script] if not argument.startswith(f"--{name}=")]
        with pytest.raises(UserError, match=f"--{name} .* is missing"):
            from_flags(CONFIGS[script], flag_values(CONFIGS[script], *arguments))


@pytest.mark.parametrize("script", CONFIGS)
def test_flags_become_the_config(script):
    config_class = CONFIGS[script]
    config = from_flags(config_class, flag_values(config_class, *REQUIRED[script], "--max_seq_length=77"))
    assert config.max_seq_length == 77
    assert "a" in (getattr(config, name, None) for name in ("data_dir", "input_file", "train_file"))
    assert getattr(config, "random_seed", 12345) == 12345


def test_a_config_becomes_the_command_line_that_gives_it():
    flags = {"do_lower_case": False, "do_whole_word_mask": True, "dupe_factor": 5}
    config = PretrainingDataConfig(input_file="a b", output_file="c=d", vocab_file="v", **flags)
    arguments = to_arguments(config)
    files = ["--vocab_file=v", "--input_file=a b", "--output_file=c=d"]
    assert arguments == ["--nodo_lower_case", *files, "--do_whole_word_mask", "--dupe_factor=5"]
    assert from_flags(PretrainingDataConfig, flag_values(PretrainingDataConfig, *arguments)) == config


def test_a_number_may_have_a_word_as_well():
    arguments = [*REQUIRED["run_squad"], "--version_2_with_negative"]

    def threshold(*more):
        return from_flags(SquadConfig, flag_values(SquadConfig, *arguments, *more)).null_score_diff_threshold

    assert threshold() == 0.0
    assert threshold("--null_score_diff_threshold=-1.5") == -1.5
    assert threshold("--null_score_diff_threshold=auto") == "auto"
    with pytest.raises(flags.IllegalFlagValueError, match="a number or auto"):
        threshold("--null_score_diff_threshold=best")
