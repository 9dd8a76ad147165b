"""`ablation`: tables of simulated finished runs, and small real runs."""

import dataclasses
import math
import os
import shutil

import pytest

from official_bert.commands import ablation, load_command
from official_bert.commands.ablation import AblationConfig
from official_bert.config.bert_config import BertConfig
from official_bert.support.errors import UserError
from official_bert.training import trials
from official_bert.training.run_folder import (
    RESULTS_FILE,
    read_results,
    read_run_config,
    settings_folder,
    write_run_config,
)
from tests.conftest import assert_fails, run_cold

METRIC = "eval_accuracy"


@pytest.fixture(scope="module")
def flags(tmp_path_factory, model_dir, vocab_file):
    """Flags for SST-2's layout and a model of 32 units."""
    folder = tmp_path_factory.mktemp("data")
    for split, count in (("train", 6), ("dev", 3)):
        rows = ("the light rain\t1", "the dark snow\t0", "a light town\t1", "a dark bridge\t0")
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "\n".join(rows * count) + "\n")
    sentences = ["the harbour woke before the town did .", "the town did not wake .", "gulls argued over the boats ."]
    for name, count in (("corpus", 12), ("heldout", 3)):
        (folder / f"{name}.txt").write_text("\n\n".join("\n".join(sentences) for _ in range(count)))
    return {
        "input_file": str(folder / "corpus.txt"),
        "heldout_file": str(folder / "heldout.txt"),
        "bert_config_file": str(model_dir / "bert_config.json"),
        "vocab_file": vocab_file,
        "task_name": "SST-2",
        "data_dir": str(folder),
        "max_seq_length": 16,
        "train_batch_size": 8,
        "num_train_steps": 10,
        "num_train_epochs": 1.0,
    }


@pytest.fixture
def make_config(flags, tmp_path):
    return lambda **changes: AblationConfig(**{**flags, "output_dir": str(tmp_path / "out"), **changes})


def all_trials(config):
    """Map variant name and seed to the runs."""
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    return {
        (variant.name, seed): ablation._trials(config, bert_config, variant, seed, METRIC)
        for name in config.table_names
        for variant in ablation._TABLES[name].variants(bert_config)
        for seed in config.seeds
    }


def write_finished(trial, score):
    folder = trial.config.output_dir
    os.makedirs(folder, exist_ok=True)
    write_run_config(settings_folder(trial.config), trial.config)
    with open(os.path.join(folder, RESULTS_FILE), "w") as sink:
        sink.write(f"{trial.metric} = {score}\n")


@pytest.fixture
def finished(make_config):
    """A folder with only finished runs, and the score of each run."""
    config, scores = make_config(random_seed="1,2"), {}
    for number, ((name, seed), runs) in enumerate(all_trials(config).items()):
        scores[name, seed] = (2 + number / 10, 0.5 + number / 100)
        for trial, score in zip(runs, (3.0, *scores[name, seed]), strict=True):
            if ablation._MASKED_LM_LOSS != trial.metric or name != "left_to_right_bilstm":
                write_finished(trial, score)
    return config, scores


def printed_tables(text):
    """Map the titles of Markdown tables to their rows, as lists of cells."""
    blocks = text.strip().split("\n\n")
    cells = lambda line: [cell.strip() for cell in line.strip("|").split("|")]  # noqa: E731
    return {
        title: [cells(line) for line in table.splitlines()]
        for title, table in zip(blocks[::2], blocks[1::2], strict=True)
    }


def test_the_tables_are_means_over_the_seeds(finished, capsys):
    config, scores = finished
    ablation.run(dataclasses.replace(config, table_format="markdown"))
    tables = printed_tables(capsys.readouterr().out)
    assert list(tables) == ["Pretraining tasks", "Masking", "Model size"]
    mean = lambda name, kind: (scores[name, 1][kind] + scores[name, 2][kind]) / 2  # noqa: E731
    header, _, *rows = tables["Pretraining tasks"]
    assert header == ["variant", METRIC, "std"]
    names = ("bert", "no_next_sentence", "left_to_right", "left_to_right_bilstm")
    for name, row in zip(names, rows, strict=True):
        assert row[1:] == [f"{mean(name, 1):.4f}", "0.0071"], name
    header, _, *rows = tables["Masking"]
    assert header == ["[MASK]", "same", "random", "masked_lm_perplexity", "std", METRIC, "std"]
    assert [row[:3] for row in rows[:2]] == [["80%", "10%", "10%"], ["100%", "0%", "0%"]]
    perplexities = [math.exp(scores["mask_100_same_0_random_0", seed][0]) for seed in (1, 2)]
    assert float(rows[1][3]) == pytest.approx(sum(perplexities) / 2, abs=0.06)
    header, _, *rows = tables["Model size"]
    assert header[:4] == ["layers", "hidden", "heads", "parameters"]
    assert [row[:3] for row in rows] == [["3", "16", "2"], ["1", "32", "4"], ["3", "32", "4"], ["6", "32", "4"]]
    lines = open(os.path.join(config.output_dir, "ablation.tsv")).read().splitlines()
    assert len(lines) == 1 + len(scores)
    assert f"bert\t1\t{scores['bert', 1][0]:.4f}\t{scores['bert', 1][1]:.4f}" in lines


