"""Servable tagging: map a sentence to its words with tags, and to entities.

Windows and tags match `run_ner.py` (`records.py`), implemented as TensorFlow operations.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from official_bert.metrics.tagging import find_entities, has_entities
from official_bert.modeling.tagging import Transitions, marginals, viterbi
from official_bert.serving.servable import Tensors, WindowedServable, check_table_size, check_text_size, traced
from official_bert.tasks.tagging.reader import LEAST, TABLES, WORDS
from official_bert.tasks.tagging.task import TaggingTextModel
from official_bert.tokenization.graph_operations import (
    RaggedEncodingWithOffsets,
    SlidingWindows,
    cut_out,
    in_groups,
    in_runs,
    join_parts,
    rows_of,
)

_BLANKS = [
    code for code in range(sys.maxunicode + 1) if chr(code).isspace()
]  # the characters at which `str.split` splits

_MOST_WINDOWS = 32  # that are read together
_LARGEST_GROUP = 1 << 22  # scores of the sentences that are decoded together, unless a single one has more
_LENGTHS = [1 << power for power in range(32)]  # maximum words of the sentences that are decoded together
# B: sentences, W: words of all sentences, R: windows of all sentences, S: positions, C: tags, E: entities.


class Words(NamedTuple):
    """The words of all sentences."""

    texts: tf.Tensor  # string [W]
    starts: tf.Tensor  # int32 [W], offset of each word's first character in its sentence
    ends: tf.Tensor  # int32 [W], offset after each word's last character
    row_splits: tf.Tensor  # int64 [B + 1], number of words before each sentence, and in total


def split_at_blanks(text: tf.Tensor) -> Words:
    """Split texts, string [B], as `str.split` does."""
    characters = tf.strings.unicode_decode(text, "UTF-8", errors="ignore")  # [B, (characters)]
    codes = characters.flat_values
    is_blank = characters.with_flat_values(tf.reduce_any(codes[:, tf.newaxis] == tf.constant(_BLANKS), axis=1))
    edges = tf.ones([characters.nrows(), 1], tf.bool)
    padded = tf.concat([edges, is_blank, edges], axis=1)  # so that blanks are before and after each word
    is_blank = padded.flat_values
    firsts = tf.where(is_blank[:-1] & ~is_blank[1:])[:, 0]  # [W], the blanks before words
    lasts = tf.where(~is_blank[:-1] & is_blank[1:])[:, 0]  # [W], the last characters
    row_splits = tf.searchsorted(firsts, padded.row_splits, out_type=tf.int64)
    row = tf.gather(rows_of(padded), firsts)
    starts, ends = (places - tf.gather(padded.row_starts(), row) for places in (firsts, lasts))
    offsets = tf.gather(characters.row_starts(), row)
    return Words(
        cut_out(codes, offsets + starts, offsets + ends), tf.cast(starts, tf.int32), tf.cast(ends, tf.int32), row_splits
    )


def split_at_wordpieces(text: tf.Tensor, found: RaggedEncodingWithOffsets) -> Words:
    """Return the wordpieces of texts, string [B], as words: a model of characters tags each of them."""
    characters = tf.strings.unicode_decode(text, "UTF-8", errors="ignore")
    offsets = tf.gather(characters.row_starts(), rows_of(found.ids))
    starts, ends = found.starts.flat_values, found.ends.flat_values
    texts = cut_out(characters.flat_values, *(offsets + tf.cast(places, tf.int64) for places in (starts, ends)))
    return Words(texts, starts, ends, tf.cast(found.ids.row_splits, tf.int64))


class EntityFinder:
    """Equivalent of `metrics.tagging.find_entities`, with tables for every pair of adjacent tags."""

    def __init__(self, tags: Sequence[str]):
        """Build the tables for C tags."""
        if not has_entities(set(tags)):
            tags = ["O"] * len(tags)  # part-of-speech tags, for example, mark no entities
        found = [find_entities([tag]) for tag in tags]
        types = sorted({entities[0].type for entities in found if entities})
        numbers = [types.index(entities[0].type) if entities else -1 for entities in found]
        begins = [
            [any(entity.start == 1 for entity in find_entities([before, tag])) for tag in tags] for before in tags
        ]
        self._types = tf.constant(types or [""], tf.string)
        self._type_of_tag = tf.constant(numbers, tf.int64)  # [C], -1 for tags outside entities
        self._begins = tf.constant(begins, tf.bool)  # [C, C], whether an entity begins at a tag that follows another

    def __call__(
        self, text: tf.Tensor, words: Words, numbers: tf.Tensor, probabilities: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Find the entities of sentences, string [B], from the numbers and probabilities of the words' tags, each [W].

        The result is the entity outputs of `TaggingServable.answer`, each [E], and `num_entities`, [B].
        """
        types = tf.gather(self._type_of_tag, numbers)  # [W], -1 outside entities
        before = tf.concat([[0], numbers], axis=0)[:-1]
        begins = tf.gather_nd(self._begins, tf.stack([before, numbers], axis=1))
        sentence = tf.ragged.row_splits_to_segment_ids(words.row_splits)  # [W]
        begins |= tf.concat([[-1], sentence], axis=0)[:-1] != sentence
        begins &= types >= 0
        entity = tf.cumsum(tf.cast(begins, tf.int64)) - 1  # [W], index of the entity that contains the word, if any
        in_entity = tf.where(types >= 0)[:, 0]
        entity = tf.gather(entity, in_entity)
        first = tf.where(begins)[:, 0]  # [E]
        num_entities = tf.size(first, tf.int64)
        last = tf.math.unsorted_segment_max(in_entity, entity, num_entities)
        least = tf.math.unsorted_segment_min(tf.gather(probabilities, in_entity), entity, num_entities)
        starts, ends = tf.gather(words.starts, first), tf.gather(words.ends, last)
        sentence = tf.gather(sentence, first)
        # Offsets count decodable characters: undecodable bytes are dropped before slicing.
        characters = tf.strings.unicode_decode(text, "UTF-8", errors="ignore")
        offsets = tf.gather(characters.row_starts(), sentence)
        texts = cut_out(characters.flat_values, offsets + tf.cast(starts, tf.int64), offsets + tf.cast(ends, tf.int64))
        counts = tf.math.bincount(tf.cast(sentence, tf.int32), minlength=tf.size(text), dtype=tf.int64)
        return {
            "entities": texts,
            "entity_types": tf.gather(self._types, tf.gather(types, first)),
            "entity_starts": starts,
            "entity_ends": ends,
            "entity_probabilities": least,
            "num_entities": counts,
        }


