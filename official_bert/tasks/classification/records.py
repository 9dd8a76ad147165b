"""Records of classification and regression, and the files of predictions."""

import dataclasses
import functools
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.config.bert_config import ENCODER_INPUTS
from official_bert.data.record_files import ExampleJoiner
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.data.tables import ID, KEYED_FORMATS, Columns, Row, known_format, read_table
from official_bert.metrics.classification import class_counts, confusion_matrix
from official_bert.metrics.retrieval import RERANKING_METRICS
from official_bert.support.console import MOST_LABEL_COLUMNS, NUM_LIKELY, ranked_columns, write_rows
from official_bert.support.errors import UserError, format_names
from official_bert.support.manifest import fingerprint
from official_bert.tasks.classification.data import (
    CORRELATIONS,
    CUSTOM,
    LABEL_DELIMITER,
    Column,
    Dataset,
    Problem,
    Split,
    TextExample,
    split_suffix,
)
from official_bert.tasks.classification.datasets import named_dataset
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import join_texts, split_windows, truncate_pair
from official_bert.training.run_folder import folder_of_labels, read_labels

Ids = list[int]

# S: positions per example, V: vocabulary size, T: number of segment types, C: number of labels.
LABEL_FIELDS = {
    "single_label": Field("label_ids", (), "int32", below="C"),
    "multi_label": Field("label_ids", ("C",), "int32", below=2),
    "regression": Field("label_ids", (), "float32"),
}
IS_REAL_FIELD = Field("is_real_example", (), "int32", below=2)
CLASS_SCORES = ("precision", "recall", "f1", "count")
_MOST_LABELS_OF_A_MATRIX = 1000


_SPLITS = {"train_file": "train", "eval_file": "dev", "predict_file": "test"}
_METRICS: Mapping[Problem, tuple[str, ...]] = {
    "single_label": ("accuracy",),
    "multi_label": ("micro_f1", "macro_f1"),
    "regression": CORRELATIONS,
}


def configured_dataset(config: ClassifierConfig) -> Dataset:
    """Return the selected data set; custom labels come from the flags, an earlier run or the training file."""
    if config.task_name.lower() != CUSTOM:
        return named_dataset(config.task_name, config.xnli_language, config.train_file)
    labels, labels_of = config.label_names if config.labels else None, None
    if not (labels or config.regression):
        labels_of = folder_of_labels(config.output_dir, None if config.do_train else config.init_checkpoint)
        labels = read_labels(labels_of) if labels_of else None
    paths = {flag: os.path.join(config.data_dir, getattr(config, flag)) for flag in config.required_files}
    dataset = custom_dataset(
        {_SPLITS[flag]: path for flag, path in paths.items()},
        [column for column in (config.text_a_column, config.text_b_column) if column is not None],
        config.label_column,
        labels=labels,
        problem=config.problem,
        has_header=config.has_header,
        delimiter=config.delimiter,
        is_ranking=config.ranking,
        id_column=config.id_column,
    )
    return dataclasses.replace(dataset, labels_of=labels_of or dataset.labels_of)


class LabelledSplit(NamedTuple):
    """A split: its name, examples and targets (zeros if unknown)."""

    name: str
    examples: list[TextExample]
    labels: list[int | float | tuple[int, ...]]

    @property
    def texts(self) -> list[tuple[str, str | None]]:
        return [(example.text_a, example.text_b) for example in self.examples]

    @property
    def suffix(self) -> str:
        return split_suffix(self.name)


class ClassificationData(NamedTuple):
    dataset: Dataset
    train: LabelledSplit | None
    dev: list[LabelledSplit]
    test: list[LabelledSplit]


