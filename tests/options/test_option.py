"""Limits of flags and relations between them, checked when a config is built, and text settings as flags."""

import dataclasses
import json

import pytest

from official_bert.commands import all_commands
from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
from official_bert.commands.fill_mask import FillMaskConfig
from official_bert.config.text_settings import TextSettings
from official_bert.options.groups import TextOptions, TokenizerOptions
from official_bert.options.option import AFFECTS, UNLIMITED, Options, config_from_saved, layer_numbers, option, options
from official_bert.options.training import TrainingOptions
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.pretraining.options import PretrainingConfig, PretrainingDataConfig
from official_bert.tasks.question_answering.options import SquadConfig
from official_bert.training.task import TrainingPlan


@options(group="input")
class Sample(Options):
    count: int = option(3, "How many.", minimum=1, maximum=5)
    share: float = option(0.5, "How much.", minimum=0)
    kind: str = option("a", "Which.", choices=("a", "b"))
    name: str | None = option("x", "Who.", required=True)
    other: str | None = option("x", "Whom.", required=True)
    path: str | None = option(None, "Where.", is_path=True)
    output_dir: str | None = option(None, "Whither.", is_path=True)
    steps: int = option(1, "How far.")
    seed: int = option(1, "Whence.", maximum=UNLIMITED)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "--count=0: must be at least 1"),
        ({"count": 6}, "--count=6: must be at most 5"),
        ({"share": float("nan")}, "--share=nan: must be a finite number"),
        ({"kind": "c"}, "--kind=c: must be one of a, b"),
        ({"name": None}, r"--name \(Who\) is missing"),
        ({"name": None, "other": None}, r"missing: --name \(Who\), --other \(Whom\)"),
        ({"path": ""}, r"--path is empty; name a file or folder, or leave the flag out \(was a shell variable not set"),
        ({"output_dir": __file__}, "--output_dir=.*: .*/test_option.py is a file, not a folder; name a folder"),
        ({"output_dir": f"{__file__}/a/b/"}, "/a/b/: .*/test_option.py is a file, not a folder; name a folder"),
        ({"steps": 10**12 + 1}, "--steps=1000000000001: must be at most 1000000000000"),
    ],
)
def test_values_beyond_the_limits_are_refused_with_the_flag(values, message):
    Sample(count=5, share=0, kind="b", path="a b", steps=10**12, seed=10**30)
    with pytest.raises(UserError, match=message):
        Sample(**values)
    assert layer_numbers("0,-1") == [0, -1]
    with pytest.raises(UserError, match=r"^--layers=(-1,){26}-1: lists 100,000 numbers; the maximum is 4,096$"):
        layer_numbers(",".join(["-1"] * 10**5))


DATA = {"input_file": "a", "output_file": "b", "vocab_file": "c"}
TRAINING = {"input_file": "a", "output_dir": "b", "bert_config_file": "c"}


def test_pretraining_needs_names_of_outputs_and_something_to_do_and_takes_large_numbers_of_real_runs():
    with pytest.raises(UserError, match="--output_file=x, contains an empty name"):
        PretrainingDataConfig(**{**DATA, "output_file": "x,"})
    with pytest.raises(UserError, match="--max_seq_length=4: must be at least 5"):
        PretrainingDataConfig(**DATA, max_seq_length=4)
    with pytest.raises(UserError, match="give at least one of --do_train, --do_eval and --do_export"):
        PretrainingConfig(**TRAINING)
    PretrainingConfig(**TRAINING, do_eval=True)
    PretrainingConfig(**TRAINING, do_train=True, end_learning_rate=5e-5, lr_schedule="cosine", layer_wise_lr_decay=0.9)
    PretrainingConfig(**TRAINING, do_train=True, optimizer="lamb", lr_schedule="constant")
    numbers = {"train_batch_size": 65536, "num_train_steps": 10**7, "save_checkpoints_steps": 10**9}
    PretrainingConfig(**TRAINING, **numbers, do_train=True, random_seed=2**32 - 1, num_tpu_cores=2048)
    for seed in (-1, 10**40):  # as in the reference
        PretrainingDataConfig(**DATA, random_seed=seed)
    for seed in (-1, 2**32):  # the seed of initial weights
        with pytest.raises(UserError, match=f"--random_seed={seed}: must be at"):
            PretrainingConfig(**TRAINING, do_train=True, random_seed=seed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"end_learning_rate": 1e-4}, "^--end_learning_rate=0.0001 is above --learning_rate=5e-05, the peak; give a l"),
        ({"lr_schedule": "constant", "end_learning_rate": 1e-5}, "--end_learning_rate needs --lr_schedule=linear or"),
        ({"optimizer": "lamb", "adam_bias_correction": True}, "--adam_bias_correction needs --optimizer=adam"),
        ({"layer_wise_lr_decay": 0.0}, "--layer_wise_lr_decay=0: must be above 0"),
    ],
)
def test_flags_of_training_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        PretrainingConfig(**TRAINING, do_train=True, **changes)


