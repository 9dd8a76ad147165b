"""The page of curves in a real browser: a headless Chromium."""

import re

import numpy as np
import pytest

from official_bert.support.metrics_file import Series
from official_bert.visualization.curves import Run, page, panels, smoothed
from tests.attention_views import HOSTILE
from tests.browser_fixtures import OpenedPage
from tests.visualization.curve_runs import TRAINING, make_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# For each pixel column of a canvas, the first and last row with a pixel of a colour; -1 for none.
COLOURED = """([index, name]) => {
  const canvas = document.querySelectorAll("canvas")[index];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const color = rgbOf(name);
  return Array.from({ length: canvas.width }, (_, x) => {
    const rows = Array.from({ length: canvas.height }, (_, y) => y).filter((y) => {
      const at = 4 * (y * canvas.width + x);
      return data[at + 3] > 250 && color.every((part, channel) => Math.abs(data[at + channel] - part) < 3);
    });
    return rows.length ? [rows[0], rows[rows.length - 1]] : [-1, -1];
  });
}"""


class Opened(OpenedPage):
    """The page of some runs."""

    def __init__(self, browser, path, runs, *, smoothing=0.6, notes=(), **options):
        self.panels = panels(runs)
        super().__init__(browser, path, page(runs, smoothing=smoothing, notes=notes), **options)

    def point_at(self, panel, share):
        """Point at a position in a panel's plot, from 0 (its first step) to 1 (its last)."""
        canvas = self.page.locator("canvas").nth(panel)
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        left, right = 64, 12  # the margins
        self.page.mouse.move(box["x"] + left + share * (box["width"] - left - right), box["y"] + 60)

    @property
    def cursor(self):
        return self.page.text_content("#cursor")

    @property
    def values(self):
        """Return the numbers listed for each run."""
        texts = self.page.locator("#runs p.number").all_text_contents()
        return [[float(number.replace(",", "")) for number in text.split()] for text in texts]

    def coloured(self, panel, run):
        return np.array(self.page.evaluate(COLOURED, [panel, f"--run-{run}"]))


@pytest.fixture
def runs():
    return [make_run(number) for number in range(3)]


@pytest.fixture
def opened(browser, tmp_path, runs):
    opened = Opened(browser, tmp_path / "page.html", runs)
    yield opened
    opened.close()


def test_pointing_shows_the_values_of_all_runs_at_the_step(opened, runs):
    assert opened.page.locator("#panels h2").all_text_contents() == [panel.title for panel in opened.panels]
    assert opened.page.locator("#runs label").all_text_contents() == [run.name for run in runs]
    assert opened.cursor == "Point at a curve to see its values here."
    opened.point_at(0, 0.5)
    assert opened.cursor == "training: loss at step 150: smoothed, and the value itself"
    for run, shown in zip(runs, opened.values, strict=True):
        values = run.series["train", "loss"].values
        np.testing.assert_allclose(shown, [smoothed(values, 0.6)[14], values[14]], rtol=1e-4)
    scores = [panel.split for panel in opened.panels].index("eval")
    opened.point_at(scores, 1)
    assert opened.cursor == "evaluation: masked lm accuracy at step 260"
    expected = [[run.series["eval", "masked_lm_accuracy"].values[-1]] for run in runs]
    np.testing.assert_allclose(opened.values, expected, rtol=1e-4)
    opened.page.mouse.move(5, 5)
    assert opened.values == [[]] * 3


def test_a_run_with_other_steps_shows_its_nearest_and_says_which(browser, tmp_path):
    other = Run(name="b", folder="b", series={("train", "loss"): Series([7, 148, 1_000], [1.0, 2.0, 3.0])})
    opened = Opened(browser, tmp_path / "page.html", [make_run(), other], smoothing=0)
    opened.point_at(0, 0.145)  # as a fraction of the axis from 7 to 1,000
    assert opened.cursor == "training: loss at step 150"
    assert opened.page.locator("#runs p.number").nth(1).text_content() == "2 at step 148"
    opened.close()


def test_smoothing_is_that_of_the_library(opened, runs):
    for smoothing in (0, 0.9):
        opened.page.fill("#smoothing", str(smoothing))
        assert opened.page.text_content("#smoothing-shown") == f"{smoothing:.2f}"
        opened.point_at(1, 1)
        values = runs[1].series["train", "masked_lm_loss"].values
        expected = [smoothed(values, smoothing)[-1], values[-1]] if smoothing else [values[-1]]
        np.testing.assert_allclose(opened.values[1], expected, rtol=1e-4)


def test_the_keyboard_moves_from_step_to_step(opened):
    opened.page.locator("canvas").first.focus()
    for key, step in (
        (None, 300),
        ("ArrowRight", 300),
        ("ArrowLeft", 290),
        ("ArrowLeft", 280),
        ("Home", 10),
        ("ArrowLeft", 10),
        ("ArrowRight", 20),
        ("End", 300),
    ):
        if key:
            opened.page.keyboard.press(key)
        assert f"at step {step}:" in opened.cursor
    line = opened.page.locator(".plot div").first
    assert line.is_visible() and line.get_attribute("data-is-here") == "true"
    opened.page.keyboard.press("Escape")
    assert not line.is_visible() and opened.values == [[]] * 3


