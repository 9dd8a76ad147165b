"""Shared operations and the base class of the graph tokenizers."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.tokenization.characters import SigmaContext
from official_bert.tokenization.graph_tables import PAGE_SIZE, PagedTable
from official_bert.tokenization.tokenizer import Tokenizer

TEXTS = tf.TensorSpec([None], tf.string, name="texts")
NUMBER = tf.TensorSpec([], tf.int64, name="num_wordpieces")

MOST_BYTES = 1 << 20  # maximum number of bytes read from a text
_BYTES_PER_PIECE = 16  # read first when only the beginning of a text is needed
_GROUP_BYTES = 1 << 18  # total size of the texts that are processed together


class RaggedEncodingWithOffsets(NamedTuple):
    """The wordpieces of texts with their offsets; all are int32 [B, (wordpieces)]."""

    ids: tf.RaggedTensor  # ids of the wordpieces
    starts: tf.RaggedTensor  # index of a piece's first character, among the decoded ones
    ends: tf.RaggedTensor  # index after the last one


class CodePointLookup(tf.Module):
    """A `PagedTable` in the graph."""

    def __init__(self, table: PagedTable):
        super().__init__()
        self._page_starts = tf.constant(table.page_of * PAGE_SIZE, tf.int32)
        self._pages = tf.constant(table.pages.ravel(), tf.int32)

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        """Look up code points; both int32."""
        return tf.gather(self._pages, tf.gather(self._page_starts, codes // PAGE_SIZE) + codes % PAGE_SIZE)


def shifted(values: tf.Tensor, places: int) -> tf.Tensor:
    """Roll like `tf.roll`, which is slower: it splits even a short row among threads."""
    return tf.concat([values[-places:], values[:-places]], axis=0)


def ended(texts: tf.Tensor) -> tf.Tensor:
    """Append a separator to each text, so that no rule reaches into the next one."""
    return tf.strings.join([texts, "\n"])


def cut_out(codes: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Return the texts, string [N], of code points, int32 [C], from `starts` up to `ends`, int64 [N]."""
    places = tf.ragged.range(starts, ends)
    return tf.strings.unicode_encode(places.with_flat_values(tf.gather(codes, places.flat_values)), "UTF-8")


def final_sigmas_in(contexts: tf.Tensor, is_sigma: tf.Tensor) -> tf.Tensor:
    """Find the capital sigmas at the end of a word.

    Args:
      contexts: int32 [C], the `SigmaContext` of each character; the last one is white space.
      is_sigma: bool [C], whether each is a capital sigma.

    Returns:
      int64 [sigmas], their indices among the characters.
    """
    seen = tf.where(contexts != SigmaContext.SKIPPED)[:, 0]
    is_cased = tf.gather(contexts, seen) == SigmaContext.CASED
    # `shifted` wraps around, so the last character precedes the first; it is white space and so not cased.
    is_final = tf.gather(is_sigma, seen) & shifted(is_cased, 1) & ~shifted(is_cased, -1)
    return tf.boolean_mask(seen, is_final)


