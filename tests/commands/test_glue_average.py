"""The table of GLUE, from folders like those of run_classifier.py, with manually computed numbers."""

import json

import pytest

from tests.conftest import assert_refused, run_cold, run_here

LOSSES = {"global_step": 10, "loss": 0.5, "eval_loss": 0.5}
MRPC = {"eval_accuracy_f1_mean": 0.85, "eval_accuracy": 0.8, "eval_f1": 0.9}


def write_run(folder, task_name, results, config_folder="", **flags):
    """Write the files of an output folder that the tool reads; return the folder."""
    (folder / config_folder).mkdir(parents=True, exist_ok=True)
    config = {"flags": {"task_name": task_name, "output_dir": str(folder), **flags}}
    (folder / config_folder / "run_config.json").write_text(json.dumps(config))
    lines = [f"{key} = {value}\n" for key, value in {**LOSSES, **results}.items()]
    (folder / "eval_results.txt").write_text("".join(lines))
    return folder


@pytest.fixture
def folders(tmp_path):
    """MRPC with two seeds (85 and 87), CoLA (50), both parts of MNLI (84, 83), WNLI (56.5) and AX (30)."""
    better = {"eval_accuracy_f1_mean": 0.87, "eval_accuracy": 0.83, "eval_f1": 0.91}
    write_run(tmp_path / "mrpc1", "MRPC", MRPC, random_seed=1)
    write_run(tmp_path / "mrpc2", "mrpc", better, random_seed=2)
    write_run(tmp_path / "cola", "cola", {"eval_matthews_correlation": 0.5, "eval_accuracy": 0.8}, "eval")
    parts = {"eval_accuracy": 0.84, "eval_accuracy_mismatched": 0.83}
    write_run(tmp_path / "mnli", "mnli", {**parts, "loss_mismatched": 0.5, "eval_loss_mismatched": 0.5})
    of_classes = {f"eval_{score}_{label}": 0.5 for score in ("precision", "recall", "f1", "count") for label in "01"}
    write_run(tmp_path / "wnli", "wnli", {"eval_accuracy": 0.565, "eval_macro_f1": 0.5, **of_classes})
    write_run(tmp_path / "ax", "ax", {"eval_matthews_correlation": 0.3, "eval_accuracy": 0.4})
    return tmp_path


@pytest.fixture
def printed(capsys):
    """Return a function that runs the command and returns its table."""

    def run(output_dirs, **flags):
        run_here("glue_average", output_dirs=str(output_dirs), **flags)
        return capsys.readouterr().out

    return run


def table(text):
    """Return the rows of a TSV table by their first cells."""
    rows = [line.split("\t") for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_every_task_has_its_row_and_the_average_its_tasks(folders):
    result = run_cold("glue_average", output_dirs=f"{folders}/*", table_format="tsv")
    missing = ["0", "", "", "yes", ""]
    assert result.code == 0, result
    assert table(result.output) == {
        "task": ["runs", "score", "std", "counts", "metrics"],
        "CoLA": ["1", "50.00", "", "yes", "matthews_correlation 50.00, accuracy 80.00"],
        "SST-2": missing,
        "MRPC": ["2", "86.00", "1.41", "yes", "accuracy 81.50 (std 2.12), f1 90.50 (std 0.71)"],
        "STS-B": missing,
        "QQP": missing,
        "MNLI": ["1", "83.50", "", "yes", "accuracy 84.00, accuracy_mismatched 83.00"],
        "QNLI": missing,
        "RTE": missing,
        "WNLI": ["1", "56.50", "", "no", "accuracy 56.50"],
        "AX": ["1", "30.00", "", "no", "matthews_correlation 30.00, accuracy 40.00"],
        "average": ["", "73.17", "", "", "3 of 8 tasks; missing: SST-2, STS-B, QQP, QNLI, RTE"],  # (50 + 86 + 83.5) / 3
    }
    assert result.errors == ""


def test_wnli_can_be_included_and_folders_count_once(folders, printed):
    output_dirs = f"{folders}/mrpc1 , {folders}/mrpc*,{folders}/*"
    rows = table(printed(output_dirs, include_wnli=True, table_format="tsv"))
    assert rows["MRPC"][:2] == ["2", "86.00"]
    assert (rows["WNLI"][3], rows["AX"][3]) == ("yes", "no")
    assert rows["average"][1] == "69.00"  # (50 + 86 + 83.5 + 56.5) / 4
    assert rows["average"][4].startswith("4 of 9 tasks; missing: SST-2,")


def test_the_table_is_aligned_by_default(folders, printed):
    assert printed(folders / "cola").splitlines()[:2] == [
        "task     runs  score  std  counts  metrics",
        "CoLA        1  50.00       yes     matthews_correlation 50.00, accuracy 80.00",
    ]


def test_averaging_runs_that_differ_in_more_than_their_seed_is_warned_of(folders, printed, caplog):
    write_run(folders / "mrpc2", "mrpc", MRPC, random_seed=2, learning_rate=2e-5)
    printed(f"{folders}/mrpc*")
    assert f"{folders}/mrpc1 and {folders}/mrpc2 are averaged but differ in --learning_rate" in caplog.text


def assert_no_table(output_dirs, *parts):
    assert_refused("glue_average", {"output_dirs": output_dirs}, *parts)


@pytest.mark.parametrize(
    ("task_name", "results", "part"),
    [
        ("imdb", {"eval_accuracy": 0.5}, "run: the task imdb is not one of GLUE's: cola, sst-2"),
        ("mnli", {"eval_accuracy": 0.5}, "eval_results.txt lacks eval_accuracy_mismatched"),
        ("rte", {"eval_accuracy": "high"}, "eval_results.txt, line 4: 'eval_accuracy = high'"),
    ],
)
def test_results_of_another_program_are_an_error(tmp_path, task_name, results, part):
    assert_no_table(write_run(tmp_path / "run", task_name, results), part)


def test_a_folder_that_does_not_say_of_what_it_is_is_a_mistake(folders):
    (folders / "mrpc2" / "eval_results.txt").unlink()
    assert_no_table(f"{folders}/mrpc1,{folders}/mrpc2", "no file matches", "mrpc2/eval_results.txt")
    (folders / "mrpc1" / "run_config.json").unlink()
    assert_no_table(folders / "mrpc1", "mrpc1 has no run_config.json")
    # AX evaluated with the model of MNLI, in the same folder: eval_results.txt belongs to one of them.
    write_run(folders / "mnli", "ax", {"eval_matthews_correlation": 0.3, "eval_accuracy": 0.4}, "eval")
    assert_no_table(folders / "mnli", "mnli has runs of ax and mnli; evaluate each in its own folder")
