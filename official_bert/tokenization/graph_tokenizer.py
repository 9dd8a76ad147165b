"""`FullTokenizer` as TensorFlow operations, for exported models that take raw text.

All texts of a batch are processed together, as one row of letters (see `graph_tables`), in a fixed number of steps
regardless of their content. Only TensorFlow's built-in operations are used, so every runtime that loads the SavedModel
has them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.tokenization import graph_tables
from official_bert.tokenization.characters import SigmaContext, combining_class
from official_bert.tokenization.full_tokenizer import FullTokenizer, TokenFinder, is_of_word
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
from official_bert.tokenization.graph_tables import FINAL_SIGMA, SEPARATOR, UNKNOWN_LETTER, CharacterRule
from official_bert.tokenization.hf_tokenizer import AddedToken

_NO_NAME = 0  # of no letter, see `PieceTable`
# B: texts, C: characters, M: letters and separators, W: words, Q: wordpieces; C to Q are totals over the batch.


class _Letters(NamedTuple):
    letters: tf.Tensor  # int64 [M]; every text ends in a separator
    text_starts: tf.Tensor  # int64 [B + 1], start of each text in `letters`, and the end of the last
    rules: tf.Tensor  # int32 [C], each character's rule
    starts: tf.Tensor  # int64 [C + 1], start of each character's letters in `letters`, and the end of the last
    # int64 [M], each letter's index before combining characters were sorted; None if the order cannot change
    order: tf.Tensor | None
    # int64 [M], the last letter of an added token at its first one, else the letter itself; None if no token is
    # found among letters
    ends_of_tokens: tf.Tensor | None


class _Pieces(NamedTuple):
    ids: tf.Tensor  # int32 [Q]
    firsts: tf.Tensor  # int64 [Q], the first letter of each
    lasts: tf.Tensor  # int64 [Q], the last letter of each
    row_splits: tf.Tensor  # int64 [B + 1], number of wordpieces before each text, and in total


class GraphTokenizer(GraphEncoder):
    """Produces the same ids as a `FullTokenizer`.

    Python's Unicode tables are stored in the graph: a SavedModel keeps those of the Python that exported it. As with
    any `tf.Module`, `encode` alone does not keep the tables alive: hold a reference to the object.
    """

    def __init__(self, tokenizer: FullTokenizer):
        """Build the lookup tables, which takes a few seconds."""
        super().__init__(name="graph_tokenizer")
        normalized = tokenizer.finder.tokens
        letters = graph_tables.letters_of(
            [*tokenizer.vocabulary.wordpieces, *("".join(key.split()) for key in normalized)]
        )
        with tf.device("CPU:0"):
            self._characters = _CharacterOps(letters, tokenizer)
            self._wordpieces = _PieceOps(letters, tokenizer)

    def encode_cut(self, texts: tf.Tensor, is_cut: tf.Tensor) -> tf.RaggedTensor:
        codes = decoded(texts)
        letters = self._characters.rewrite(codes, is_cut)
        wordpieces = self._wordpieces.split(letters.letters, letters.text_starts)
        ids = tf.RaggedTensor.from_row_splits(wordpieces.ids, wordpieces.row_splits, validate=False)
        if not self._characters.most_pieces_of_token:
            return ids
        # The end of a cut text may be the beginning of an added token.
        num_uncertain = tf.where(is_cut, tf.constant(self._characters.most_pieces_of_token, tf.int64), 0)
        places, ends = tf.range(tf.size(ids.flat_values, tf.int64)), ids.row_limits() - num_uncertain
        return tf.ragged.boolean_mask(ids, ids.with_flat_values(places < tf.gather(ends, rows_of(ids))))

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode_with_offsets(self, texts: tf.Tensor) -> RaggedEncodingWithOffsets:
        """Split texts, string [B], into wordpieces with their offsets; undecodable bytes are dropped."""
        with tf.device("CPU:0"):
            codes = decoded(texts)
            letters = self._characters.rewrite(codes)
            wordpieces = self._wordpieces.split(letters.letters, letters.text_starts)
            starts, ends = self._characters.places(letters)  # [M]
            lasts = wordpieces.lasts
            if letters.ends_of_tokens is not None:
                lasts = tf.gather(letters.ends_of_tokens, lasts)
            starts, ends = tf.gather(starts, wordpieces.firsts), tf.gather(ends, lasts)  # [Q]

            ids = tf.RaggedTensor.from_row_splits(wordpieces.ids, wordpieces.row_splits, validate=False)
            before_text = tf.gather(codes.row_splits, rows_of(ids))
            starts, ends = (tf.cast(places - before_text, tf.int32) for places in (starts, ends))
            return RaggedEncodingWithOffsets(ids, ids.with_flat_values(starts), ids.with_flat_values(ends))


class _CharacterOps(tf.Module):
    """`characters.rewrite`, with the source of each letter."""

    def __init__(self, letters: dict[str, int], tokenizer: FullTokenizer):
        super().__init__()
        settings, added = tokenizer.settings, tokenizer.vocabulary.added
        self._raw = _RawTokens(tokenizer.raw_finder, added) if tokenizer.raw_finder.tokens else None
        self._normalized = _NormalizedTokens(tokenizer.finder, added, letters) if tokenizer.finder.tokens else None
        marks_words = self._normalized is not None and self._normalized.needs_words
        rule_numbers, table = graph_tables.make_character_table(
            tuple(letters.items()), settings, marks_words=marks_words
        )
        self._rule_numbers, self._num_rules = CodePointLookup(rule_numbers), len(table)
        # Rules for the first character of each added token in the text, and for its others.
        first, is_of_word = graph_tables.FIRST_LETTER + len(letters), (False,) * (3 * marks_words)
        rules = [
            CharacterRule((SEPARATOR, first + index, SEPARATOR), are_of_words=is_of_word) for index in range(len(added))
        ]
        rules = [*table, *rules, CharacterRule((), SigmaContext.SKIPPED, is_accent=True)]

        lengths = [len(rule.letters) for rule in rules]
        longest = max(map(len, [*tokenizer.raw_finder.tokens, *tokenizer.finder.tokens]), default=0)
        self.most_pieces_of_token = longest * max(lengths)
        self._rule_starts = tf.constant(np.cumsum([0, *lengths]), tf.int64)
        self._rule_letters = tf.constant([letter for rule in rules for letter in rule.letters], tf.int64)
        self._are_of_words = tf.constant([is_of_word for rule in rules for is_of_word in rule.are_of_words], tf.bool)
        self._is_accent = tf.constant([rule.is_accent for rule in rules])
        self._is_boundary = tf.constant([rule.is_boundary for rule in rules])

        # The two rules that depend on neighbours are omitted where they cannot matter.
        self._final_sigma = letters.get(FINAL_SIGMA, UNKNOWN_LETTER)
        self._sigma_rule = next((number for number, rule in enumerate(table) if rule.is_sigma), None)
        if self._sigma_rule is not None and table[self._sigma_rule].letters == (self._final_sigma,):
            self._sigma_rule = None
        self._sigma_contexts = tf.constant([rule.sigma_context for rule in rules], tf.int32)
        combining_classes = [0] * graph_tables.FIRST_LETTER + list(map(combining_class, letters)) + [0] * len(added)
        self._sorts = settings.strips_accents and len(set(combining_classes) - {0}) > 1
        self._sorting_classes = tf.constant(combining_classes, tf.int64)
        self._blocks_reordering = tf.constant([rule.blocks_reordering for rule in rules])

    def rewrite(self, codes: tf.RaggedTensor, is_cut: tf.Tensor | None = None) -> _Letters:
        """Rewrite texts that end in white space; of a cut one, characters that depend on the rest become spaces."""
        rules = self._rule_numbers(codes.flat_values)  # [C]
        if self._raw is not None:
            rules = self._raw.replace(codes, rules, self._num_rules)
        if is_cut is not None:
            rules = tf.cond(tf.reduce_any(is_cut), lambda: self._blanked(codes, is_cut, rules), lambda: rules)
        places = tf.ragged.range(tf.gather(self._rule_starts, rules), tf.gather(self._rule_starts, rules + 1))
        letters, starts = tf.gather(self._rule_letters, places.flat_values), places.row_splits
        order = None
        if self._sigma_rule is not None:
            is_sigma = rules == self._sigma_rule
            letters = tf.cond(
                tf.reduce_any(is_sigma),
                lambda: with_final_sigmas(
                    letters,
                    starts,
                    contexts=tf.gather(self._sigma_contexts, rules),
                    is_sigma=is_sigma,
                    final_sigma=self._final_sigma,
                ),
                lambda: letters,
            )
        if self._sorts:
            classes = tf.gather(self._sorting_classes, letters)
            order = tf.cond(
                tf.reduce_any(classes > 0),
                lambda: self._canonical_order(classes, rules, starts),
                lambda: tf.range(tf.size(classes, tf.int64)),
            )
            letters = tf.gather(letters, order)
        text_starts, ends_of_tokens = tf.gather(starts, codes.row_splits), None
        if self._normalized is not None:
            are_of_words = None
            if self._normalized.needs_words:
                are_of_words = tf.gather(self._are_of_words, places.flat_values)
                are_of_words = are_of_words if order is None else tf.gather(are_of_words, order)
            letters, ends_of_tokens = self._normalized.replace(letters, text_starts, are_of_words)
        return _Letters(letters, text_starts, rules, starts, order, ends_of_tokens)

    def _blanked(self, codes: tf.RaggedTensor, is_cut: tf.Tensor, rules: tf.Tensor) -> tf.Tensor:
        is_dropped = depends_on_cut_text(codes, is_cut, tf.gather(self._is_boundary, rules))
        return tf.where(is_dropped, self._rule_numbers(tf.constant([ord(" ")])), rules)

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
        is_owner = is_kept
        if self._raw is not None:  # an accent after an added token does not belong to it
            is_of_token, is_rest = letters.rules >= self._num_rules, letters.rules == tf.size(self._is_accent) - 1
            is_owner |= shifted(is_of_token, 1) & ~is_rest
        owners = tf.cumsum(tf.cast(is_owner, tf.int64)) - 1
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
        vocabulary = tokenizer.vocabulary
        self._longest_pieces = _LongestPieces(
            vocabulary.wordpieces,
            _with_tokens(letters, vocabulary.added),
            basic_tokenize=tokenizer.settings.basic_tokenize,
        )
        self._first_token = graph_tables.FIRST_LETTER + len(letters)
        self._added_ids = tf.constant([token["id"] for token in vocabulary.added], tf.int32)
        self._unknown = tokenizer.unk_id
        self._max_letters = tokenizer.wordpiece_tokenizer.max_input_chars_per_word
        self._keeps_long_words = tokenizer.wordpiece_tokenizer.keeps_long_words

    def split(self, letters: tf.Tensor, text_starts: tf.Tensor) -> _Pieces:
        """Split the words of letters, int64 [M], into wordpieces; `text_starts` are int64 [B + 1]."""
        is_letter = letters != SEPARATOR  # [M]; the last is a separator, which a roll moves before the first
        is_added = letters >= self._first_token  # such a letter is a word
        is_start = is_letter & (~shifted(is_letter, 1) | is_added | shifted(is_added, 1))
        is_last = is_letter & (~shifted(is_letter, -1) | is_added | shifted(is_added, -1))
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
        if self._added_ids.shape[0]:
            tokens = tf.gather(letters, firsts) - self._first_token
            ids = tf.where(tokens >= 0, tf.gather(self._added_ids, tf.maximum(tokens, 0)), ids)
        lasts = tf.where(is_unknown, tf.gather(word_lasts, words), firsts + lengths - 1)

        kept = tf.where(~is_unknown | tf.gather(is_start, firsts))[:, 0]  # an unknown word is one wordpiece
        firsts = tf.gather(firsts, kept)
        row_splits = tf.searchsorted(firsts, text_starts, out_type=tf.int64)
        return _Pieces(tf.gather(ids, kept), firsts, tf.gather(lasts, kept), row_splits)

    def _reached(self, is_start: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Follow wordpieces from the words' starts: mark letters where one begins or a word has no match, bool [M]."""
        num_letters = tf.size(lengths, tf.int64)
        is_reached, following = tf.cast(is_start, tf.int32), tf.range(num_letters) + lengths
        for _ in range(self._max_letters.bit_length()):  # each round doubles the number of wordpieces followed
            is_reached = tf.maximum(is_reached, tf.math.unsorted_segment_max(is_reached, following, num_letters))
            following = tf.gather(following, following)
        return is_reached > 0