def test_finished_runs_are_not_repeated(finished, monkeypatch, capsys):
    config, scores = finished
    missing = all_trials(config)["no_next_sentence", 2].finetuned
    shutil.rmtree(missing.config.output_dir)
    started = []

    def run_script(script, settings):
        started.append((script, getattr(settings, "output_dir", None)))
        if script == "create_pretraining_data":
            open(settings.output_file, "w").close()
        else:
            write_finished(missing, 0.875)
        return 0

    monkeypatch.setattr(trials, "run_script", run_script)
    ablation.run(config)
    assert started[-1] == ("run_classifier", missing.config.output_dir)
    assert {script for script, _ in started[:-1]} <= {"create_pretraining_data"}
    assert (
        "no_next_sentence\t2\t" + f"{scores['no_next_sentence', 2][0]:.4f}\t0.8750"
        in open(os.path.join(config.output_dir, "ablation.tsv")).read()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 32}, "has runs with another max_seq_length: 16, not 32; give another --output_dir"),
        ({"random_seed": "2,1"}, "has runs with another first random_seed: 1, not 2; give another --output_dir"),
        ({"num_train_steps": 20}, "pretrained has a run with --num_train_steps=10, not 20; delete that folder or give"),
        ({"learning_rate": 1e-3}, "finetuned has a run with --learning_rate=0.0003, not 0.001; delete that folder"),
    ],
)
def test_runs_with_other_settings_are_not_mixed(finished, changes, message):
    ablation.run(finished[0])
    with pytest.raises(UserError, match=message):
        ablation.run(dataclasses.replace(finished[0], **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tables": "tasks,depth"}, "--tables=tasks,depth: must list one or more of tasks, masking, size, each once"),
        ({"tables": "size,size"}, "--tables=size,size: must list one or more of"),
        ({"random_seed": "1,x"}, "--random_seed=1,x: must list whole numbers of at most 4294967295, each once"),
        ({"random_seed": "1,1"}, "--random_seed=1,1: must list whole numbers"),
        ({"task_name": "sst"}, "sst"),
        ({"task_name": "custom"}, "task_name=custom: needs further flags of run_classifier; choose one of cola"),
    ],
)
def test_settings_that_there_are_not(make_config, changes, message):
    with pytest.raises(UserError, match=message):
        ablation.run(make_config(**changes))


def test_a_missing_file_is_named(flags, tmp_path):
    given = {**flags, "heldout_file": str(tmp_path / "none.txt"), "output_dir": str(tmp_path / "out")}
    result = run_cold("ablation", **given)
    assert_fails(result, "none.txt")
    assert not (tmp_path / "out").exists()


def test_missing_data_is_found_before_pretraining(make_config, tmp_path):
    (tmp_path / "blank.txt").write_text(" \n")
    with pytest.raises(UserError, match="there is no text in .*blank.txt"):
        ablation.check(make_config(heldout_file=str(tmp_path / "blank.txt")))
    with pytest.raises(UserError, match=r"there is no .*/train.tsv; check the path"):
        ablation.check(make_config(data_dir=str(tmp_path)))


def test_each_variant_is_what_its_name_says(make_config):
    runs = all_trials(make_config())
    pretraining = {name: trials.pretrained.config for (name, _), trials in runs.items()}
    assert not pretraining["no_next_sentence"].use_next_sentence
    assert pretraining["no_next_sentence"].attention_direction is None
    assert pretraining["left_to_right"].attention_direction == "left_to_right"
    assert pretraining["left_to_right_bilstm"] == pretraining["left_to_right"]
    assert runs["left_to_right_bilstm", 1].finetuned.config.head == "bilstm"
    assert pretraining["mask_80_same_0_random_20"].mask_replace_prob == 0.8
    assert pretraining["mask_80_same_0_random_20"].random_replace_prob == 0.2
    for (_, seed), trials_of_run in runs.items():
        heldout = trials_of_run.heldout.config
        assert (heldout.mask_replace_prob, heldout.random_replace_prob) == (0.8, 0.1)  # all predict the same
        assert {trial.config.random_seed for trial in trials_of_run} == {seed}
        assert trials_of_run.finetuned.config.init_checkpoint == trials_of_run.pretrained.config.output_dir


@pytest.mark.slow
def test_a_small_ablation_of_real_runs(make_config, one_layer_config_file, tmp_path, monkeypatch, capsys, caplog):
    """Runs in this process; tests/commands/test_sweep.py tests processes."""
    monkeypatch.setattr(trials, "run_script", lambda script, settings: load_command(script).run(settings) or 0)
    config = make_config(bert_config_file=one_layer_config_file, random_seed="3", tables="tasks")
    ablation.run(config)
    printed, out = capsys.readouterr().out, tmp_path / "out"
    assert "left to right, no next sentence + BiLSTM" in printed
    for name in ("bert", "left_to_right_bilstm"):
        assert METRIC in read_results(str(out / f"{name}-seed_3" / "finetuned" / RESULTS_FILE))
    trained = BertConfig.from_json_file(str(out / "left_to_right-seed_3" / "finetuned" / "bert_config.json"))
    assert trained.is_left_to_right
    assert read_run_config(str(out / "left_to_right_bilstm-seed_3" / "finetuned")).flags["head"] == "bilstm"
    caplog.set_level("INFO", logger="absl")
    ablation.run(config)
    assert capsys.readouterr().out == printed and "10 runs, 10 of them finished already" in caplog.text
