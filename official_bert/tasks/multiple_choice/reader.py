"""Reader of multiple choice, in Python and NumPy: a context and its choices to sequences, and scores to a choice."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.serving.signatures import (
    TEXT,
    Arrays,
    ArraySpec,
    Reader,
    Reading,
    RequestError,
    Specs,
    padded_table,
    softmax,
)
from official_bert.support.errors import UserError
from official_bert.tasks.multiple_choice.data import join_choice

CHOICES = "choices"  # the text input with one choice per line


class Choice(NamedTuple):
    """The best choice for a context."""

    text: str  # the choice
    number: int  # its number among the choices, from 0
    probability: float  # its probability
    probabilities: list[float]  # the probability of every choice, in their order


class ChoiceReader(Reader):
    has_windows = True

    def encode(self, context: str, *question_and_choices: str) -> Reading:
        *question, choices = question_and_choices
        lines = [line.strip("\t\n\v\f\r ") for line in choices.rstrip("\t\n\f\r ").split("\n")]
        if len(lines) < 2:
            raise RequestError(f"{CHOICES} must have at least two lines, one per choice")
        first, before = self.tokenizer.encode(context), "".join(f"{text} " for text in question if text)
        seconds = [self.tokenizer.encode(before + line) for line in lines]
        room = self.specials.room(self.max_seq_length, is_pair=True)
        return Reading([join_choice(first, second, room, self.specials).inputs for second in seconds], lines)

    def decode(self, readings: Sequence[Reading], outputs: Sequence[Sequence[Arrays]]) -> Arrays:
        scores = [np.array([row["scores"] for row in rows], np.float32) for rows in outputs]
        probabilities = padded_table(map(softmax, scores), np.float32(0))
        return {
            "probabilities": probabilities,
            "choices": padded_table(([line.encode() for line in reading.parts] for reading in readings), b""),
            "best": probabilities.argmax(axis=1).astype(np.int32),
        }

    def specs(self, numbers: Specs) -> dict[str, Specs]:
        probabilities, choices = (ArraySpec(np.dtype(dtype), (None, None)) for dtype in (np.float32, object))
        best = ArraySpec(np.dtype(np.int32), (None,))
        return {**super().specs(numbers), TEXT: {"probabilities": probabilities, "choices": choices, "best": best}}


READER = ChoiceReader


def joined_choices(choices: Any) -> Any:
    """Return a list of choices as the input of a servable, one per line; anything else is returned as it is."""
    if isinstance(choices, str) and "\n" not in choices.encode("utf-8", "ignore").decode().rstrip("\t\n\f\r "):
        raise UserError(f"the choices are {choices!r:.200}; give a list of at least two, or one per line")
    if not isinstance(choices, (list, tuple)) or not all(isinstance(choice, str) for choice in choices):
        return choices
    lines = [choice.encode("utf-8", "ignore").decode().replace("\n", " ").strip() for choice in choices]
    if len(lines) < 2 or not all(lines):
        raise UserError(f"the choices are {list(choices)!r:.200}; give at least two, none of them empty")
    return "\n".join(lines)


def results(outputs: Mapping[str, np.ndarray]) -> list[Choice]:
    found = []
    for texts, best, row in zip(outputs["choices"], outputs["best"].tolist(), outputs["probabilities"], strict=True):
        num_choices = max((number for number, text in enumerate(texts.tolist(), start=1) if text), default=1)
        probabilities = row[:num_choices].tolist()
        found.append(Choice(texts[best].decode(), best, probabilities[best], probabilities))
    return found
