"""`sequences.py` as TensorFlow operations: batches of ids from `GraphTokenizer` become model inputs.

All operations are pinned to the CPU: there are many small ones, whose launches would be slow on a GPU.
"""

from typing import NamedTuple

import tensorflow as tf

from official_bert.tokenization.sequences import Specials

# B: examples, W: windows of an example, R: rows, S: positions of a row.
_SMALLEST_LENGTH = 2  # an empty text: [CLS] and [SEP]
# B: texts, W: windows of a text, R: windows of all texts, S: positions.


class Parts(NamedTuple):
    """A slice of a flat row of ids for each of R rows."""

    ids: tf.Tensor  # int32, the flat row
    starts: tf.Tensor  # int64 [R], offset of each slice
    lengths: tf.Tensor  # int64 [R]


def join_parts(
    first: Parts,
    second: Parts | None = None,
    *,
    specials: Specials,
    has_second: tf.Tensor | bool = True,
    is_real: tf.Tensor | bool = True,
    length: int | None = None,
) -> dict[str, tf.Tensor]:
    """Lay out `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`, and pad.

    Args:
      has_second: bool [R], whether a row has a second part, possibly empty.
      is_real: bool [R], whether a row exists; otherwise it is all padding.

    Returns:
      input_ids, input_mask and segment_ids, int32 [R, S].
    """
    with tf.device("CPU:0"):
        if second is None:
            nothing = tf.zeros_like(first.lengths)
            second, has_second = Parts(first.ids[:0], nothing, nothing), False
        # Everything before the second part belongs to the first segment.
        end_first = first.lengths + tf.where(has_second, tf.constant(specials.num_before_second, tf.int64), 2)
        end = end_first + tf.where(has_second, second.lengths + 1, 0)
        end = tf.where(is_real, end, 0)
        longest = tf.reduce_max(tf.concat([end, [_SMALLEST_LENGTH]], axis=0)) if length is None else length
        positions = tf.range(longest, dtype=tf.int64)  # [S]
        end_first, end = end_first[:, tf.newaxis], end[:, tf.newaxis]

        # All positions gather from one flat row: the special tokens, then the first parts, then the second parts.
        row_specials = [specials.pad_id, specials.cls_id, specials.sep_id]
        ids = tf.concat([row_specials, first.ids, second.ids], axis=0)
        first_places = (first.starts + 3)[:, tf.newaxis] + positions - 1
        second_starts = second.starts + 3 + tf.size(first.ids, tf.int64)
        second_places = second_starts[:, tf.newaxis] + positions - end_first
        places = tf.where(positions < end_first, first_places, second_places)
        places = tf.where(positions == 0, tf.constant(1, tf.int64), places)
        is_sep = (positions > first.lengths[:, tf.newaxis]) & (positions < end_first) | (positions == end - 1)
        places = tf.where(is_sep, tf.constant(2, tf.int64), places)
        places = tf.where(positions < end, places, 0)  # [R, S]
        return {
            "input_ids": tf.gather(ids, places),
            "input_mask": tf.cast(positions < end, tf.int32),
            "segment_ids": tf.cast((positions >= end_first) & (positions < end), tf.int32) * specials.second_segment,
        }


