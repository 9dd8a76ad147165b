"""The sentence data sets: a row of `DATASETS` says where a set's files lie, how they are laid out, how it is scored.

Files are read as they were published; `custom_dataset` reads any other table. The classification task uses both.
"""

import collections
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from absl import logging

from official_bert import files
from official_bert.data.tables import (
    Row,
    read_csv,
    read_jsonl,
    read_nsmc,
    read_review_folders,
    read_tsv,
    without_blank_end,
)
from official_bert.errors import UserError, listed

Problem = Literal["single_label", "multi_label", "regression"]
MULTI_LABEL_THRESHOLD = 0.5  # a class with a higher probability is predicted
CUSTOM = "custom"  # the name of a data set of the user's own
_LARGEST_FLOAT32 = 3.4e38
Column = int | str  # counted from 0 (below 0: from the end), or named by the header
_T = TypeVar("_T")


class TextExample(NamedTuple):
    """One or two texts to classify.

    Attributes:
      guid: the example's name, as in the reference: "train-1".
      text_a: the first text.
      text_b: the second text of a pair.
      label: as in the file, without white space around it; None where the file has none.
      where: file and line, for messages.
    """

    guid: str
    text_a: str
    text_b: str | None
    label: str | None
    where: str


@dataclasses.dataclass(frozen=True)
class Part:
    """A split of a data set: its file and the layout of that.

    Attributes:
      names: names of the file (or folder) in the data folder; the first that exists is read.
      text_a: column of the first text.
      text_b: column of the second text; None if there is none.
      label: column of the label; None if the part has no labels.
      read: reads the rows of the file.
      has_header: the first row names the columns.
      guid_prefix: begins the guids; by default the name of the split.
      guid_column: ends the guids; by default the number of the row.
      language: reads only rows with this in their first column.
      renamed_labels: labels of the file that stand for others.
      skip_short_rows: leaves out, with a warning, rows that lack columns.
      most_columns: a row with more is refused; with a header its width; None allows any number.
    """

    names: tuple[str, ...]
    text_a: Column
    text_b: Column | None = None
    label: Column | None = None
    read: Callable[[str], Iterator[Row]] = read_tsv
    has_header: bool = True
    guid_prefix: str | None = None
    guid_column: Column | None = None
    language: str | None = None
    renamed_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    skip_short_rows: bool = False
    most_columns: int | None = None

    def find(self, data_dir: str | None) -> str:
        """The path of the file."""
        paths = [os.path.join(data_dir, name) if data_dir else name for name in self.names]
        for path in paths:
            if files.exists(path):
                return path
        raise UserError(f"there is no {' and no '.join(paths)}; check the path")

    def examples(self, path: str, guid_prefix: str) -> list[TextExample]:
        """Reads the examples of a file.

        Raises:
          UserError: the file cannot be read; the message names the first bad row and says how many there are.
        """
        rows = without_blank_end(self.read(path))
        layout = self
        if self.has_header:
            header = next(rows, None)
            if header is None:
                raise UserError(f"{path} is empty")
            layout = self._numbered(header)
        examples = _collect(functools.partial(layout._example, guid_prefix), layout._wanted(rows, path))
        if not examples:
            language = f" with {self.language!r} in the first column" if self.language else ""
            raise UserError(f"{path} holds no examples{language}")
        return examples

    @property
    def _columns(self) -> dict[str, Column]:
        columns = {name: getattr(self, name) for name in ("text_a", "text_b", "label", "guid_column")}
        return {name: column for name, column in columns.items() if column is not None}

    @functools.cached_property
    def _width(self) -> int:
        """How many columns a row needs, once all are numbers."""
        return max(column + 1 if column >= 0 else -column for column in self._columns.values())

    def _numbered(self, header: Row) -> "Part":
        """This layout, with a number for each name of a column."""
        numbers = {"most_columns": len(header.cells)} if self.most_columns else {}
        for field, column in self._columns.items():
            if isinstance(column, str):
                column = self._number_of(column, header)
            elif self.most_columns and column >= len(header.cells):
                raise UserError(
                    f"{header.where}: no column {column}, counted from 0; the columns are {listed(header.cells)}"
                    + _separator_hint(header.cells)
                )
            numbers[field] = column
        return dataclasses.replace(self, **numbers)

    @staticmethod
    def _number_of(name: str, header: Row) -> int:
        """The number of a column that is given by name."""
        count = header.cells.count(name)
        if not count:
            columns = listed(header.cells) + _separator_hint(header.cells)
            raise UserError(f"{header.where}: no column {name!r}; the columns are {columns}")
        if count > 1:
            raise UserError(f"{header.where}: {count} columns are named {name!r}; rename all but the one that is meant")
        return header.cells.index(name)

    def _wanted(self, rows: Iterable[Row], path: str) -> Iterator[Row]:
        num_short = 0
        for row in rows:
            if self.skip_short_rows and len(row.cells) < self._width:
                num_short += 1
            elif self.language is None or row.cells[:1] == [self.language]:
                yield row
        if num_short:
            logging.warning("%s: left out %d rows with fewer than %d columns", path, num_short, self._width)

    def _example(self, guid_prefix: str, row: Row) -> TextExample:
        cells = row.cells
        if row.mistake:
            raise UserError(f"{row.where}: {row.mistake}")
        if self.most_columns and len(cells) > self.most_columns:
            raise UserError(
                f"{row.where}: {len(cells)} columns under a header of {self.most_columns}; does a text hold the "
                f"separator? The row begins {cells[0][:40]!r}"
            )
        if not cells:
            raise UserError(f"{row.where}: a blank line; write none between the rows")
        if len(cells) < self._width:
            raise UserError(
                f"{row.where}: {len(cells)} columns where {self._width} are needed; the row begins {cells[0][:40]!r}"
            )
        label = None if self.label is None else cells[self.label].strip()
        return TextExample(
            f"{guid_prefix}-{row.number if self.guid_column is None else cells[self.guid_column]}",
            cells[self.text_a],
            None if self.text_b is None else cells[self.text_b],
            self.renamed_labels.get(label, label),
            row.where,
        )


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set: its parts, its labels and its scores.

    Attributes:
      name: as in `--task_name`, in lower case.
      parts: its splits; names of labelled parts for evaluation begin with "dev", of parts to predict with "test".
      labels: the names of the classes, in the order of the model's outputs.
      problem: "single_label", "multi_label" (any number of classes an example) or "regression".
      label_range: the least and the greatest number of a regression.
      label_delimiter: stands between the names in the label of a multi-label example.
      metrics: names in `metrics.classification.METRICS` to report; the first is the headline.
    """

    name: str
    parts: Mapping[str, Part]
    labels: tuple[str, ...] = ()
    problem: Problem = "single_label"
    label_range: tuple[float, float] = (-math.inf, math.inf)
    label_delimiter: str = ","
    metrics: tuple[str, ...] = ("accuracy",)

    @property
    def headline(self) -> str:
        """The metric that ranks models; for the sets of GLUE it is GLUE's."""
        return self.metrics[0]

    @property
    def eval_splits(self) -> tuple[str, ...]:
        """The parts to evaluate on; where a set has none for that, its labelled test parts."""
        splits = tuple(split for split in self.parts if split.startswith("dev"))
        return splits or tuple(split for split in self.test_splits if self.parts[split].label is not None)

    @property
    def test_splits(self) -> tuple[str, ...]:
        """The parts to predict."""
        return tuple(split for split in self.parts if split.startswith("test"))

    def find(self, data_dir: str | None, split: str) -> str:
        """The path of a part's file; for arguments and errors see `examples`."""
        if split not in self.parts:
            raise UserError(f"the data set {self.name} has no part {split!r}; it has {listed(self.parts)}")
        if data_dir and not files.is_folder(data_dir):
            raise UserError(f"there is no folder {data_dir} to read {self.name} from")
        return self.parts[split].find(data_dir)

    def examples(self, data_dir: str | None, split: str) -> list[TextExample]:
        """Reads a part of the set.

        Args:
          data_dir: the set's folder; None for a custom set, whose files are paths.
          split: a name in `parts`.

        Returns:
          The examples, in the order of the file. Their labels are not looked at: see `check_labels`.

        Raises:
          UserError: the set has no such part, or its file is missing, empty, not UTF-8 or not of this layout.
        """
        path, part = self.find(data_dir, split), self.parts[split]
        examples = part.examples(path, part.guid_prefix or split)
        num_empty = sum("" in (first.strip(), second and second.strip()) for _, first, second, _, _ in examples)
        if num_empty:
            logging.warning("%s: %d of %d examples have an empty text", path, num_empty, len(examples))
        return examples

    def parse_label(self, example: TextExample) -> int | float | tuple[int, ...]:
        """Turns a label into what a model learns.

        Returns:
          The index of the class; for regression the number; for multi-label 0 or 1 for each class.

        Raises:
          UserError: the label is none of the allowed ones.
        """
        if self.problem == "regression":
            return self._number(example)
        indices = [self._index(name, example) for name in self._names(example)]
        if self.problem == "multi_label":
            return tuple(int(index in indices) for index in range(len(self.labels)))
        return indices[0]

    def check_labels(self, examples: Iterable[TextExample]) -> list[int | float | tuple[int, ...]]:
        """Parses every label, so that a bad one is found before any training.

        Raises:
          UserError: labels are bad; the message names the first and says how many there are.
        """
        return _collect(self.parse_label, examples)

    def with_labels_of(self, examples: Iterable[TextExample]) -> "Dataset":
        """This set with the labels that occur in the examples, sorted.

        Raises:
          UserError: fewer than two labels occur, or two that differ only in case.
        """
        examples = list(examples)
        counts = collections.Counter(name for example in examples for name in self._names(example) if name)
        labels = tuple(sorted(counts))
        self._check_case(examples)
        if len(labels) < 2:
            raise UserError(f"the label column of {self.name} holds {listed(labels)}; two labels are the least")
        logging.info("%d labels found: %s", len(labels), listed(labels))
        rare = [label for label in labels if counts[label] == 1]
        if rare:
            logging.warning("labels that occur only once: %s; are they misspelt?", listed(rare))
        return dataclasses.replace(self, labels=labels)

    def _check_case(self, examples: Iterable[TextExample]) -> None:
        """Raises if two labels differ only in case, of which one is a slip most of the time."""
        first_use: dict[str, tuple[str, str]] = {}
        for example in examples:
            for name in self._names(example):
                first_name, where = first_use.setdefault(name.casefold(), (name, example.where))
                if name != first_name:
                    raise UserError(
                        f"{example.where}: label {name!r} differs only in case from {first_name!r} ({where}); write "
                        "them alike or, if they are two labels, list all with --labels"
                    )

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}

    def _names(self, example: TextExample) -> list[str]:
        if self.problem == "single_label":
            return [example.label]
        return [name.strip() for name in example.label.split(self.label_delimiter) if name.strip()]

    def _index(self, name: str, example: TextExample) -> int:
        if name not in self._indices:
            raise UserError(f"{example.where}: label {name!r} is none of {listed(self.labels)}")
        return self._indices[name]

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


