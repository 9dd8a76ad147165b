"""Examples and records of sentence encoders: a reader of tables, and the schema."""

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert.config.bert_config import TEXT_LENGTHS
from official_bert.data.record_files import ExampleJoiner
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.data.tables import find_table, parse_score, read_objects
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.sentence_encoder.options import Layout
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import join_texts

TEXT_NUMBERS, SCORES, LABEL = "text_numbers", "scores", "label_ids"


class Example(NamedTuple):
    # an anchor, its positive and any negatives; the two texts of a pair; or a single text. A missing negative is
    # ""
    texts: tuple[str, ...]
    # the id of each text. Equal texts, or texts of the same class, share an id and are never negatives of each
    # other. 0 for a missing text
    numbers: tuple[int, ...]
    scores: tuple[float, ...] = ()  # the score of the pair, or one score for each candidate
    label: int = 0  # index of the class


def read_rows(path: str, layout: Layout) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place of each row and its cells, by column."""
    options = {"has_header": layout.has_header, "delimiter": layout.delimiter}
    for where, values in read_objects(path, find_table(path), layout.columns, **options):
        yield where, {column: _cell(values, column, where, column in layout.texts) for column in layout.columns}


def _cell(values: Mapping[str, Any], column: str, where: str, is_text: bool) -> str:
    if column not in values:
        raise UserError(f"{where}: there is no column {column!r}; it has {format_names(values)}")
    value = values[column]
    if isinstance(value, str):
        return value
    if is_text or not isinstance(value, (int, float)):
        kind = "a text must be a string" if is_text else "it must be a string or a number"
        raise UserError(f"{where}: {column!r} is {value!r:.80}; {kind}")
    return json.dumps(value)


class ExampleReader:
    """Reader of examples that gives equal texts the same number across files."""

    def __init__(self, layout: Layout, *, query_prefix: str = "", passage_prefix: str = ""):
        self._layout = layout
        self._prefixes = query_prefix, passage_prefix
        self._numbers: dict[str, int] = {}
        self.labels: tuple[str, ...] = ()  # sorted classes of the last file that was read with `is_training`

    def read(self, path: str, *, is_training: bool = False, is_predicted: bool = False) -> list[Example]:
        layout = dataclasses.replace(self._layout, scores=(), label=None) if is_predicted else self._layout
        rows = [
            (where, cells)
            for where, cells in read_rows(path, layout)
            if layout.keeps is None or layout.label is None or cells[layout.label] == layout.keeps
        ]
        if not rows:
            raise UserError(f"{path} has no rows of class {layout.keeps!r}")
        has_classes = layout.label is not None and layout.keeps is None
        if is_training and has_classes:
            self.labels = tuple(sorted({cells[layout.label] for _, cells in rows}))
            if len(self.labels) < 2:
                raise UserError(f"{path}: all examples have the class {self.labels[0]!r}; give at least two classes")
        examples = [self._example(where, cells, layout, has_classes) for where, cells in rows]
        num_short = sum(not all(example.texts) for example in examples)
        if num_short:
            logging.info("%s: %d of %d examples have an empty text, left out", path, num_short, len(examples))
        return examples

    def _example(self, where: str, cells: Mapping[str, str], layout: Layout, has_classes: bool) -> Example:
        texts, numbers = [], []
        for place, column in enumerate(layout.texts):
            text = cells[column].strip()
            if not text and place < 2:
                raise UserError(f"{where}: the text in column {column!r} is empty; only negatives may be empty")
            texts.append(self._prefixes[min(place, 1)] + text if text else "")
            numbers.append(self._numbers.setdefault(text, len(self._numbers) + 1) if text else 0)
        label = 0
        if has_classes:
            name = cells[layout.label]
            if name not in self.labels:
                raise UserError(f"{where}: the training data has no class {name!r}, only {format_names(self.labels)}")
            label = self.labels.index(name)
        scores = tuple(
            parse_score(cells[column], where, max_score=layout.max_score) / layout.max_score
            if is_there or cells[column].strip()
            else 0.0
            for column, is_there in zip(layout.scores, texts[1:], strict=False)
        )
        return Example(tuple(texts), tuple(numbers), scores, label)


def paired_by_class(examples: Sequence[Example], seed: int) -> list[Example]:
    """Pair each text with another text of its class."""
    rng = random.Random(seed)
    by_class: dict[int, list[Example]] = {}
    for example in examples:
        by_class.setdefault(example.label, []).append(example)
    pairs = []
    for label, members in by_class.items():
        if len(members) == 1:
            raise UserError(f"{members[0].texts[0]!r:.80} is the only text of its class; each class needs at least two")
        order = rng.sample(members, len(members))
        number = (label + 1,) * 2
        pairs += [Example((a.texts[0], b.texts[0]), number) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    return rng.sample(pairs, len(pairs))


def example_schema(
    max_seq_length: int,
    num_texts: int,
    vocab_size: int,
    num_segments: int,
    *,
    num_scores: int = 0,
    num_classes: int = 0,
) -> RecordSchema:
    fields = [
        *ENCODER_FIELDS,
        Field(TEXT_LENGTHS, (num_texts,), "int32", below="L"),
        Field(TEXT_NUMBERS, (num_texts,), "int32"),  # equal for equal texts, 0 for a missing text
    ]
    if num_scores:
        fields.append(Field(SCORES, (num_scores,), "float32"))
    if num_classes:
        fields.append(Field(LABEL, (), "int32", below=num_classes))
    sizes = {"S": num_texts * max_seq_length, "V": vocab_size, "T": num_segments, "L": max_seq_length + 1}
    return RecordSchema(*fields).sized(**sizes)


class TextsJoiner(ExampleJoiner):
    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        super().__init__(tokenizer, max_seq_length=max_seq_length)
        self._specials = tokenizer.specials
        self._max_tokens = self._specials.room(max_seq_length, is_pair=False)

    def num_texts(self, example: Example) -> int:
        return len(example.texts)

    def labels(self, example: Example) -> dict[str, Sequence[int | float]]:
        return {TEXT_NUMBERS: example.numbers, SCORES: example.scores, LABEL: [example.label]}

    def report(self, counts: Counter) -> None:
        if counts["num_truncated"]:
            logging.info("%d of %d texts were truncated", counts["num_truncated"], counts["num_texts"])

    def join(self, example: Example, counts: Counter) -> dict[str, Sequence[int]]:
        """See `ExampleJoiner`; a missing text, "", gets no positions."""
        input_ids, lengths = [], []
        for text in example.texts:
            counts["num_texts"] += 1
            ids = self.tokenizer.encode(text) if text else []
            counts["num_truncated"] += len(ids) > self._max_tokens
            ids = join_texts(ids[: self._max_tokens], [], self._specials).input_ids if text else []
            input_ids += ids
            lengths.append(len(ids))
        ones, zeros = bytes([1]) * len(input_ids), bytes(len(input_ids))
        return {"input_ids": input_ids, "input_mask": ones, "segment_ids": zeros, TEXT_LENGTHS: lengths}

    def words(self, text: str) -> list[int]:
        """Return the ids of a text, truncated and without [CLS] and [SEP]."""
        return self.tokenizer.encode(text)[: self._max_tokens]