def read_data(config: ClassifierConfig) -> ClassificationData:
    """Read the splits that the flags require, and check their labels."""
    dataset = configured_dataset(config)
    train = ("train",) if config.do_train else ()
    dev = dataset.eval_splits if config.is_evaluated else ()
    test = dataset.test_splits if config.do_predict else ()
    data_dir = None if dataset.name == CUSTOM else config.data_dir
    # Each split is read once, although IMDB's test split is both evaluated and predicted.
    examples = {name: dataset.examples(data_dir, name) for name in dict.fromkeys((*train, *dev, *test))}
    unknown = (0,) * len(dataset.labels) if dataset.problem == "multi_label" else 0

    def labelled(name: str) -> LabelledSplit:
        return LabelledSplit(name, examples[name], dataset.check_labels(examples[name]))

    unlabelled = [LabelledSplit(name, examples[name], [unknown] * len(examples[name])) for name in test]
    return ClassificationData(
        dataset, labelled("train") if train else None, [labelled(name) for name in dev], unlabelled
    )


def custom_metrics(problem: Problem, is_ranking: bool) -> tuple[str, ...]:
    """Return the names of the metrics of a custom data set, the primary one first; binary classification adds F1."""
    return (*(RERANKING_METRICS if is_ranking else ()), *_METRICS[problem])


def custom_dataset(
    paths: Mapping[str, str],
    text_columns: Sequence[Column],
    label_column: Column | None = None,
    *,
    labels: Sequence[str] | None = None,
    problem: Problem = "single_label",
    is_ranking: bool = False,
    id_column: str | None = None,
    **table: Any,
) -> Dataset:
    """Define a data set of tables, whose paths are by split; unknown labels are those of the training file.

    `table` are `has_header` and `delimiter`, as in `read_table`.
    """
    if label_column is None and paths.keys() - {"test"}:
        raise UserError("training and evaluation need labels; give label_column")
    splits, has_header = {}, table.get("has_header", True)
    read = functools.partial(read_table, **table)
    for split, path in paths.items():
        of_split = None if split == "test" else label_column
        splits[split] = _custom_split(path, text_columns, of_split, problem, has_header, read, id_column)
    dataset = Dataset(CUSTOM, splits, tuple(labels or ()), problem, metrics=custom_metrics(problem, is_ranking))
    if problem == "regression":
        return dataset
    if labels is None:
        if "train" not in splits:
            raise UserError("the labels are unknown; give labels=... or train_file")
        # Not `dataset.examples`, which warns while reading the training texts.
        path = splits["train"].find(None)
        dataset = dataclasses.replace(dataset.with_labels_of(splits["train"].examples(path, "train")), labels_of=path)
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
    path: str,
    text_columns: Sequence[Column],
    label_column: Column | None,
    problem: Problem,
    has_header: bool,
    read: Callable[..., Iterator[Row]],
    given_id: str | None,
) -> Split:
    table_format = known_format(path)  # the file may be gone when a finished run is loaded
    # Do not keep a column twice.
    id_column = given_id or (None if ID in (*text_columns, label_column) else ID)
    needs_id = given_id is not None and label_column is None  # to predict
    label = None if label_column is None else str(label_column)
    columns = Columns([*map(str, text_columns)], label, id_column, given_id if needs_id else None)
    read = functools.partial(read, table_format=table_format, columns=columns)
    if table_format in KEYED_FORMATS:
        return Split(
            (path,),
            *columns.texts,
            label=columns.label,
            read=read,
            has_header=False,
            id_column=id_column,
            has_label_lists=problem == "multi_label",
        )
    numbers = [_column(column, has_header) for column in text_columns]
    return Split(
        (path,),
        *numbers,
        label=None if label_column is None else _column(label_column, has_header),
        read=read,
        has_header=has_header,
        is_own=True,
        id_column=id_column if has_header else given_id and _column(given_id, has_header),
        needs_id=needs_id,
    )


def _column(column: Column, has_header: bool) -> Column:
    if str(column).isdecimal():
        return int(column)
    if isinstance(column, int) or not has_header:
        raise UserError(f"column {column!r}: give its number, counted from 0, or with a header its name")
    return column


def reads_pairs(config: ClassifierConfig) -> bool:
    if config.task_name.lower() == CUSTOM:
        return config.text_b_column is not None
    dataset = named_dataset(config.task_name, config.xnli_language, config.train_file)
    return any(split.text_b is not None for split in dataset.splits.values())