def _glue_parts(text_a: Column, text_b: Column | None = None, label: Column = "label", **layout) -> dict[str, Part]:
    return {
        "train": Part(("train.tsv",), text_a, text_b, label, **layout),
        "dev": Part(("dev.tsv",), text_a, text_b, label, **layout),
        "test": Part(("test.tsv",), text_a, text_b),
    }


_INFERENCE = ("contradiction", "entailment", "neutral")  # the reference's order
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")
_ACCURACY_AND_F1 = ("accuracy_f1_mean", "accuracy", "f1")
_CORRELATIONS = ("pearson_spearman_mean", "pearson", "spearman")
# Of a set of the user's own; one of two classes has its F1 too.
CUSTOM_METRICS: Mapping[Problem, tuple[str, ...]] = {
    "single_label": ("accuracy",),
    "multi_label": ("micro_f1", "macro_f1"),
    "regression": _CORRELATIONS,
}


def xnli(language: str = "zh", train_file: str | None = None) -> Dataset:
    """The row of XNLI in a language.

    Args:
      language: evaluates on the rows of this language.
      train_file: file in the data folder, or path; by default the training texts translated into the language.
    """
    train_file = train_file or f"multinli/multinli.train.{language}.tsv"
    return Dataset(
        "xnli",
        {
            "train": Part((train_file,), 0, 1, 2, renamed_labels={"contradictory": "contradiction"}),
            "dev": Part(("xnli.dev.tsv",), 6, 7, 1, language=language),
            "test": Part(("xnli.test.tsv",), 6, 7, 1, language=language),
        },
        _INFERENCE,
    )


