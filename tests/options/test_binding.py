"""Command lines, their errors, and `--help`; for the flags see tests/test_flag_parity.py."""

import dataclasses
import json
import os
import re

import pytest
from absl import flags

from official_bert.commands import all_commands
from official_bert.options.command import _REMOVED, define_flags, parse_flags, settle_repeated_flags
from official_bert.options.option import ADVANCED_GROUPS, GROUPS, full_help, short_help
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from tests.conftest import GOLDEN

REFERENCE = json.loads((GOLDEN / "reference_flags.json").read_text())


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
        ("--seed=3", "there is no flag --seed; did you mean --random_seed"),
        ("--per_device_eval_batch_size=3", "; --help lists the flags"),
        ("--nofallback", "; a run always resumes from the checkpoint before a damaged one"),
        ("--hidden_state_weight=1", "; with --teacher, fine-tuning learns the teacher's outputs"),
    ],
)
def test_mistakes(argument, message):
    with pytest.raises(UserError, match=message):
        parse(ClassifierConfig, argument)
    for name in ("run_classifier", "run_pretraining", "mine_hard_negatives"):
        assert set(parse(all_commands()[name].config_class)).isdisjoint(_REMOVED)


OVERRIDDEN = ["--labels=a", "--train_batch_size=32", "--do_train"]
OVERRIDDEN += ["--labels", "b,c", "--nodo_train", "--train_batch_size=8"]


def settled(config_class, arguments, **options):
    values = parse(config_class, *arguments)
    settle_repeated_flags(values, arguments, **options)
    return values


def test_the_last_value_of_a_repeated_flag_counts_in_the_scripts_of_2018_and_is_told(caplog):
    assert {name for name, command in all_commands().items() if command.last_value_counts} == set(REFERENCE)
    values = settled(ClassifierConfig, OVERRIDDEN, last_value_counts=True)
    assert [values[name].value for name in ("labels", "train_batch_size", "do_train")] == ["b,c", 8, False]
    assert caplog.messages == [
        "--labels is given twice: b,c counts, not a",
        "--do_train is given twice: false counts, not true",
        "--train_batch_size is given twice: 8 counts, not 32",
    ]


def test_elsewhere_the_values_of_a_list_are_joined_and_two_values_of_another_flag_are_an_error(tmp_path):
    flag_file = tmp_path / "flags.txt"
    flag_file.write_text("--query_file=a\n--top_k=3\n--query_file=b\n")
    arguments = [f"--flagfile={flag_file}", "--top_k=4", "--top_k=4", "--query=a, b", "--query=c"]
    values = settled(all_commands()["sentence_similarity"].config_class, arguments)
    assert [values[name].value for name in ("query", "top_k", "query_file")] == ["a, b\0c", 4, "b"]
    assert settled(ClassifierConfig, OVERRIDDEN[:1] + OVERRIDDEN[3:5])["labels"].value == "a,b,c"
    with pytest.raises(UserError, match="^--do_train is given twice, as 'true' and 'false'; give it once$"):
        settled(ClassifierConfig, OVERRIDDEN)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"--task_name=m\xff", "flags.txt: this file, or one that it includes, is not UTF-8"),
        (b"# a comment\n--task_name=mrpc\nbake\n", "unexpected argument 'bake' in a file of --flagfile=.*flags.txt"),
        (b"--seed=3", "; did you mean --random_seed"),
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


@pytest.mark.parametrize("config_class", [command.config_class for command in all_commands().values()])
def test_help_has_each_flag_once_in_its_group_as_declared(config_class, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    declared = {group: [] for group in GROUPS}
    for field in dataclasses.fields(config_class):
        declared[GROUPS[0] if field.metadata["required"] else field.metadata["group"]].append(field.name)
    declared = {group: names for group, names in declared.items() if names}

    def shown(text, pattern):
        sections = [section.split(":\n", 1) for section in text.split("\n\n") if ":\n" in section]
        return {group: re.findall(pattern, flags, re.MULTILINE) for group, flags in sections}

    full, short = (describe(config_class, parse(config_class)) for describe in (full_help, short_help))
    assert max(map(len, [*full.splitlines(), *short.splitlines()])) <= 80
    assert shown(full, r"^  --(?:\[no\])?(\w+):") == {**declared, "of every command": []}
    in_lines, rest = shown(short, r"^  --(?:\[no\])?(\w+)(?:=.*?)?  +\S+"), {}
    if others := in_lines.pop(further := "Further flags, which few runs need", None) is not None:
        listed = short.partition(f"{further}:\n")[2].partition("\n\n")[0]
        groups = re.findall(r"^  (\w.*?): ((?:.|\n   )*)", listed, re.MULTILINE)
        rest = {group: re.findall(r"\w+", names) for group, names in groups}
        assert set(rest) == {*ADVANCED_GROUPS} & {*declared}
    assert in_lines | rest == declared
    assert others == (sum(map(len, declared.values())) > 50)
    if config_class is ClassifierConfig:  # most runs need what the reference has
        names = {name for names in in_lines.values() for name in names}
        assert set(REFERENCE["run_classifier"]) <= names
        assert len(names) < len(REFERENCE["run_classifier"]) + 40
