"""`SentencePieceTokenizer` as TensorFlow operations, for exported models that take raw text.

Text is normalized by TensorFlow operations with tables of Python's Unicode data, and split by TensorFlow Text's
SentencePiece operation. A program must import `tensorflow_text` before it loads such a SavedModel; TensorFlow Serving
includes it.
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text

from official_bert.tokenization import characters
from official_bert.tokenization.graph_operations import (
    TEXTS,
    CodePointLookup,
    GraphEncoder,
    RaggedEncodingWithOffsets,
    decoded,
    depends_on_cut_text,
    rows_of,
    shifted,
    with_final_sigmas,
)
from official_bert.tokenization.graph_tables import CAPITAL_SIGMA, FINAL_SIGMA, NUM_CODE_POINTS
from official_bert.tokenization.sentencepiece_tokenizer import SPACE, PieceParts, SentencePieceTokenizer, decompose

# B: texts, C: characters, D: characters of the prepared texts, Q: pieces; all but B are totals over the batch.
_SPACE = ord(" ")
_WHITE_SPACE = [code for code in range(0x10000) if chr(code).isspace()]


class _Prepared(NamedTuple):
    codes: tf.RaggedTensor  # int32 [B, (characters)], code points
    starts: tf.Tensor  # int64 [D], index of each one's source character, counted over all texts
    ends: tf.Tensor  # int64 [D], index after that character and the dropped accents that follow it


class GraphSentencePieceTokenizer(GraphEncoder):
    """Produces the same ids as a `SentencePieceTokenizer`; otherwise like `GraphTokenizer`."""

    def __init__(self, tokenizer: SentencePieceTokenizer):
        """Build the lookup tables, which takes a few seconds."""
        super().__init__(name="graph_tokenizer")
        self._quotes = tokenizer.vocabulary.quotes
        with tf.device("CPU:0"):
            is_prepared = tokenizer.vocabulary.changes_text
            self._text = _TextOps(do_lower_case=tokenizer.settings.do_lower_case) if is_prepared else _UnchangedText()
            self._op = tensorflow_text.SentencepieceTokenizer(tokenizer.vocabulary.model, out_type=tf.int32)
            self._parts = _PartOps(tokenizer) if tokenizer.parts_of_piece else None
            num_pieces = tokenizer.vocabulary.processor.get_piece_size()
            ids = tokenizer.vocabulary.ids_of(range(num_pieces))
            self._ids = None if ids == list(range(num_pieces)) else tf.constant(ids, tf.int32)
        # Then a space always begins a piece, so earlier pieces do not depend on what follows.
        self._ends_at_spaces = not any(SPACE in piece[1:] for piece in tokenizer.vocab)

    def encode_cut(self, texts: tf.Tensor, is_cut: tf.Tensor) -> tf.RaggedTensor:
        codes = self._decoded(texts)
        codes = tf.cond(tf.reduce_any(is_cut), lambda: self._blanked(codes, is_cut), lambda: codes)
        ids = self._renumbered(self._op.tokenize(tf.strings.unicode_encode(self._text.prepare(codes).codes, "UTF-8")))
        return self._parts.split(ids)[1] if self._parts else ids

    def _decoded(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._quotes:
            texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
            texts = tf.strings.regex_replace(texts, *self._quotes)
        return decoded(texts)

    def _renumbered(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        """Map piece numbers of the model to ids, where they differ."""
        return pieces if self._ids is None else pieces.with_flat_values(tf.gather(self._ids, pieces.flat_values))

    def _blanked(self, codes: tf.RaggedTensor, is_cut: tf.Tensor) -> tf.RaggedTensor:
        """Replace characters that depend on the truncated rest by white space."""
        is_boundary = self._text.is_space(codes) & self._ends_at_spaces
        is_dropped = depends_on_cut_text(codes, is_cut, is_boundary)
        return codes.with_flat_values(tf.where(is_dropped, _SPACE, codes.flat_values))

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode_with_offsets(self, texts: tf.Tensor) -> RaggedEncodingWithOffsets:
        """Split texts, string [B], into pieces with their offsets; undecodable bytes are dropped."""
        with tf.device("CPU:0"):
            codes = self._decoded(texts)
            prepared = self._text.prepare(codes)
            ids, begins, ends = self._op.tokenize_with_offsets(tf.strings.unicode_encode(prepared.codes, "UTF-8"))
            ids = self._renumbered(ids)
            visible = _Visible(prepared.codes, self._text.is_blank(prepared.codes.flat_values))
            firsts, afters = visible.number_at(begins), visible.number_at(ends)  # [Q]
            if self._parts:
                ids, firsts, afters = self._parts.split_with_places(ids, firsts, afters)
            rows = rows_of(ids)
            firsts = tf.minimum(firsts, tf.gather(visible.row_ends, rows) - 1)
            lasts = tf.maximum(afters - 1, firsts)

            before_text = tf.gather(codes.row_splits, rows)
            starts = tf.gather(tf.gather(prepared.starts, visible.characters), firsts) - before_text
            ends = tf.gather(tf.gather(prepared.ends, visible.characters), lasts) - before_text
            starts, ends = (ids.with_flat_values(tf.cast(places, tf.int32)) for places in (starts, ends))
            return RaggedEncodingWithOffsets(ids, starts, ends)


@functools.cache
def _text_tables(do_lower_case: bool) -> tuple[list[bool], list[int], list[str], list[characters.SigmaContext]]:
    """Return what `prepare` needs of Python's Unicode data, which takes seconds to collect.

    For each code point: whether it is white space, the number of its replacement, 0 if it is unchanged, and its effect
    on a capital sigma, which lowercasing does not change. The third value is the distinct replacements.
    """
    every = list(map(chr, range(NUM_CODE_POINTS)))
    numbers: dict[str, int] = {}
    replacement_of = []
    for character in every:
        text = decompose(character)
        if do_lower_case and text != CAPITAL_SIGMA:  # whose lowercase letter depends on its neighbours
            text = text.lower()
        replacement_of.append(0 if text == character else 1 + numbers.setdefault(text, len(numbers)))
    contexts = list(map(characters.sigma_context, every))
    return list(map(str.isspace, every)), replacement_of, ["?", *numbers], contexts


class _TextOps(tf.Module):
    """`prepare` of `sentencepiece_tokenizer` as TensorFlow operations."""

    def __init__(self, *, do_lower_case: bool):
        super().__init__()
        is_space, replacement_of, replacements, sigma_contexts = _text_tables(do_lower_case)
        self._is_space = CodePointLookup(is_space)
        self._replacement_of = CodePointLookup(replacement_of)
        self._starts = tf.constant(np.cumsum([0, *map(len, replacements)]), tf.int64)
        self._codes = tf.constant([ord(character) for text in replacements for character in text], tf.int32)
        self._sigma_context = CodePointLookup(sigma_contexts) if do_lower_case else None

    def is_space(self, codes: tf.RaggedTensor) -> tf.Tensor:
        """Return which characters, int32 [B, (characters)], are white space, bool [C]."""
        return self._is_space(codes.flat_values) > 0

    def is_blank(self, code: tf.Tensor) -> tf.Tensor:
        """Return which characters of prepared texts, int32 [D], are white space, bool [D]."""
        return code == _SPACE

    def prepare(self, codes: tf.RaggedTensor) -> _Prepared:
        """Prepare texts, int32 [B, (characters)], that end in white space."""
        code, splits = codes.flat_values, codes.row_splits
        is_space = self.is_space(codes)  # [C]
        # Each text ends in white space, which the roll moves before the first text.
        is_dropped = is_space & shifted(is_space, 1)
        number = tf.where(is_space, 0, self._replacement_of(code))
        lengths = tf.gather(self._starts, number + 1) - tf.gather(self._starts, number)
        lengths = tf.where(is_dropped, tf.constant(0, tf.int64), lengths)
        starts = tf.gather(self._starts, number)
        places = tf.ragged.range(starts, starts + lengths)  # [C, (replacement)]
        origins = rows_of(places)  # [D]
        replaced = tf.gather(self._codes, places.flat_values)
        original = tf.where(is_space, _SPACE, code)
        prepared = tf.where(tf.gather(number, origins) > 0, replaced, tf.gather(original, origins))

        # An accent is a dropped character that is not white space.
        is_accent = (lengths == 0) & ~is_space
        others = tf.where(~is_accent)[:, 0]
        rank = tf.cumsum(tf.cast(~is_accent, tf.int64)) - 1
        following = tf.minimum(rank + 1, tf.size(others, tf.int64) - 1)  # the last one is white space
        ends = tf.gather(others, following)  # [C]

        rows = tf.RaggedTensor.from_row_splits(prepared, tf.gather(places.row_splits, splits), validate=False)
        if self._sigma_context is not None:
            rows = rows.with_flat_values(self._with_lower_sigmas(prepared))
        rows, starts, ends = (
            rows.with_flat_values(values)[:, :-1]  # without the space after the last word; an empty row has none
            for values in (rows.flat_values, origins, tf.gather(ends, origins))
        )
        return _Prepared(rows, starts.flat_values, ends.flat_values)

    def _with_lower_sigmas(self, codes: tf.Tensor) -> tf.Tensor:
        is_sigma = codes == ord(CAPITAL_SIGMA)
        lowered = tf.where(is_sigma, ord(CAPITAL_SIGMA.lower()), codes)
        return tf.cond(
            tf.reduce_any(is_sigma),
            lambda: with_final_sigmas(
                lowered, None, contexts=self._sigma_context(codes), is_sigma=is_sigma, final_sigma=ord(FINAL_SIGMA)
            ),
            lambda: codes,
        )


class _UnchangedText(tf.Module):
    """Replaces `_TextOps` for a model that does not normalize text."""

    def is_space(self, codes: tf.RaggedTensor) -> tf.Tensor:
        """Return which characters, int32 [B, (characters)], always end a word for the model, bool [C]."""
        return codes.flat_values == _SPACE

    def is_blank(self, code: tf.Tensor) -> tf.Tensor:
        """Return which characters, int32 [D], are white space, bool [D]."""
        return tf.reduce_any(code[:, tf.newaxis] == tf.constant(_WHITE_SPACE, tf.int32), axis=1)

    def prepare(self, codes: tf.RaggedTensor) -> _Prepared:
        """Return texts without their final separator."""
        places = codes.with_flat_values(tf.range(tf.size(codes.flat_values, tf.int64)))[:, :-1].flat_values
        return _Prepared(codes[:, :-1], places, places + 1)


class _Visible:
    """The non-space characters of prepared texts, or all characters of a text that is only spaces."""

    def __init__(self, codes: tf.RaggedTensor, is_blank: tf.Tensor):
        code, rows = codes.flat_values, rows_of(codes)
        is_visible = tf.cast(~is_blank, tf.int32)
        any_visible = tf.math.unsorted_segment_max(is_visible, rows, codes.nrows())
        # int64 [V], their indices among the D characters
        self.characters = tf.where((is_visible > 0) | (tf.gather(any_visible, rows) <= 0))[:, 0]
        # int64 [B], their number in each text and all texts before it
        self.row_ends = tf.searchsorted(self.characters, codes.row_splits[1:], out_type=tf.int64)

        num_bytes = 1 + sum(tf.cast(code >= limit, tf.int64) for limit in (0x80, 0x800, 0x10000))
        byte_starts = tf.concat([tf.zeros(1, tf.int64), tf.cumsum(num_bytes)], axis=0)  # [D + 1]
        self._text_starts = tf.gather(byte_starts, codes.row_splits)
        self._byte_starts = tf.gather(byte_starts, self.characters)  # [V]

    def number_at(self, places: tf.RaggedTensor) -> tf.Tensor:
        """Count the visible characters that begin before bytes of the texts, [B, (pieces)]; int64 [Q]."""
        starts = tf.gather(self._text_starts, rows_of(places))
        places = tf.cast(places.flat_values, tf.int64) + starts
        return tf.searchsorted(self._byte_starts, places, out_type=tf.int64)


class _PartOps(tf.Module):
    """`SentencePieceTokenizer.parts_of_piece` as a table: every piece has parts, usually one."""

    def __init__(self, tokenizer: SentencePieceTokenizer):
        super().__init__()
        whole = (tokenizer.parts_of_piece.get(index) for index in range(len(tokenizer)))
        parts = [piece or PieceParts((index,), (0,)) for index, piece in enumerate(whole)]
        self._starts = tf.constant(np.cumsum([0, *(len(piece.ids) for piece in parts)]), tf.int64)
        self._ids = tf.constant([index for piece in parts for index in piece.ids], tf.int32)
        self._begins = tf.constant([begin for piece in parts for begin in (0, *piece.ends[:-1])], tf.int64)
        self._ends = tf.constant([end for piece in parts for end in piece.ends], tf.int64)

    def split(self, ids: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Return the rows of wordpieces' parts in the table, [Q, (parts)], and their ids, [B, (parts)]."""
        places = tf.ragged.range(tf.gather(self._starts, ids.flat_values), tf.gather(self._starts, ids.flat_values + 1))
        splits = tf.gather(places.row_splits, ids.row_splits)
        split = tf.RaggedTensor.from_row_splits(tf.gather(self._ids, places.flat_values), splits, validate=False)
        return places, split

    def split_with_places(
        self, ids: tf.RaggedTensor, firsts: tf.Tensor, afters: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Split pieces and their positions, [Q], among the visible characters."""
        places, split = self.split(ids)
        owners = rows_of(places)
        firsts, afters = tf.gather(firsts, owners), tf.gather(afters, owners)
        last_parts = tf.gather(places.flat_values, tf.gather(places.row_splits, owners + 1) - 1)
        # A part has the position of its piece if that is its only part, or if the model rewrote characters.
        is_known = tf.gather(self._ends, last_parts) == afters - firsts
        begins, ends = tf.gather(self._begins, places.flat_values), tf.gather(self._ends, places.flat_values)
        return split, tf.where(is_known, firsts + begins, firsts), tf.where(is_known, firsts + ends, afters)
