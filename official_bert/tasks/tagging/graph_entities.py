"""Words of sentences and the entities that their tags mark, as TensorFlow operations."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from official_bert.metrics.tagging import find_entities, has_entities
from official_bert.tokenization.graph_operations import cut_out

_BLANKS = [code for code in range(sys.maxunicode + 1) if chr(code).isspace()]  # at which `str.split` splits

# B: sentences, W: words of all sentences, C: tags, E: entities.


class Words(NamedTuple):
    """The words of all sentences.

    Attributes:
      texts: string [W].
      starts: int32 [W], the character of its sentence at which each begins.
      ends: int32 [W], the character after it.
      row_splits: int64 [B + 1], how many words stand before each sentence, and all.
    """

    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    row_splits: tf.Tensor


def split_at_blanks(text: tf.Tensor) -> Words:
    """Split texts, string [B], where `str.split` splits them."""
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
    """Finds entities as `metrics.tagging.find_entities` does, by its results for every pair of neighbouring tags."""

    def __init__(self, tags: Sequence[str]):
        """Make the tables of C tags."""
        if not has_entities(set(tags)):
            tags = ["O"] * len(tags)  # parts of speech, say, mark none
        found = [find_entities([tag]) for tag in tags]
        types = sorted({entities[0].type for entities in found if entities})
        numbers = [types.index(entities[0].type) if entities else -1 for entities in found]
        begins = [
            [any(entity.start == 1 for entity in find_entities([before, tag])) for tag in tags] for before in tags
        ]
        self._types = tf.constant(types or [""], tf.string)
        self._type_of_tag = tf.constant(numbers, tf.int64)  # [C], -1 of a tag outside of entities
        self._begins = tf.constant(begins, tf.bool)  # [C, C], whether an entity begins with a tag behind another one

    def __call__(
        self, text: tf.Tensor, words: Words, numbers: tf.Tensor, probabilities: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Find the entities of all sentences.

        Args:
          text: string [B], the sentences.
          words: their words.
          numbers: int64 [W], the numbers of their tags.
          probabilities: float32 [W], of these tags.

        Returns:
          Outputs of `TaggingServable.answer` about entities, each [E], and `num_entities`, [B].
        """
        types = tf.gather(self._type_of_tag, numbers)  # [W], -1 outside of entities
        before = tf.concat([[0], numbers], axis=0)[:-1]
        begins_sentence = tf.scatter_nd(
            words.row_splits[:-1, tf.newaxis], tf.ones_like(words.row_splits[:-1], tf.int32), [tf.size(numbers) + 1]
        )[:-1]
        begins = tf.gather_nd(self._begins, tf.stack([before, numbers], axis=1)) | (begins_sentence > 0)
        begins &= types >= 0
        entity = tf.cumsum(tf.cast(begins, tf.int64)) - 1  # [W], the entity a word is in, if it is in one
        in_entity = tf.where(types >= 0)[:, 0]
        entity = tf.gather(entity, in_entity)
        first = tf.where(begins)[:, 0]  # [E]
        num_entities = tf.size(first, tf.int64)
        last = tf.math.unsorted_segment_max(in_entity, entity, num_entities)
        least = tf.math.unsorted_segment_min(tf.gather(probabilities, in_entity), entity, num_entities)
        starts, ends = tf.gather(words.starts, first), tf.gather(words.ends, last)
        sentence = tf.searchsorted(words.row_splits[1:], first, side="right", out_type=tf.int64)
        # Only what can be decoded counts: what cannot is dropped before anything is cut out.
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