def decode_words(scores: tf.Tensor, row_splits: tf.Tensor, transitions: Transitions) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the tag numbers, int64 [W], of the most likely sequences, and their probabilities over all sequences.

    Scores, float32 [W, C], are logits or log-probabilities, and `row_splits`, int64 [B + 1], split the words into
    sentences. These are decoded in groups of similar length, so that memory is proportional to the number of words.
    """
    num_tags, lengths = scores.shape[1], row_splits[1:] - row_splits[:-1]
    size = tf.searchsorted(tf.constant(_LENGTHS, lengths.dtype), lengths)  # [B], index in `_LENGTHS`
    order = tf.argsort(size, stable=True)
    size, starts, ends = (tf.gather(values, order) for values in (size, row_splits[:-1], row_splits[1:]))
    rank = tf.range(tf.size(size)) - tf.searchsorted(size, size)  # among the sentences of this size
    most = [max(_LARGEST_GROUP // (num_tags * max(num_tags, length)), 1) for length in _LENGTHS]
    groups = tf.stack([size, rank // tf.gather(most, size)], axis=1)
    _, groups = tf.raw_ops.UniqueV2(x=groups, axis=[0])
    padded = tf.pad(scores, [[0, 1], [0, 0]])

    def decode(starts: tf.Tensor, ends: tf.Tensor) -> Tensors:
        lengths = (ends - starts)[:, tf.newaxis]
        places = tf.range(tf.reduce_max(tf.concat([lengths, [[2]]], axis=0)))  # [S], at least two: a scan has steps
        is_word = places < lengths  # [B, S]
        scores = tf.gather(padded, tf.where(is_word, starts[:, tf.newaxis] + places, row_splits[-1]))  # [B, S, C]
        numbers = viterbi(scores, is_word, transitions)
        shares = tf.gather(marginals(scores, is_word, transitions), numbers, batch_dims=2)
        return {"numbers": tf.boolean_mask(numbers, is_word), "shares": tf.boolean_mask(shares, is_word)}

    found = in_runs(decode, [starts, ends], groups)
    places = tf.ragged.range(starts, ends).flat_values  # [W], of the words of the sentences in `order`
    numbers, shares = (
        tf.scatter_nd(places[:, tf.newaxis], values, tf.shape(scores, places.dtype)[:1])
        for values in (tf.cast(found["numbers"], tf.int64), found["shares"])
    )
    return numbers, shares


class TaggingServable(TaggingTextModel, WindowedServable):
    """A model of `run_ner.py`."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._tags = tf.constant(self.tags, tf.string)
        self._unk_id = self.tokenizer.unk_id
        self._entities = EntityFinder(self.tags)

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """Add `words`, for pretokenized sentences."""
        if not self.reads_texts:
            return super().signatures()
        table = tf.TensorSpec([None, None], tf.string)
        return {**super().signatures(), WORDS: traced(self.answer_words, ["words"], table, ("sentences", "words"))}

    def more_warmup_requests(self, texts: Mapping[str, tf.Tensor]) -> list[tuple[str, Tensors]]:
        return [(WORDS, {"words": tf.strings.split(texts["text"]).to_tensor()})]

    def cut(self, text: tf.Tensor) -> tuple[tf.Tensor, Tensors]:
        return self._windows(*self._split(text))[:2]

    def _split(self, text: tf.Tensor) -> tuple[Words, tf.RaggedTensor]:
        """Return the words of sentences, and the wordpieces of each word, [W, (wordpieces)]."""
        if not self._of_characters:
            words = split_at_blanks(text)
            return words, self._graph_tokenizer().encode_words(words.texts)
        found = self._graph_tokenizer().encode_with_offsets(text)
        return split_at_wordpieces(text, found), tf.RaggedTensor.from_tensor(found.ids.flat_values[:, tf.newaxis])

    def predict(self, inputs: Tensors) -> Tensors:
        """Return `numbers`, and the most likely tag of each position, string [B, S]."""
        outputs = self.numbers(inputs)
        return {**outputs, "position_tags": tf.gather(self._tags, tf.argmax(outputs["probabilities"], axis=-1))}

    def answer(self, text: tf.Tensor) -> Tensors:
        """Tag sentences and find the entities in them: the outputs in `TABLES`, padded with "" or 0."""
        text, num_bytes = check_text_size(text, "text")
        found = in_groups(self._answer_some, [text], num_bytes)
        with tf.device("CPU:0"):
            tables = {}
            for count, names in TABLES.items():
                lengths = check_table_size(tf.size(text, tf.int64), found[count])
                for name in names:
                    tables[name] = tf.RaggedTensor.from_row_lengths(found[name], lengths, validate=False).to_tensor()
            return tables

    def _answer_some(self, text: tf.Tensor) -> Tensors:
        """Return the outputs of `answer` without padding, with the row lengths: the keys of `TABLES`."""
        with tf.device("CPU:0"):
            words, wordpieces = self._split(text)
        numbers, probabilities = self._tag(words, wordpieces)
        with tf.device("CPU:0"):
            return {
                "words": words.texts,
                "tags": tf.gather(self._tags, numbers),
                "probabilities": probabilities,
                "num_words": words.row_splits[1:] - words.row_splits[:-1],
                **self._entities(text, words, numbers, probabilities),
            }

    def answer_words(self, words: tf.Tensor) -> Tensors:
        """Tag pretokenized sentences, string [B, words]; "" is padding and gets no tag."""
        words, num_bytes = check_text_size(words, "words")
        shape = tf.shape(words, tf.int64)
        with tf.control_dependencies([check_table_size(shape[0], shape[1:])]):
            return in_groups(self._answer_some_words, [tf.identity(words)], num_bytes)

    def _answer_some_words(self, words: tf.Tensor) -> Tensors:
        with tf.device("CPU:0"):
            is_word = words != ""
            counts = tf.reduce_sum(tf.cast(is_word, tf.int64), axis=1)
            places = tf.where(is_word)
            row_splits = tf.concat([[0], tf.cumsum(counts)], axis=0)
            no_offsets = tf.zeros([tf.size(places) // 2], tf.int32)
            texts = tf.gather_nd(words, places)
            wordpieces = self._graph_tokenizer().encode_words(texts)
        numbers, probabilities = self._tag(Words(texts, no_offsets, no_offsets, row_splits), wordpieces)
        with tf.device("CPU:0"):
            shape = tf.shape(words, tf.int64)
            return {
                "tags": tf.tensor_scatter_nd_update(tf.fill(shape, ""), places, tf.gather(self._tags, numbers)),
                "probabilities": tf.scatter_nd(places, probabilities, shape),
            }

    def _tag(self, words: Words, wordpieces: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the tag number of each word, int64 [W], and its probability, float32 [W]."""
        with tf.device("CPU:0"):
            _, ids, places = self._windows(words, wordpieces)
        names, numbers = list(ids), tf.range(tf.size(ids["input_ids"][:, 0], tf.int64))

        def predict_words(numbers: tf.Tensor, *arrays: tf.Tensor) -> Tensors:
            """Return the probabilities of the words in some windows: later words are never in earlier windows."""
            first, last = tf.reduce_min(numbers), tf.reduce_max(numbers)
            own = tf.boolean_mask(places, (places[:, 0] >= first) & (places[:, 0] <= last))
            probabilities = self._predict(dict(zip(names, arrays, strict=True)))["probabilities"]  # [R, S, C]
            return {"probabilities": tf.gather_nd(probabilities, own - [first, 0])}

        at_once = min(_MOST_WINDOWS, self.bert_config.most_sequences(self.max_seq_length))
        found = in_runs(predict_words, [numbers, *ids.values()], numbers // at_once)
        with tf.device("CPU:0"):
            return self.decide(found["probabilities"], words.row_splits)

    def decide(self, probabilities: tf.Tensor, row_splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Choose the number of each word's tag, int64 [W], and its probability, from those of all tags, [W, C].

        `row_splits`, int64 [B + 1], are the first word of each sentence, and W; the transitions end with a sentence.
        """
        if self._transitions is not None:
            return decode_words(tf.math.log(tf.maximum(probabilities, LEAST)), row_splits, self._transitions)
        return tf.argmax(probabilities, axis=-1), tf.reduce_max(probabilities, axis=-1)

    def _windows(self, words: Words, wordpieces: tf.RaggedTensor) -> tuple[tf.Tensor, Tensors, tf.Tensor]:
        """Split sentences into windows, as `make_windows` does without documents.

        The result is the sentence of each window, int64 [R]; its model inputs, int32 [R, S]; and the window and
        position that tag each word, int64 [W, 2].
        """
        nothing_left = wordpieces.row_lengths() == 0
        unknown = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(nothing_left)], self._unk_id),
            tf.cast(nothing_left, tf.int64),
            validate=False,
        )
        wordpieces = tf.concat([wordpieces, unknown], axis=1)
        sentences = tf.RaggedTensor.from_row_splits(
            wordpieces.flat_values, tf.gather(wordpieces.row_splits, words.row_splits), validate=False
        )  # [B, (wordpieces)]
        cuts = SlidingWindows.from_lengths(sentences.row_lengths(), self.max_seq_length - 2)
        windows = cuts.windows()
        ids = join_parts(windows.parts(sentences), specials=self._specials)

        of_word = rows_of(tf.RaggedTensor.from_row_splits(words.texts, words.row_splits, validate=False))  # [W]
        piece, own = wordpieces.row_starts() - tf.gather(sentences.row_starts(), of_word), cuts.gather(of_word)
        best = own.best_windows(piece)
        window = tf.gather(tf.cumsum(cuts.num_windows, exclusive=True), of_word) + best
        return windows.text, ids, tf.stack([window, piece - own.first(best) + 1], axis=1)


servable_of_run = TaggingServable.of_run
