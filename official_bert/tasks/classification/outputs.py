"""Prediction files of a classifier: the reference's bare table, a readable one, and GLUE's."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from official_bert.metrics.classification import class_counts, confusion_matrix
from official_bert.support.errors import UserError
from official_bert.support.text_tables import write_rows
from official_bert.tasks.classification.datasets.labels import Dataset
from official_bert.tasks.classification.datasets.layouts import ID_COLUMN, TextExample
from official_bert.tasks.classification.datasets.published import GLUE_NAMES

_MOST_LABELS_OF_A_MATRIX = 1000


_CLASS_SCORES = ("precision", "recall", "f1", "count")


def class_score_names(dataset: Dataset, suffix: str = "") -> list[tuple[str, ...]]:
    r"""Return the keys of the per-class scores in `eval_results.txt`: precision, recall, F1 and count.

    Unprintable characters in a label are escaped as in Python, such as a tab as `\t`.

    Args:
      dataset: provides the class names.
      suffix: suffix of the split.
    """
    labels = [_on_a_line(label) for label in dataset.labels]
    return [tuple(f"eval_{score}_{label}{suffix}" for score in _CLASS_SCORES) for label in labels]


def class_scores(
    dataset: Dataset, predictions: Mapping[str, np.ndarray], suffix: str = ""
) -> dict[str, np.float32 | int]:
    """Score each class separately; empty for regression.

    Args:
      dataset: provides the class names.
      predictions: label_ids int [N] or [N, C] and probabilities float32 [N, C].
      suffix: suffix of the split.
    """
    if dataset.problem == "regression":
        return {}
    predicted = dataset.decide(predictions["probabilities"])
    counts = class_counts(predictions["label_ids"], predicted, len(dataset.labels))
    columns = [values.astype(np.float32) for values in (counts.precision, counts.recall, counts.f1)]
    rows = zip(class_score_names(dataset, suffix), zip(*columns, counts.gold.tolist(), strict=True), strict=True)
    return {name: score for names, scores in rows for name, score in zip(names, scores, strict=True)}


def _on_a_line(label: str) -> str:
    return "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in label)


def write_confusion_matrix(path: str, dataset: Dataset, predictions: Mapping[str, np.ndarray]) -> None:
    """Write the confusion matrix (rows are labels, columns predictions), unless there are too many labels.

    Args:
      path: the output file.
      dataset: provides the class names.
      predictions: label_ids int32 [N] and probabilities float32 [N, C].
    """
    num_labels = len(dataset.labels)
    if num_labels > _MOST_LABELS_OF_A_MATRIX:
        logging.info("no %s: it would have %s cells", path, f"{num_labels**2:,}")
        return
    counts = confusion_matrix(
        predictions["label_ids"], dataset.decide(predictions["probabilities"]), len(dataset.labels)
    )
    rows = ([label, *map(str, row)] for label, row in zip(dataset.labels, counts, strict=True))
    write_rows(path, [("label", *dataset.labels), *rows])


def write_bare_table(path: str, probabilities: np.ndarray) -> None:
    """Write the reference's `test_results.tsv`: only the class probabilities of each example.

    Args:
      path: the output file.
      probabilities: float32 [N, C], in the order of the examples.
    """
    write_rows(path, ((str(number) for number in row) for row in probabilities))


def write_readable_table(
    path: str, dataset: Dataset, examples: Sequence[TextExample], probabilities: np.ndarray
) -> None:
    r"""Write `predictions.tsv`: a header, then the id, texts, prediction and confidence of each example.

    Tabs and line ends within a text are escaped as `\t` and `\n`.

    Args:
      path: the output file.
      dataset: provides the class names.
      examples: the N examples.
      probabilities: float32 [N, C].
    """
    is_pair = any(example.text_b is not None for example in examples)
    is_labelled = any(example.label is not None for example in examples)
    columns = ["guid", *([ID_COLUMN] if any(example.id for example in examples) else []), "text_a"]
    if is_pair:
        columns.append("text_b")
    if is_labelled:
        columns.append("label")
    predicted_columns = ["prediction"]
    if dataset.problem == "single_label":
        predicted_columns.append("probability")
    if dataset.problem != "regression":
        predicted_columns += dataset.labels

    def rows():
        yield columns + predicted_columns
        for example, row in zip(examples, probabilities, strict=True):
            cells = [getattr(example, column) or "" for column in columns]
            yield cells + _predicted_cells(dataset, row)

    write_rows(path, rows())


def write_glue_submission(path: str, dataset: Dataset, probabilities: np.ndarray) -> None:
    """Write a table in GLUE's submission format: index and prediction.

    Args:
      path: the output file.
      dataset: provides the class names.
      probabilities: float32 [N, C].
    """
    rows = ((str(index), predicted_label(dataset, row)) for index, row in enumerate(probabilities))
    write_rows(path, [("index", "prediction"), *rows])


def check_submission(dataset: Dataset) -> None:
    """Raise unless a data set belongs to GLUE.

    Raises:
      UserError: it does not.
    """
    if dataset.name not in GLUE_NAMES:
        raise UserError(f"glue_submission: {dataset.name} is not one of GLUE's data sets")


def submission_name(dataset: Dataset, split: str) -> str:
    """Return the file name that the GLUE website requires for the predictions of a split, such as `MNLI-m.tsv`."""
    return GLUE_NAMES[dataset.name] + {"test_matched": "-m", "test_mismatched": "-mm"}.get(split, "") + ".tsv"


def predicted_label(dataset: Dataset, probabilities: np.ndarray) -> str:
    """Return the prediction for one example: a label, a number, or labels joined by the set's delimiter.

    Args:
      dataset: provides the class names.
      probabilities: float32 [C].
    """
    if dataset.problem == "regression":
        least, greatest = dataset.label_range
        return f"{np.clip(probabilities[0], least, greatest):.3f}"
    (decided,) = dataset.decide(probabilities[np.newaxis])
    if dataset.problem == "multi_label":
        return dataset.label_delimiter.join(itertools.compress(dataset.labels, decided))
    return dataset.labels[decided]


def _predicted_cells(dataset: Dataset, probabilities: np.ndarray) -> list[str]:
    label = predicted_label(dataset, probabilities)
    shares = [f"{share:.6f}" for share in probabilities]
    if dataset.problem == "regression":
        return [label]
    if dataset.problem == "multi_label":
        return [label, *shares]
    return [label, shares[dataset.labels.index(label)], *shares]