def test_a_plan_says_what_the_flags_say():
    flags = {"learning_rate": 1e-3, "train_batch_size": 7, "random_seed": 3, "adam_bias_correction": True}
    flags |= {"adam_beta_2": 0.98, "adam_epsilon": 1e-8, "weight_decay_rate": 0.1}
    config = PretrainingConfig(**TRAINING, do_train=True, **flags, num_train_steps=9)
    plan = TrainingPlan.from_config(config, eval_steps=None)
    assert (plan.learning_rate, plan.train_batch_size, plan.random_seed, plan.num_train_steps) == (1e-3, 7, 3, 9)
    of_moments = {"beta_2": 0.98, "epsilon": 1e-8, "weight_decay_rate": 0.1}
    assert plan.optimizer_options == {"bias_correction": True, **of_moments}
    counted = {"optimizer": "lamb", "train_batch_tokens": 600, "eval_steps": 5, "predict_file": "e"}
    config = SquadConfig(bert_config_file="a", vocab_file="b", output_dir="c", do_train=True, train_file="d", **counted)
    plan = TrainingPlan.from_config(config, num_train_steps=4, num_warmup_steps=1)
    assert (plan.train_batch_size, plan.num_train_steps, plan.num_warmup_steps, plan.eval_steps) == (None, 4, 1, 5)
    assert plan.optimizer_options == {}


CLASSIFIER = {"data_dir": "a", "output_dir": "b", "bert_config_file": "c", "vocab_file": "d", "task_name": "MRPC"}
TAGGING = {"data_dir": "a", "output_dir": "b", "bert_config_file": "c", "vocab_file": "d"}
CUSTOM = {**CLASSIFIER, "task_name": "Custom", "text_a_column": "text", "train_file": "e"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *(
            ({name: value}, f"--{name} needs --task_name=custom")
            for name, value in {"eval_file": "e", "text_b_column": "0", "regression": True, "has_header": False}.items()
        ),
        ({**CUSTOM, "ranking": True}, "--ranking needs --text_b_column"),
        ({**CUSTOM, "ranking": True, "text_b_column": "1", "multi_label": True}, "--ranking cannot be used with --mul"),
        ({"train_file": "e"}, "--train_file needs --task_name=custom or xnli"),
        ({**CUSTOM, "xnli_language": "de"}, "--xnli_language needs --task_name=xnli"),
        ({**CUSTOM, "regression": True, "labels": "x,y"}, "--labels cannot be used with --regression"),
        ({"window_pooling": "max"}, "--window_pooling needs --long_text=window"),
        ({**CUSTOM, "class_weights": "1,9", "multi_label": True}, "--class_weights cannot be used with --multi_label"),
        ({**CUSTOM, "focal_gamma": 2.0, "regression": True}, "--focal_gamma cannot be used with --regression"),
        ({"class_weights": "1,nan"}, "--class_weights=1,nan: must be balanced, or a number"),
        ({"glue_submission": True}, "--glue_submission needs --do_predict"),
        ({"num_train_epochs": 0.0}, "--num_train_epochs=0 trains nothing; give a number above 0, or leave --do_train"),
        ({**CUSTOM, "eval_steps": 5}, "--task_name=custom needs --eval_file for --eval_steps"),
        ({**CUSTOM, "do_predict": True, "eval_file": "e"}, "--task_name=custom needs --predict_file for --do_predict"),
        ({"long_text": "window", "doc_stride": 15, "max_seq_length": 16}, "15 would skip wordpieces.*give at most 14"),
    ],
)
def test_classifier_flags_that_would_be_ignored_or_do_not_fit_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        ClassifierConfig(**{**CLASSIFIER, "do_train": True, **values})
    # In their place they are accepted.
    ClassifierConfig(**CUSTOM, do_train=True, label_column="0", labels="x,y", multi_label=True, has_header=False)
    ClassifierConfig(**{**CLASSIFIER, "task_name": "XNLI"}, do_train=True, train_file="e", xnli_language="de")
    windows = {"long_text": "window", "max_seq_length": 16, "doc_stride": 14, "window_pooling": "max"}
    ClassifierConfig(**CLASSIFIER, **windows, do_eval=True, max_windows=2, num_train_epochs=0.0)


