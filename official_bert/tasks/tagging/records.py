"""The records of tagging: what one holds, and how windows become records."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from official_bert.config.tensor_names import FEATURES
from official_bert.data.records import write_cached
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.tasks.tagging.windows import Window
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.joining import join_texts
from official_bert.tokenization.unknown import warn_of_unknown

# S: positions of a window, C: number of tags, W: width of what a frozen encoder gives a position. A label is 0 where no
# word is tagged, otherwise one more than the tag's number.
LABELS = Field("label_ids", ("S",), "int32", below="N", is_per_position=True)
TAGGING_SCHEMA = RecordSchema(*ENCODER_FIELDS, LABELS)
FEATURE_SCHEMA = RecordSchema(
    Field(FEATURES, ("S", "W"), "float32", is_per_position=True, is_trimmed=True),
    Field("input_mask", ("S",), "int32", below=2, is_per_position=True),
    LABELS,
)

Labels = Sequence[Sequence[int]]


def write_records(
    path: str,
    schema: RecordSchema,
    windows: Callable[[], Iterable[Window]],
    labels: Labels,
    tokenizer: Tokenizer,
    *,
    made_from: str,
    compression: str = "none",
) -> int:
    """Writes a record for each window, unless an existing file is up to date.

    Args:
      path: the TFRecord file.
      schema: `TAGGING_SCHEMA`, sized.
      windows: gives the windows; called only if they are needed.
      labels: of each sentence the label of each word.
      tokenizer: made the windows.
      made_from: fingerprint of all that decides the records.
      compression: see `RecordFile`.

    Returns:
      The number of records.
    """

    def records() -> Iterator[bytes]:
        num_pieces = num_unknown = 0
        for window in windows():
            num_pieces += len(window.ids)
            num_unknown += window.ids.count(tokenizer.unk_id)
            sequence = join_texts(window.ids, (), cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
            values = {
                "input_ids": sequence.input_ids,
                "input_mask": sequence.input_mask,
                "segment_ids": sequence.segment_ids,
                LABELS.name: _labels_by_position(window, labels[window.sentence]),
            }
            yield schema.encode(values)
        warn_of_unknown(path, tokenizer, num_unknown=num_unknown, num_pieces=num_pieces)

    return write_cached(path, made_from, records, compression)


def write_feature_records(
    path: str,
    schema: RecordSchema,
    windows: Callable[[], Iterable[Window]],
    labels: Labels,
    *,
    features: Callable[[], Iterable[np.ndarray]],
    made_from: str,
    compression: str = "none",
) -> int:
    """Writes what a frozen encoder computes of each window, unless an existing file is up to date.

    Args:
      path: the TFRecord file.
      schema: `FEATURE_SCHEMA`, sized.
      windows: as for `write_records`.
      labels: as for `write_records`.
      features: gives float32 [S, W] of each window, in order; called only if needed.
      made_from: fingerprint of all that decides the records.
      compression: see `RecordFile`.

    Returns:
      The number of records.
    """

    def records() -> Iterator[bytes]:
        for window, vectors in zip(windows(), features(), strict=True):
            num_positions = len(window.ids) + 2  # [CLS] and [SEP]
            values = {
                FEATURES: vectors[:num_positions].ravel(),
                "input_mask": b"\x01" * num_positions,
                LABELS.name: _labels_by_position(window, labels[window.sentence]),
            }
            yield schema.encode(values)

    return write_cached(path, made_from, records, compression)


def _labels_by_position(window: Window, labels: Sequence[int]) -> list[int]:
    by_position = [0] * (len(window.ids) + 2)
    for word, position in zip(window.words, window.positions, strict=True):
        by_position[position + 1] = labels[word]  # behind [CLS]
    return by_position