def in_groups(
    function: Callable[..., dict[str, tf.Tensor]], inputs: Sequence[tf.Tensor], num_bytes: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Call a function on groups of examples, so that many long texts need little more memory than one.

    Args:
      num_bytes: int32 [B], sizes of the texts of the examples; at most `MOST_BYTES`.
    """
    specifications = [tf.TensorSpec([None, *values.shape[1:]], values.dtype) for values in inputs]
    # One function instead of a copy per call: the first call of a graph with several copies takes twice as long.
    attributes = {"_noinline": True}
    some = tf.function(function, autograph=False, experimental_attributes=attributes)
    some = some.get_concrete_function(*specifications)
    outputs = some.structured_outputs
    ends = tf.cumsum(tf.cast(num_bytes, tf.int64))
    sizes = tf.unique_with_counts(ends // _GROUP_BYTES)[2]  # examples per group
    splits = tf.concat([[0], tf.cumsum(sizes)], axis=0)
    num_groups = tf.size(sizes)

    def one_by_one() -> dict[str, tf.Tensor]:
        arrays = {
            name: tf.TensorArray(spec.dtype, num_groups, infer_shape=False, element_shape=spec.shape)
            for name, spec in outputs.items()
        }

        def step(group: tf.Tensor, arrays: dict[str, tf.TensorArray]) -> tuple[tf.Tensor, dict[str, tf.TensorArray]]:
            rows = slice(splits[group], splits[group + 1])
            found = some(*(values[rows] for values in inputs))
            return group + 1, {name: array.write(group, found[name]) for name, array in arrays.items()}

        _, arrays = tf.while_loop(lambda group, _: group < num_groups, step, (0, arrays), parallel_iterations=1)
        return {name: array.concat() for name, array in arrays.items()}

    return tf.cond(num_groups > 1, one_by_one, lambda: some(*inputs))


def encode_beginnings(
    encode: Callable[[tf.Tensor, tf.Tensor], tf.RaggedTensor], texts: tf.Tensor, num_wordpieces: tf.Tensor
) -> tf.RaggedTensor:
    """Encode texts as far as needed for their first wordpieces.

    Only the beginning of a long text is read, up to a position where words end regardless of what follows. If it has
    too few wordpieces, more is read, up to `MOST_BYTES`.

    Args:
      encode: takes texts, string [B], and whether each was cut, bool [B]; of a cut text it returns only the wordpieces
        that do not depend on the rest.
      texts: string [B].

    Returns:
      int32 [B, (wordpieces)], of each text at least the first `num_wordpieces`, or all if there are fewer. Fails for a
      text of which more than `MOST_BYTES` would be needed.
    """

    def encode_some(texts: tf.Tensor, is_cut: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = encode(texts, is_cut)
        return {"ids": ids.flat_values, "lengths": ids.row_lengths()}

    def encode_up_to(texts: tf.Tensor, limit: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        num_bytes = tf.strings.length(texts)
        is_cut = num_bytes > limit
        found = in_groups(encode_some, [tf.strings.substr(texts, 0, limit), is_cut], tf.minimum(num_bytes, limit))
        return found["ids"], found["lengths"], ~is_cut | (found["lengths"] >= num_wordpieces)

    attempt = tf.function(encode_up_to, autograph=False).get_concrete_function(TEXTS, tf.TensorSpec([], tf.int32))
    limit = tf.cast(tf.minimum(num_wordpieces * _BYTES_PER_PIECE, MOST_BYTES), tf.int32)
    ids, lengths, is_enough = attempt(texts, limit)

    def with_further_attempt() -> tuple[tf.Tensor, tf.Tensor]:
        again = tf.where(~is_enough)[:, 0]
        other_ids, other_lengths, is_now_enough = attempt(tf.gather(texts, again), MOST_BYTES)
        check = tf.debugging.Assert(
            tf.reduce_all(is_now_enough),
            [
                f"a text must have at most {MOST_BYTES} bytes, unless its first {MOST_BYTES} bytes contain all "
                "wordpieces that the model reads; their number is",
                num_wordpieces,
            ],
        )
        with tf.control_dependencies([check]):
            rows = tf.RaggedTensor.from_row_lengths(
                tf.concat([ids, other_ids], axis=0), tf.concat([lengths, other_lengths], axis=0), validate=False
            )
            places = tf.tensor_scatter_nd_update(
                tf.range(tf.size(lengths, tf.int64)),
                again[:, tf.newaxis],
                tf.size(lengths, tf.int64) + tf.range(tf.size(again, tf.int64)),
            )
            rows = tf.gather(rows, places)
            return rows.flat_values, rows.row_lengths()

    ids, lengths = tf.cond(tf.reduce_all(is_enough), lambda: (ids, lengths), with_further_attempt)
    return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)


class GraphEncoder(tf.Module):
    """The base of tokenizers in the graph."""

    is_portable = True  # whether a SavedModel can hold it

    def encode_cut(self, texts: tf.Tensor, is_cut: tf.Tensor) -> tf.RaggedTensor:
        """Split texts, some of which were cut; see the argument `encode` of `encode_beginnings`."""
        raise NotImplementedError

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Split texts into wordpieces.

        Args:
          texts: string [B], UTF-8; undecodable bytes are dropped.

        Returns:
          int32 [B, (wordpieces)], the result of `Tokenizer.encode` for each.
        """
        with tf.device("CPU:0"):  # many small sequential steps, slow on a GPU
            return self.encode_cut(texts, tf.zeros_like(texts, tf.bool))

    def encode_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words of pretokenized text, string [B], as `Tokenizer.encode_word` does."""
        return self.encode(words)

    @tf.function(input_signature=[TEXTS, NUMBER], autograph=False)
    def encode_beginnings(self, texts: tf.Tensor, num_wordpieces: tf.Tensor) -> tf.RaggedTensor:
        """Split texts into wordpieces, as far as needed.

        Args:
          texts: string [B], UTF-8; undecodable bytes are dropped.

        Returns:
          int32 [B, (wordpieces)], the result of `encode`; of a long text at least the first `num_wordpieces`. Fails for
          a text of more than `MOST_BYTES` whose first `MOST_BYTES` hold fewer.
        """
        with tf.device("CPU:0"):
            return encode_beginnings(self.encode_cut, texts, num_wordpieces)


def depends_on_cut_text(codes: tf.RaggedTensor, is_cut: tf.Tensor, is_boundary: tf.Tensor) -> tf.Tensor:
    """Find the characters of cut texts whose words depend on the rest: all from the last boundary on.

    Args:
      codes: int32 [B, (characters)], code points of texts that end in white space.
      is_cut: bool [B].
      is_boundary: bool [C], characters before which every word ends, whatever follows them.

    Returns:
      bool [C].
    """
    places, rows = tf.range(tf.size(is_boundary, tf.int64)), codes.value_rowids()
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

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Split texts; see `GraphEncoder`."""
        return self._call(lambda text: [self._tokenizer.encode(text)], texts, 1)[0]

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words; see `GraphEncoder`."""
        return self._call(lambda word: [self._tokenizer.encode_word(word)], words, 1)[0]

    @tf.function(input_signature=[TEXTS, NUMBER], autograph=False)
    def encode_beginnings(self, texts: tf.Tensor, num_wordpieces: tf.Tensor) -> tf.RaggedTensor:
        """Split whole texts; see `GraphEncoder`."""
        del num_wordpieces
        return self.encode(texts)

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode_with_offsets(self, texts: tf.Tensor) -> RaggedEncodingWithOffsets:
        """Split texts with their offsets; see `Tokenizer.encode_with_offsets`."""
        return RaggedEncodingWithOffsets(*self._call(self._tokenizer.encode_with_offsets, texts, 3))
