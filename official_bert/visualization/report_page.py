"""The evaluation report of a run as an HTML page: scores, tables, charts, and the worst mistakes with their texts.

The jobs of the tasks compute the sections; `visualization/report.html` shows them.
"""

import base64
import dataclasses
import hashlib
import importlib.resources
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from absl import logging

from official_bert.support import writing
from official_bert.support.errors import format_names

_SHARED = ("page.css", "page.js")
REPORT_FILE = "report.html"
NUM_MISTAKES = 25  # in the list of mistakes
_TEMPLATE = "report.html"  # in this folder
_STEP = "global_step"
_MOST_NAMES, _MOST_ROWS = 30, 50  # in a confusion matrix, and in a table of scores by name
_MOST_BINS = 12  # in a histogram of lengths
_MOST_POINTS = 2000  # in a scatter plot
# Maximum lengths of texts in the list of mistakes, in characters, which keep the page small.
_MOST_CHARACTERS, _MOST_UNMARKED = 8000, 3000
_MOST_IN_A_CELL = 1000


def filled(template: str, data: Mapping[str, Any]) -> str:
    """Fill a template with data.

    A template is an HTML file in this folder with one `<style>` and one `<script>` element, in which `{{page.css}}` and
    `{{page.js}}` are replaced by the code that all pages share. `{{policy}}` is its Content-Security-Policy, and the
    element with `{{data}}` is read by `page.js`. The policy permits only these two elements, and the script inserts
    data as text only, so user texts cannot become markup.
    """
    page = _read(template)
    for name in _SHARED:
        page = page.replace(f"{{{{{name}}}}}", _read(name))
    parts = {name: re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)[1] for name in ("style", "script")}
    hashes = {name: base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for name, part in parts.items()}
    policy = "; ".join(f"{name}-src 'sha256-{digest}'" for name, digest in hashes.items())
    # Data is inserted last, so that nothing in it is replaced. JSON has no NaN: unknown numbers must be None.
    text = json.dumps(data, allow_nan=False).replace("<", r"\u003c")
    return page.replace("{{policy}}", policy).replace("{{data}}", text)


