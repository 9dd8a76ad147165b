"""The recipes: each contains valid flags of its command, and runs for a few steps with a toy model."""

import json
import os
import shlex
import shutil
import subprocess

import pytest
from absl import flags

from official_bert.commands import load_command
from official_bert.families.bert import ElectraConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.options.command import define_flags, parse_flags
from tests.conftest import GOLDEN, ROOT, run_script
from tests.stand_ins import make_encoder, make_mrpc, make_nsmc

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
    values = flags.FlagValues()
    define_flags(load_command(command).config_class, values)
    parse_flags(values, [command, *(f"--{flag}={value}" for flag, value in given.items())])
    assert f"`{name}`" in (ROOT / "docs" / "recipes.md").read_text()


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Replacements of paths in a recipe's command by toys."""
    folder = tmp_path_factory.mktemp("recipes")
    make_encoder(folder / "model")
    make_mrpc(folder / "mrpc")
    make_nsmc(folder / "nsmc")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertEncoder(ElectraConfig(vocab_size=30522, embedding_size=16, **sizes)).save_checkpoint(folder / "electra")
    shutil.copy(folder / "model" / "vocab.txt", folder / "electra")
    return {
        "CORPUS": GOLDEN / "inputs" / "corpus.txt", "VOCAB": folder / "model" / "vocab.txt",
        "MODEL": folder / "model", "PHASE1": folder / "model", "TASK": "mrpc",
        **{f"recipes/electra_{name}.json": folder / "electra" / "bert_config.json" for name in ("small", "hour")},
        "recipes/bert_base.json": folder / "model" / "bert_config.json", "folder": folder,
    }  # fmt: skip


DATA = {"glue.flags": "mrpc", "nsmc.flags": "nsmc"}
RECORDS_OF = {
    "pretraining_phase1.flags": "pretraining_data_128.flags",
    "pretraining_phase2.flags": "pretraining_data_512.flags", "domain.flags": "whole_word_data.flags",
    "roberta.flags": "roberta_data.flags", "electra_small.flags": "electra_data.flags",
    "electra_hour.flags": "electra_data.flags", "electra_hour_512.flags": "roberta_data.flags",
    "few_labels.flags": "few_labels_encoder.flags",
}  # fmt: skip
# Three steps instead of days, and batch sizes for the toys.
AT_TOY_SIZE = {
    "create_pretraining_data": {"num_shards": 2, "num_processes": 1},
    "run_pretraining": {"train_batch_size": 4, "num_train_steps": 3, "num_warmup_steps": 1},
    "run_classifier": {"train_batch_size": 16, "num_train_epochs": 1},
    "run_squad": {"train_batch_size": 4, "num_train_epochs": 1},
    "run_ner": {"train_batch_size": 64, "num_train_epochs": 1},
    "run_sentence_encoder": {"train_batch_size": 64, "num_train_epochs": 1},
}


# Like others, except for lengths or data, or fine-tuning as other tests do it.
REPEATED = ("domain", "electra_hour", "electra_hour_512", "korquad", "nsmc", "pretraining_phase2", "squad1")
REPEATED += ("conll", "glue", "roberta", "squad2")


@pytest.mark.endurance
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.endurance] * (name[:-6] in REPEATED))
        for name in sorted({*NAMES} - {*RECORDS_OF.values()})  # records are made by other recipes
    ],
)
def test_a_recipe_runs(name, paths, tmp_path, forked_children):
    own = dict(paths, OUTPUT=tmp_path / "out", TRAIN=GOLDEN / "inputs" / "squad_v1.json")
    if name == "squad2.flags":
        own["TRAIN"] = GOLDEN / "inputs" / "squad_v2.json"
    own["DEV"] = own["TRAIN"]
    if name.startswith("electra"):
        own["PHASE1"] = paths["folder"] / "electra"
    own["DATA"] = paths["folder"] / DATA[name] if name in DATA else ROOT / "data" / "demo_tagging"
    if name == "few_labels.flags":
        own |= {"ENCODER": tmp_path / "encoder", "DATA": ROOT / "data" / "demo_reviews"}
    if name in RECORDS_OF:
        run(RECORDS_OF[name], dict(own, RECORDS=tmp_path / "records"))
        own["RECORDS"] = f"{tmp_path}/records*-of-*"
    run(name, own)


def run(name, paths):
    command, given = command_of(name)
    recipe = ROOT / "recipes" / name
    values = {flag: paths.get(value, value) for flag, value in given.items()} | {"flagfile": recipe}
    values |= AT_TOY_SIZE[command]
    if "gradient_accumulation_steps" in recipe.read_text():
        values["gradient_accumulation_steps"] = 2
    if name == "glue.flags":
        settings = {flag: values.pop(flag) for flag in ("train_batch_size", "num_train_epochs")}
        arguments = ["--", command, *(f"--{flag}={value}" for flag, value in values.items())]
        result = run_script("sweep", *arguments, output_dir=paths["OUTPUT"], learning_rate="5e-5", **settings)
    else:
        result = run_script(command, **values)
    assert result.code == 0, result


@pytest.mark.endurance
@pytest.mark.parametrize("table", ["tasks", "masking", "size"])
def test_ablations_resume_and_print_their_table(table, paths, tmp_path, forked_python):
    config = json.loads((ROOT / "recipes" / "ablations" / "bert.json").read_text())
    small = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    (tmp_path / "bert.json").write_text(json.dumps(config | small))
    toys = {"CORPUS": paths["CORPUS"], "HELDOUT": paths["CORPUS"], "VOCAB": ROOT / "vocab" / "demo_uncased.txt"}
    toys |= {"TASK": "MRPC", "DATA": paths["folder"] / "mrpc", "OUTPUT": tmp_path, "STEPS": "2", "LENGTH": "32"}
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
