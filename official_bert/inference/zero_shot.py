"""Classification of texts by labels that a model of entailment was not trained on."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from official_bert.serving.engine_model import softmax
from official_bert.serving.signatures import Arrays
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.classification.options import PLACE, check_labels
from official_bert.tasks.classification.reader import Classification, MultiLabelClassification

# Beginnings of the names of labels, in lowercase.
_ENTAILED, _CONTRADICTED = ("entail",), ("contradict", "not_", "not-", "non")

# From rows of texts, and a function from outputs to a result for each row, to these results in order.
Answer = Callable[[Sequence[tuple[str, ...]], Callable[[Arrays], list[Any]]], list[Any]]


def classify(
    answer: Answer, texts: Sequence[str], labels: Sequence[str], hypothesis: str, *, multi_label: bool
) -> list[Classification] | list[MultiLabelClassification]:
    """Return the probability of each label: that its hypothesis follows from the text.

    A softmax over the labels' logits of entailment, which add up to 1; for several labels per text, over entailment and
    contradiction of each label alone.

    Source: Yin et al., "Benchmarking Zero-shot Text Classification", 2019; as in transformers' pipeline.
    """
    check_labels(labels, hypothesis)
    rows = [(text, hypothesis.replace(PLACE, label)) for text in texts for label in labels]
    pairs = np.array(answer(rows, _logits_of_both), np.float32).reshape(len(texts), len(labels), 2)
    found = softmax(pairs)[..., 1] if multi_label or len(labels) == 1 else softmax(pairs[..., 1])
    results: list[Any] = []
    for row in found:
        best_first = np.argsort(-row, kind="stable")
        by_label = {labels[place]: float(row[place]) for place in best_first}
        result = Classification(labels[best_first[0]], float(row[best_first[0]]), by_label)
        above = [label for label, share in by_label.items() if share > 0.5]
        results.append(MultiLabelClassification(*result, above) if multi_label else result)
    return results


def _logits_of_both(outputs: Arrays) -> list[np.ndarray]:
    """Return the logits of contradiction and entailment, [B, 2]."""
    names = [label.decode() for label in outputs["labels"][0].tolist()] if "labels" in outputs else []
    places = [
        [place for place, name in enumerate(names) if name.lower().startswith(beginnings)]
        for beginnings in (_CONTRADICTED, _ENTAILED)
    ]
    if any(len(found) != 1 for found in places):
        raise UserError(
            f"labels need a model of entailment, whose classes are named entailment and contradiction; this one has "
            f"{format_names(names) or 'no classes'}"
        )
    return list(outputs["logits"][:, [found[0] for found in places]])
