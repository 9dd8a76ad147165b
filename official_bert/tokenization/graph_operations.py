"""Shared operations and the base class of the graph tokenizers, and `sequences.py` as TensorFlow operations.

All operations are pinned to the CPU: there are many small ones, whose launches would be slow on a GPU.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.tokenization.characters import SigmaContext
from official_bert.tokenization.sequences import MOST_BYTES, Specials
from official_bert.tokenization.tokenizer import Tokenizer

TEXTS = tf.TensorSpec([None], tf.string, name="texts")
NUMBER = tf.TensorSpec([], tf.int64, name="num_wordpieces")

_BYTES_PER_PIECE = 16  # read first when only the beginning of a text is needed
_GROUP_BYTES = 1 << 18  # total size of the texts that are processed together
_PAGE_SIZE = 256  # code points
_SMALLEST_LENGTH = 2  # an empty text: [CLS] and [SEP]
# B: texts or pairs, C: characters, W: windows of a text, R: rows or windows of all texts, S: positions of a row.


class RaggedEncodingWithOffsets(NamedTuple):
    """The wordpieces of texts with their offsets; all are int32 [B, (wordpieces)]."""

    ids: tf.RaggedTensor  # ids of the wordpieces
    starts: tf.RaggedTensor  # index of a piece's first character, among the decoded ones
    ends: tf.RaggedTensor  # index after the last one


class CodePointLookup(tf.Module):
    """A table of a number for every code point; equal pages are stored once, as 90% of them are unassigned."""

    def __init__(self, numbers: Sequence[int] | np.ndarray):
        super().__init__()
        rows = np.asarray(numbers, np.int32).reshape(-1, _PAGE_SIZE)
        number_of_page: dict[bytes, int] = {}
        page_of = [number_of_page.setdefault(row.tobytes(), len(number_of_page)) for row in rows]
        self._page_starts = tf.constant(np.multiply(page_of, _PAGE_SIZE), tf.int32)
        self._pages = tf.constant(np.frombuffer(b"".join(number_of_page), np.int32))

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        """Look up code points; both int32."""
        return tf.gather(self._pages, tf.gather(self._page_starts, codes // _PAGE_SIZE) + codes % _PAGE_SIZE)


def shifted(values: tf.Tensor, places: int) -> tf.Tensor:
    """Roll like `tf.roll`, which is slower: it splits even a short row among threads."""
    return tf.concat([values[-places:], values[:-places]], axis=0)


def decoded(texts: tf.Tensor) -> tf.RaggedTensor:
    """Return the code points of texts, string [B], each with a separator, so that no rule reaches into the next one."""
    return tf.strings.unicode_decode(tf.strings.join([texts, "\n"]), "UTF-8", errors="ignore")


def rows_of(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Return the row of each value, int64 [C]; `value_rowids` would make a table of all rows times the longest."""
    places = tf.range(tf.size(ragged.flat_values, tf.int64))
    return tf.searchsorted(ragged.row_splits, places, side="right", out_type=tf.int64) - 1


