"""Curves of runs: smoothing, selection, comparable runs, and reduction of long ones."""

import base64
import dataclasses
import io
import json
import re
import sys

import numpy as np
import pytest

from official_bert.support.errors import UserError
from official_bert.support.metrics_file import Series
from official_bert.visualization import curves, curves_image
from official_bert.visualization.curves import Run, check_comparable, page, panels, smoothed
from tests.visualization.curve_runs import make_run


def run_with(**names):
    """Return a run with one point in each metric, given as split to names."""
    return Run(
        name="a",
        folder=f"out/{'-'.join(names.get('train', names.get('eval')))}",
        series={(split, name): Series([1], [0.5]) for split, of_split in names.items() for name in of_split},
    )


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def numbers(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


def test_smoothing_is_the_debiased_average_of_tensorboard():
    values = np.random.default_rng(1).standard_normal(50)
    for smoothing in (0.0, 0.6, 0.99):
        last, expected = 0.0, []
        for count, value in enumerate(values, start=1):  # as in TensorBoard's code
            last = last * smoothing + (1 - smoothing) * value
            expected.append(last / (1 - smoothing**count))
        np.testing.assert_allclose(smoothed(values, smoothing), expected, rtol=1e-9)
    np.testing.assert_array_equal(smoothed(values, 0), values)
    np.testing.assert_allclose(smoothed([4, 1, 1], 0.5), [4, 2, 10 / 7])


def test_losses_come_first_then_scores_and_what_says_the_same_is_left_out():
    train = ["gradient_norm", "classification_loss", "loss", "padding", "learning_rate", "loss_scale"]
    shown = panels([run_with(train=train, eval=["loss", "eval_loss", "eval_f1"])])
    assert [panel.title for panel in shown] == [
        "training: loss",
        "evaluation: f1",
        "evaluation: loss",
        "training: learning rate",
        "training: gradient norm",
        "training: fraction of padding",
        "training: loss scale",
    ]
    assert [panel.name for panel in shown if panel.is_loss] == ["loss", "eval_loss"]
    assert [panel.name for panel in shown if not panel.is_smoothed] == ["eval_f1", "eval_loss", "learning_rate"]
    several = panels([run_with(train=["loss", "masked_lm_loss", "next_sentence_loss"], eval=["loss"])])
    assert [panel.name for panel in several] == ["loss", "masked_lm_loss", "next_sentence_loss", "loss"]


def test_runs_of_different_tasks_are_refused():
    squad = run_with(train=["loss", "span_loss"], eval=["f1", "exact_match"])
    mrpc = run_with(train=["loss", "classification_loss"], eval=["eval_loss", "eval_accuracy", "eval_f1"])
    sst = run_with(train=["loss", "classification_loss"], eval=["eval_loss", "eval_accuracy"])
    cola = run_with(train=["loss", "classification_loss"], eval=["eval_loss", "eval_matthews"])
    unevaluated = run_with(train=["loss", "classification_loss"])
    check_comparable([mrpc, sst, unevaluated])
    check_comparable([squad])
    with pytest.raises(UserError, match="different metrics: 'classification_loss' and 'span_loss'; draw the runs of"):
        check_comparable([mrpc, unevaluated, squad])
    with pytest.raises(UserError, match="different metrics: 'eval_accuracy', 'eval_f1' and 'eval_matthews'"):
        check_comparable([mrpc, unevaluated, cola])


def test_a_page_holds_every_point():
    runs = [make_run(0), dataclasses.replace(make_run(1), series={("train", "loss"): Series([7], [1e300])})]
    data = data_of(page(runs, smoothing=0.5, notes=["n"]))
    assert data["smoothing"] == 0.5 and data["notes"] == ["n"]
    assert [run["name"] for run in data["runs"]] == ["random_seed=0", "random_seed=1"]
    loss = data["panels"][0]
    first, second = loss["curves"]
    series = runs[0].series["train", "loss"]
    np.testing.assert_array_equal(numbers(data["steps"][first["steps"]], "<f8"), series.steps)
    np.testing.assert_array_equal(numbers(first["values"], "<f4"), np.float32(series.values))
    assert numbers(second["values"], "<f4").tolist() == [np.finfo(np.float32).max]
    assert data["panels"][1]["curves"][1] is None
    assert len(data["steps"]) == 3  # steps of training, evaluation, and the other run


def test_neighbouring_points_are_averaged_where_there_are_too_many(monkeypatch):
    run = Run(name="a", folder="out/a", series={("train", "loss"): Series([1, 2, 3, 4, 5], [1.0, 3.0, 5.0, 9.0, 11.0])})
    monkeypatch.setattr(curves, "_MOST_POINTS", 3)
    data = data_of(page([run], smoothing=0))
    assert data["notes"] == ["The runs have 5 points; each point shown is the mean of 2 neighbours."]
    assert numbers(data["steps"][0], "<f8").tolist() == [2, 4, 5]
    assert numbers(data["panels"][0]["curves"][0]["values"], "<f4").tolist() == [2, 7, 11]
    monkeypatch.setattr(curves, "_MOST_POINTS", 5)
    assert data_of(page([run], smoothing=0))["notes"] == []


class TestImage:
    @pytest.fixture(autouse=True)
    def matplotlib(self):
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")

    def test_it_has_the_values_and_the_smoothed_ones(self, monkeypatch):
        from matplotlib.axes import Axes

        drawn, add_line = {}, Axes.add_line
        monkeypatch.setattr(
            Axes,
            "add_line",
            lambda self, line: drawn.setdefault(self, []).append(line.get_ydata()) or add_line(self, line),
        )
        runs = [make_run(number, name="cost_$5_$6") for number in range(2)]
        sink = io.BytesIO()
        curves_image.draw(runs, sink, smoothing=0.6)
        assert sink.getvalue().startswith(b"\x89PNG")
        assert {axes.get_title() for axes in drawn} == {panel.title for panel in panels(runs)}
        for panel, (_, lines) in zip(panels(runs), drawn.items(), strict=True):
            expected = []
            for run in runs:
                values = run.series[panel.split, panel.name].values
                expected += [values, smoothed(values, 0.6)] if panel.is_smoothed else [values]
            for line, values in zip(lines, expected, strict=True):
                np.testing.assert_array_equal(line, values)

    def test_many_runs_and_one_metric_are_drawn(self):
        runs = [make_run(number, names=["loss"]) for number in range(50)]
        curves_image.draw(runs, io.BytesIO(), smoothing=0)
        curves_image.draw([run_with(train=["loss"])], io.BytesIO(), smoothing=0.6)


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match="matplotlib is not installed; run: pip install "):
        curves_image.draw([make_run()], io.BytesIO(), smoothing=0)