def classification_schema(problem: str) -> RecordSchema:
    return RecordSchema(*ENCODER_FIELDS, LABEL_FIELDS[problem], IS_REAL_FIELD)


class LabelledText(NamedTuple):
    texts: tuple[str, str | None]  # a text, or a pair
    label: int | float | tuple[int, ...]  # its target, as returned by `Dataset.check_labels`


class TextJoiner(ExampleJoiner):
    """Converter from a text or text pair to model inputs; longer ones are truncated or, on request, cut into windows.

    `doc_stride` is the number of wordpieces between the starts of windows, by default half of the room beside the other
    text.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, max_seq_length: int, max_windows: int = 1, doc_stride: int | None = None
    ):
        super().__init__(tokenizer, max_seq_length=max_seq_length, max_windows=max_windows, doc_stride=doc_stride)
        self.max_windows = max_windows  # maximum number of windows per example
        self.max_length = max_windows * max_seq_length  # maximum number of positions per example, over all windows
        self._max_seq_length = max_seq_length
        self._doc_stride = doc_stride
        self._specials = tokenizer.specials
        self._unknown = tokenizer.unk_id

    def fingerprints(self, examples: Sequence[LabelledText]) -> dict[str, str]:
        texts, labels = zip(*examples, strict=True)
        return {"texts": fingerprint(list(texts)), "labels": fingerprint(list(labels))}

    def labels(self, example: LabelledText) -> dict[str, Sequence[int | float]]:
        label = example.label if isinstance(example.label, tuple) else [example.label]
        return {"label_ids": label, "is_real_example": [1]}

    def report(self, counts: Counter) -> None:
        if num_shortened := counts["num_shortened"]:
            total, length = counts["num_examples"], self.max_length
            logging.info("%d of %d examples were truncated to %d wordpieces", num_shortened, total, length)

    def join(self, example: LabelledText, counts: Counter) -> dict[str, Ids | bytes]:
        text_a, text_b = example.texts
        first = self.tokenizer.encode(text_a)
        second = self.tokenizer.encode(text_b) if text_b else []
        counts["num_examples"] += 1
        counts["num_wordpieces"] += len(first) + len(second)
        counts["num_unknown"] += first.count(self._unknown) + second.count(self._unknown)
        max_tokens = self._specials.room(self._max_seq_length, is_pair=bool(second))
        if len(first) + len(second) <= max_tokens:
            parts = [(first, second)]
        elif self.max_windows == 1:
            counts["num_shortened"] += 1
            parts = [truncate_pair(first, second, max_tokens)]
        else:
            windows = split_windows(len(first), len(second), max_tokens, self._doc_stride)
            parts = [(first[a.start : a.stop], second[b.start : b.stop]) for a, b in windows]
            counts["num_shortened"] += len(parts) > self.max_windows
        windows = [join_texts(*part, self._specials) for part in parts[: self.max_windows]]
        return {name: self._concatenated([getattr(window, name) for window in windows]) for name in ENCODER_INPUTS}

    def _concatenated(self, windows: Sequence[Ids | bytes]) -> Ids | bytes:
        """Concatenate windows; pad all but the last."""
        concatenated = windows[0]
        padding = type(concatenated)([0])
        for number, window in enumerate(windows[1:], start=1):
            num_missing = number * self._max_seq_length - len(concatenated)
            concatenated = concatenated + padding * num_missing + window
        return concatenated


def class_score_names(dataset: Dataset, suffix: str = "") -> list[tuple[str, ...]]:
    r"""Return the keys of the per-class scores in `eval_results.txt`: precision, recall, F1 and count.

    Unprintable characters in a label are escaped as in Python, such as a tab as `\t`.
    """

    def shown(label: str) -> str:
        return "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in label)

    return [tuple(f"eval_{score}_{shown(label)}{suffix}" for score in CLASS_SCORES) for label in dataset.labels]


def class_scores(
    dataset: Dataset, predictions: Mapping[str, np.ndarray], suffix: str = ""
) -> dict[str, np.float32 | int]:
    """Score each class separately; empty for regression."""
    if dataset.problem == "regression":
        return {}
    predicted = dataset.decide(predictions["probabilities"])
    counts = class_counts(predictions["label_ids"], predicted, len(dataset.labels))
    columns = [values.astype(np.float32) for values in (counts.precision, counts.recall, counts.f1)]
    rows = zip(class_score_names(dataset, suffix), zip(*columns, counts.gold.tolist(), strict=True), strict=True)
    return {name: score for names, scores in rows for name, score in zip(names, scores, strict=True)}


def write_confusion_matrix(path: str, dataset: Dataset, predictions: Mapping[str, np.ndarray]) -> None:
    """Write the confusion matrix (rows are labels, columns predictions), unless there are too many labels."""
    num_labels = len(dataset.labels)
    if num_labels > _MOST_LABELS_OF_A_MATRIX:
        logging.info("no %s: it would have %s cells", path, f"{num_labels**2:,}")
        return
    counts = confusion_matrix(predictions["label_ids"], dataset.decide(predictions["probabilities"]), num_labels)
    rows = ([label, *map(str, row)] for label, row in zip(dataset.labels, counts, strict=True))
    write_rows(path, [("label", *dataset.labels), *rows])


def write_bare_table(path: str, probabilities: np.ndarray) -> None:
    """Write the reference's `test_results.tsv`: only the class probabilities of each example."""
    write_rows(path, ((str(number) for number in row) for row in probabilities))