_OF_MODEL = "bert_config_file init_checkpoint"
REQUIRED = {  # by command, besides vocabularies and records, which others replace
    "beam_predict": "input_file model_dir output_file", "beam_pretraining_data": "input_file output_file",
    "build_vocab": "input_file vocab_file", "convert_hf_checkpoint": "output_dir",
    "create_pretraining_data": "input_file output_file", "edit_checkpoint": "init_checkpoint output_dir",
    "export": "export_dir model_dir", "export_embeddings": f"{_OF_MODEL} export_dir",
    "extract_features": f"{_OF_MODEL} input_file output_file", "fill_mask": f"{_OF_MODEL} text",
    "mine_hard_negatives": f"{_OF_MODEL} output_file pairs_file", "predict": "input_file model_dir",
    "run_classifier": "bert_config_file data_dir output_dir task_name",
    "run_multiple_choice": "bert_config_file data_dir output_dir", "run_ner": "bert_config_file output_dir",
    "run_pretraining": "bert_config_file output_dir", "run_sentence_encoder": "bert_config_file data_dir output_dir",
    "run_squad": "bert_config_file output_dir", "score_answers": "predictions_file squad_file",
    "score_sentences": f"{_OF_MODEL} input_file output_file", "sentence_similarity": _OF_MODEL, "serve": "export_dir",
    "split_sentences": "input_file output_file", "sweep": "command output_dir",
    "view_attention": f"{_OF_MODEL} output_file text",
}  # fmt: skip


def test_commands_require_what_they_cannot_do_without():
    for name, command in all_commands().items():
        required = {f.name: f.metadata["required"] for f in dataclasses.fields(command.config_class)}
        expected = dict.fromkeys(REQUIRED.get(name, "").split(), True)
        if name == "run_pretraining":
            expected["input_file"] = "do_export"
        elif "bert_config_file" in expected or name.endswith("pretraining_data"):
            expected["vocab_file"] = "spm_model_file"
        assert {name: value for name, value in required.items() if value} == expected, name


# Flags that scripts need in addition to the required ones.
SMALLEST = {
    "create_pretraining_data": DATA, "beam_pretraining_data": DATA, "run_pretraining": {"do_train": True},
    "run_classifier": {**CLASSIFIER, "do_train": True}, "run_ner": {**TAGGING, "do_train": True},
    "run_squad": {"do_train": True, "train_file": "e"},
    "run_multiple_choice": {"task_name": "swag", "do_train": True},
    "run_sentence_encoder": {"text_columns": "b,c", "train_file": "d", "do_train": True},
    "convert_hf_checkpoint": {"hf_dir": "a"}, "launch_workers": {"command": "a"}, "sweep": {"command": "run_ner"},
    "sentence_similarity": {"candidates_file": "a", "query": "b"},
    "mine_hard_negatives": {"pairs_file": "a", "corpus_file": "b"}, "edit_checkpoint": {"num_layers": 1},
}  # fmt: skip