# Columns are numbers where the reference reads by number (a file with another header is read as it was), else names.
DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "cola",
            {
                "train": Part(("train.tsv",), 3, label=1, has_header=False),
                "dev": Part(("dev.tsv",), 3, label=1, has_header=False),
                "test": Part(("test.tsv",), 1),
            },
            _BINARY,
            metrics=("matthews_correlation", "accuracy"),
        ),
        Dataset("sst-2", _glue_parts("sentence"), _BINARY),
        Dataset("mrpc", _glue_parts(3, 4, 0), _BINARY, metrics=_ACCURACY_AND_F1),
        Dataset(
            "sts-b",
            _glue_parts("sentence1", "sentence2", "score"),
            problem="regression",
            label_range=(0, 5),
            metrics=_CORRELATIONS,
        ),
        # As published, line ends within some questions tear their rows apart; GLUE's counts leave these out.
        Dataset(
            "qqp",
            _glue_parts("question1", "question2", "is_duplicate", skip_short_rows=True),
            _BINARY,
            metrics=_ACCURACY_AND_F1,
        ),
        Dataset(
            "mnli",
            {
                "train": Part(("train.tsv",), 8, 9, -1, guid_column=0),
                "dev_matched": Part(("dev_matched.tsv",), 8, 9, -1, guid_column=0),
                "dev_mismatched": Part(("dev_mismatched.tsv",), 8, 9, -1, guid_column=0),
                "test_matched": Part(("test_matched.tsv",), 8, 9, guid_column=0, guid_prefix="test"),
                "test_mismatched": Part(("test_mismatched.tsv",), 8, 9, guid_column=0),
            },
            _INFERENCE,
        ),
        Dataset("qnli", _glue_parts("question", "sentence"), _ENTAILMENT),
        Dataset("rte", _glue_parts("sentence1", "sentence2"), _ENTAILMENT),
        Dataset("wnli", _glue_parts("sentence1", "sentence2"), _BINARY),
        # GLUE's diagnostic set, for a model trained on MNLI.
        Dataset(
            "ax",
            {
                "dev": Part(("diagnostic-full.tsv",), "Premise", "Hypothesis", "Label"),
                "test": Part(("diagnostic.tsv", "AX.tsv"), "sentence1", "sentence2"),
            },
            _INFERENCE,
            metrics=("matthews_correlation", "accuracy"),
        ),
        xnli(),
        Dataset(
            "imdb",
            {
                split: Part(
                    (split, f"aclImdb/{split}"),
                    text_a=1,
                    label=2,
                    read=read_review_folders,
                    has_header=False,
                    guid_column=0,
                )
                for split in ("train", "test")
            },
            ("neg", "pos"),
        ),
        Dataset(
            "nsmc",
            {
                split: Part((f"ratings_{split}.txt",), "document", label="label", read=read_nsmc)
                for split in ("train", "test")
            },
            _BINARY,
        ),
    )
}


