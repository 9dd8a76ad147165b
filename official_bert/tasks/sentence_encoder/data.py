"""Examples and records of sentence encoders: readers of tables and of retrieval collections, and the schema.

A collection in the layout of the BEIR benchmark is a folder with `corpus.jsonl` (`_id`, `text` and optionally `title`
on each line), `queries.jsonl` (`_id`, `text`) and `qrels/<split>.tsv`, the relevance judgments with the columns
`query-id`, `corpus-id` and `score`.
"""

import dataclasses
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert.config.bert_config import TEXT_LENGTHS
from official_bert.data.record_files import ExampleJoiner
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.data.tables import (
    Columns,
    Row,
    column_number,
    find_table,
    parse_score,
    read_jsonl,
    read_objects,
    read_tsv,
)
from official_bert.metrics.retrieval import check_relevant
from official_bert.support import files
from official_bert.support.errors import UserError, format_names, pluralize
from official_bert.tasks.sentence_encoder.options import Layout, SentenceEncoderConfig
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import join_texts
from official_bert.training.run_folder import read_trained_labels

TEXT_NUMBERS, SCORES, LABEL = "text_numbers", "scores", "label_ids"
_QRELS_COLUMNS = ("query-id", "corpus-id", "score")


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


# the texts of queries and of documents, and the judgments, by id
Beir = tuple[dict[str, str], dict[str, str], dict[str, dict[str, float]]]


class SentenceData(NamedTuple):
    train: list[Example] | None
    dev: list[Example] | None
    test: list[Example] | None
    beir: Beir | None  # a collection to search in
    labels: tuple[str, ...] | None  # the classes of pairs


def read_data(config: SentenceEncoderConfig) -> SentenceData:
    """Read the splits that the flags require, and check that there is something to learn or to compare in them."""
    layout = config.layout
    reader = ExampleReader(layout, query_prefix=config.query_prefix, passage_prefix=config.passage_prefix)

    def read(split: str, **options) -> list[Example]:
        return reader.read(os.path.join(config.data_dir, layout.files[split]), **options)

    train = read("train", is_training=True) if config.do_train else None
    if config.loss_name == "softmax" and not train:
        reader.labels = tuple(read_trained_labels(config.output_dir, config.init_checkpoint) or ())
    labels = reader.labels if config.loss_name == "softmax" else None
    # Evaluation on single texts compares vectors, so its classes may differ from those of training.
    is_single = len(layout.texts) == 1
    dev = read("dev", is_training=is_single) if config.is_evaluated and "dev" in layout.files else None
    if train and config.loss_name == "triplet" and not any(any(example.numbers[2:]) for example in train):
        raise UserError(f"{layout.files['train']}: no example has a negative; loss=triplet needs them")
    if train and not config.teacher and config.loss_name in ("contrastive", "cosent"):
        num_compared = len(train) if config.train_batch_tokens else min(len(train), config.train_batch_size)
        if num_compared == 1 and not any(any(example.numbers[2:]) for example in train):
            raise UserError(
                f"train_batch_size={config.train_batch_size} with {pluralize(len(train), 'example')}: "
                f"loss={config.loss_name} compares the pairs of a batch, so it is always 0 for a single pair; give "
                "at least two, or negatives"
            )
    for split, pairs in (("train", train if config.loss_name == "cosent" else None), ("dev", dev)):
        if pairs and len(pairs[0].scores) == 1 and len({pair.scores for pair in pairs}) == 1:
            raise UserError(
                f"{layout.files[split]}: all {len(pairs)} pairs have the same score, so there is no order to learn "
                "or to compare with; give pairs with different scores"
            )
    test = read("test", is_predicted=True) if config.do_predict else None
    if train and is_single:
        train = paired_by_class(train, config.random_seed)
    beir = _retrieval_texts(config) if config.is_evaluated and config.retrieval_dir else None
    return SentenceData(train, dev, test, beir, labels)


def _retrieval_texts(config: SentenceEncoderConfig) -> Beir:
    queries, corpus, qrels = read_beir(config.retrieval_dir, config.retrieval_split)
    return (
        {name: config.query_prefix + text for name, text in queries.items()},
        {passage.id: config.passage_prefix + passage.text for passage in corpus},
        qrels,
    )


class Passage(NamedTuple):
    id: str  # the id that the judgments use
    text: str  # the title, if there is one, followed by the text


def _read_corpus(path: str, judged: Mapping[str, str]) -> Iterator[Passage]:
    """Read a corpus; judged documents, by id with the place of their first judgment, may occur only once."""
    missing = dict(judged)
    for row, passage in _read_passages(path):
        if passage.id in judged and missing.pop(passage.id, None) is None:
            raise UserError(f"{row.where}: an earlier document also has the _id {passage.id!r}; remove one of them")
        yield passage
    if missing:
        document, where = next(iter(missing.items()))
        logging.warning(
            "%s has no document with the _id %r (%s), and lacks %d of %d judged documents; they count as not found",
            *(path, document, where, len(missing), len(judged)),
        )


def read_beir(folder: str, split: str) -> tuple[dict[str, str], Iterator[Passage], dict[str, dict[str, float]]]:
    """Return the texts of the judged queries, the documents, and for each query the scores of its judged documents."""
    qrels_path = os.path.join(folder, "qrels", f"{split}.tsv")
    if not files.exists(qrels_path):
        raise UserError(f"{qrels_path} does not exist; the BEIR layout keeps the judgments of split {split!r} there")
    texts: dict[str, str] = {}
    queries_path = os.path.join(folder, "queries.jsonl")
    for row, query in _read_passages(queries_path):
        if texts.setdefault(query.id, query.text) != query.text:
            raise UserError(f"{row.where}: an earlier query also has the _id {query.id!r}; remove one of them")
    qrels: dict[str, dict[str, float]] = {}
    judged: dict[str, str] = {}
    for row, query, document, score in _judgments(qrels_path):
        if query not in texts:
            raise UserError(f"{row.where}: {queries_path} has no query with the _id {query!r}")
        if qrels.setdefault(query, {}).setdefault(document, score) != score:
            raise UserError(f"{row.where}: query {query!r} and document {document!r} have a different score above")
        judged.setdefault(document, row.where)
    if not qrels:
        raise UserError(f"{qrels_path} has no judgments")
    check_relevant({query: judgments.values() for query, judgments in qrels.items()}, qrels_path)
    return {query: texts[query] for query in qrels}, _read_corpus(os.path.join(folder, "corpus.jsonl"), judged), qrels


def _read_passages(path: str) -> Iterator[tuple[Row, Passage]]:
    for row in read_jsonl(path, Columns(("_id", "text"))):
        if row.mistake:
            raise UserError(f"{row.where}: {row.mistake}")
        if row.cells:
            text = f"{row.cells.get('title') or ''} {row.cells['text']}"
            yield row, Passage(row.cells["_id"], text.strip())


def _judgments(path: str) -> Iterator[tuple[Row, str, str, float]]:
    rows = read_tsv(path)
    header = next(rows, None)
    if header is None:
        raise UserError(f"{path} is empty; its first line must name the columns: {format_names(_QRELS_COLUMNS)}")
    columns = [column_number(name, header.where, header.cells) for name in _QRELS_COLUMNS]
    for row in rows:
        if not row.cells:
            continue
        if len(row.cells) != len(header.cells):
            raise UserError(f"{row.where}: found {len(row.cells)} columns; the header has {len(header.cells)}")
        query, document, score = (row.cells[column] for column in columns)
        yield row, query, document, parse_score(score, row.where)


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