def _read(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    title: str  # headline
    note: str = ""  # explanation below the headline
    warning: str = ""  # shown above all sections, and logged


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores(Section):
    """The scores of a run, the most important one first (see `by_importance`)."""

    values: Mapping[str, Any]  # scores by name; shown rounded, with `str(number)` on hover, as in `eval_results.txt`


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table(Section):
    """A table with names in the first column and numbers in the others."""

    columns: Sequence[str]  # the header
    rows: Sequence[Sequence[str | int | float]]  # the rows, each with a cell per column
    decimals: int = 3  # number of decimals of floats


class Bar(NamedTuple):
    name: str  # label below the bar
    counts: Sequence[int]  # heights of its parts, from bottom to top
    text: str  # label above the bar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bars(Section):
    parts: Sequence[str]  # names of the parts
    bars: Sequence[Bar]  # the bars from left to right
    axis: str  # title of the axis


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reliability(Section):
    """A reliability diagram: accuracy by confidence."""

    # bounds, number of predictions, mean confidence and accuracy of each interval; see
    # `metrics.classification.ConfidenceBin`
    bins: Sequence[tuple[float, float, int, float, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scatter(Section):
    points: Sequence[tuple[float, float]]  # gold and predicted value of each example, all finite


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matrix(Section):
    """A confusion matrix; rows are gold names, columns are predicted names."""

    names: Sequence[str]  # names of the rows and columns
    counts: Sequence[Sequence[int]]  # the rows


class Part(NamedTuple):
    text: str  # the characters
    mark: str = ""  # any of "gold", "predicted", "right" and "wrong", separated by spaces, or "" for unmarked text
    label: str = ""  # label beside the text


class Text(NamedTuple):
    name: str  # caption
    parts: Sequence[Part]  # the parts of the text, in order


class Mistake(NamedTuple):
    facts: Mapping[str, str]  # names and values, such as the gold label
    texts: Sequence[Text]  # the texts of the example


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mistakes(Section):
    mistakes: Sequence[Mistake]  # the worst one first, at most `NUM_MISTAKES`


class Span(NamedTuple):
    """A marked range of characters, from `start` inclusive to `end` exclusive; see `Part` for `mark`."""

    start: int
    end: int
    mark: str


def write_report(path: str, title: str, sections: Sequence[Section]) -> None:
    """Write a report as a self-contained HTML file, and log its name."""
    page = report_page(title, sections)
    writing.write_file(path, page)
    for section in sections:
        if section.warning:
            logging.warning("%s", section.warning)
    logging.info("wrote %s", path)


def report_page(title: str, sections: Sequence[Section]) -> str:
    """Return the HTML of a report; see `write_report` for the arguments.

    Long texts are shortened, with a mark, so that a page has at most a few megabytes.
    """
    data = {
        "title": title,
        "notes": [section.warning for section in sections if section.warning],
        "sections": [{"kind": type(section).__name__, **_fields(section)} for section in sections],
    }
    return filled(_TEMPLATE, data)


def _fields(section: Section) -> dict[str, Any]:
    fields = {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
    if isinstance(section, Scores):
        fields["values"] = [(name, rounded(value), str(value)) for name, value in section.values.items()]
        fields["minor"] = list(filter(_is_minor, section.values))
    if isinstance(section, Table):
        fields["rows"] = [[_cell(cell, section.decimals) for cell in row] for row in section.rows]
    if isinstance(section, Scatter):
        fields["points"] = [tuple(float(f"{number:.4g}") for number in point) for point in section.points]
    return _plain(fields)


def _plain(value: Any) -> Any:
    """Return a JSON value with its long texts shortened."""
    if isinstance(value, Text):
        return [_plain(value.name), _shortened_parts(value.parts)]
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, Mapping):
        return {_plain(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence):
        return [_plain(entry) for entry in value]
    return value


def rounded(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.4g}"


def by_importance(scores: Mapping[str, Any], primary: str) -> dict[str, Any]:
    """Sort scores: the primary one first, losses and the step last."""
    ranks = {name: (name != primary, _is_minor(name), name == _STEP) for name in scores}
    return {name: scores[name] for name in sorted(scores, key=ranks.get)}


def _is_minor(name: str) -> bool:
    return "loss" in name.split("_") or name == _STEP


def _cell(value: str | int | float, decimals: int) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.{decimals}f}"


def shortened(text: str) -> str:
    """Return a text, truncated with an ellipsis if it is too long for a cell."""
    return text if len(text) <= _MOST_IN_A_CELL else text[: _MOST_IN_A_CELL - 1] + "…"


def _shortened_parts(parts: Sequence[Part]) -> list[Part]:
    """Shorten long unmarked parts in the middle (at the end if no part is marked), and the whole text at the end."""
    kept, num_left = [], _MOST_CHARACTERS
    for part in parts:
        text = part.text
        if not part.mark and len(text) > _MOST_UNMARKED:
            tail = _MOST_UNMARKED // 2 if len(parts) > 1 else 0
            head = _MOST_UNMARKED - tail
            text = f"{text[:head]} [… {len(text) - head - tail:,} characters …] {text[len(text) - tail :]}"
        if len(text) > num_left:
            kept.append(part._replace(text=text[:num_left] + " […]", label=shortened(part.label)))
            break
        kept.append(part._replace(text=text, label=shortened(part.label)))
        num_left -= len(text)
    return kept


def marked(text: str, spans: Sequence[Span]) -> list[Part]:
    """Split a text at the bounds of spans; where spans overlap, a part has the marks of all of them."""
    edges = sorted({0, len(text)}.union(*((span.start, span.end) for span in spans)))
    return [
        Part(text[start:end], " ".join(sorted({mark for first, last, mark in spans if first <= start and end <= last})))
        for start, end in itertools.pairwise(edges)
    ]


def scores_by_name(
    title: str, kind: str, names: Sequence[str], gold: npt.ArrayLike, predicted: npt.ArrayLike, correct: npt.ArrayLike
) -> Table:
    """Make a table of scores by name from counts, int [C]; of many names, those with the most mistakes."""
    gold, predicted, correct = (np.asarray(counts, np.int64) for counts in (gold, predicted, correct))
    shown, note = _with_most_mistakes(gold + predicted - 2 * correct, _MOST_ROWS)
    precision, recall = correct / np.maximum(predicted, 1), correct / np.maximum(gold, 1)
    f1 = 2 * correct / np.maximum(gold + predicted, 1)
    missing = [name for name, is_missing in zip(names, (gold > 0) & (predicted == 0), strict=True) if is_missing]
    warning = f"{kind}s never predicted: {format_names(missing)}" if missing else ""
    columns = [column[shown].tolist() for column in (gold, predicted, precision, recall, f1)]
    rows = [(names[number], *cells) for number, *cells in zip(shown, *columns, strict=True)]
    header = (kind, "gold", "predicted", "precision", "recall", "F1")
    return Table(title=title, columns=header, rows=rows, note=note, warning=warning)


def _with_most_mistakes(num_mistakes: np.ndarray, most: int) -> tuple[np.ndarray, str]:
    """Return the indices of the names to show, all or those with the most mistakes, and a note."""
    if len(num_mistakes) <= most:
        return np.arange(len(num_mistakes)), ""
    shown = np.sort(np.argsort(-num_mistakes, kind="stable")[:most])
    return shown, f"The {most} of {len(num_mistakes):,} with the most mistakes."


def confusion_section(
    title: str, names: Sequence[str], gold: npt.ArrayLike, predicted: npt.ArrayLike, *, note: str = ""
) -> Matrix:
    """Make a confusion matrix, of many names of those with the most mistakes; gold and predicted: int [N]."""
    gold, predicted = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
    is_wrong = gold != predicted
    num_wrong = sum(np.bincount(numbers[is_wrong], minlength=len(names)) for numbers in (gold, predicted))
    shown, limits = _with_most_mistakes(num_wrong, _MOST_NAMES)
    note = f"{limits} {note}".strip()
    place = np.full(len(names), -1)
    place[shown] = np.arange(len(shown))
    rows, columns = place[gold], place[predicted]
    is_shown = (rows >= 0) & (columns >= 0)
    counts = np.zeros([len(shown), len(shown)], np.int64)
    np.add.at(counts, (rows[is_shown], columns[is_shown]), 1)
    return Matrix(title=title, names=[names[number] for number in shown], counts=counts.tolist(), note=note)


def accuracy_by_length(lengths: Sequence[int], is_correct: np.ndarray) -> Bars:
    """Count correct predictions, bool [N], by the length of their texts."""
    places, names = length_bins(lengths)
    totals = np.bincount(places, minlength=len(names)).tolist()
    hits = np.bincount(places[is_correct], minlength=len(names)).tolist()
    bars = [
        Bar(name, (num_right, total - num_right), percent(num_right / total) if total else "")
        for name, num_right, total in zip(names, hits, totals, strict=True)
    ]
    note = "Above each bar: the fraction of correct predictions. Lengths are those before truncation."
    return Bars(title="Length", parts=("right", "wrong"), bars=bars, axis="wordpieces", note=note)


def mistakes_section(
    mistake: Callable[[int], Mistake], confidences: np.ndarray, is_correct: np.ndarray, order: str
) -> Mistakes:
    """List the most confident mistakes; `order` says by which confidence."""
    rows = np.flatnonzero(~is_correct)
    worst = rows[np.argsort(-confidences[rows], kind="stable")][:NUM_MISTAKES]
    note = f"{len(rows):,} of {len(is_correct):,} examples are wrong."
    if len(rows) > len(worst):
        note = f"{note} These are the first {len(worst)} {order}."
    return Mistakes(title="Most confident mistakes", mistakes=list(map(mistake, worst)), note=note)


def length_bins(lengths: npt.ArrayLike) -> tuple[np.ndarray, list[str]]:
    """Sort lengths into at most 12 intervals of equal width; with outliers the last one is open-ended.

    Returns the interval of each length, int [N], and the names of the intervals: `["0–9", "10–19", "20+"]`.
    """
    lengths = np.asarray(lengths)
    first, usual = int(lengths.min()), math.ceil(np.percentile(lengths, 98))
    widths = (digit * 10**power for power in itertools.count() for digit in (1, 2, 5))
    width = next(width for width in widths if usual // width - first // width < _MOST_BINS)
    start, num_bins = first // width * width, usual // width - first // width + 1
    places = np.minimum((lengths - start) // width, num_bins - 1)
    starts = [start + width * number for number in range(num_bins)]
    names = [f"{low}–{low + width - 1}" if width > 1 else str(low) for low in starts]
    if lengths.max() >= starts[-1] + width:
        names[-1] = f"{starts[-1]}+"
    return places, names


def scatter_points(gold: np.ndarray, predicted: np.ndarray) -> tuple[list[tuple[float, float]], str]:
    """Return the points of a scatter plot, an evenly spaced sample if there are many, and a note."""
    are_finite = np.isfinite(gold) & np.isfinite(predicted)
    points = np.stack([gold, predicted], axis=1)[are_finite]
    if len(points) <= _MOST_POINTS:
        return points.tolist(), ""
    chosen = np.linspace(0, len(points) - 1, _MOST_POINTS).astype(int)
    return points[chosen].tolist(), f"{_MOST_POINTS:,} of {len(points):,} examples, evenly spaced."


def percent(fraction: float) -> str:
    """Format a fraction as a percentage with one decimal; "" for NaN."""
    return "" if math.isnan(fraction) else f"{100 * fraction:.1f}%"
