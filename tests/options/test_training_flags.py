"""Flags of training that depend on each other."""

import pytest

from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.question_answering.options import SquadConfig
from official_bert.training.task import TrainingPlan

GIVEN = {"bert_config_file": "a", "input_file": "b", "output_dir": "c", "do_train": True}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"end_learning_rate": 1e-4},
            "^--end_learning_rate=0.0001 is above --learning_rate=5e-05, the peak; give a lower one$",
        ),
        (
            {"lr_schedule": "constant", "end_learning_rate": 1e-5},
            "--end_learning_rate needs --lr_schedule=linear or cosine or budget",
        ),
        (
            {"batch_ramp_up_steps": 9, "train_batch_size": 20},
            "^--train_batch_size=20 is not a multiple of 8, which --batch_ramp_up_steps needs$",
        ),
        ({"batch_ramp_up_steps": 9, "train_batch_tokens": 512}, "--batch_ramp_up_steps cannot be used with --train_b"),
        ({"lr_schedule": "budget"}, "^--lr_schedule=budget needs --max_train_seconds, the training time$"),
        ({"optimizer": "lamb", "adam_bias_correction": True}, "--adam_bias_correction needs --optimizer=adam"),
        ({"layer_wise_lr_decay": 0.0}, "--layer_wise_lr_decay=0: must be above 0"),
    ],
)
def test_contradicting_flags_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        PretrainingConfig(**GIVEN, **changes)


def test_valid_flags_are_accepted():
    PretrainingConfig(**GIVEN, end_learning_rate=5e-5, lr_schedule="cosine", layer_wise_lr_decay=0.9)
    PretrainingConfig(**GIVEN, optimizer="lamb", lr_schedule="constant")


def test_a_plan_says_what_the_flags_say():
    flags = {"learning_rate": 1e-3, "train_batch_size": 7, "random_seed": 3, "adam_bias_correction": True}
    flags |= {"adam_beta_1": 0.8, "adam_beta_2": 0.98, "adam_epsilon": 1e-8, "weight_decay_rate": 0.1}
    plan = TrainingPlan.from_config(PretrainingConfig(**GIVEN, **flags, num_train_steps=9), eval_steps=None)
    assert (plan.learning_rate, plan.train_batch_size, plan.random_seed, plan.num_train_steps) == (1e-3, 7, 3, 9)
    of_moments = {"beta_1": 0.8, "beta_2": 0.98, "epsilon": 1e-8, "weight_decay_rate": 0.1}
    assert plan.optimizer_options == {"bias_correction": True, **of_moments}
    counted = {"optimizer": "lamb", "train_batch_tokens": 600, "eval_steps": 5, "predict_file": "e"}
    config = SquadConfig(bert_config_file="a", vocab_file="b", output_dir="c", do_train=True, train_file="d", **counted)
    plan = TrainingPlan.from_config(config, num_train_steps=4, num_warmup_steps=1)
    assert (plan.train_batch_size, plan.num_train_steps, plan.num_warmup_steps, plan.eval_steps) == (None, 4, 1, 5)
    assert plan.optimizer_options == {}
