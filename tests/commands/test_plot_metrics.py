"""`plot_metrics`: output files, names of runs, and errors."""

import json
import sys

import pytest

from official_bert.commands import plot_metrics
from official_bert.commands.plot_metrics import CurvesConfig
from official_bert.commands.plot_metrics import check as check_plot_metrics
from official_bert.support.errors import install_command
from official_bert.support.metrics_file import read_metrics
from official_bert.visualization.curves import Run, page
from tests.conftest import assert_refused


def make_folder(folder, *, flags=None, losses=(3.0, 2.0), name="classification_loss", text=""):
    """Create an output folder with metrics, unless there are no losses."""
    folder.mkdir(parents=True)
    if flags is not None:
        (folder / "run_config.json").write_text(json.dumps({"flags": {**flags, "output_dir": str(folder)}}))
    lines = [
        json.dumps({"split": "train", "step": 10 * step, "loss": loss, name: loss}) + "\n"
        for step, loss in enumerate(losses, start=1)
    ]
    if lines or text:
        (folder / "metrics.jsonl").write_text("".join(lines) + text)
    return folder


def run_of(folder, name):
    return Run(name=name, folder=str(folder), series=read_metrics(str(folder / "metrics.jsonl")).series)


@pytest.fixture
def flags(tmp_path):
    return {"output_dirs": str(tmp_path / "out" / "*"), "output_file": str(tmp_path / "page.html")}


def test_the_page_has_the_runs_by_the_flags_that_differ(flags, tmp_path):
    first = make_folder(tmp_path / "out" / "a", flags={"learning_rate": 1e-4, "random_seed": 1})
    # Only evaluated: its flags are in the folder `eval`.
    second = make_folder(tmp_path / "out" / "b")
    make_folder(second / "eval", flags={"learning_rate": 1e-4, "random_seed": 2}, losses=())
    (tmp_path / "out" / "log.txt").write_text("no folder")
    plot_metrics.run(CurvesConfig(**flags, smoothing=0.3))
    runs = [run_of(first, "random_seed=1"), run_of(second, "random_seed=2")]
    assert (tmp_path / "page.html").read_text() == page(runs, smoothing=0.3)
    plot_metrics.run(CurvesConfig(**{**flags, "output_dirs": f"{second}, {first},{second}"}))
    assert (tmp_path / "page.html").read_text() == page(runs[::-1], smoothing=0.6)


def test_the_image_is_written_alone_or_beside_the_page(flags, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    make_folder(tmp_path / "out" / "a")
    picture = tmp_path / "a.png"
    plot_metrics.run(CurvesConfig(output_dirs=flags["output_dirs"], image_file=str(picture)))
    assert picture.read_bytes().startswith(b"\x89PNG") and not (tmp_path / "page.html").exists()
    picture.unlink()
    plot_metrics.run(CurvesConfig(**flags, image_file=str(picture)))
    assert picture.exists() and (tmp_path / "page.html").exists()


def test_without_matplotlib_the_message_says_what_to_install(flags, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    make_folder(tmp_path / "out" / "a")
    message = f"matplotlib is not installed; run: {install_command('plots')}"
    for check in (check_plot_metrics, plot_metrics.run):
        assert_refused(check, CurvesConfig, {**flags, "image_file": tmp_path / "a.png"}, message)
        check(CurvesConfig(**flags))  # a page needs no extras


def test_runs_without_metrics_are_left_out_with_a_note(flags, tmp_path, caplog):
    good = make_folder(tmp_path / "out" / "good", text='{"split": "tra')
    none = make_folder(tmp_path / "out" / "none", flags={}, losses=())
    empty = make_folder(tmp_path / "out" / "zempty", losses=(), text="\n")
    plot_metrics.run(CurvesConfig(**flags))
    notes = [
        f"{good}/metrics.jsonl: left out 1 damaged line",
        f"{empty}/metrics.jsonl: left out 1 damaged line",
        f"{empty} has no metrics yet and is left out",
        f"{none} has no metrics yet and is left out",
    ]
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == notes
    assert (tmp_path / "page.html").read_text() == page([run_of(good, "good")], smoothing=0.6, notes=notes)
    for folder in (none, empty, tmp_path / "absent", tmp_path / "out" / "z*"):
        given = {**flags, "output_dirs": f"{good},{folder}"}
        message = f"--output_dirs: no folder with metrics matches '{folder}'; give the output folder of a run"
        assert_refused(plot_metrics.run, CurvesConfig, given, message)


def test_nan_losses_are_reported(flags, tmp_path, caplog):
    nan = float("nan")
    diverged = make_folder(tmp_path / "out" / "diverged", losses=(3.0, nan, nan))
    plot_metrics.run(CurvesConfig(**flags))
    assert f"{diverged}/metrics.jsonl: left out 4 numbers that are NaN or infinite" in caplog.text
    assert "left out 4 numbers" in (tmp_path / "page.html").read_text()
    make_folder(tmp_path / "all", losses=(nan, nan))
    given = {**flags, "output_dirs": str(tmp_path / "all"), "output_file": str(tmp_path / "none.html")}
    message = f"--output_dirs: all metrics of '{tmp_path}/all' are NaN or infinite: training diverged"
    assert_refused(plot_metrics.run, CurvesConfig, given, message)
    assert not (tmp_path / "none.html").exists()


def test_mixed_metrics_are_refused(flags, tmp_path):
    first = make_folder(tmp_path / "out" / "a")
    second = make_folder(tmp_path / "out" / "b", name="span_loss")
    message = f"{first} and {second} have different metrics: 'classification_loss' and 'span_loss'"
    assert_refused(plot_metrics.run, CurvesConfig, flags, message, "draw the runs of each task separately")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"output_file": None},
            "nothing to write: give --output_file, for a page, or --image_file",
        ),
        ({"smoothing": 1.0}, "--smoothing=1.0: must be at most 0.99"),
        ({"smoothing": -0.1}, "--smoothing=-0.1: must be at least 0"),
        ({"output_dirs": None}, "--output_dirs (Output folders of runs"),
    ],
)
def test_mistakes_are_refused(flags, tmp_path, changes, message):
    make_folder(tmp_path / "out" / "a")
    assert_refused(plot_metrics.run, CurvesConfig, {**flags, **changes}, message)


def test_the_metrics_are_not_overwritten(flags, tmp_path):
    folder = make_folder(tmp_path / "out" / "a")
    before = (folder / "metrics.jsonl").read_bytes()
    message = "--output_file: " + str(folder / "metrics.jsonl") + " is also an input"
    assert_refused(plot_metrics.run, CurvesConfig, {**flags, "output_file": folder / "metrics.jsonl"}, message)
    assert (folder / "metrics.jsonl").read_bytes() == before
