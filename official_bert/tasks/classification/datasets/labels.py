"""A data set: its splits, labels and metrics."""

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from absl import logging

from official_bert.support import files
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.classification.datasets.layouts import Split, TextExample, collect

if TYPE_CHECKING:
    import numpy as np

Problem = Literal["single_label", "multi_label", "regression"]
_THRESHOLD = 0.5  # of the labels of a multi-label example
ACCURACY_AND_F1 = ("accuracy_f1_mean", "accuracy", "f1")
CORRELATIONS = ("pearson_spearman_mean", "pearson", "spearman")
_LARGEST_FLOAT32 = 3.4e38


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set: its splits, labels and metrics.

    Attributes:
      name: as in `--task_name`, in lower case.
      splits: splits by name; evaluation splits begin with "dev", prediction splits with "test".
      labels: class names, in the order of the model's outputs.
      problem: "single_label", "multi_label" (any number of classes per example) or "regression".
      label_range: minimum and maximum regression target.
      label_delimiter: separator between the labels of a multi-label example.
      glue_name: its name on the GLUE site; None for other data sets.
      metrics: names in `metrics.classification.METRICS`, or of `RERANKING_METRICS`, to report; the first is the primary
        metric.
      thresholds: see `decide`.
    """

    name: str
    splits: Mapping[str, Split]
    labels: tuple[str, ...] = ()
    problem: Problem = "single_label"
    label_range: tuple[float, float] = (-math.inf, math.inf)
    label_delimiter: str = ","
    metrics: tuple[str, ...] = ("accuracy",)
    glue_name: str | None = None
    thresholds: tuple[float, ...] | None = None

    @property
    def primary_metric(self) -> str:
        """The metric that ranks models; GLUE's own for the GLUE tasks."""
        return self.metrics[0]

    @property
    def eval_splits(self) -> tuple[str, ...]:
        """The evaluation splits; if there are none, the labelled test splits."""
        names = tuple(name for name in self.splits if name.startswith("dev"))
        return names or tuple(name for name in self.test_splits if self.splits[name].label is not None)

    @property
    def test_splits(self) -> tuple[str, ...]:
        """The prediction splits."""
        return tuple(name for name in self.splits if name.startswith("test"))

    def find(self, data_dir: str | None, split: str) -> str:
        """Return the path of a split's file; see `examples` for arguments and errors."""
        if split not in self.splits:
            raise UserError(f"the data set {self.name} has no split {split!r}; it has {format_names(self.splits)}")
        if data_dir and not files.is_folder(data_dir):
            raise UserError(f"there is no folder {data_dir} with the files of {self.name}")
        return self.splits[split].find(data_dir)

    def examples(self, data_dir: str | None, split: str) -> list[TextExample]:
        """Read a split.

        Args:
          data_dir: the data folder; None for a custom set, whose file names are paths.
          split: a name in `splits`.

        Returns:
          The examples, in file order. Labels are not checked: see `check_labels`.

        Raises:
          UserError: the split does not exist, or its file is missing, empty, not UTF-8 or in another layout.
        """
        path, layout = self.find(data_dir, split), self.splits[split]
        examples = layout.examples(path, layout.guid_prefix or split)
        num_empty = sum(_has_empty_text(example) for example in examples)
        if num_empty:
            logging.warning("%s: %d of %d examples have an empty text", path, num_empty, len(examples))
        return examples

    def parse_label(self, example: TextExample) -> int | float | tuple[int, ...]:
        """Convert a label to a training target.

        Returns:
          The class index; the number for regression; one 0 or 1 per class for multi-label.

        Raises:
          UserError: the label is not allowed.
        """
        if self.problem == "regression":
            return self._number(example)
        indices = [self._index(name, example) for name in self._names(example)]
        if self.problem == "multi_label":
            return tuple(int(index in indices) for index in range(len(self.labels)))
        return indices[0]

    def check_labels(self, examples: Iterable[TextExample]) -> list[int | float | tuple[int, ...]]:
        """Parse every label, so that errors surface before training.

        Raises:
          UserError: labels are invalid; the message names the first and gives their number.
        """
        return collect(self.parse_label, examples)

    def with_labels_of(self, examples: Iterable[TextExample]) -> "Dataset":
        """Return a copy of this data set whose labels are the sorted labels of the examples.

        Raises:
          UserError: there are fewer than two labels, or two that differ only in case.
        """
        examples = list(examples)
        counts = collections.Counter(name for example in examples for name in self._names(example) if name)
        labels = tuple(sorted(counts))
        self._check_case(examples)
        if len(labels) < 2:
            raise UserError(
                f"the label column of {self.name} has {format_names(labels)}; at least two labels are required"
            )
        logging.info("%d labels found: %s", len(labels), format_names(labels))
        rare = [label for label in labels if counts[label] == 1]
        if rare:
            logging.warning("labels that occur only once: %s; are they misspelt?", format_names(rare))
        return dataclasses.replace(self, labels=labels)

    def _check_case(self, examples: Iterable[TextExample]) -> None:
        """Raise if two labels differ only in case: one of them is probably a typo."""
        first_use: dict[str, tuple[str, str]] = {}
        for example in examples:
            for name in self._names(example):
                first_name, where = first_use.setdefault(name.casefold(), (name, example.where))
                if name != first_name:
                    raise UserError(
                        f"{example.where}: label {name!r} differs only in case from {first_name!r} ({where}); use "
                        "one spelling or, if they are two labels, list all: labels=..."
                    )

    def decide(self, probabilities: "np.ndarray") -> "np.ndarray":
        """Return the predictions to compare with labels; see the function `decide`."""
        return decide(self.problem, probabilities, self.thresholds)

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}

    def _names(self, example: TextExample) -> list[str]:
        if self.problem == "single_label":
            return [example.label]
        return [name.strip() for name in example.label.split(self.label_delimiter) if name.strip()]

    def _index(self, name: str, example: TextExample) -> int:
        if name not in self._indices:
            raise UserError(f"{example.where}: label {name!r} is not one of {format_names(self.labels)}")
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


def decide(problem: Problem, probabilities: "np.ndarray", thresholds: Sequence[float] | None = None) -> "np.ndarray":
    """Turn the outputs of a model into predictions.

    Args:
      problem: the problem type.
      probabilities: float32 [N, C]; for regression, the numbers, [N, 1].
      thresholds: the probability above which a label is predicted: for "multi_label" of each label, C numbers, by
        default 0.5; for "single_label" of the second of two labels, one number, by default the most likely label.

    Returns:
      int [N], the classes; for "multi_label" bool [N, C]; for "regression" float32 [N].
    """
    if problem == "regression":
        return probabilities[:, 0]
    if problem == "multi_label":
        return probabilities > (thresholds or _THRESHOLD)
    if thresholds:
        return (probabilities[:, 1] > thresholds[0]).astype(int)
    return probabilities.argmax(axis=-1)


def _has_empty_text(example: TextExample) -> bool:
    """Return True if a text of the example is blank; a missing second text does not count."""
    return not example.text_a.strip() or (example.text_b is not None and not example.text_b.strip())
