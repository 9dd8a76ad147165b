"""Reader of classifiers, in Python and NumPy: texts to sequences, and outputs to labels with probabilities."""

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from official_bert.serving.signatures import Arrays, ArraySpec, Reader, Reading, Specs
from official_bert.tasks.classification.records import LabelledText, TextJoiner
from official_bert.tokenization import Tokenizer

# Outputs of models with thresholds, and of those whose scores pass through a sigmoid.
PREDICTED, IS_PREDICTED = "predicted", "is_predicted"
RAW = "raw_scores"


class Classification(NamedTuple):
    """A classifier's prediction for a text."""

    label: str  # the most likely label; with a tuned threshold, the label that it predicts
    probability: float  # its probability
    probabilities: dict[str, float]  # probability of every label, most likely first


class MultiLabelClassification(NamedTuple):
    """A prediction of any number of labels: those above 0.5, or above their tuned thresholds."""

    label: str  # the most likely label, predicted or not
    probability: float  # its probability
    probabilities: dict[str, float]  # probability of every label, most likely first
    labels: list[str]  # the predicted labels, those with a probability above their threshold, most likely first


class ClassificationReader(Reader):
    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer):
        super().__init__(said, tokenizer)
        sizes = {name: said[name] for name in ("max_seq_length", "max_windows", "doc_stride")}
        self._joiner = TextJoiner(tokenizer, **sizes)
        if said["max_windows"] == 1 or len(said["text_names"]) == 1:  # the windows of a pair depend on both lengths
            self.num_read = self._joiner.max_length
        self._labels = np.array([label.encode() for label in said["labels"]], object)

    def encode(self, text_a: str, text_b: str = "") -> Reading:
        return Reading([self._joiner.join(LabelledText((text_a, text_b), 0), Counter())])

    def named(self, outputs: Arrays) -> Arrays:
        if "scores" in outputs:
            return outputs
        best_first = np.argsort(-outputs["probabilities"], axis=1, kind="stable")
        labels = np.broadcast_to(self._labels, best_first.shape)
        return {**outputs, "labels": labels, "classes": self._labels[best_first]}

    def specs(self, numbers: Specs) -> dict[str, Specs]:
        names = dict.fromkeys(("labels", "classes"), ArraySpec(np.dtype(object), (None, len(self._labels))))
        return super().specs(numbers if "scores" in numbers else {**numbers, **names})


READER = ClassificationReader


def results(outputs: Mapping[str, np.ndarray]) -> list[Classification] | list[MultiLabelClassification] | list[float]:
    if "scores" in outputs:
        return outputs["scores"].tolist()
    num_examples = len(outputs["classes"])
    return [_result({name: values[row] for name, values in outputs.items()}) for row in range(num_examples)]


def _result(outputs: Mapping[str, np.ndarray]) -> Classification | MultiLabelClassification:
    probabilities = outputs["probabilities"]
    best_first = np.argsort(-probabilities, kind="stable")  # the order of `classes`
    labels = [label.decode() for label in outputs["classes"].tolist()]
    by_label = dict(zip(labels, probabilities[best_first].tolist(), strict=True))
    label = labels[best_first.tolist().index(outputs[PREDICTED])] if PREDICTED in outputs else labels[0]
    result = Classification(label, by_label[label], by_label)
    if IS_PREDICTED not in outputs:
        return result
    return MultiLabelClassification(*result, list(itertools.compress(labels, outputs[IS_PREDICTED][best_first])))