def truncate_and_join(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None = None,
    *,
    specials: Specials,
    max_seq_length: int,
) -> dict[str, tf.Tensor]:
    """Truncate, join and pad texts or pairs of texts, as `TextJoiner` and the record reader do.

    Args:
      first: int32 [B, (wordpieces)], ids of the first texts.

    Returns:
      input_ids, input_mask and segment_ids, int32 [B, S]; S is the length of the longest example, or 2 if there are
      none.
    """
    with tf.device("CPU:0"):
        second = second_or_empty(first, second)
        num_first, num_second, max_tokens = sizes_of(first, second, specials, max_seq_length)
        # Same result as `joining.truncate_pair`, without a loop: each text gets half, plus what the other leaves
        # unused.
        kept_first = tf.minimum(num_first, tf.maximum((max_tokens + 1) // 2, max_tokens - num_second))
        kept_second = tf.minimum(num_second, tf.maximum(max_tokens // 2, max_tokens - num_first))
    return join_parts(
        Parts(first.flat_values, first.row_starts(), kept_first),
        Parts(second.flat_values, second.row_starts(), kept_second),
        specials=specials,
        has_second=kept_second > 0,
    )


def second_or_empty(first: tf.RaggedTensor, second: tf.RaggedTensor | None) -> tf.RaggedTensor:
    """Return the second texts, or empty ones if there are none."""
    if second is not None:
        return second
    nothing = tf.zeros_like(first.row_splits)
    return tf.RaggedTensor.from_row_splits(first.flat_values[:0], nothing, validate=False)


def sizes_of(
    first: tf.RaggedTensor, second: tf.RaggedTensor, specials: Specials, max_seq_length: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the lengths of the texts, and the number of wordpieces that fit beside the special tokens; int64 [B]."""
    num_first, num_second = first.row_lengths(), second.row_lengths()
    of_pairs, of_texts = (tf.constant(specials.room(max_seq_length, is_pair=pair), tf.int64) for pair in (True, False))
    return num_first, num_second, tf.where(num_second > 0, of_pairs, of_texts)


class Windows(NamedTuple):
    """Windows of all texts, ordered by text; every field is int64 [R]."""

    text: tf.Tensor  # index of the text
    number: tf.Tensor  # index of the window within the text
    first: tf.Tensor  # index of the window's first wordpiece in the text
    num_wordpieces: tf.Tensor  # number of the text's wordpieces in the window

    def gather(self, places: tf.Tensor) -> "Windows":
        """Return the windows at some indices."""
        return Windows(*(tf.gather(column, places) for column in self))

    def parts(self, wordpieces: tf.RaggedTensor) -> Parts:
        """Wordpieces of the texts in the windows, int32 [B, (wordpieces)]."""
        return Parts(
            wordpieces.flat_values, tf.gather(wordpieces.row_starts(), self.text) + self.first, self.num_wordpieces
        )


class SlidingWindows(NamedTuple):
    """The windows of each text, see `windows.SlidingWindow`; every field is int64 [B]."""

    num_wordpieces: tf.Tensor
    max_tokens: tf.Tensor
    stride: tf.Tensor

    @classmethod
    def from_lengths(
        cls, num_wordpieces: tf.Tensor, max_tokens: tf.Tensor | int, stride: int | None = None
    ) -> "SlidingWindows":
        """Compute the windows of texts; for the stride see `windows.SlidingWindow`."""
        max_tokens += tf.zeros_like(num_wordpieces)
        return cls(
            num_wordpieces, max_tokens, tf.minimum(tf.cast(stride or (max_tokens + 1) // 2, tf.int64), max_tokens)
        )

    @property
    def num_windows(self) -> tf.Tensor:
        """Number of windows; at least one per text."""
        return 1 - tf.minimum(self.max_tokens - self.num_wordpieces, 0) // self.stride  # rounds up

    def first(self, number: tf.Tensor) -> tf.Tensor:
        return number * self.stride

    def length(self, number: tf.Tensor) -> tf.Tensor:
        return tf.minimum(self.max_tokens, self.num_wordpieces - self.first(number))

    def gather(self, places: tf.Tensor) -> "SlidingWindows":
        """Return the windows of some texts."""
        return SlidingWindows(*(tf.gather(column, places) for column in self))

    def as_rows(self) -> "SlidingWindows":
        """Return the same with shape int64 [B, 1], for window numbers and wordpieces of shape [B, N]."""
        return SlidingWindows(*(column[:, tf.newaxis] for column in self))

    def windows(self) -> Windows:
        numbers = tf.ragged.range(self.num_windows)
        text, number = numbers.value_rowids(), numbers.flat_values
        own = self.gather(text)
        return Windows(text, number, own.first(number), own.length(number))

    def best_windows(self, wordpieces: tf.Tensor, length_weight: float = 0.0) -> tf.Tensor:
        """Find the windows with the most context around wordpieces, as `windows.SlidingWindow` does.

        Args:
          wordpieces: int64 [B], a wordpiece of each text; results for invalid values are arbitrary.

        Returns:
          int64 [B].
        """
        last = tf.minimum(wordpieces // self.stride, self.num_windows - 1)

        def compare(distance: tf.Tensor, best: tf.Tensor, highest: tf.Tensor) -> tuple[tf.Tensor, ...]:
            number = last - distance
            inside, length = wordpieces - self.first(number), self.length(number)
            poorer_side = tf.minimum(inside, length - 1 - inside)
            score = tf.cast(poorer_side, tf.float64) + length_weight * tf.cast(length, tf.float64)
            is_better = (score >= highest) & (poorer_side >= 0) & (number >= 0)  # on ties the first window wins
            return distance + 1, tf.where(is_better, number, best), tf.where(is_better, score, highest)

        reach = tf.reduce_max((self.max_tokens - 1) // self.stride)  # windows further away do not contain the wordpiece
        start = tf.zeros([], tf.int64), last, tf.zeros(tf.shape(last), tf.float64)
        return tf.while_loop(lambda distance, *_: distance <= reach, compare, start)[1]


def join_windows(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None = None,
    *,
    specials: Specials,
    max_seq_length: int,
    max_windows: int,
    doc_stride: int | None,
) -> dict[str, tf.Tensor]:
    """Split long texts or pairs of texts into overlapping windows, as `TextJoiner` does.

    Args:
      first: int32 [B, (wordpieces)], ids of the first texts.
      doc_stride: wordpieces from the start of one window to the start of the next; None for half of the wordpieces that
        a window has beside the other text.

    Returns:
      input_ids, input_mask and segment_ids, int32 [B, W * S], window after window; W is the largest number of windows.
    """
    with tf.device("CPU:0"):
        second = second_or_empty(first, second)
        num_first, num_second, max_tokens = sizes_of(first, second, specials, max_seq_length)
        is_first_cut = num_first > num_second
        longer = tf.maximum(num_first, num_second)
        whole = tf.minimum(tf.minimum(num_first, num_second), max_tokens // 2)  # the shorter text is in every window
        cuts = SlidingWindows.from_lengths(longer, max_tokens - whole, doc_stride)
        num_windows = tf.minimum(cuts.num_windows, max_windows)
        numbers = tf.range(tf.reduce_max(tf.concat([num_windows, [1]], axis=0)))  # [W]
        table = cuts.as_rows()
        starts, lengths = table.first(numbers), tf.maximum(table.length(numbers), 0)  # [B, W]

        def parts(text: tf.RaggedTensor, is_cut: tf.Tensor) -> Parts:
            is_cut = is_cut[:, tf.newaxis]
            part_starts = text.row_starts()[:, tf.newaxis] + tf.where(is_cut, starts, 0)
            part_lengths = tf.where(is_cut, lengths, whole[:, tf.newaxis])
            return Parts(text.flat_values, tf.reshape(part_starts, [-1]), tf.reshape(part_lengths, [-1]))

        is_real = numbers < num_windows[:, tf.newaxis]  # [B, W]
        second_parts = parts(second, ~is_first_cut)
        windows = join_parts(
            parts(first, is_first_cut),
            second_parts,
            specials=specials,
            has_second=second_parts.lengths > 0,
            is_real=tf.reshape(is_real, [-1]),
            length=max_seq_length,
        )
        shape = tf.stack([tf.size(num_first), tf.size(numbers) * max_seq_length])
        return {name: tf.reshape(values, shape) for name, values in windows.items()}
