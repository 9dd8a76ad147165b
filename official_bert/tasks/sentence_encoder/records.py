"""TFRecords of sentence encoders: the texts of an example one after another, or single texts."""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from official_bert.config.tensor_names import TEXT_LENGTHS
from official_bert.data.example_encoding import EncodedBatch, encode_examples
from official_bert.data.records import RecordFile, write_cached
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.support.manifest import fingerprint
from official_bert.tasks.sentence_encoder.examples import Example
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.joining import join_texts

TEXT_NUMBERS, SCORES, LABEL = "text_numbers", "scores", "label_ids"


def example_schema(
    max_seq_length: int,
    num_texts: int,
    vocab_size: int,
    num_segments: int,
    *,
    num_scores: int = 0,
    num_classes: int = 0,
) -> RecordSchema:
    """Return the record schema of an example.

    Args:
      max_seq_length: maximum number of positions per text.
      num_texts: K, number of texts per example.
      vocab_size: size of the vocabulary.
      num_segments: number of segment types.
      num_scores: number of scores per example.
      num_classes: number of classes; 0 if examples have none.
    """
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


class TextsToIds:
    """Converter from texts to model inputs.

    Attributes:
      identity: everything that determines the ids, as JSON values.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        """Create the converter.

        Args:
          tokenizer: converts texts to ids.
          max_seq_length: maximum number of positions per text, including [CLS] and [SEP].
        """
        self._tokenizer, self._specials = tokenizer, tokenizer.specials
        self._max_tokens = self._specials.room(max_seq_length, is_pair=False)
        self.identity = {**tokenizer.identity, "max_seq_length": max_seq_length}

    def __call__(self, texts: Sequence[str]) -> tuple[dict[str, Sequence[int]], int]:
        """Convert the texts of an example; a missing text, "", gets no positions.

        Returns:
          input_ids, input_mask, segment_ids and text_lengths; and the number of truncated texts.
        """
        input_ids, lengths, num_truncated = [], [], 0
        for text in texts:
            ids = self._tokenizer.encode(text) if text else []
            num_truncated += len(ids) > self._max_tokens
            ids = join_texts(ids[: self._max_tokens], [], self._specials).input_ids if text else []
            input_ids += ids
            lengths.append(len(ids))
        ones, zeros = bytes([1]) * len(input_ids), bytes(len(input_ids))
        return {"input_ids": input_ids, "input_mask": ones, "segment_ids": zeros, TEXT_LENGTHS: lengths}, num_truncated

    def words(self, text: str) -> list[int]:
        """Return the ids of a text, truncated and without [CLS] and [SEP]."""
        return self._tokenizer.encode(text)[: self._max_tokens]


def provenance(examples: Sequence[Example], converter: TextsToIds, schema: RecordSchema) -> dict[str, Any]:
    """Return everything that determines the records, for a `Manifest`."""
    return {**converter.identity, "fields": schema.names, "examples": fingerprint(examples)}


def write_examples(file: RecordFile, examples: Sequence[Example], converter: TextsToIds) -> int:
    """Write the records unless an existing file is up to date, and return their number.

    Args:
      file: the output file; only the fields of its schema are written.
      examples: the examples.
      converter: converts texts to ids.
    """

    def records() -> Iterator[bytes]:
        num_texts, counts = sum(len(example.texts) for example in examples), Counter()
        yield from encode_examples(examples, _encoded_batch, converter, file.schema, num_texts=num_texts, counts=counts)
        if num_truncated := counts["num_truncated"]:
            logging.info("%d of %d texts were truncated", num_truncated, num_texts)

    return write_cached(file, provenance(examples, converter, file.schema), records)


def _encoded_batch(examples: Sequence[Example], converter: TextsToIds, schema: RecordSchema) -> EncodedBatch:
    encode = functools.partial(_encoded, converter=converter, schema=schema)
    records, counts = zip(*map(encode, examples), strict=True)
    return EncodedBatch(list(records), {"num_truncated": sum(counts)})


def _encoded(example: Example, converter: TextsToIds, schema: RecordSchema) -> tuple[bytes, int]:
    values, num_truncated = converter(example.texts)
    values |= {TEXT_NUMBERS: example.numbers, SCORES: example.scores, LABEL: [example.label]}
    return schema.encode({name: values[name] for name in schema.names}), num_truncated
