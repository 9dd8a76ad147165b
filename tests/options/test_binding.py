"""Command lines, their errors, and `--help`; for the flags see tests/test_flag_parity.py."""

import dataclasses
import os
import re

import pytest
from absl import flags

from official_bert.commands import all_commands
from official_bert.options.command import _ADVICE, _OTHER_NAMES, define_flags, flags_help, parse_flags
from official_bert.options.option import GROUPS
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
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


def test_the_tables_of_other_names_name_flags_that_exist_and_none_that_would_work():
    with pytest.raises(UserError, match="; use --predict_batch_size"):  # the first one that the script has
        parse(SquadConfig, "--per_device_eval_batch_size=3")
    names = {name: set(parse(script.config_class)) for name, script in all_commands().items()}
    ours = set().union(*names.values())
    assert {other for others in _OTHER_NAMES.values() for other in others} <= ours
    assert not {*_OTHER_NAMES, *_ADVICE} & names["run_classifier"]
    assert not set(_OTHER_NAMES) & set(_ADVICE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"--task_name=m\xff", "flags.txt: this file, or one that it includes, is not UTF-8"),
        (b"# a comment\n--task_name=mrpc\nbake\n", "unexpected argument 'bake' in a file of --flagfile=.*flags.txt"),
        (b"--seed=3", "; use --random_seed"),
    ],
)
def test_flag_files_of_nonsense(tmp_path, content, message):
    path = tmp_path / "flags.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        parse(ClassifierConfig, f"--flagfile={path}")
    path.write_text("--task_name=mrpc\n--do_train\n")
    values = parse(ClassifierConfig, f"--flagfile={path}", "--nodo_train")
    assert (values["task_name"].value, values["do_train"].value) == ("mrpc", False)


@pytest.mark.parametrize("name", all_commands())
def test_help_has_each_flag_once_in_its_group_as_declared(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    config_class = all_commands()[name].config_class
    declared = {group: [] for group in GROUPS}
    for field in dataclasses.fields(config_class):
        declared[GROUPS[0] if field.metadata["required"] else field.metadata["group"]].append(field.name)
    text = flags_help(config_class, parse(config_class))
    sections = [section.split(":\n", 1) for section in text.rstrip("\n").split("\n\n")]
    shown = [(group, re.findall(r"^  --(?:\[no\])?(\w+):", flags, re.MULTILINE)) for group, flags in sections]
    assert shown == [(group, names) for group, names in declared.items() if names]
    assert max(map(len, text.splitlines())) <= 80
