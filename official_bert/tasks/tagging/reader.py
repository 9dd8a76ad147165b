"""Reader of taggers, in Python and NumPy: sentences to windows, and probabilities to tagged words and entities.

`best_path` and `marginals` decode a sentence as `modeling/tagging.py` does batches.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.metrics.tagging import find_entities, has_entities
from official_bert.serving.engine_model import EngineModel, decodable
from official_bert.serving.signatures import (
    TEXT,
    Arrays,
    ArraySpec,
    Reader,
    Reading,
    RequestError,
    Signature,
    Specs,
    check_table_size,
    dtype_of,
    padded_table,
    softmax,
)
from official_bert.tasks.tagging.records import Window, make_windows, own_windows
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import MOST_BYTES, join_texts

# Scores of the first tag, float32 [C]; of a tag (column) after another (row), [C, C]; and of the last tag, [C].
Transitions = tuple[np.ndarray, np.ndarray, np.ndarray]


def best_path(scores: np.ndarray, transitions: Transitions) -> list[int]:
    """Return the most likely tag numbers of a sentence from scores, [W, C]: `viterbi`, which is slow uncompiled."""
    if not len(scores):
        return []
    start, between, end = transitions
    best, sources = scores[0] + start, []
    for of_word in scores[1:]:
        through = best[:, None] + between  # [C, C], from a tag (row) into another (column)
        sources.append(through.argmax(axis=0))
        best = through.max(axis=0) + of_word
    path = [int((best + end).argmax())]
    for source in reversed(sources):
        path.append(int(source[path[-1]]))
    return path[::-1]


def marginals(scores: np.ndarray, transitions: Transitions) -> np.ndarray:
    """Return the probability of each tag at each word over all sequences, [W, C], from scores, [W, C]."""
    start, between, end = transitions
    before, after = np.zeros_like(scores), np.zeros_like(scores)
    for place, of_word in enumerate(scores):
        sums = start if place == 0 else _scaled_logsumexp(before[place - 1][:, None] + between, axis=0)
        before[place] = sums + of_word
    for place in reversed(range(len(scores))):
        is_last = place == len(scores) - 1
        after[place] = end if is_last else _scaled_logsumexp(between + scores[place + 1] + after[place + 1], axis=1)
    return softmax(before + after)


def _scaled_logsumexp(values: np.ndarray, axis: int) -> np.ndarray:
    """Return sums minus the largest: they do not grow with the length of a sentence, so that none loses digits."""
    highest = values.max(axis=axis, keepdims=True)
    sums = np.log(np.exp(values - highest).sum(axis=axis)) + np.squeeze(highest, axis)
    return sums - sums.max()


LEAST = 1e-37  # a positive float32, whose logarithm is finite
WORDS = "words"  # the signature for pretokenized sentences


class Entity(NamedTuple):
    """An entity: consecutive words of a sentence."""

    text: str  # `sentence[start:end]`
    type: str  # its type as in the tags, such as "PER"
    start: int  # offset of its first character in the sentence, not counting undecodable characters
    end: int  # offset after its last character
    probability: float  # probability of its least certain tag


class TaggedText(NamedTuple):
    """A sentence with its tags."""

    words: list[str]  # the words, split at white space
    tags: list[str]  # the tag of each word
    probabilities: list[float]  # the probability of each tag
    entities: list[Entity]  # the entities marked by the tags, in order


# Outputs whose rows have the same length, by the name of that length.
TABLES = {
    "num_words": ("words", "tags", "probabilities"),
    "num_entities": ("entities", "entity_types", "entity_starts", "entity_ends", "entity_probabilities"),
}

# A value of the type of each output, in their order.
_EMPTY = (b"", b"", np.float32(0), b"", b"", np.int32(0), np.int32(0), np.float32(0))


class _Sentence(NamedTuple):
    """A sentence of W words; the windows name the words that they tag, and the first wordpiece of each."""

    text: str
    places: list[tuple[int, int]]  # offsets of the first character of each word, and after its last one
    windows: list[Window]


class TagReader(Reader):
    has_windows = True

    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer):
        super().__init__(said, tokenizer)
        self._tags, self._of_characters = said["tags"], said["of_characters"]
        self._transitions = said["transitions"] and [np.array(scores, np.float32) for scores in said["transitions"]]
        self._has_entities = has_entities(set(self._tags))

    def encode(self, text: str) -> Reading:
        if self._of_characters:
            ids, starts, ends = self.tokenizer.encode_with_offsets(text)
            places, numbers = list(zip(starts, ends, strict=True)), list(range(len(ids)))
            windows = list(own_windows(0, ids, numbers, numbers, self.max_seq_length - 2))
        else:
            places = [match.span() for match in re.finditer(r"\S+", text)]
            words = [text[start:end] for start, end in places]
            windows = list(make_windows([words], self.tokenizer, max_seq_length=self.max_seq_length))
        return self._reading(_Sentence(text, places, windows))

    def _reading(self, sentence: _Sentence) -> Reading:
        return Reading([join_texts(window.ids, (), self.specials).inputs for window in sentence.windows], sentence)

    def further_signatures(self, model: EngineModel) -> list[Signature]:
        """Add `words`, for pretokenized sentences."""
        words, shares = (ArraySpec(np.dtype(dtype), (None, None)) for dtype in (object, np.float32))
        outputs = {"tags": words, "probabilities": shares}
        return [Signature(WORDS, {"words": words}, outputs, lambda inputs: self._tag_words(model, inputs["words"]))]

    def _tag_words(self, model: EngineModel, words: np.ndarray) -> Arrays:
        """Tag pretokenized sentences, bytes [B, words]; b"" is padding and gets no tag."""
        if (largest := max((sum(map(len, row)) for row in words), default=0)) > MOST_BYTES:
            raise RequestError(f"words must have at most {MOST_BYTES} bytes per example, but one has {largest}")
        check_table_size(*words.shape)
        tags, shares = np.full(words.shape, b"", object), np.zeros(words.shape, np.float32)
        readings = []
        for row in words:
            given = [decodable(word) for word in row if word]
            windows = list(make_windows([given], self.tokenizer, max_seq_length=self.max_seq_length))
            readings.append(self._reading(_Sentence("", [(0, 0)] * len(given), windows)))
        for row, (reading, rows) in enumerate(zip(readings, model.read(readings), strict=True)):
            places = np.flatnonzero([word != b"" for word in words[row]])
            found, shares[row, places] = self._decided(reading.parts, rows)
            tags[row, places] = [tag.encode() for tag in found]
        return {"tags": tags, "probabilities": shares}

    def named(self, outputs: Arrays) -> Arrays:
        tags = np.array([tag.encode() for tag in self._tags], object)
        return {**outputs, "position_tags": tags[outputs["probabilities"].argmax(axis=-1)]}

    def decode(self, readings: Sequence[Reading], outputs: Sequence[Sequence[Arrays]]) -> Arrays:
        columns = [self._tagged(reading.parts, rows) for reading, rows in zip(readings, outputs, strict=True)]
        names = itertools.chain.from_iterable(TABLES.values())
        return {
            name: padded_table(values, empty)
            for name, empty, values in zip(names, _EMPTY, zip(*columns, strict=True), strict=True)
        }

    def specs(self, numbers: Specs) -> dict[str, Specs]:
        names = itertools.chain.from_iterable(TABLES.values())
        tables = {name: ArraySpec(dtype_of(empty), (None, None)) for name, empty in zip(names, _EMPTY, strict=True)}
        of_positions = {**numbers, "position_tags": ArraySpec(np.dtype(object), (None, None))}
        return {**super().specs(of_positions), TEXT: tables}

    def _decided(self, sentence: _Sentence, rows: Sequence[Arrays]) -> tuple[list[str], np.ndarray]:
        """Return the tag of each word of a sentence, and its probability."""
        probabilities = np.zeros([len(sentence.places), len(self._tags)], np.float32)  # [W, C]
        for window, row in zip(sentence.windows, rows, strict=True):
            probabilities[list(window.words)] = row["probabilities"][np.array(window.positions, int) + 1]  # after [CLS]
        if self._transitions is None:
            numbers, shares = probabilities.argmax(axis=1), probabilities
        else:
            scores = np.log(np.maximum(probabilities, LEAST))
            numbers, shares = best_path(scores, self._transitions), marginals(scores, self._transitions)
        return [self._tags[number] for number in numbers], shares[np.arange(len(numbers)), numbers]

    def _tagged(self, sentence: _Sentence, rows: Sequence[Arrays]) -> tuple[list[Any], ...]:
        """Return the columns of `TABLES` for a sentence."""
        tags, shares = self._decided(sentence, rows)
        words = [sentence.text[start:end].encode() for start, end in sentence.places]
        entities = find_entities(tags) if self._has_entities else []
        starts = [sentence.places[entity.start][0] for entity in entities]
        ends = [sentence.places[entity.end - 1][1] for entity in entities]
        return (
            words,
            [tag.encode() for tag in tags],
            shares,
            [sentence.text[start:end].encode() for start, end in zip(starts, ends, strict=True)],
            [entity.type.encode() for entity in entities],
            starts,
            ends,
            [shares[entity.start : entity.end].min() for entity in entities],
        )


READER = TagReader


def results(outputs: Mapping[str, np.ndarray]) -> list[TaggedText]:
    """Convert outputs of the signature `text` to one `TaggedText` per sentence."""
    texts = []
    for row in range(len(outputs["words"])):
        columns = {name: values[row].tolist() for name, values in outputs.items()}
        num_words = sum(word != b"" for word in columns["words"])
        words, tags = ([value.decode() for value in columns[name][:num_words]] for name in ("words", "tags"))
        entities = [
            Entity(text.decode(), kind.decode(), start, end, probability)
            for text, kind, start, end, probability in zip(
                *(columns[name] for name in ("entities", "entity_types", "entity_starts", "entity_ends")),
                columns["entity_probabilities"],
                strict=True,
            )
            if text
        ]
        texts.append(TaggedText(words, tags, columns["probabilities"][:num_words], entities))
    return texts
