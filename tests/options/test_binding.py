"""Command lines, their errors, and `--help`; for the flags see tests/test_flag_parity.py."""

import dataclasses
import os
import re

import pytest
from absl import flags

from official_bert.commands import all_commands
from official_bert.commands.answer import AnswerConfig
from official_bert.options.command import _ADVICE, _OTHER_NAMES, define_flags, flags_help, parse_flags
from official_bert.options.option import GROUPS
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.question_answering.options import SquadConfig


def parse(config_class, *arguments):
    values = flags.FlagValues()
    define_flags(config_class, values)
    parse_flags(values, ["script", *arguments])
    return values


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--max_seq_length=1e3", "--max_seq_length=1e3: must be a whole number"),
        ("--learning_rate=high", "--learning_rate=high: must be a number"),
        ("--do_train=maybe", "--do_train=maybe: must be true or false"),
        ("--nodo_train=true", "--nodo_train=true does not take an argument"),
        ("--long_text=cut", "--long_text=cut: value should be one of <truncate|window>"),
        ("--max_seq_length", "Missing value for flag --max_seq_length"),
        ("train", "unexpected argument 'train'; flags are written --name=value, booleans --name or --noname"),
        (os.fsdecode(b"--task_name=\xff"), r"the argument '--task_name=\\udcff' is not UTF-8"),
        ("--flagfile=", "--flagfile= is empty; name a file"),
        ("--flagfile=absent", "--flagfile: cannot read absent: No such file or directory"),
        ("--max_seq_lenght=8", "there is no flag --max_seq_lenght; did you mean --max_seq_length"),
        ("--nodo_trian", "there is no flag --nodo_trian; did you mean --do_train"),
        ("--bake", "there is no flag --bake; --help lists the flags"),
        ("--seed=3", "there is no flag --seed; use --random_seed"),
        ("--per_device_eval_batch_size=3", "; use --eval_batch_size"),
        ("--model_name_or_path=bert-base-uncased", "give the model as --init_checkpoint=FOLDER, the local folder"),
        ("--nofp16", "there is no flag --nofp16; --mixed_precision=bfloat16, float16 or auto"),
        ("--use_gpu", "GPUs are used if TensorFlow finds any; --num_replicas sets how many"),
    ],
)
def test_mistakes(argument, message):
    with pytest.raises(UserError, match=message):
        parse(ClassifierConfig, argument)


def test_the_name_of_a_flag_depends_on_the_script():
    for config_class, argument, message in (
        (SquadConfig, "--per_device_eval_batch_size=3", "; use --predict_batch_size"),
        (PretrainingConfig, "--epochs=3", "; use --num_train_steps"),
        (AnswerConfig, "--epochs=3", "there is no flag --epochs; --help lists the flags"),
    ):
        with pytest.raises(UserError, match=message):
            parse(config_class, argument)


def test_the_tables_of_other_names_name_flags_that_exist_and_none_that_would_work():
    names = {name: set(parse(script.config_class)) for name, script in all_commands().items()}
    ours = set().union(*names.values())
    assert {other for others in _OTHER_NAMES.values() for other in others} <= ours
    assert not {*_OTHER_NAMES, *_ADVICE} & names["run_classifier"]
    assert not set(_OTHER_NAMES) & set(_ADVICE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"--task_name=m\xff", "flags.txt: this file, or one that it includes, is not UTF-8"),
        (b"\x00\x01", r"unexpected argument '\\x00\\x01' in a file of --flagfile=.*flags.txt"),
        (b"--task_name=mrpc\nbake\n", "unexpected argument 'bake' in a file of --flagfile="),
        (b"--seed=3", "; use --random_seed"),
    ],
)
def test_flag_files_of_nonsense(tmp_path, content, message):
    path = tmp_path / "flags.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        parse(ClassifierConfig, f"--flagfile={path}")


def test_a_flag_file_is_read(tmp_path):
    path = tmp_path / "flags.txt"
    path.write_text("# a comment\n--task_name=mrpc\n--do_train\n", encoding="utf-8")
    values = parse(ClassifierConfig, f"--flagfile={path}", "--nodo_train")
    assert (values["task_name"].value, values["do_train"].value) == ("mrpc", False)


@pytest.mark.parametrize("name", all_commands())
def test_help_has_each_flag_once_in_its_group_as_declared(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    fields = dataclasses.fields(all_commands()[name].config_class)
    declared = {group: [] for group in GROUPS}
    for field in fields:
        declared[GROUPS[0] if field.metadata["required"] else field.metadata["group"]].append(field.name)
    text = flags_help_of(name)
    sections = [section.split(":\n", 1) for section in text.rstrip("\n").split("\n\n")]
    shown = [(group, re.findall(r"^  --(?:\[no\])?(\w+):", flags, re.MULTILINE)) for group, flags in sections]
    assert shown == [(group, names) for group, names in declared.items() if names]
    assert max(map(len, text.splitlines())) <= 80


def flags_help_of(name):
    config_class = all_commands()[name].config_class
    return flags_help(config_class, parse(config_class))


def test_help_describes_a_flag_as_absl_does(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    description = """
  --num_replicas: Number of devices to use: GPUs, or virtual CPU devices if
    there are no GPUs; 0 for all GPUs.
    (default: '1')
    (an integer)
"""
    assert description in flags_help_of("run_classifier")
    assert description.strip() in parse(ClassifierConfig).get_help()
