"""Split sentences into words and decode entities from tags, as TensorFlow operations."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from official_bert.metrics.tagging import find_entities, has_entities
from official_bert.tokenization.graph_operations import cut_out

_BLANKS = [
    code for code in range(sys.maxunicode + 1) if chr(code).isspace()
]  # the characters at which `str.split` splits

# B: sentences, W: words of all sentences, C: tags, E: entities.


class Words(NamedTuple):
    """The words of all sentences.

    Attributes:
      texts: string [W].
      starts: int32 [W], offset of each word's first character in its sentence.
      ends: int32 [W], offset after each word's last character.
      row_splits: int64 [B + 1], number of words before each sentence, and in total.
    """

    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    row_splits: tf.Tensor


def split_at_blanks(text: tf.Tensor) -> Words:
    """Split texts, string [B], as `str.split` does."""
    characters = tf.strings.unicode_decode(text, "UTF-8", errors="ignore")  # [B, (characters)]
    codes = characters.flat_values
    is_blank = tf.reduce_any(codes[:, tf.newaxis] == tf.constant(_BLANKS), axis=1)
    row_starts = tf.scatter_nd(
        characters.row_starts()[:, tf.newaxis], tf.ones([characters.nrows()], tf.int32), [tf.size(codes) + 1]
    )[:-1]
    follows_blank = tf.concat([[True], is_blank[:-1]], axis=0)[: tf.size(codes)] | (row_starts > 0)
    firsts = tf.where(~is_blank & follows_blank)[:, 0]  # [W]
    row_ends = tf.concat([row_starts[1:], [1]], axis=0)[: tf.size(codes)]
    before_blank = tf.concat([is_blank[1:], [True]], axis=0)[: tf.size(codes)] | (row_ends > 0)
    ends = tf.where(~is_blank & before_blank)[:, 0] + 1
    row_splits = tf.searchsorted(firsts, characters.row_splits, out_type=tf.int64)
    offsets = tf.repeat(characters.row_starts(), row_splits[1:] - row_splits[:-1])
    return Words(
        cut_out(codes, firsts, ends), tf.cast(firsts - offsets, tf.int32), tf.cast(ends - offsets, tf.int32), row_splits
    )


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
        """Find the entities of all sentences.

        Args:
          text: string [B], the sentences.
          words: their words.
          numbers: int64 [W], their tag ids.
          probabilities: float32 [W], probabilities of these tags.

        Returns:
          The entity outputs of `TaggingServable.answer`, each [E], and `num_entities`, [B].
        """
        types = tf.gather(self._type_of_tag, numbers)  # [W], -1 outside entities
        before = tf.concat([[0], numbers], axis=0)[:-1]
        begins_sentence = tf.scatter_nd(
            words.row_splits[:-1, tf.newaxis], tf.ones_like(words.row_splits[:-1], tf.int32), [tf.size(numbers) + 1]
        )[:-1]
        begins = tf.gather_nd(self._begins, tf.stack([before, numbers], axis=1)) | (begins_sentence > 0)
        begins &= types >= 0
        entity = tf.cumsum(tf.cast(begins, tf.int64)) - 1  # [W], index of the entity that contains the word, if any
        in_entity = tf.where(types >= 0)[:, 0]
        entity = tf.gather(entity, in_entity)
        first = tf.where(begins)[:, 0]  # [E]
        num_entities = tf.size(first, tf.int64)
        last = tf.math.unsorted_segment_max(in_entity, entity, num_entities)
        least = tf.math.unsorted_segment_min(tf.gather(probabilities, in_entity), entity, num_entities)
        starts, ends = tf.gather(words.starts, first), tf.gather(words.ends, last)
        sentence = tf.searchsorted(words.row_splits[1:], first, side="right", out_type=tf.int64)
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
