"""`FullTokenizer` as TensorFlow operations, for exported models that take raw text.

All texts of a batch are processed together, as one row of letters (see `graph_tables`), in a fixed number of steps
regardless of their content. Only TensorFlow's built-in operations are used, so every runtime that loads the SavedModel
has them.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.config.text_settings import TextSettings
from official_bert.tokenization import graph_tables
from official_bert.tokenization.full_tokenizer import FullTokenizer
from official_bert.tokenization.graph_operations import (
    TEXTS,
    CodePointLookup,
    GraphEncoder,
    RaggedEncodingWithOffsets,
    depends_on_cut_text,
    ended,
    final_sigmas_in,
    shifted,
)
from official_bert.tokenization.graph_tables import FINAL_SIGMA, SEPARATOR, UNKNOWN_LETTER

# B: texts, C: characters, M: letters and separators, W: words, Q: wordpieces; C to Q are totals over the batch.


class _Letters(NamedTuple):
    """The rewritten characters of texts.

    Attributes:
      letters: int64 [M]; every text ends in a separator.
      text_starts: int64 [B + 1], start of each text in `letters`, and the end of the last.
      rules: int32 [C], each character's rule.
      starts: int64 [C + 1], start of each character's letters in `letters`, and the end of the last.
      order: int64 [M], each letter's index before combining characters were sorted; None if the order cannot change.
    """

    letters: tf.Tensor
    text_starts: tf.Tensor
    rules: tf.Tensor
    starts: tf.Tensor
    order: tf.Tensor | None


class _Pieces(NamedTuple):
    """Pieces in the row of letters.

    Attributes:
      ids: int32 [Q].
      firsts: int64 [Q], the first letter of each.
      lasts: int64 [Q], the last letter of each.
      row_splits: int64 [B + 1], number of wordpieces before each text, and in total.
    """

    ids: tf.Tensor
    firsts: tf.Tensor
    lasts: tf.Tensor
    row_splits: tf.Tensor


class GraphTokenizer(GraphEncoder):
    """Produces the same ids as a `FullTokenizer`.

    Python's Unicode tables are stored in the graph: a SavedModel keeps those of the Python that exported it. As with
    any `tf.Module`, `encode` alone does not keep the tables alive: hold a reference to the object.
    """

    def __init__(self, tokenizer: FullTokenizer):
        """Build the lookup tables, which takes a few seconds.

        Args:
          tokenizer: the tokenizer whose ids are reproduced.
        """
        super().__init__(name="graph_tokenizer")
        letters = graph_tables.letters_of(tokenizer.vocab)
        with tf.device("CPU:0"):
            self._characters = _CharacterOps(letters, tokenizer.settings)
            self._wordpieces = _PieceOps(letters, tokenizer)

    def encode_cut(self, texts: tf.Tensor, is_cut: tf.Tensor) -> tf.RaggedTensor:
        """Split texts; see `GraphEncoder`."""
        codes = tf.strings.unicode_decode(ended(texts), "UTF-8", errors="ignore")
        letters = self._characters.rewrite(codes, is_cut)
        wordpieces = self._wordpieces.split(letters.letters, letters.text_starts)
        return tf.RaggedTensor.from_row_splits(wordpieces.ids, wordpieces.row_splits, validate=False)

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode_with_offsets(self, texts: tf.Tensor) -> RaggedEncodingWithOffsets:
        """Split texts into wordpieces with their offsets.

        Args:
          texts: string [B], UTF-8; undecodable bytes are dropped.

        Returns:
          The result of `FullTokenizer.encode_with_offsets` for each.
        """
        with tf.device("CPU:0"):
            codes = tf.strings.unicode_decode(ended(texts), "UTF-8", errors="ignore")
            letters = self._characters.rewrite(codes)
            wordpieces = self._wordpieces.split(letters.letters, letters.text_starts)
            starts, ends = self._characters.places(letters)  # [M]
            starts, ends = tf.gather(starts, wordpieces.firsts), tf.gather(ends, wordpieces.lasts)  # [Q]

            ids = tf.RaggedTensor.from_row_splits(wordpieces.ids, wordpieces.row_splits, validate=False)
            before_text = tf.gather(codes.row_splits, ids.value_rowids())
            starts, ends = (tf.cast(places - before_text, tf.int32) for places in (starts, ends))
            return RaggedEncodingWithOffsets(ids, ids.with_flat_values(starts), ids.with_flat_values(ends))


class _CharacterOps(tf.Module):
    """`characters.rewrite`, with the source of each letter."""

    def __init__(self, letters: dict[str, int], settings: TextSettings):
        super().__init__()
        table = graph_tables.make_character_table(letters, settings)
        self._rule_numbers = CodePointLookup(table.rule_numbers)

        lengths = [len(rule.letters) for rule in table.rules]
        self._rule_starts = tf.constant(np.cumsum([0, *lengths]), tf.int64)
        self._rule_letters = tf.constant([letter for rule in table.rules for letter in rule.letters], tf.int64)
        self._is_accent = tf.constant([rule.is_accent for rule in table.rules])
        self._is_boundary = tf.constant([rule.is_boundary for rule in table.rules])

        # The two rules that depend on neighbours are omitted where they cannot matter.
        self._final_sigma = letters.get(FINAL_SIGMA, UNKNOWN_LETTER)
        self._sigma_rule = next((number for number, rule in enumerate(table.rules) if rule.is_sigma), None)
        if self._sigma_rule is not None and table.rules[self._sigma_rule].letters == (self._final_sigma,):
            self._sigma_rule = None
        self._sigma_contexts = tf.constant([rule.sigma_context for rule in table.rules], tf.int32)
        combining_classes = graph_tables.combining_classes(letters)
        decomposes = settings.do_lower_case and settings.strip_accents
        self._sorts = decomposes and len(set(combining_classes) - {0}) > 1
        self._sorting_classes = tf.constant(combining_classes, tf.int64)
        self._blocks_reordering = tf.constant([rule.blocks_reordering for rule in table.rules])

    def rewrite(self, codes: tf.RaggedTensor, is_cut: tf.Tensor | None = None) -> _Letters:
        """Rewrite characters.

        Args:
          codes: int32 [B, (characters)], code points of texts that end in white space.
          is_cut: bool [B], which texts were truncated; characters that depend on the rest become white space.

        Returns:
          The letters.
        """
        rules = self._rule_numbers(codes.flat_values)  # [C]
        if is_cut is not None:
            rules = tf.cond(tf.reduce_any(is_cut), lambda: self._blanked(codes, is_cut, rules), lambda: rules)
        places = tf.ragged.range(tf.gather(self._rule_starts, rules), tf.gather(self._rule_starts, rules + 1))
        letters, starts = tf.gather(self._rule_letters, places.flat_values), places.row_splits
        order = None
        if self._sigma_rule is not None:
            is_sigma = rules == self._sigma_rule
            letters = tf.cond(
                tf.reduce_any(is_sigma), lambda: self._with_final_sigmas(letters, rules, starts), lambda: letters
            )
        if self._sorts:
            classes = tf.gather(self._sorting_classes, letters)
            order = tf.cond(
                tf.reduce_any(classes > 0),
                lambda: self._canonical_order(classes, rules, starts),
                lambda: tf.range(tf.size(classes, tf.int64)),
            )
            letters = tf.gather(letters, order)
        return _Letters(letters, tf.gather(starts, codes.row_splits), rules, starts, order)

    def _blanked(self, codes: tf.RaggedTensor, is_cut: tf.Tensor, rules: tf.Tensor) -> tf.Tensor:
        is_dropped = depends_on_cut_text(codes, is_cut, tf.gather(self._is_boundary, rules))
        return tf.where(is_dropped, self._rule_numbers(tf.constant([ord(" ")])), rules)

    def _with_final_sigmas(self, letters: tf.Tensor, rules: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Lowercase capital sigmas at the end of a word to "ς"; see `characters.SigmaContext`."""
        final = final_sigmas_in(tf.gather(self._sigma_contexts, rules), rules == self._sigma_rule)
        places = tf.gather(starts, final)
        final_sigmas = tf.fill(tf.shape(places), tf.constant(self._final_sigma, tf.int64))
        return tf.tensor_scatter_nd_update(letters, places[:, tf.newaxis], final_sigmas)

    def _canonical_order(self, classes: tf.Tensor, rules: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Sort each run of combining letters by class; int64 [M]."""
        num_letters = tf.size(classes, tf.int64)
        dropped = tf.gather(starts, tf.where(tf.gather(self._blocks_reordering, rules))[:, 0])  # the letter after each
        num_dropped = tf.math.unsorted_segment_sum(tf.ones_like(dropped), dropped, num_letters)
        run = tf.cumsum(tf.cast(classes == 0, tf.int64) + num_dropped)
        # One key for run and class, since classes are below 256: runs keep their order and are sorted inside.
        return tf.cast(tf.argsort(run * 256 + classes, stable=True), tf.int64)

    def places(self, letters: _Letters) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the source range of each letter, accents included: starts and ends, int64 [M]."""
        starts = letters.starts
        num_letters, num_characters = tf.size(letters.letters, tf.int64), tf.size(letters.rules, tf.int64)
        is_kept = starts[1:] > starts[:-1]  # [C]
        # An accent belongs to the last character before it that is neither an accent nor deleted; white space stops the
        # search.
        after = tf.where(is_kept | tf.gather(self._is_accent, letters.rules), tf.range(num_characters) + 1, 0)
        owners = tf.cumsum(tf.cast(is_kept, tf.int64)) - 1
        ends = tf.gather(tf.math.unsorted_segment_max(after, owners, num_characters), tf.maximum(owners, 0))  # [C]

        origins = tf.searchsorted(starts, tf.range(num_letters), side="right", out_type=tf.int64) - 1
        if letters.order is None:
            return origins, tf.gather(ends, origins)
        # No wordpiece may start before its predecessor, so a letter that moved gets the range of all letters it passed.
        origins = tf.gather(origins, letters.order)
        latest = _running_max(tf.gather(ends, origins))
        return tf.reverse(-_running_max(tf.reverse(-origins, [0])), [0]), latest


class _PieceOps(tf.Module):
    """`WordpieceTokenizer` on a row of letters."""

    def __init__(self, letters: dict[str, int], tokenizer: FullTokenizer):
        super().__init__()
        table = graph_tables.make_piece_table(
            tokenizer.vocab, letters, basic_tokenize=tokenizer.settings.basic_tokenize
        )
        left, right, names = table.joins.T
        self._joins = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(_pair(left, right), names), default_value=graph_tables.NO_NAME
        )
        self._word_start, self._inner_start = table.word_start, table.inner_start
        self._num_strides = table.num_strides
        self._ids = tf.constant(table.piece_ids, tf.int32)
        self._lengths = tf.constant(table.piece_lengths, tf.int64)
        self._unknown = tokenizer.unk_id
        self._max_letters = tokenizer.wordpiece_tokenizer.max_input_chars_per_word
        self._keeps_long_words = tokenizer.wordpiece_tokenizer.keeps_long_words

    def split(self, letters: tf.Tensor, text_starts: tf.Tensor) -> _Pieces:
        """Split words into wordpieces.

        Args:
          letters: int64 [M].
          text_starts: int64 [B + 1].

        Returns:
          The wordpieces.
        """
        is_letter = letters != SEPARATOR  # [M]; the last is a separator, which a roll moves before the first
        is_start = is_letter & ~shifted(is_letter, 1)
        is_last = is_letter & ~shifted(is_letter, -1)
        word_firsts, word_lasts = tf.where(is_start)[:, 0], tf.where(is_last)[:, 0]  # [W]
        ids, piece_lengths = self._longest_pieces(letters, is_start)
        is_reached = self._reached(is_start, piece_lengths)
        firsts = tf.where(is_reached & is_letter)[:, 0]  # [Q], including those of unknown words

        words = tf.gather(tf.cumsum(tf.cast(is_start, tf.int64)), firsts) - 1
        lengths = tf.gather(piece_lengths, firsts)
        is_stuck = tf.cast(lengths == 0, tf.int32)
        is_unknown = tf.math.unsorted_segment_max(is_stuck, words, tf.size(word_firsts, tf.int64)) > 0  # [W]
        is_too_long = word_lasts - word_firsts >= self._max_letters
        if self._keeps_long_words:
            is_too_long &= tf.gather(piece_lengths, word_firsts) <= word_lasts - word_firsts
        is_unknown = tf.gather(is_unknown | is_too_long, words)  # [Q]
        ids = tf.where(is_unknown, self._unknown, tf.gather(ids, firsts))
        lasts = tf.where(is_unknown, tf.gather(word_lasts, words), firsts + lengths - 1)

        kept = tf.where(~is_unknown | tf.gather(is_start, firsts))[:, 0]  # an unknown word is one wordpiece
        firsts = tf.gather(firsts, kept)
        row_splits = tf.searchsorted(firsts, text_starts, out_type=tf.int64)
        return _Pieces(tf.gather(ids, kept), firsts, tf.gather(lasts, kept), row_splits)

    def _longest_pieces(self, letters: tf.Tensor, is_start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Find the longest wordpiece starting at each letter: its id, int32 [M], and length, int64 [M], 0 for none."""
        # Letters wrapped around by a roll follow the final separator, so no block contains them.
        blocks = [letters]
        for bit in range(self._num_strides - 1):
            blocks.append(self._join(blocks[-1], shifted(blocks[-1], -(1 << bit))))
        word_start, inner_start = tf.constant(self._word_start, tf.int64), tf.constant(self._inner_start, tf.int64)
        names = tf.where(is_start, word_start, inner_start)
        ends = tf.range(tf.size(letters, tf.int64))
        for bit in reversed(range(self._num_strides)):
            longer = self._join(names, tf.gather(blocks[bit], ends))
            is_found = longer != graph_tables.NO_NAME
            names = tf.where(is_found, longer, names)
            ends += tf.cast(is_found, tf.int64) * (1 << bit)
        return tf.gather(self._ids, names), tf.gather(self._lengths, names)

    def _reached(self, is_start: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Follow wordpieces from the words' starts: mark letters where one begins or a word has no match, bool [M].

        Each round doubles the number of wordpieces followed.
        """
        num_letters = tf.size(lengths, tf.int64)
        is_reached, following = tf.cast(is_start, tf.int32), tf.range(num_letters) + lengths
        for _ in range(self._max_letters.bit_length()):
            is_reached = tf.maximum(is_reached, tf.math.unsorted_segment_max(is_reached, following, num_letters))
            following = tf.gather(following, following)
        return is_reached > 0

    def _join(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return self._joins.lookup(_pair(left, right))


def _pair(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Combine two names, which are below 2 ** 32, into one int64 key."""
    return left * (1 << 32) + right


def _running_max(values: tf.Tensor) -> tf.Tensor:
    """Return the greatest value up to each position, in rounds that look twice as far each."""
    num_values = tf.size(values)

    def look_back(distance: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        before = tf.concat([values[:distance], values[: num_values - distance]], axis=0)
        return distance * 2, tf.maximum(values, before)

    return tf.while_loop(lambda distance, _: distance < num_values, look_back, (1, values))[1]