# The sets of GLUE, in its order and as its site calls them.
GLUE_NAMES = {
    "cola": "CoLA",
    "sst-2": "SST-2",
    "mrpc": "MRPC",
    "sts-b": "STS-B",
    "qqp": "QQP",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
    "ax": "AX",
}


def named_dataset(name: str) -> Dataset:
    """The row of a data set, by its name in upper or lower case.

    Raises:
      UserError: there is no such row.
    """
    if name.lower() not in DATASETS:
        raise UserError(f"--task_name={name}: must be {CUSTOM} or one of {', '.join(DATASETS)}")
    return DATASETS[name.lower()]


def part_suffix(split: str) -> str:
    """What tells the files and scores of a second part from those of the first: "_mismatched" of MNLI, else nothing."""
    return "_mismatched" if split.endswith("_mismatched") else ""


def custom_dataset(
    *,
    text_a_column: Column,
    text_b_column: Column | None = None,
    label_column: Column | None = None,
    train_file: str | None = None,
    eval_file: str | None = None,
    predict_file: str | None = None,
    labels: Sequence[str] | None = None,
    problem: Problem = "single_label",
    label_delimiter: str = ",",
    has_header: bool = True,
) -> Dataset:
    """Describes a data set of the user's own, in TSV (.tsv, .txt: no quoting), CSV (.csv) or JSONL (.jsonl, .json).

    Args:
      text_a_column: name or number (from 0) of the column of the first text; in JSONL its key.
      text_b_column: that of the second text, if there is one.
      label_column: that of the label; the file to predict needs none.
      train_file: path of the part "train".
      eval_file: path of the part "dev".
      predict_file: path of the part "test", read without labels.
      labels: the names of the classes in the order of the model's outputs; by default those of `train_file`, sorted.
      problem: "single_label", "multi_label" or "regression".
      label_delimiter: stands between the names in a multi-label cell; in JSONL the label may be a list instead.
      has_header: the first row of TSV and CSV names the columns.

    Returns:
      The data set; its `examples` take None as data folder.

    Raises:
      UserError: the arguments do not fit together, or the labels are to be found in `train_file` and cannot.
    """
    paths = {"train": train_file, "dev": eval_file, "test": predict_file}
    if label_column is None and (train_file or eval_file):
        raise UserError("training and evaluation need labels; give the column of the label")
    parts = {
        split: _custom_part(
            path,
            [column for column in (text_a_column, text_b_column) if column is not None],
            None if split == "test" else label_column,
            label_delimiter if problem == "multi_label" else None,
            has_header,
        )
        for split, path in paths.items()
        if path
    }
    dataset = Dataset(
        CUSTOM,
        parts,
        tuple(labels or ()),
        problem,
        label_delimiter=label_delimiter,
        metrics=CUSTOM_METRICS[problem],
    )
    if problem == "regression":
        return dataset
    if labels is None:
        if not train_file:
            raise UserError("the labels are not known; give them, or the training file that they are in")
        # Not `dataset.examples`: its warnings come when the texts are read for training.
        dataset = dataset.with_labels_of(parts["train"].examples(parts["train"].find(None), "train"))
    if len(set(dataset.labels)) < len(dataset.labels):
        raise UserError(f"the labels {listed(dataset.labels)} name a class twice")
    if problem == "single_label" and len(dataset.labels) == 2:
        return dataclasses.replace(dataset, metrics=(*dataset.metrics, "f1"))
    return dataset


