"""Evaluation report of multiple choice: see `visualization/report_page.py`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.tasks.multiple_choice.examples import Example
from official_bert.training.report_sections import accuracy_by_length, mistakes_section, reliability_section
from official_bert.visualization.report_page import (
    NUM_MISTAKES,
    Mistake,
    Part,
    Scores,
    Section,
    Text,
    confusion_section,
)


def report_sections(
    examples: Sequence[Example],
    probabilities: np.ndarray,
    *,
    scores: Mapping[str, Any],
    lengths: Sequence[int],
) -> list[Section]:
    """Compute the sections of a report.

    Args:
      examples: the N examples.
      probabilities: float32 [N, choices].
      scores: name to number, as in `eval_results.txt`.
      lengths: number of wordpieces of each example's longest sequence.
    """
    labels, predicted = np.array([example.label for example in examples]), probabilities.argmax(axis=-1)
    confidences, is_correct = probabilities.max(axis=-1), labels == predicted
    rows = np.flatnonzero(~is_correct)
    order = rows[np.argsort(-confidences[rows], kind="stable")][:NUM_MISTAKES]
    mistakes = [_mistake(examples[row], predicted[row], probabilities[row]) for row in order]
    numbers = [str(number) for number in range(probabilities.shape[1])]
    return [
        Scores(title="Scores", values=scores),
        confusion_section("By number", numbers, labels, predicted, note="Choices are numbered from 0."),
        reliability_section(
            confidences, is_correct, "A prediction is a choice; its confidence is that choice's probability."
        ),
        accuracy_by_length(lengths, is_correct),
        mistakes_section(mistakes, len(rows), len(examples), "by the probability of the wrong choice"),
    ]


def _mistake(example: Example, predicted: int, probabilities: np.ndarray) -> Mistake:
    facts = {
        "gold": example.names[example.label],
        "predicted": example.names[predicted],
        "probability": f"{probabilities[predicted]:.4f}",
        "of the gold choice": f"{probabilities[example.label]:.4f}",
        "example": example.id,
    }
    marks = {example.label: "gold", predicted: "predicted"}
    texts = [Text("context", [Part(example.context)])]
    texts += [Text("question", [Part(example.question)])] if example.question else []
    texts += [
        Text(name, [Part(choice, marks.get(number, ""))])
        for number, (name, choice) in enumerate(zip(example.names, example.choices, strict=True))
    ]
    return Mistake(facts, texts)
