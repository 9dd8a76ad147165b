"""Data sets of classification: the layouts of their files, their examples and their labels."""

import collections
import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from absl import logging

from official_bert.data.tables import (
    ID,
    Row,
    id_column,
    id_of,
    log_header,
    numbered_column,
    read_tsv,
    without_trailing_blank_rows,
)
from official_bert.support import files
from official_bert.support.errors import UserError, format_names

if TYPE_CHECKING:
    import numpy as np

LABEL_DELIMITER = ","  # between the labels of an example
Column = int | str  # a 0-based number (negative: from the end), or a name in the header
_T = TypeVar("_T")
Problem = Literal["single_label", "multi_label", "regression"]
THRESHOLD = 0.5  # of the labels of a multi-label example
ACCURACY_AND_F1 = ("accuracy_f1_mean", "accuracy", "f1")
CORRELATIONS = ("pearson_spearman_mean", "pearson", "spearman")
_LARGEST_FLOAT32 = 3.4e38


class TextExample(NamedTuple):
    guid: str  # the example's id, as in the reference: "train-1"
    text_a: str  # the first text
    text_b: str | None  # the second text of a pair
    label: str | None  # the label as written in the file, without surrounding white space; None if the file has none
    where: str  # file and line, for error messages
    id: str | None = None  # value of the `id` column of a custom data set; None if the file has none


@dataclasses.dataclass(frozen=True)
class Split:
    names: tuple[str, ...]  # candidate names of the file or folder in the data folder; the first that exists is read
    text_a: Column  # column of the first text
    text_b: Column | None = None  # column of the second text; None for single texts
    label: Column | None = None  # column of the label; None if the split has no labels
    read: Callable[[str], Iterator[Row]] = read_tsv  # function that reads the rows of the file
    has_header: bool = True  # the first row names the columns
    guid_prefix: str | None = None  # prefix of the guids; by default the split's name
    guid_column: Column | None = None  # column with the rest of the guid; by default the row number
    # a user's table: guids count its examples from 0
    is_own: bool = False
    # column of the ids to keep; optional in each row and, if given by name, in the header
    id_column: Column | None = None
    needs_id: bool = False  # whether a table without the column of ids is an error
    language: str | None = None  # read only rows with this value in their first column
    # maps labels in the file to the labels to use
    renamed_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    skip_short_rows: bool = False  # skip rows with missing columns, with a warning
    has_label_lists: bool = False  # a label in JSON Lines or Parquet may be a list

    def find(self, data_dir: str | None) -> str:
        paths = [os.path.join(data_dir, name) if data_dir else name for name in self.names]
        for path in paths:
            if files.exists(path):
                return path
        raise UserError(f"there is no {' and no '.join(paths)}; check the path")

    def examples(self, path: str, guid_prefix: str) -> list[TextExample]:
        rows = without_trailing_blank_rows(self.read(path))
        layout = self
        if self.has_header:
            header = next(rows, None)
            if header is None:
                raise UserError(f"{path} is empty")
            layout = self._numbered(header)
        examples = collect(functools.partial(layout._example, guid_prefix), layout._selected(rows, path))
        if not examples:
            language = f" with {self.language!r} in the first column" if self.language else ""
            raise UserError(f"{path} has no examples{language}")
        if self.has_header:
            # A user gives columns; most published files have them by number.
            is_given = self.is_own and any(isinstance(column, int) for column in self._columns.values())
            labels = set() if layout.label is None else {cell.strip() for cell in header.cells[layout.label :][:1]}
            log_header(header, is_doubtful=is_given or any(example.label in labels for example in examples))
        return examples

    @property
    def _columns(self) -> dict[str, Column]:
        names = ("text_a", "text_b", "label", "guid_column", *["id_column"] * self.needs_id)
        columns = {name: getattr(self, name) for name in names}
        return {name: column for name, column in columns.items() if column is not None}

    @functools.cached_property
    def _width(self) -> int:
        """Return the minimum number of columns per row; all columns must be numbers."""
        return max(column + 1 if column >= 0 else -column for column in self._columns.values())

    def _numbered(self, header: Row) -> "Split":
        numbers = {}
        for field, column in self._columns.items():
            if isinstance(column, str) or self.is_own:
                column = numbered_column(column, header)
            numbers[field] = column
        if self.id_column is not None and not self.needs_id:
            number = id_column(self.id_column, header, is_required=False)
            numbers["id_column"] = None if self.id_column == ID and number in numbers.values() else number
        return dataclasses.replace(self, **numbers)

    def _selected(self, rows: Iterable[Row], path: str) -> Iterator[Row]:
        num_short = 0
        for row in rows:
            if self.skip_short_rows and len(row.cells) < self._width:
                num_short += 1
            elif self.language is None or row.cells[:1] == [self.language]:
                yield row
        if num_short:
            logging.warning("%s: skipped %d rows with fewer than %d columns", path, num_short, self._width)

    def _example(self, guid_prefix: str, row: Row) -> TextExample:
        cells = row.cells
        if row.mistake:
            raise UserError(f"{row.where}: {row.mistake}")
        if not cells:
            raise UserError(f"{row.where}: a blank line; remove it")
        if isinstance(cells, list) and len(cells) < self._width:
            raise UserError(
                f"{row.where}: {len(cells)} columns, but {self._width} are required; the row begins {cells[0][:40]!r}"
            )
        number = row.number - (self.has_header and self.is_own)  # the reference counts the header
        return TextExample(
            f"{guid_prefix}-{number if self.guid_column is None else cells[self.guid_column]}",
            cells[self.text_a],
            None if self.text_b is None else cells[self.text_b],
            None if self.label is None else self._label(row),
            row.where,
            None if self.id_column is None else id_of(cells, self.id_column) or "",
        )

    def _label(self, row: Row) -> str:
        label = row.cells[self.label]
        if isinstance(label, (int, float)) and math.isfinite(label):  # also true and false
            label = json.dumps(label)
        if isinstance(label, list) and self.has_label_lists:
            for name in label:
                if not isinstance(name, str) or LABEL_DELIMITER in name:
                    raise UserError(
                        f"{row.where}: the label {name!r} in a list must be a string without the delimiter "
                        f"{LABEL_DELIMITER!r}"
                    )
            label = LABEL_DELIMITER.join(label)
        if not isinstance(label, str):
            raise UserError(
                f"{row.where}: the label is {label!r}; it must be a string or a number, or with several labels a list"
            )
        label = label.strip()
        return self.renamed_labels.get(label, label)