def test_runs_are_switched_off_and_on(opened):
    assert (opened.coloured(0, 1) >= 0).any()
    opened.page.locator("#runs input").nth(1).uncheck()
    assert not (opened.coloured(0, 1) >= 0).any()
    opened.point_at(0, 0.5)
    assert [len(values) for values in opened.values] == [2, 0, 2]
    opened.page.click("#none")
    assert not any((opened.coloured(0, run) >= 0).any() for run in range(3))
    opened.point_at(0, 0.5)
    assert opened.values == [[]] * 3
    opened.page.click("#all")
    assert all((opened.coloured(0, run) >= 0).any() for run in range(3))


def test_curves_are_drawn_where_the_values_are(browser, tmp_path):
    for values, is_logarithmic in (([1.0, 3.0, 2.0], False), ([1.0, 10.0, 100.0], True)):
        run = Run(name="a", folder="a", series={("train", "loss"): Series([0, 50, 100], values)})
        opened = Opened(browser, tmp_path / "page.html", [run], smoothing=0)
        opened.page.set_checked("#log", is_logarithmic)
        rows = opened.coloured(0, 0)
        drawn = np.flatnonzero(rows[:, 0] >= 0)
        assert np.ptp(drawn) > 0.75 * len(rows)
        middles = rows.mean(axis=1)[[drawn[4], (drawn[0] + drawn[-1]) // 2, drawn[-4]]]
        places = np.log10(values) if is_logarithmic else np.array(values)
        # Heights above the lowest value, as fractions of the plot.
        shares = (middles.max() - middles) / (middles.max() - middles.min())
        np.testing.assert_allclose(shares, (places - places.min()) / np.ptp(places), atol=0.03)
        opened.close()


def test_zeros_have_no_place_on_a_logarithmic_scale_and_do_no_harm(browser, tmp_path):
    series = {("train", "loss"): Series([1, 2, 3], [0.0, 1.0, 0.0]), ("eval", "eval_loss"): Series([3], [0.0])}
    opened = Opened(browser, tmp_path / "page.html", [Run(name="a", folder="a", series=series)])
    opened.page.check("#log")
    opened.point_at(0, 0)
    assert opened.values == [[0, 0]]
    opened.close()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_is_text(browser, tmp_path, text):
    run = make_run(name=text, names=["loss", text])
    opened = Opened(browser, tmp_path / "page.html", [run], notes=[text])
    assert opened.page.locator("#runs label").text_content() == text
    assert opened.page.locator("#notes li").text_content() == text
    assert opened.page.title() == "Curves: 1 run"
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script").count() == 2
    opened.close()


def test_light_and_dark_and_narrow_screens(browser, tmp_path, runs):
    opened = Opened(browser, tmp_path / "page.html", runs, color_scheme="dark")
    assert opened.background() == "rgb(20, 23, 28)"
    assert (opened.coloured(0, 2) >= 0).any()
    opened.page.click("#theme")
    assert opened.background() == "rgb(247, 248, 250)"
    assert (opened.coloured(0, 2) >= 0).any()  # redrawn in the theme's colours
    opened.page.set_viewport_size({"width": 360, "height": 700})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    opened.close()


def test_ticks_are_round_and_distinct(opened):
    for low, high, labels in (
        (0.0, 1.0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (-3.0, 95.0, ["0", "20", "40", "60", "80"]),
        (0.84461, 0.84465, ["0.84461", "0.84462", "0.84463", "0.84464", "0.84465"]),
        (1e-12, 2e-12, ["1e-12", "1.2e-12", "1.4e-12", "1.6e-12", "1.8e-12", "2e-12"]),
        (9e6, 3e7, ["1e7", "1.5e7", "2e7", "2.5e7", "3e7"]),
        (123_456.0, 123_459.0, ["123,456", "123,457", "123,458", "123,459"]),
        (-2e-4, 0.0, ["-2e-4", "-1.5e-4", "-1e-4", "-5e-5", "0"]),
    ):
        # Text that is wider than the margin would be cut off.
        found = opened.page.evaluate(
            """([low, high]) => {
              const context = document.querySelector("canvas").getContext("2d");
              const ticks = ticksOf(low, high * (1 + 1e-12), 6);
              const labels = ticks.map((tick) => shown(tick, digitsOf(ticks)));
              return labels.map((label) => [label, context.measureText(label).width]);
            }""",
            [low, high],
        )
        assert [text.replace("\u2212", "-") for text, _ in found] == labels
        assert all(width < 58 for _, width in found)


def test_a_spike_of_a_long_run_is_drawn(browser, tmp_path):
    values = np.ones(20_000)
    values[12_345] = 100.0
    run = Run(name="a", folder="a", series={("train", "loss"): Series(list(range(20_000)), values.tolist())})
    opened = Opened(browser, tmp_path / "page.html", [run], smoothing=0)
    rows = opened.coloured(0, 0)
    spike = np.flatnonzero(rows[:, 1] - rows[:, 0] > 100)
    drawn = np.flatnonzero(rows[:, 0] >= 0)
    assert len(spike) >= 1
    np.testing.assert_allclose((spike.mean() - drawn[0]) / np.ptp(drawn), 12_345 / 20_000, atol=0.01)
    opened.close()


@pytest.mark.parametrize(("num_runs", "num_lines"), [(1, 100_000), (50, 2_000), (50, 20_000)])
def test_long_and_many_runs_open(browser, tmp_path, num_runs, num_lines):
    runs = [make_run(number, num_lines=num_lines) for number in range(num_runs)]
    path = tmp_path / "page.html"
    opened = Opened(browser, path, runs)
    assert path.stat().st_size < 16 * 2**20
    opened.point_at(0, 1)
    assert re.match("training: loss at step", opened.cursor)
    assert len(opened.values) == num_runs and len(TRAINING) + 1 == len(opened.panels)
    opened.close()