def write_readable_table(
    path: str, dataset: Dataset, examples: Sequence[TextExample], probabilities: np.ndarray
) -> None:
    """Write `predictions.tsv`: a header, then the id, texts, prediction and confidence of each example.

    Of more than `MOST_LABEL_COLUMNS` labels, it has the `NUM_LIKELY` most likely ones of each example.
    """
    optional = {
        ID: any(example.id for example in examples),
        "text_b": any(example.text_b is not None for example in examples),
        "label": any(example.label is not None for example in examples),
    }
    columns = [name for name in ("guid", ID, "text_a", "text_b", "label") if optional.get(name, True)]
    has_probability = ["probability"] if dataset.problem == "single_label" else []
    is_ranked = len(dataset.labels) > MOST_LABEL_COLUMNS

    def rows():
        of_labels = ranked_columns([("", "")] * NUM_LIKELY) if is_ranked else dataset.labels
        yield [*columns, "prediction", *has_probability, *of_labels]
        for example, row in zip(examples, probabilities, strict=True):
            label, shares = predicted_label(dataset, row), [f"{share:.6f}" for share in row]
            cells = [getattr(example, column) or "" for column in columns]
            probability = [shares[dataset.labels.index(label)] for _ in has_probability]
            if is_ranked:
                best = np.argsort(-row, kind="stable")[:NUM_LIKELY].tolist()
                shares = ranked_columns([(dataset.labels[number], shares[number]) for number in best]).values()
            yield [*cells, label, *probability, *(shares if dataset.labels else ())]

    write_rows(path, rows())


def write_glue_submission(path: str, dataset: Dataset, probabilities: np.ndarray) -> None:
    """Write a table in GLUE's submission format: index and prediction."""
    rows = ((str(index), predicted_label(dataset, row)) for index, row in enumerate(probabilities))
    write_rows(path, [("index", "prediction"), *rows])


def submission_name(dataset: Dataset, split: str) -> str:
    """Return the file name that the GLUE website requires for the predictions of a split, such as `MNLI-m.tsv`."""
    return dataset.glue_name + {"test_matched": "-m", "test_mismatched": "-mm"}.get(split, "") + ".tsv"


def predicted_label(dataset: Dataset, probabilities: np.ndarray) -> str:
    """Return the prediction for one example, from [C]: a label, a number, or labels joined by the set's delimiter."""
    if dataset.problem == "regression":
        least, greatest = dataset.label_range
        return f"{np.clip(probabilities[0], least, greatest):.3f}"
    (decided,) = dataset.decide(probabilities[np.newaxis])
    if dataset.problem == "multi_label":
        return LABEL_DELIMITER.join(itertools.compress(dataset.labels, decided))
    return dataset.labels[decided]
