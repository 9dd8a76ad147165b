"""Records of multiple choice: the sequences of an example, each the context with a choice, one after another."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.config.tensor_names import ENCODER_INPUTS, FEATURES, TEXT_LENGTHS
from official_bert.data.example_encoding import EncodedBatch, encode_examples
from official_bert.data.records import RecordFile, write_cached
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.support.manifest import fingerprint
from official_bert.tasks.multiple_choice.examples import Example
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.joining import join_pair
from official_bert.tokenization.unknown import warn_of_unknown

LABEL = "label_ids"

# N: choices per example, S: positions of a sequence.


def label_fields(num_choices: int, max_seq_length: int) -> tuple[Field, ...]:
    """Return the fields of a record beside ids: the length of each sequence, 0 for a missing choice, and the label."""
    return (
        Field(TEXT_LENGTHS, (num_choices,), "int32", below=max_seq_length + 1),
        Field(LABEL, (), "int32", below=num_choices),
    )


def choice_schema(num_choices: int, max_seq_length: int, *, vocab_size: int, num_segments: int) -> RecordSchema:
    """Return the record schema of examples with up to `num_choices` choices."""
    fields = RecordSchema(*ENCODER_FIELDS, *label_fields(num_choices, max_seq_length))
    return fields.sized(S=num_choices * max_seq_length, V=vocab_size, T=num_segments)


class ChoiceJoiner:
    """Converter from examples to model inputs.

    Attributes:
      identity: everything that determines the ids, as JSON values.
      tokenizer: converts texts to ids.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        """Create the converter; a sequence has at most `max_seq_length` positions, including [CLS] and [SEP]."""
        self.tokenizer, self._specials = tokenizer, tokenizer.specials
        self._max_tokens = self._specials.room(max_seq_length, is_pair=True)
        self.identity = {**tokenizer.identity, "max_seq_length": max_seq_length}

    def join(self, example: Example, counts: Counter) -> dict[str, Sequence[int]]:
        """Convert an example.

        A context that does not fit beside a choice is truncated at its end. A choice is truncated only if it is longer
        than a whole sequence.

        Args:
          example: the example.
          counts: the numbers of sequences, of truncated contexts and choices, and of wordpieces are added to it.

        Returns:
          input_ids, input_mask, segment_ids and text_lengths.
        """
        first, inputs, lengths = self.tokenizer.encode(example.context), {name: [] for name in ENCODER_INPUTS}, []
        for text in example.second_texts:
            second = self.tokenizer.encode(text)
            room = max(self._max_tokens - len(second), 0)
            joined = join_pair(first[:room], second[: self._max_tokens], self._specials)
            for name, values in inputs.items():
                values += getattr(joined, name)
            lengths.append(len(joined.input_ids))
            counts["sequences"] += 1
            counts["contexts"] += len(first) > room
            counts["choices"] += len(second) > self._max_tokens
            counts["num_wordpieces"] += len(first) + len(second)
            counts["num_unknown"] += (first + second).count(self.tokenizer.unk_id)
        return {**inputs, TEXT_LENGTHS: lengths}


class ChoiceWriter(NamedTuple):
    """Examples to be written as records; a `SplitWriter`.

    Attributes:
      joiner: converts the texts.
      examples: the examples.
    """

    joiner: ChoiceJoiner
    examples: Sequence[Example]

    def provenance(self, schema: RecordSchema) -> dict[str, Any]:
        """Return everything that determines the records, for a `Manifest`."""
        texts = [(example.context, example.second_texts, example.label) for example in self.examples]
        return {**self.joiner.identity, "fields": schema.names, "examples": fingerprint(texts)}

    def write_ids(self, file: RecordFile) -> int:
        """See `SplitWriter`."""

        def records() -> Iterator[bytes]:
            counts = Counter()
            num_texts = sum(len(example.choices) for example in self.examples)
            yield from encode_examples(
                self.examples, _encoded_batch, self.joiner, file.schema, num_texts=num_texts, counts=counts
            )
            total, length = counts["sequences"], self.joiner.identity["max_seq_length"]
            if counts["contexts"]:
                logging.info("%d of %d contexts were truncated to fit %d wordpieces", counts["contexts"], total, length)
            if counts["choices"]:
                logging.warning(
                    "%d of %d choices are longer than max_seq_length=%d and were truncated, too; raise it",
                    counts["choices"],
                    total,
                    length,
                )
            unknown = {name: counts[name] for name in ("num_unknown", "num_wordpieces")}
            warn_of_unknown(file.path, self.joiner.tokenizer, **unknown)

        return write_cached(file, self.provenance(file.schema), records)

    def write_features(self, file: RecordFile, *, encoder: str, features: Callable[[], Iterable[np.ndarray]]) -> None:
        """See `SplitWriter`; the features of a record are float32 [N, D]."""

        def records() -> Iterator[bytes]:
            for row, example in zip(features(), self.examples, strict=True):
                lengths = [1] * len(example.choices)  # only 0 matters
                yield file.schema.encode({FEATURES: row.ravel(), TEXT_LENGTHS: lengths, LABEL: [example.label]})

        write_cached(file, {**self.provenance(file.schema), "encoder": encoder}, records)


def _encoded_batch(examples: Sequence[Example], joiner: ChoiceJoiner, schema: RecordSchema) -> EncodedBatch:
    counts = Counter()
    return EncodedBatch(
        [schema.encode({**joiner.join(example, counts), LABEL: [example.label]}) for example in examples], counts
    )
