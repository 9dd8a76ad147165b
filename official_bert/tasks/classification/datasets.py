"""Data sets of classification: the published ones, a row of `DATASETS` each, and those described by flags."""

import dataclasses
import difflib
import functools
from collections.abc import Mapping, Sequence

from official_bert.data.tables import (
    ENDINGS,
    KEYED_FORMATS,
    Keys,
    format_of,
    read_nsmc,
    read_review_folders,
    read_table,
)
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.classification.labels import (
    ACCURACY_AND_F1,
    CORRELATIONS,
    ID_COLUMN,
    Column,
    Dataset,
    Problem,
    Split,
)

CUSTOM = "custom"  # the task name of a custom data set
_METRICS: Mapping[Problem, tuple[str, ...]] = {
    "single_label": ("accuracy",),
    "multi_label": ("micro_f1", "macro_f1"),
    "regression": CORRELATIONS,
}
_INFERENCE = ("contradiction", "entailment", "neutral")  # the reference's order
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")


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


def _glue_splits(text_a: Column, text_b: Column | None = None, label: Column = "label", **layout) -> dict[str, Split]:
    return {
        "train": Split(("train.tsv",), text_a, text_b, label, **layout),
        "dev": Split(("dev.tsv",), text_a, text_b, label, **layout),
        "test": Split(("test.tsv",), text_a, text_b),
    }


def xnli(language: str = "zh", train_file: str | None = None) -> Dataset:
    """Return the XNLI data set for a language."""
    train_file = train_file or f"multinli/multinli.train.{language}.tsv"
    return Dataset(
        "xnli",
        {
            "train": Split((train_file,), 0, 1, 2, renamed_labels={"contradictory": "contradiction"}),
            "dev": Split(("xnli.dev.tsv",), 6, 7, 1, language=language),
            "test": Split(("xnli.test.tsv",), 6, 7, 1, language=language),
        },
        _INFERENCE,
    )


# Columns are numbers where the reference reads by number (ignoring the header), names otherwise.
DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "cola",
            {
                "train": Split(("train.tsv",), 3, label=1, has_header=False),
                "dev": Split(("dev.tsv",), 3, label=1, has_header=False),
                "test": Split(("test.tsv",), 1),
            },
            _BINARY,
            metrics=("matthews_correlation", "accuracy"),
            glue_name="CoLA",
        ),
        Dataset("sst-2", _glue_splits("sentence"), _BINARY, glue_name="SST-2"),
        Dataset("mrpc", _glue_splits(3, 4, 0), _BINARY, metrics=ACCURACY_AND_F1, glue_name="MRPC"),
        Dataset(
            "sts-b",
            _glue_splits("sentence1", "sentence2", "score"),
            problem="regression",
            label_range=(0, 5),
            metrics=CORRELATIONS,
            glue_name="STS-B",
        ),
        # In the published file, line breaks inside questions split some rows; GLUE's counts exclude these.
        Dataset(
            "qqp",
            _glue_splits("question1", "question2", "is_duplicate", skip_short_rows=True),
            _BINARY,
            metrics=ACCURACY_AND_F1,
            glue_name="QQP",
        ),
        Dataset(
            "mnli",
            {
                "train": Split(("train.tsv",), 8, 9, -1, guid_column=0),
                "dev_matched": Split(("dev_matched.tsv",), 8, 9, -1, guid_column=0),
                "dev_mismatched": Split(("dev_mismatched.tsv",), 8, 9, -1, guid_column=0),
                "test_matched": Split(("test_matched.tsv",), 8, 9, guid_column=0, guid_prefix="test"),
                "test_mismatched": Split(("test_mismatched.tsv",), 8, 9, guid_column=0),
            },
            _INFERENCE,
            glue_name="MNLI",
        ),
        Dataset("qnli", _glue_splits("question", "sentence"), _ENTAILMENT, glue_name="QNLI"),
        Dataset("rte", _glue_splits("sentence1", "sentence2"), _ENTAILMENT, glue_name="RTE"),
        Dataset("wnli", _glue_splits("sentence1", "sentence2"), _BINARY, glue_name="WNLI"),
        # GLUE's diagnostic set, for models trained on MNLI.
        Dataset(
            "ax",
            {
                "dev": Split(("diagnostic-full.tsv",), "Premise", "Hypothesis", "Label"),
                "test": Split(("diagnostic.tsv", "AX.tsv"), "sentence1", "sentence2"),
            },
            _INFERENCE,
            metrics=("matthews_correlation", "accuracy"),
            glue_name="AX",
        ),
        xnli(),
        Dataset(
            "imdb",
            {
                split: Split(
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
                split: Split((f"ratings_{split}.txt",), "document", label="label", read=read_nsmc)
                for split in ("train", "test")
            },
            _BINARY,
        ),
    )
}


TASK_NAMES = (*DATASETS, CUSTOM)
GLUE_NAMES = {name: dataset.glue_name for name, dataset in DATASETS.items() if dataset.glue_name}  # in GLUE's order


def check_task_name(name: str) -> None:
    """Raise unless a data set has this name, ignoring case."""
    if name.lower() in TASK_NAMES:
        return
    similar = difflib.get_close_matches(name.lower(), TASK_NAMES)
    hint = f"did you mean {' or '.join(similar)}? All tasks:" if similar else "choose one of"
    raise UserError(f"task_name={name}: unknown task; {hint} {', '.join(TASK_NAMES)}")


def named_dataset(name: str) -> Dataset:
    """Return a data set by its name, ignoring case."""
    check_task_name(name)
    if name.lower() not in DATASETS:
        raise UserError(f"task_name={name}: needs further flags of run_classifier; choose one of {', '.join(DATASETS)}")
    return DATASETS[name.lower()]
