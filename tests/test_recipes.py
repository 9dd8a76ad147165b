"""The recipes: each contains valid flags of its command, and runs for a few steps with a toy model."""

import dataclasses
import json
import os
import re
import shlex
import subprocess

import pytest
from absl import flags

from official_bert.commands import load_command
from official_bert.families.bert import ElectraConfig
from official_bert.options.command import define_flags, from_flags, parse_flags
from tests.conftest import GOLDEN, ROOT, run_script
from tests.stand_ins import make_encoder, make_mrpc

NAMES = sorted(path.name for path in (ROOT / "recipes").glob("*.flags"))


def command_of(name):
    """Return the command in the second line of a recipe: its name and flags; for a sweep, the swept command."""
    line = (ROOT / "recipes" / name).read_text().splitlines()[1]
    line = line.removeprefix("# official-bert sweep --output_dir=OUTPUT -- ").removeprefix("# official-bert ")
    command, *arguments = shlex.split(line)
    return command, dict(argument.removeprefix("--").split("=") for argument in arguments)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_has_flags_of_its_command_and_is_in_the_page(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    command, given = command_of(name)
    assert given["flagfile"] == f"recipes/{name}"
    config_class, values = load_command(command).config_class, flags.FlagValues()
    define_flags(config_class, values)
    # Those that the folder of the checkpoint and the user of the sweep give.
    required = {field.name: "FILE" for field in dataclasses.fields(config_class) if field.metadata["required"]}
    given = required | given | ({"do_train": "true", "task_name": "mrpc"} if name == "glue.flags" else {})
    parse_flags(values, [command, *(f"--{flag}={value}" for flag, value in given.items())])
    from_flags(config_class, values)
    assert f"`{name}`" in (ROOT / "docs" / "recipes.md").read_text()


FIRST_STEPS = {  # recipes and those that make what they read
    "domain": "whole_word_data", "electra_hour": "electra_data", "electra_hour_512": "roberta_data",
    "electra_small": "electra_data", "few_labels": "few_labels_encoder", "pretraining_phase1": "pretraining_data_128",
    "pretraining_phase2": "pretraining_data_512", "roberta": "roberta_data",
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST_STEPS)
def test_a_first_step_has_the_lengths_that_the_recipe_reads(name):
    texts = [(ROOT / "recipes" / f"{each}.flags").read_text() for each in (FIRST_STEPS[name], name)]
    first, second = (dict(re.findall(r"^--(max_\w+)=(\d+)", text, re.M)) for text in texts)
    assert first["max_seq_length"] == second["max_seq_length"]
    assert first.items() <= second.items()


# Three steps instead of days, and batch sizes for the toys.
AT_TOY_SIZE = {
    "create_pretraining_data": {"num_shards": 2, "num_processes": 1},
    "run_pretraining": {"train_batch_size": 4, "num_train_steps": 3, "num_warmup_steps": 1},
    "run_classifier": {"train_batch_size": 16, "num_train_epochs": 1},
    "run_sentence_encoder": {"train_batch_size": 64, "num_train_epochs": 1},
}
SMALL = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
CORPUS = GOLDEN / "inputs" / "corpus.txt"


@pytest.mark.endurance
@pytest.mark.parametrize("name", ["electra_small", "few_labels", "pretraining_phase1"])
def test_a_recipe_runs(name, tmp_path, forked_children):
    model, electra = tmp_path / "model", tmp_path / "electra.json"
    make_encoder(model)
    electra.write_text(ElectraConfig(vocab_size=30522, embedding_size=16, **SMALL).to_json_string())
    paths = {
        "CORPUS": CORPUS, "VOCAB": model / "vocab.txt", "MODEL": model, "DATA": ROOT / "data" / "demo_reviews",
        "RECORDS": tmp_path / "records", "ENCODER": tmp_path / "encoder", "OUTPUT": tmp_path / "out",
        "recipes/electra_small.json": electra, "recipes/bert_base.json": model / "bert_config.json",
    }  # fmt: skip
    for recipe in (f"{FIRST_STEPS[name]}.flags", f"{name}.flags"):
        command, given = command_of(recipe)
        values = {flag: paths.get(value, value) for flag, value in given.items()} | AT_TOY_SIZE[command]
        result = run_script(command, **values | {"flagfile": ROOT / "recipes" / recipe})
        assert result.code == 0, result
        paths["RECORDS"] = f"{tmp_path}/records*-of-*"


@pytest.mark.endurance
@pytest.mark.parametrize("table", ["tasks", "masking", "size"])
def test_ablations_resume_and_print_their_table(table, tmp_path, forked_python):
    make_mrpc(tmp_path / "mrpc")
    config = json.loads((ROOT / "recipes" / "ablations" / "bert.json").read_text())
    (tmp_path / "bert.json").write_text(json.dumps(config | SMALL))
    toys = {"CORPUS": CORPUS, "HELDOUT": CORPUS, "VOCAB": ROOT / "vocab" / "demo_uncased.txt", "TASK": "MRPC"}
    toys |= {"DATA": tmp_path / "mrpc", "OUTPUT": tmp_path, "STEPS": "2", "LENGTH": "32"}
    toys |= {"CONFIG": tmp_path / "bert.json", "BATCH": "8", "EPOCHS": "0.5"}
    environment = {**os.environ, **toys, "PATH": f"{forked_python.parent}:{os.environ['PATH']}"}
    environment["SEEDS"] = "1" if table == "tasks" else "1 2"
    command = [ROOT / "recipes" / "ablations" / "run.sh", table]
    num_rows = {"tasks": 4, "masking": 6, "size": 4}[table]
    tables = []
    for _ in range(2):
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        tables.append([[cell.strip() for cell in line.split("|")[1:-1]] for line in result.stdout.splitlines()])
    assert tables[0] == tables[1]
    header, _, *rows = tables[0]
    assert header == ["variant", "held-out masked_lm_loss", "std", "eval_accuracy", "std"]
    assert len({row[0] for row in rows}) == len(rows) == num_rows
    for _, loss, deviation, accuracy, _ in rows:
        assert 4 < float(loss) < 12
        assert 0 <= float(accuracy) <= 1
        assert (float(deviation) > 0) == (len(environment["SEEDS"]) > 1)