def cut_out(codes: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Return the texts, string [N], of code points, int32 [C], from `starts` up to `ends`, int64 [N]."""
    places = tf.ragged.range(starts, ends)
    return tf.strings.unicode_encode(places.with_flat_values(tf.gather(codes, places.flat_values)), "UTF-8")


def with_final_sigmas(
    values: tf.Tensor, places: tf.Tensor | None, *, contexts: tf.Tensor, is_sigma: tf.Tensor, final_sigma: int
) -> tf.Tensor:
    """Replace the values of the capital sigmas, bool [C], that end a word; see `characters.SigmaContext`.

    `places`, int64 [C], are the indices of the values if not those of the characters; the last one is white space.
    """
    seen = tf.where(contexts != SigmaContext.SKIPPED)[:, 0]
    is_cased = tf.gather(contexts, seen) == SigmaContext.CASED
    # `shifted` wraps around, so the last character precedes the first; it is white space and so not cased.
    is_final = tf.gather(is_sigma, seen) & shifted(is_cased, 1) & ~shifted(is_cased, -1)
    final = tf.boolean_mask(seen, is_final)
    final = final if places is None else tf.gather(places, final)
    final_sigmas = tf.fill(tf.shape(final), tf.constant(final_sigma, values.dtype))
    return tf.tensor_scatter_nd_update(values, final[:, tf.newaxis], final_sigmas)


def in_groups(
    function: Callable[..., dict[str, tf.Tensor]], inputs: Sequence[tf.Tensor], num_bytes: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Call a function on groups of examples, so that many long texts need little more memory than one.

    `num_bytes`, int32 [B], are the sizes of the texts of the examples, at most `MOST_BYTES`.
    """
    return in_runs(function, inputs, tf.cumsum(tf.cast(num_bytes, tf.int64)) // _GROUP_BYTES)


def in_runs(
    function: Callable[..., dict[str, tf.Tensor]], inputs: Sequence[tf.Tensor], groups: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Call a function on each run of examples with the same number in `groups`, int64 [B], and join the results."""
    specifications = [tf.TensorSpec([None, *values.shape[1:]], values.dtype) for values in inputs]
    # One function instead of a copy per call: the first call of a graph with several copies takes twice as long.
    attributes = {"_noinline": True}
    some = tf.function(function, autograph=False, experimental_attributes=attributes)
    some = some.get_concrete_function(*specifications)
    outputs = some.structured_outputs
    sizes = tf.unique_with_counts(groups)[2]  # examples per group
    splits = tf.concat([[0], tf.cumsum(sizes)], axis=0)
    num_groups = tf.size(sizes)

    def some_of(group: tf.Tensor) -> dict[str, tf.Tensor]:
        return some(*(values[splits[group] : splits[group + 1]] for values in inputs))

    return tf.cond(num_groups > 1, lambda: _one_by_one(some_of, num_groups, outputs), lambda: some(*inputs))


def in_batches(
    function: Callable[[slice], dict[str, tf.Tensor]],
    num_rows: tf.Tensor,
    at_once: tf.Tensor | int,
    specs: Mapping[str, tf.TensorSpec],
) -> dict[str, tf.Tensor]:
    """Call a function for some rows at a time, and join its outputs of these names and types, each [rows, ...]."""
    num_parts = tf.maximum(-(-num_rows // at_once), 1)  # rounds up
    return _one_by_one(lambda part: function(slice(part * at_once, (part + 1) * at_once)), num_parts, specs)


def _one_by_one(
    function: Callable[[tf.Tensor], dict[str, tf.Tensor]], number: tf.Tensor, specs: Mapping[str, tf.TensorSpec]
) -> dict[str, tf.Tensor]:
    arrays = {
        name: tf.TensorArray(spec.dtype, number, infer_shape=False, element_shape=spec.shape)
        for name, spec in specs.items()
    }

    def step(part: tf.Tensor, arrays: dict[str, tf.TensorArray]) -> tuple[tf.Tensor, dict[str, tf.TensorArray]]:
        found = function(part)
        return part + 1, {name: array.write(part, found[name]) for name, array in arrays.items()}

    _, arrays = tf.while_loop(lambda part, _: part < number, step, (0, arrays), parallel_iterations=1)
    return {name: array.concat() for name, array in arrays.items()}


class GraphEncoder(tf.Module):
    """The base of tokenizers in the graph."""

    is_portable = True  # whether a SavedModel can hold it

    def encode_cut(self, texts: tf.Tensor, is_cut: tf.Tensor) -> tf.RaggedTensor:
        """Split texts, string [B]; of those that were cut, bool [B], return the wordpieces independent of the rest."""
        raise NotImplementedError

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Split texts, string [B], as `Tokenizer.encode` does; int32 [B, (wordpieces)]."""
        with tf.device("CPU:0"):  # many small sequential steps, slow on a GPU
            return self.encode_cut(texts, tf.zeros_like(texts, tf.bool))

    def encode_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words of pretokenized text, string [B], as `Tokenizer.encode_word` does."""
        return self.encode(words)

    @tf.function(input_signature=[TEXTS, NUMBER], autograph=False)
    def encode_beginnings(self, texts: tf.Tensor, num_wordpieces: tf.Tensor) -> tf.RaggedTensor:
        """Split texts, string [B]; return at least the first wordpieces of each, or all if there are fewer.

        Only the beginning of a long text is read, up to a position where words end regardless of what follows. If it
        has too few wordpieces, more is read, up to `MOST_BYTES`; fails if these are too few.
        """

        def encode_some(texts: tf.Tensor, is_cut: tf.Tensor) -> dict[str, tf.Tensor]:
            ids = self.encode_cut(texts, is_cut)
            return {"ids": ids.flat_values, "lengths": ids.row_lengths()}

        def encode_up_to(texts: tf.Tensor, limits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            num_bytes = tf.strings.length(texts)
            is_cut = num_bytes > limits
            beginnings = tf.strings.substr(texts, tf.zeros_like(limits), limits)
            found = in_groups(encode_some, [beginnings, is_cut], tf.minimum(num_bytes, limits))
            return found["ids"], found["lengths"], ~is_cut | (found["lengths"] >= num_wordpieces)

        with tf.device("CPU:0"):
            # One function for both attempts: else the first call of a graph takes twice as long.
            attempt = tf.function(encode_up_to, autograph=False)
            attempt = attempt.get_concrete_function(TEXTS, tf.TensorSpec([None], tf.int32))
            limit = tf.cast(tf.minimum(num_wordpieces * _BYTES_PER_PIECE, MOST_BYTES), tf.int32)
            limits = tf.fill(tf.shape(texts), limit)
            ids, lengths, is_enough = attempt(texts, limits)

            def with_further_attempt() -> tuple[tf.Tensor, tf.Tensor]:
                ids, lengths, is_now_enough = attempt(texts, tf.where(is_enough, limits, MOST_BYTES))
                message = (
                    f"a text must have at most {MOST_BYTES} bytes, unless its first {MOST_BYTES} bytes contain all "
                    "wordpieces that the model reads; their number is"
                )
                check = tf.debugging.Assert(tf.reduce_all(is_now_enough), [message, num_wordpieces])
                with tf.control_dependencies([check]):
                    return tf.identity(ids), tf.identity(lengths)

            ids, lengths = tf.cond(tf.reduce_all(is_enough), lambda: (ids, lengths), with_further_attempt)
            return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)


def depends_on_cut_text(codes: tf.RaggedTensor, is_cut: tf.Tensor, is_boundary: tf.Tensor) -> tf.Tensor:
    """Find the characters of cut texts whose words depend on the rest: all from the last boundary on; bool [C].

    Texts, int32 [B, (characters)], end in white space; words end before a boundary, bool [C], whatever follows it.
    """
    places, rows = tf.range(tf.size(is_boundary, tf.int64)), rows_of(codes)
    is_inside = places < tf.gather(codes.row_limits(), rows) - 1  # not the white space after the text
    boundaries = tf.where(is_boundary & is_inside, places, -1)
    last = tf.math.unsorted_segment_max(boundaries, rows, codes.nrows())
    return tf.gather(is_cut, rows) & (places > tf.gather(last, rows))


class PythonTokenizer(GraphEncoder):
    """Encodes texts by calling a Python tokenizer; it cannot be exported to a SavedModel."""

    is_portable = False

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(name="python_tokenizer")
        self._tokenizer = tokenizer

    def _call(self, encode, texts: tf.Tensor, num_rows: int) -> list[tf.RaggedTensor]:
        """Batch the `num_rows` integer lists that `encode` returns for a text, each as int32 [B, (wordpieces)]."""

        def rows(texts: np.ndarray) -> tuple[np.ndarray, ...]:
            found = [encode(text) for text in texts]
            lengths = np.array([len(each[0]) for each in found], np.int64)
            columns = (np.array([value for each in found for value in each[row]], np.int32) for row in range(num_rows))
            return lengths, *columns

        lengths, *columns = tf.numpy_function(rows, [texts], [tf.int64, *[tf.int32] * num_rows], stateful=False)
        lengths.set_shape([None])
        for column in columns:
            column.set_shape([None])
        return [tf.RaggedTensor.from_row_lengths(column, lengths, validate=False) for column in columns]

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._call(lambda text: [self._tokenizer.encode(text)], texts, 1)[0]

    def encode_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        return self._call(lambda word: [self._tokenizer.encode_word(word)], words, 1)[0]

    def encode_beginnings(self, texts: tf.Tensor, num_wordpieces: tf.Tensor) -> tf.RaggedTensor:
        del num_wordpieces
        return self.encode(texts)

    def encode_with_offsets(self, texts: tf.Tensor) -> RaggedEncodingWithOffsets:
        return RaggedEncodingWithOffsets(*self._call(self._tokenizer.encode_with_offsets, texts, 3))


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
    """Lay out `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`, and pad to the longest, or to `length`.

    The results are input_ids, input_mask and segment_ids, int32 [R, S]. A row may have a second part that is empty; one
    that is not real, bool [R], is all padding.
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
    first: tf.RaggedTensor, second: tf.RaggedTensor | None = None, *, specials: Specials, max_seq_length: int
) -> dict[str, tf.Tensor]:
    """Truncate, join and pad texts or pairs of texts, int32 [B, (wordpieces)]; see `join_parts`."""
    with tf.device("CPU:0"):
        second, num_first, num_second, max_tokens = _sizes_of(first, second, specials, max_seq_length)
        # As `sequences.truncate_pair`, without a loop: each text gets half, plus what the other leaves unused.
        kept_first = tf.minimum(num_first, tf.maximum((max_tokens + 1) // 2, max_tokens - num_second))
        kept_second = tf.minimum(num_second, tf.maximum(max_tokens // 2, max_tokens - num_first))
    return join_parts(
        Parts(first.flat_values, first.row_starts(), kept_first),
        Parts(second.flat_values, second.row_starts(), kept_second),
        specials=specials,
        has_second=kept_second > 0,
    )


def _sizes_of(
    first: tf.RaggedTensor, second: tf.RaggedTensor | None, specials: Specials, max_seq_length: int
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the second texts, empty if there are none, the lengths of both, and the room for wordpieces; int64 [B]."""
    if second is None:
        second = tf.RaggedTensor.from_row_splits(first.flat_values[:0], tf.zeros_like(first.row_splits), validate=False)
    num_first, num_second = first.row_lengths(), second.row_lengths()
    of_pairs, of_texts = (tf.constant(specials.room(max_seq_length, is_pair=pair), tf.int64) for pair in (True, False))
    return second, num_first, num_second, tf.where(num_second > 0, of_pairs, of_texts)


class Windows(NamedTuple):
    """Windows of all texts, ordered by text; every field is int64 [R]."""

    text: tf.Tensor  # index of the text
    number: tf.Tensor  # index of the window within the text
    first: tf.Tensor  # index of the window's first wordpiece in the text
    num_wordpieces: tf.Tensor  # number of the text's wordpieces in the window

    def parts(self, wordpieces: tf.RaggedTensor) -> Parts:
        """Wordpieces of the texts in the windows, int32 [B, (wordpieces)]."""
        return Parts(
            wordpieces.flat_values, tf.gather(wordpieces.row_starts(), self.text) + self.first, self.num_wordpieces
        )


class SlidingWindows(NamedTuple):
    """The windows of each text, see `sequences.SlidingWindow`; every field is int64 [B]."""

    num_wordpieces: tf.Tensor
    max_tokens: tf.Tensor
    stride: tf.Tensor

    @classmethod
    def from_lengths(
        cls, num_wordpieces: tf.Tensor, max_tokens: tf.Tensor | int, stride: int | None = None
    ) -> "SlidingWindows":
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
        return SlidingWindows(*(tf.gather(column, places) for column in self))

    def as_rows(self) -> "SlidingWindows":
        """Return the same with shape int64 [B, 1], for window numbers and wordpieces of shape [B, N]."""
        return SlidingWindows(*(column[:, tf.newaxis] for column in self))

    def windows(self) -> Windows:
        numbers = tf.ragged.range(self.num_windows)
        text, number = rows_of(numbers), numbers.flat_values
        own = self.gather(text)
        return Windows(text, number, own.first(number), own.length(number))

    def best_windows(self, wordpieces: tf.Tensor, length_weight: float = 0.0) -> tf.Tensor:
        """Find the windows, int64 [B], with the most context around a wordpiece of each text, int64 [B].

        Results for invalid wordpieces are arbitrary.
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
    """Split long texts or pairs of texts, int32 [B, (wordpieces)], into windows, as `sequences.split_windows` does.

    The results are int32 [B, W * S], window after window; W is the largest number of windows.
    """
    with tf.device("CPU:0"):
        second, num_first, num_second, max_tokens = _sizes_of(first, second, specials, max_seq_length)
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