def _custom_part(
    path: str, text_columns: list[Column], label_column: Column | None, label_delimiter: str | None, has_header: bool
) -> Part:
    readers = {".tsv": read_tsv, ".txt": read_tsv, ".csv": read_csv, ".jsonl": None, ".json": None}
    extension = os.path.splitext(path)[1].lower()
    if extension not in readers:
        raise UserError(f"{path}: the name must end in one of {', '.join(readers)}, which tells the format")
    if readers[extension]:
        numbers = [_column(column, has_header) for column in text_columns]
        label = None if label_column is None else _column(label_column, has_header)
        most_columns = len(numbers) if has_header else None  # the header's width takes its place
        return Part(
            (path,), *numbers, label=label, read=readers[extension], has_header=has_header, most_columns=most_columns
        )
    keys = [str(column) for column in text_columns]
    label_key = None if label_column is None else str(label_column)
    read = functools.partial(read_jsonl, text_keys=keys, label_key=label_key, label_delimiter=label_delimiter)
    label = None if label_key is None else len(keys)
    return Part((path,), *range(len(keys)), label=label, read=read, has_header=False)


def _separator_hint(columns: Sequence[str]) -> str:
    """What to say of a header that looks like a single column since another character separates its columns."""
    for separator, plural in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
        if len(columns) == 1 and separator in columns[0]:
            return f"; are they separated by {plural}? A .csv file has commas between columns, a .tsv or .txt file tabs"
    return ""


def _column(column: Column, has_header: bool) -> Column:
    """A column as a flag gives it: digits are its number."""
    if str(column).isdecimal():
        return int(column)
    if isinstance(column, int) or not has_header:
        raise UserError(f"column {column!r}: give its number, counted from 0, or with a header its name")
    return column


def _collect(convert: Callable[[Any], _T], items: Iterable[Any]) -> list[_T]:
    """Converts all items; where some cannot be, raises the first one's UserError, with their number."""
    converted, errors = [], []
    for item in items:
        try:
            converted.append(convert(item))
        except UserError as error:
            errors.append(str(error))
    if errors:
        raise UserError(errors[0] + (f" ({len(errors):,} bad rows in all)" if len(errors) > 1 else ""))
    return converted