class _LongestPieces(tf.Module):
    """Finds the longest wordpieces in a row of letters."""

    def __init__(self, token_to_id: dict[str, int], letters: dict[str, int], *, basic_tokenize: bool):
        super().__init__()
        table = graph_tables.PieceTable(token_to_id, letters, basic_tokenize=basic_tokenize)
        left, right = np.array([*table.joins], np.int64).reshape(-1, 2).T
        names = tf.lookup.KeyValueTensorInitializer(_pair(left, right), np.array([*table.joins.values()], np.int64))
        self._joins = tf.lookup.StaticHashTable(names, default_value=_NO_NAME)
        self._word_start, self._inner_start = table.word_start, table.inner_start
        self._num_strides = table.num_strides
        self._ids = tf.constant(table.piece_ids, tf.int32)
        self._lengths = tf.constant(table.piece_lengths, tf.int64)

    def __call__(self, letters: tf.Tensor, is_start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
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
            is_found = longer != _NO_NAME
            names = tf.where(is_found, longer, names)
            ends += tf.cast(is_found, tf.int64) * (1 << bit)
        return tf.gather(self._ids, names), tf.gather(self._lengths, names)

    def _join(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return self._joins.lookup(_pair(left, right))


class _TokenMatches(tf.Module):
    """`TokenFinder` on a row of letters, with the index of each token among the added ones."""

    def __init__(self, finder: TokenFinder, added: Sequence[AddedToken], letters: dict[str, int]):
        super().__init__()
        keys, tokens = list(finder.tokens), list(finder.tokens.values())
        numbers = {key: number for number, key in enumerate(keys)}
        self._longest = _LongestPieces(numbers, letters, basic_tokenize=False)
        self._indices = tf.constant([added.index(token) for token in tokens])
        self._is_single = tf.constant([token["single_word"] for token in tokens])
        self.needs_words = any(token["single_word"] for token in tokens)

    def find(
        self, letters: tf.Tensor, are_of_words: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Find tokens from left to right in letters, int64 [M], the last of which is in no token.

        The result is the first letter of each token and the one after its last, int64 [K]; its number among those of
        the finder and its index among the added ones, int32 [K].
        """
        numbers, lengths = self._longest(letters, tf.ones_like(letters, tf.bool))
        starts = tf.where(lengths > 0)[:, 0]
        ends = starts + tf.gather(lengths, starts)
        kept = tf.where(_successive(starts, ends))[:, 0]
        starts, ends = tf.gather(starts, kept), tf.gather(ends, kept)
        numbers = tf.gather(numbers, starts)
        if self.needs_words:
            is_inside = tf.gather(shifted(are_of_words, 1), starts) | tf.gather(are_of_words, ends)
            kept = tf.where(~(tf.gather(self._is_single, numbers) & is_inside))[:, 0]
            starts, ends, numbers = (tf.gather(values, kept) for values in (starts, ends, numbers))
        return starts, ends, numbers, tf.gather(self._indices, numbers)


class _RawTokens(_TokenMatches):
    """Replaces the tokens that are found in text as it is."""

    def __init__(self, finder: TokenFinder, added: Sequence[AddedToken]):
        letters = graph_tables.letters_of(finder.tokens)
        self._num_added = len(added)
        super().__init__(finder, added, letters)
        numbers = np.full(graph_tables.NUM_CODE_POINTS, UNKNOWN_LETTER, np.int32)
        numbers[list(map(ord, letters))] = list(letters.values())
        self._letters = CodePointLookup(numbers)
        if self.needs_words:
            self._are_of_words = CodePointLookup(list(map(is_of_word, map(chr, range(graph_tables.NUM_CODE_POINTS)))))

    def replace(self, codes: tf.RaggedTensor, rules: tf.Tensor, num_rules: int) -> tf.Tensor:
        """Return the rules of characters, int32 [C], with those of tokens, which follow the first `num_rules`."""
        are_of_words = self._are_of_words(codes.flat_values) > 0 if self.needs_words else None
        # No token has the line break after each text.
        starts, ends, _, tokens = self.find(tf.cast(self._letters(codes.flat_values), tf.int64), are_of_words)
        rest = num_rules + self._num_added
        num_characters = tf.size(rules, tf.int64)
        return tf.where(
            _is_between(starts + 1, ends, num_characters),
            rest,
            tf.tensor_scatter_nd_update(rules, starts[:, tf.newaxis], num_rules + tokens),
        )


class _NormalizedTokens(_TokenMatches):
    """Replaces the tokens that are found in rewritten text."""

    def __init__(self, finder: TokenFinder, added: Sequence[AddedToken], letters: dict[str, int]):
        letters = _with_tokens(letters, added)
        self._first_token = graph_tables.FIRST_LETTER + len(letters) - len(added)
        self._space = graph_tables.FIRST_LETTER + len(letters)
        super().__init__(finder, added, letters | {" ": self._space})
        self._before = tf.constant([len(key) - len(key.lstrip()) for key in finder.tokens], tf.int64)
        self._after = tf.constant([len(key) - len(key.rstrip()) for key in finder.tokens], tf.int64)

    def replace(
        self, letters: tf.Tensor, text_starts: tf.Tensor, are_of_words: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return letters with one for each token, between separators, and the last letter of each; int64 [M]."""
        text_ends = text_starts[1:, tf.newaxis] - 1
        spaced = tf.where(letters == SEPARATOR, tf.constant(self._space, tf.int64), letters)
        unknown = tf.fill(tf.shape(text_ends)[:1], tf.constant(UNKNOWN_LETTER, tf.int64))
        spaced = tf.tensor_scatter_nd_update(spaced, text_ends, unknown)  # tokens do not reach into the next text
        starts, ends, numbers, tokens = self.find(spaced, are_of_words)
        places = tf.range(tf.size(letters, tf.int64))
        letters = tf.where(
            _is_between(starts, ends, tf.size(letters, tf.int64)), tf.constant(SEPARATOR, tf.int64), letters
        )
        starts, lasts = starts + tf.gather(self._before, numbers), ends - tf.gather(self._after, numbers) - 1
        letters = tf.tensor_scatter_nd_update(
            letters, starts[:, tf.newaxis], self._first_token + tf.cast(tokens, tf.int64)
        )
        return letters, tf.tensor_scatter_nd_update(places, starts[:, tf.newaxis], lasts)


def _with_tokens(letters: dict[str, int], added: Sequence[AddedToken]) -> dict[str, int]:
    """Return letters and further ones for tokens, whose names no wordpiece contains."""
    first = graph_tables.FIRST_LETTER + len(letters)
    return letters | {f"\n{index}": first + index for index in range(len(added))}


def _successive(starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Choose ranges from left to right that do not overlap: bool [K], for int64 [K] in the order of their starts."""
    count = tf.size(starts, tf.int64)
    following = tf.concat([tf.searchsorted(starts, ends, out_type=tf.int64), [count]], axis=0)
    is_chosen = tf.one_hot(0, tf.cast(count, tf.int32) + 1, dtype=tf.int32)

    def follow(distance: tf.Tensor, is_chosen: tf.Tensor, following: tf.Tensor) -> tuple[tf.Tensor, ...]:
        is_chosen = tf.maximum(is_chosen, tf.math.unsorted_segment_max(is_chosen, following, count + 1))
        return distance * 2, is_chosen, tf.gather(following, following)

    one = tf.constant(1, tf.int64)
    _, is_chosen, _ = tf.while_loop(lambda distance, *_: distance <= count, follow, (one, is_chosen, following))
    return is_chosen[:-1] > 0


def _is_between(starts: tf.Tensor, ends: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Return bool [size], True inside ranges, int64 [K], that do not overlap."""
    places = tf.concat([starts, ends], axis=0)
    steps = tf.concat([tf.ones_like(starts, tf.int32), -tf.ones_like(ends, tf.int32)], axis=0)
    return tf.cumsum(tf.math.unsorted_segment_sum(steps, places, size)) > 0


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
