"""Records of classification and regression: the schema, and conversion of texts or text pairs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.config.tensor_names import ENCODER_INPUTS, FEATURES
from official_bert.data.example_encoding import EncodedBatch, encode_examples
from official_bert.data.padded_lengths import padded_lengths
from official_bert.data.records import RecordFile, write_cached
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.support.manifest import fingerprint
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.joining import join_texts, truncate_pair
from official_bert.tokenization.unknown import warn_of_unknown
from official_bert.tokenization.windows import split_windows

Ids = list[int]
Texts = Sequence[tuple[str, str | None]]
Labels = Sequence[int | float | tuple[int, ...]]

# S: positions per example, V: vocabulary size, T: number of segment types, C: number of labels.
LABEL_FIELDS = {
    "single_label": Field("label_ids", (), "int32", below="C"),
    "multi_label": Field("label_ids", ("C",), "int32", below=2),
    "regression": Field("label_ids", (), "float32"),
}
IS_REAL_FIELD = Field("is_real_example", (), "int32", below=2)


def classification_schema(problem: str) -> RecordSchema:
    """Return the record schema of a problem type, a key of `LABEL_FIELDS`."""
    return RecordSchema(
        *ENCODER_FIELDS,
        LABEL_FIELDS[problem],
        IS_REAL_FIELD,
    )


class TextJoiner:
    """Converter from a text or text pair to model inputs.

    Attributes:
      max_windows: maximum number of windows per example.
      max_length: maximum number of positions per example, over all windows.
      tokenizer: converts texts to ids.
      num_shortened: number of truncated examples.
      num_wordpieces: number of wordpieces in all texts.
      num_unknown: number of these that are [UNK].
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_seq_length: int,
        max_windows: int = 1,
        doc_stride: int | None = None,
    ):
        """Create the converter.

        Args:
          tokenizer: converts texts to ids.
          max_seq_length: maximum number of positions per sequence, including [CLS] and [SEP].
          max_windows: if greater than 1, long texts are split into overlapping windows.
          doc_stride: wordpieces between the starts of consecutive windows; by default half of the room that a window
            leaves beside the other text.

        Raises:
          UserError: the vocabulary lacks a special token.
        """
        self.max_windows = max_windows
        self.max_length = max_windows * max_seq_length
        self.tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._doc_stride = doc_stride
        self._specials = tokenizer.specials
        self._unknown = tokenizer.unk_id
        self.num_shortened = self.num_wordpieces = self.num_unknown = 0

    def join(self, text_a: str, text_b: str | None) -> dict[str, Ids | bytes]:
        """Convert the texts of an example.

        Args:
          text_a: the first text.
          text_b: the second text; None or empty for a single text.

        Returns:
          input_ids, input_mask and segment_ids: all windows concatenated; all but the last are padded.
        """
        first = self.tokenizer.encode(text_a)
        second = self.tokenizer.encode(text_b) if text_b else []
        self.num_wordpieces += len(first) + len(second)
        self.num_unknown += first.count(self._unknown) + second.count(self._unknown)
        max_tokens = self._specials.room(self._max_seq_length, is_pair=bool(second))
        if len(first) + len(second) <= max_tokens:
            parts = [(first, second)]
        elif self.max_windows == 1:
            self.num_shortened += 1
            parts = [truncate_pair(first, second, max_tokens)]
        else:
            windows = split_windows(len(first), len(second), max_tokens, self._doc_stride)
            parts = [(first[a.start : a.stop], second[b.start : b.stop]) for a, b in windows]
            if len(parts) > self.max_windows:
                self.num_shortened += 1
        windows = [join_texts(*part, self._specials) for part in parts[: self.max_windows]]
        return {name: self._concatenated([getattr(window, name) for window in windows]) for name in ENCODER_INPUTS}

    def _concatenated(self, windows: Sequence[Ids | bytes]) -> Ids | bytes:
        """Concatenate windows; pad all but the last."""
        concatenated = windows[0]
        padding = type(concatenated)([0])
        for number, window in enumerate(windows[1:], start=1):
            num_missing = number * self._max_seq_length - len(concatenated)
            concatenated = concatenated + padding * num_missing + window
        return concatenated

    def padded_lengths(self) -> list[int]:
        """Return the lengths to pad batches of similar examples to; with windows, multiples of the window length."""
        if self.max_windows > 1:
            return padded_lengths(self.max_length, unit=self._max_seq_length)
        return padded_lengths(self.max_length)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the ids of a text or pair, as JSON values."""
        return {
            **self.tokenizer.identity,
            "max_seq_length": self._max_seq_length,
            "max_windows": self.max_windows,
            "doc_stride": self._doc_stride,
        }


class LabelledTexts(NamedTuple):
    """N labelled texts or text pairs, to be written as records; a `SplitWriter`.

    Attributes:
      joiner: converts texts to ids.
      texts: the texts or text pairs.
      labels: their targets, as returned by `Dataset.check_labels`.
    """

    joiner: TextJoiner
    texts: Texts
    labels: Labels

    def provenance(self, schema: RecordSchema) -> dict[str, Any]:
        """Return everything that determines the records, as in a `Manifest`."""
        examples = {"texts": fingerprint(self.texts), "labels": fingerprint(self.labels)}
        return {**self.joiner.identity, "fields": schema.names, **examples}

    def write_ids(self, file: RecordFile, *, num_processes: int = 0) -> int:
        """Write the records, unless an existing file is up to date; return N.

        Args:
          file: the output file.
          num_processes: maximum number of processes, 0 for one per processor core; small sets use one.
        """
        joiner, texts = self.joiner, self.texts

        def records() -> Iterator[bytes]:
            examples, counts = list(zip(texts, self.labels, strict=True)), Counter()
            yield from encode_examples(
                examples,
                _encoded_batch,
                joiner,
                file.schema,
                num_texts=len(texts),
                counts=counts,
                num_processes=num_processes,
            )
            if counts["num_shortened"]:
                logging.info(
                    "%d of %d examples were truncated to %d wordpieces",
                    counts["num_shortened"],
                    len(texts),
                    joiner.max_length,
                )
            unknown = {name: counts[name] for name in ("num_unknown", "num_wordpieces")}
            warn_of_unknown(file.path, joiner.tokenizer, **unknown)

        return write_cached(file, self.provenance(file.schema), records)

    def write_features(self, file: RecordFile, *, encoder: str, features: Callable[[], Iterable[np.ndarray]]) -> None:
        """Write a frozen encoder's outputs, float32 [K, D] per record, unless an existing file is up to date."""

        def records() -> Iterator[bytes]:
            for row, label in zip(features(), self.labels, strict=True):
                yield file.schema.encode({FEATURES: row.ravel(), **_label_values(label)})

        write_cached(file, {**self.provenance(file.schema), "encoder": encoder}, records)


def _encoded_batch(examples: Sequence[tuple], joiner: TextJoiner, schema: RecordSchema) -> EncodedBatch:
    joiner.num_shortened = joiner.num_wordpieces = joiner.num_unknown = 0
    records = [schema.encode({**joiner.join(*texts), **_label_values(label)}) for texts, label in examples]
    names = ("num_shortened", "num_wordpieces", "num_unknown")
    return EncodedBatch(records, {name: getattr(joiner, name) for name in names})


def _label_values(label: int | float | tuple[int, ...]) -> dict[str, Sequence[int | float]]:
    return {"label_ids": label if isinstance(label, tuple) else [label], "is_real_example": [1]}