def split_suffix(split: str) -> str:
    """Return the suffix for files and scores of a second split: "_mismatched" for MNLI, otherwise ""."""
    return "_mismatched" if split.endswith("_mismatched") else ""


def collect(convert: Callable[[Any], _T], items: Iterable[Any]) -> list[_T]:
    """Convert all items; if some fail, raise the first UserError with the number of failures."""
    converted, errors = [], []
    for item in items:
        try:
            converted.append(convert(item))
        except UserError as error:
            errors.append(str(error))
    if errors:
        raise UserError(errors[0] + (f" ({len(errors):,} bad rows in all)" if len(errors) > 1 else ""))
    return converted


@dataclasses.dataclass(frozen=True)
class Dataset:
    name: str  # as in `--task_name`, in lower case
    splits: Mapping[str, Split]  # splits by name; evaluation splits begin with "dev", prediction splits with "test"
    labels: tuple[str, ...] = ()  # class names, in the order of the model's outputs
    # "single_label", "multi_label" (any number of classes per example) or "regression"
    problem: Problem = "single_label"
    label_range: tuple[float, float] = (-math.inf, math.inf)  # minimum and maximum regression target
    # names in `metrics.classification.METRICS`, or of `RERANKING_METRICS`, to report; the first is the primary
    # metric
    metrics: tuple[str, ...] = ("accuracy",)
    labels_of: str | None = None  # the training file or the run with these labels; None if they were given
    glue_name: str | None = None  # its name on the GLUE site; None for other data sets
    thresholds: tuple[float, ...] | None = None  # see `decide`

    @property
    def primary_metric(self) -> str:
        return self.metrics[0]

    @property
    def eval_splits(self) -> tuple[str, ...]:
        """The evaluation splits; if there are none, the labelled test splits."""
        names = tuple(name for name in self.splits if name.startswith("dev"))
        return names or tuple(name for name in self.test_splits if self.splits[name].label is not None)

    @property
    def test_splits(self) -> tuple[str, ...]:
        return tuple(name for name in self.splits if name.startswith("test"))

    def find(self, data_dir: str | None, split: str) -> str:
        if split not in self.splits:
            raise UserError(f"the data set {self.name} has no split {split!r}; it has {format_names(self.splits)}")
        if data_dir and not files.is_folder(data_dir):
            raise UserError(f"there is no folder {data_dir} with the files of {self.name}")
        return self.splits[split].find(data_dir)

    def examples(self, data_dir: str | None, split: str) -> list[TextExample]:
        path, layout = self.find(data_dir, split), self.splits[split]
        examples = layout.examples(path, layout.guid_prefix or split)
        # A missing second text is not an empty one.
        if num_empty := sum(not all(text is None or text.strip() for text in example[1:3]) for example in examples):
            logging.warning("%s: %d of %d examples have an empty text", path, num_empty, len(examples))
        return examples

    def parse_label(self, example: TextExample) -> int | float | tuple[int, ...]:
        """Convert a label to a training target."""
        if self.problem == "regression":
            return self._number(example)
        names = self._names(example)
        unknown = next((name for name in names if name not in self._indices), None)
        if unknown is not None:
            whose = f", the labels of {self.labels_of}" if self.labels_of else ""
            raise UserError(f"{example.where}: label {unknown!r} is not one of {format_names(self.labels)}{whose}")
        indices = [self._indices[name] for name in names]
        if self.problem == "multi_label":
            return tuple(int(index in indices) for index in range(len(self.labels)))
        return indices[0]

    def check_labels(self, examples: Iterable[TextExample]) -> list[int | float | tuple[int, ...]]:
        return collect(self.parse_label, examples)

    def with_labels_of(self, examples: Iterable[TextExample]) -> "Dataset":
        """Return a copy of this data set whose labels are the sorted labels of the examples."""
        examples = list(examples)
        counts = collections.Counter(name for example in examples for name in self._names(example) if name)
        labels = tuple(sorted(counts))
        first_use: dict[str, tuple[str, str]] = {}
        for name, where in ((name, example.where) for example in examples for name in self._names(example)):
            first_name, first_where = first_use.setdefault(name.casefold(), (name, where))
            if name != first_name:  # probably a typo
                raise UserError(
                    f"{where}: label {name!r} differs only in case from {first_name!r} ({first_where}); use one "
                    "spelling or, if they are two labels, list all: labels=..."
                )
        if len(labels) < 2:
            raise UserError(
                f"the label column of {self.name} has {format_names(labels)}; at least two labels are required"
            )
        logging.info("%d labels found: %s", len(labels), format_names(labels))
        if rare := [label for label in labels if counts[label] == 1]:
            logging.warning("labels that occur only once: %s; are they misspelt?", format_names(rare))
        return dataclasses.replace(self, labels=labels)

    def decide(self, probabilities: "np.ndarray") -> "np.ndarray":
        """Return the predictions to compare with labels; see the function `decide`."""
        return decide(self.problem, probabilities, self.thresholds)

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}

    def _names(self, example: TextExample) -> list[str]:
        if self.problem == "single_label":
            return [example.label]
        return [name.strip() for name in example.label.split(LABEL_DELIMITER) if name.strip()]

    def _number(self, example: TextExample) -> float:
        least, greatest = self.label_range
        try:
            number = float(example.label)
        except ValueError:
            number = math.nan
        if not least <= number <= greatest or abs(number) > _LARGEST_FLOAT32:
            allowed = "" if math.isinf(least) else f" from {least:g} to {greatest:g}"
            raise UserError(f"{example.where}: label {example.label!r} is not a finite number{allowed}")
        return number


def decide(problem: Problem, probabilities: "np.ndarray", thresholds: Sequence[float] | None = None) -> "np.ndarray":
    """Turn the outputs of a model, [N, C], into classes, int [N], numbers [N], or for several labels bool [N, C].

    A label is predicted if its probability exceeds its threshold: for "multi_label" of each label, by default 0.5; for
    "single_label" of the second of two labels, by default the most likely label is predicted.
    """
    if problem == "regression":
        return probabilities[:, 0]
    if problem == "multi_label":
        return probabilities > (thresholds or THRESHOLD)
    if thresholds:
        return (probabilities[:, 1] > thresholds[0]).astype(int)
    return probabilities.argmax(axis=-1)


CUSTOM = "custom"  # the task name of a custom data set