@pytest.mark.parametrize(("script", "command"), all_commands().items())
def test_numbers_beyond_reason_and_empty_paths_are_refused_everywhere(script, command):
    config_class = command.config_class
    required = [field.name for field in dataclasses.fields(config_class) if field.metadata["required"]]
    given = {**dict.fromkeys(required, "a"), **SMALLEST.get(script, {})}
    config = config_class(**given)
    for field in dataclasses.fields(config_class):
        value = getattr(config, field.name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not (script.endswith("pretraining_data") and field.name == "random_seed"):
            for number in (10**20, 1e308) if isinstance(value, float) else (10**20,):
                with pytest.raises(UserError, match=f"--{field.name}(=.*: must be at most| needs )"):
                    config_class(**{**given, field.name: number})
        is_named_as_path = field.name.endswith(("_file", "_dir", "_dirs", "checkpoint", "checkpoints"))
        if is_named_as_path and field.type is not bool:
            with pytest.raises(UserError, match=f"--{field.name} (is empty|needs )"):
                config_class(**{**given, field.name: " "})


def test_every_flag_of_a_training_command_declares_its_effect():
    commands = all_commands().items()
    training = {name: each for name, each in commands if issubclass(each.config_class, TrainingOptions)}
    assert {"run_pretraining", "run_classifier", "run_squad", "run_ner"} <= set(training)
    fields = [(name, field) for name, each in training.items() for field in dataclasses.fields(each.config_class)]
    silent = [f"{name} --{field.name}" for name, field in fields if field.metadata["affects"] not in AFFECTS]
    assert silent == []


FILES = {"bert_config_file": "b", "vocab_file": "v", "output_dir": "o"}
PREDICTION = {**FILES, "do_predict": True, "predict_file": "p"}


def test_a_saved_config_comes_back_as_it_was():
    for config in (
        ClassifierConfig(**FILES, data_dir="d", task_name="mrpc", do_eval=True, num_train_epochs=2),
        SquadConfig(**PREDICTION, version_2_with_negative=True, null_score_diff_threshold="auto"),
        SquadConfig(**PREDICTION, null_score_diff_threshold=-1),
    ):
        saved = json.loads(json.dumps(dataclasses.asdict(config)))
        del saved["log_steps"]
        assert config_from_saved(type(config), {**saved, "of_a_later_version": 1}, "run_config.json") == config


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_seq_length", True, "max_seq_length is True; it must be a whole number"),
        ("learning_rate", "1e-4", "learning_rate is '1e-4'; it must be a number"),
        ("vocab_file", ["v"], "vocab_file is .*; it must be text or null"),
        ("null_score_diff_threshold", "automatic", 'it must be a number or "auto"'),
        ("max_seq_length", 2, "--max_seq_length=2: must be at least 5"),
    ],
)
def test_a_saved_value_of_another_type_or_out_of_range_is_named_with_its_file(name, value, message):
    with pytest.raises(UserError, match=f"^out/run_config.json: .*{message}"):
        config_from_saved(SquadConfig, {**PREDICTION, name: value}, "out/run_config.json")


def test_every_script_that_reads_text_has_the_flags():
    classes = {name: command.config_class for name, command in all_commands().items()}
    reading = {
        name for name, each in classes.items() if hasattr(each, "vocab_file") and hasattr(each, "max_seq_length")
    }
    assert len(reading) > 12
    assert [name for name in reading if not issubclass(classes[name], TextOptions)] == []
    assert issubclass(TokenizerOptions, TextOptions)
    flags = dict.fromkeys(("init_checkpoint", "bert_config_file", "vocab_file", "text"), "somewhere")
    presplit = FillMaskConfig(**flags, do_lower_case=False, basic_tokenize=False)
    assert presplit.text_settings == TextSettings(do_lower_case=False, basic_tokenize=False)
    for changes, message in (
        ({"basic_tokenize": False}, "^basic_tokenize=false takes words as they are .*; give do_lower_case=false$"),
        ({"strip_accents": False, "do_lower_case": False}, "^strip_accents needs do_lower_case$"),
    ):
        with pytest.raises(UserError, match=message):
            FillMaskConfig(**flags, **changes)
    for name, value in TextSettings()._asdict().items():
        with pytest.raises(UserError, match=f"--{name} needs --to_hf"):
            HfConversionConfig(output_dir="a", hf_dir="b", **{name: not value})
    assert str(TextSettings()) == "do_lower_case=true"
    assert str(TextSettings(strip_accents=False)) == "do_lower_case=true, strip_accents=false"
    assert str(TextSettings(False, basic_tokenize=False)) == "do_lower_case=false, basic_tokenize=false"
