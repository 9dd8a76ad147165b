"""Records of tagging: their schema and creation from windows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.config.tensor_names import FEATURES
from official_bert.data.records import RecordFile, write_cached
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.tasks.tagging.windows import Window
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.joining import join_texts
from official_bert.tokenization.unknown import warn_of_unknown

# S: positions per window, C: number of tags, W: width of a frozen encoder's output per position. A label is 0 for
# words without a tag, otherwise the tag number plus 1.
LABELS = Field("label_ids", ("S",), "int32", below="N", is_per_position=True)
TAGGING_SCHEMA = RecordSchema(*ENCODER_FIELDS, LABELS)
FEATURE_SCHEMA = RecordSchema(
    Field(FEATURES, ("S", "W"), "float32", is_per_position=True, is_trimmed=True),
    Field("input_mask", ("S",), "int32", below=2, is_per_position=True),
    LABELS,
)

Labels = Sequence[Sequence[int]]


class LabelledWindows(NamedTuple):
    """Windows of labelled sentences, written as one record each; a `SplitWriter`.

    Attributes:
      windows: returns the windows; called only if needed.
      labels: word labels of each sentence.
      tokenizer: the tokenizer of the windows.
      provenance: everything that determines the records, as in a `Manifest`.
    """

    windows: Callable[[], Iterable[Window]]
    labels: Labels
    tokenizer: Tokenizer
    provenance: dict[str, Any]

    def write_ids(self, file: RecordFile) -> int:
        """Write the records, unless an existing file is up to date; return their number."""
        tokenizer = self.tokenizer

        def records() -> Iterator[bytes]:
            num_wordpieces = num_unknown = 0
            for window in self.windows():
                num_wordpieces += len(window.ids)
                num_unknown += window.ids.count(tokenizer.unk_id)
                sequence = join_texts(window.ids, (), tokenizer.specials)
                values = {
                    "input_ids": sequence.input_ids,
                    "input_mask": sequence.input_mask,
                    "segment_ids": sequence.segment_ids,
                    LABELS.name: self._labels_by_position(window),
                }
                yield file.schema.encode(values)
            warn_of_unknown(file.path, tokenizer, num_unknown=num_unknown, num_wordpieces=num_wordpieces)

        return write_cached(file, self.provenance, records)

    def write_features(self, file: RecordFile, *, encoder: str, features: Callable[[], Iterable[np.ndarray]]) -> None:
        """Write a frozen encoder's outputs, float32 [S, W] per window, unless an existing file is up to date."""

        def records() -> Iterator[bytes]:
            for window, vectors in zip(self.windows(), features(), strict=True):
                num_positions = len(window.ids) + 2  # [CLS] and [SEP]
                values = {
                    FEATURES: vectors[:num_positions].ravel(),
                    "input_mask": b"\x01" * num_positions,
                    LABELS.name: self._labels_by_position(window),
                }
                yield file.schema.encode(values)

        write_cached(file, {**self.provenance, "encoder": encoder}, records)

    def _labels_by_position(self, window: Window) -> list[int]:
        by_position = [0] * (len(window.ids) + 2)
        for word, position in zip(window.words, window.positions, strict=True):
            by_position[position + 1] = self.labels[window.sentence][word]  # after [CLS]
        return by_position
