"""Custom data sets, in TSV, CSV, JSONL or Parquet."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from official_bert.data.tables import ENDINGS, KEYED_FORMATS, Keys, format_of, read_table
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.classification.datasets.labels import CORRELATIONS, Dataset, Problem
from official_bert.tasks.classification.datasets.layouts import ID_COLUMN, Column, Split

CUSTOM = "custom"  # the task name of a custom data set
_METRICS: Mapping[Problem, tuple[str, ...]] = {
    "single_label": ("accuracy",),
    "multi_label": ("micro_f1", "macro_f1"),
    "regression": CORRELATIONS,
}


def custom_metrics(problem: Problem, is_ranking: bool) -> tuple[str, ...]:
    """Return the names of the metrics of a custom data set, the primary one first; binary classification adds F1."""
    if not is_ranking:
        return _METRICS[problem]
    from official_bert.metrics.retrieval import RERANKING_METRICS  # imports NumPy, which would slow --help down

    return (*RERANKING_METRICS, *_METRICS[problem])


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
    is_ranking: bool = False,
) -> Dataset:
    """Define a custom data set: TSV (.tsv, .txt: no quoting), CSV (.csv), JSONL (.jsonl, .json) or Parquet.

    All formats except Parquet (.parquet) may be compressed, with the extension .gz, .bz2, .xz or .zst.

    Args:
      text_a_column: column of the first text: a name or a 0-based number; a key in JSONL, a name in Parquet.
      text_b_column: column of the second text, if any.
      label_column: column of the label; not needed in the file to predict.
      train_file: path of the split "train".
      eval_file: path of the split "dev".
      predict_file: path of the split "test", read without labels.
      labels: class names in the order of the model's outputs; by default the sorted labels of `train_file`.
      problem: "single_label", "multi_label" or "regression".
      label_delimiter: separator of the labels in a multi-label cell; JSONL and Parquet may hold a list instead.
      has_header: the first row of TSV and CSV names the columns.
      is_ranking: also score how the second texts of each first text are ranked, by the number or the second label.

    Returns:
      The data set; pass None as the data folder to its `examples` method.

    Raises:
      UserError: the arguments are inconsistent, or the labels cannot be read from `train_file`.
    """
    paths = {"train": train_file, "dev": eval_file, "test": predict_file}
    if label_column is None and (train_file or eval_file):
        raise UserError("training and evaluation need labels; give label_column")
    splits = {
        split: _custom_split(
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
        splits,
        tuple(labels or ()),
        problem,
        label_delimiter=label_delimiter,
        metrics=custom_metrics(problem, is_ranking),
    )
    if problem == "regression":
        return dataset
    if labels is None:
        if not train_file:
            raise UserError("the labels are unknown; give labels=... or train_file")
        # Not `dataset.examples`, which warns while reading the training texts.
        dataset = dataset.with_labels_of(splits["train"].examples(splits["train"].find(None), "train"))
    if len(set(dataset.labels)) < len(dataset.labels):
        raise UserError(f"the labels {format_names(dataset.labels)} name a class twice")
    if is_ranking and len(dataset.labels) != 2:
        raise UserError(
            f"ranking=True needs regression=True, or two labels of which the second is that of a relevant text; "
            f"the labels are {format_names(dataset.labels)}"
        )
    if problem == "single_label" and len(dataset.labels) == 2:
        return dataclasses.replace(dataset, metrics=(*dataset.metrics, "f1"))
    return dataset


def _custom_split(
    path: str, text_columns: list[Column], label_column: Column | None, label_delimiter: str | None, has_header: bool
) -> Split:
    table_format = format_of(path)
    if table_format is None:
        raise UserError(f"{path}: the file name must end in one of {', '.join(ENDINGS)}")
    # Do not keep a column twice.
    id_column = None if ID_COLUMN in (*text_columns, label_column) else ID_COLUMN
    label_key = None if label_column is None else str(label_column)
    keys = Keys([str(column) for column in text_columns], label_key, label_delimiter, id_column)
    read = functools.partial(read_table, table_format=table_format, keys=keys)
    if table_format in KEYED_FORMATS:
        label = None if label_key is None else len(keys.texts)
        last = None if id_column is None else len(keys.required)
        return Split((path,), *range(len(keys.texts)), label=label, read=read, has_header=False, id_column=last)
    numbers = [_column(column, has_header) for column in text_columns]
    return Split(
        (path,),
        *numbers,
        label=None if label_column is None else _column(label_column, has_header),
        read=read,
        has_header=has_header,
        is_header_counted=False,
        id_column=id_column if has_header else None,
        most_columns=len(numbers) if has_header else None,  # the header determines the width
    )


def _column(column: Column, has_header: bool) -> Column:
    """Parse a column flag: digits are a column number."""
    if str(column).isdecimal():
        return int(column)
    if isinstance(column, int) or not has_header:
        raise UserError(f"column {column!r}: give its number, counted from 0, or with a header its name")
    return column
