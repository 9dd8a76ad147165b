"""Limits of flags, checked when a config is built."""

import dataclasses

import pytest

from official_bert.config.options import check_options, option
from official_bert.config.run_configs import PretrainingConfig, PretrainingDataConfig
from official_bert.errors import UserError


@dataclasses.dataclass(frozen=True)
class Sample:
    count: int = option(3, "How many.", minimum=1, maximum=5)
    share: float = option(0.5, "How much.", minimum=0)
    kind: str = option("a", "Which.", choices=("a", "b"))
    name: str | None = option("x", "Who.", required=True)

    def __post_init__(self):
        check_options(self)


def test_values_within_the_limits_pass():
    Sample()
    Sample(count=5, share=0, kind="b")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "--count=0: must be at least 1"),
        ({"count": 6}, "--count=6: must be at most 5"),
        ({"share": float("nan")}, "--share=nan: must be a finite number"),
        ({"kind": "c"}, "--kind=c: must be one of a, b"),
        ({"name": None}, r"--name is required: Who\."),
    ],
)
def test_values_beyond_the_limits_are_refused_with_the_flag(values, message):
    with pytest.raises(UserError, match=message):
        Sample(**values)


DATA = {"input_file": "a", "output_file": "b", "vocab_file": "c"}
TRAINING = {"input_file": "a", "output_dir": "b", "bert_config_file": "c"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_seq_length": 4}, "--max_seq_length=4: must be at least 5"),
        ({"output_file": "x,"}, "an empty name"),
        ({"masked_lm_prob": 1.5}, "--masked_lm_prob=1.5: must be at most 1"),
        ({"masked_lm_prob": float("nan")}, "--masked_lm_prob=nan: must be a finite number"),
        ({"dupe_factor": 0}, "--dupe_factor=0: must be at least 1"),
    ],
)
def test_pretraining_data_flags_are_checked(values, message):
    with pytest.raises(UserError, match=message):
        PretrainingDataConfig(**{**DATA, **values})


def test_pretraining_needs_something_to_do():
    with pytest.raises(UserError, match="give --do_train, --do_eval or both"):
        PretrainingConfig(**TRAINING)
    PretrainingConfig(**TRAINING, do_eval=True)
