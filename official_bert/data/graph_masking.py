"""Dynamic masking in the TensorFlow graph: the rules of `masking.py` for a batch at a time.

Each random number is a function of a seed, the visit number of the record and the position in the record. So the masks
of a visit are the same in any batch, on any machine and with any TensorFlow release, and a resumed run draws the same
masks as an uninterrupted one.
"""

import hashlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from official_bert.data.masking import BERT_REPLACEMENTS, MaskingVocabulary, Replacements, num_predictions
from official_bert.tokenization.vocab import Vocabulary

# Constants of splitmix64 (Steele, Lea and Flood, 2014): counter step, and shifts and factors of the output function.
_STEP = 0x9E3779B97F4A7C15
_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31

_NEVER = 2.0  # sorts after all random numbers


class GraphMasker:
    """In-graph random masking of batches, by the rules of `Masker`."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        masked_lm_prob: float,
        max_seq_length: int,
        max_predictions_per_seq: int,
        whole_word: bool,
        random_seed: int,
        purpose: str,
        replacements: Replacements = BERT_REPLACEMENTS,
    ):
        wordpieces = MaskingVocabulary.from_vocabulary(vocabulary)
        limits = {"masked_lm_prob": masked_lm_prob, "max_predictions_per_seq": max_predictions_per_seq}
        # Round in Python, to match `Masker` at every length.
        numbers = [num_predictions(length, **limits) for length in range(max_seq_length + 1)]
        digest = hashlib.sha256(f"{random_seed} {purpose}".encode()).digest()
        self._key = int.from_bytes(digest[:8], "little")
        self._mask_id = wordpieces.mask
        self._max_predictions = max_predictions_per_seq
        self._whole_word = whole_word
        # NumPy arrays, because tensors would be placed on a GPU while input is computed on the CPU.
        ids = range(vocabulary.size)
        self._is_kept = np.array([index in wordpieces.kept for index in ids])  # [V]
        self._continues_word = np.array([index in wordpieces.continues_word for index in ids])  # [V]
        self._parts_texts = wordpieces.parts_texts
        self._wordpieces = np.array(wordpieces.wordpieces, np.int32)
        self._below_mask, self._below_kept = replacements.mask, 1 - replacements.random
        self._numbers = np.array(numbers, np.int32)  # [S + 1]

    def mask(self, batch: Mapping[str, tf.Tensor], visits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Mask input_ids, int32 [B, S]; the seed and the visits, int64 [B], determine the random numbers.

        Adds masked_lm_positions, ascending, masked_lm_ids, int32 [B, P], and masked_lm_weights, float32 [B, P]; unused
        slots are 0.
        """
        ids, input_mask = batch["input_ids"], batch["input_mask"]
        num_positions, num_slots = tf.shape(ids)[1], self._max_predictions
        uniform = uniform_numbers(self._key, visits, 2 * num_slots + num_positions)
        kind, replacement, order = tf.split(uniform, [num_slots, num_slots, num_positions], axis=1)

        is_kept = tf.gather(self._is_kept, ids)  # [B, S]
        is_candidate = (input_mask == 1) & ~is_kept
        num_to_predict = tf.gather(self._numbers, tf.reduce_sum(input_mask, axis=1))  # [B]
        if self._whole_word:
            continues_word = tf.gather(self._continues_word, ids)
            if self._parts_texts:
                continues_word &= ~tf.roll(is_kept, 1, axis=1)
            positions = _choose_words(is_candidate, continues_word, num_to_predict, order, num_slots)
        else:
            positions = _choose_pieces(is_candidate, num_to_predict, order, num_slots)
        is_used = positions < num_positions  # [B, P]
        positions = tf.where(is_used, positions, 0)
        labels = tf.where(is_used, tf.gather(ids, positions, batch_dims=1), 0)

        random_pieces = tf.gather(self._wordpieces, tf.cast(replacement * len(self._wordpieces), tf.int32))
        kept_or_random = tf.where(kind < self._below_kept, labels, random_pieces)
        shown = tf.where(kind < self._below_mask, self._mask_id, kept_or_random)
        change = tf.where(is_used, shown - labels, 0)  # unused slots add 0 to the id at position 0
        rows = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, tf.newaxis], tf.shape(positions))
        return {
            **batch,
            "input_ids": tf.tensor_scatter_nd_add(ids, tf.stack([rows, positions], axis=-1), change),
            "masked_lm_positions": positions,
            "masked_lm_ids": labels,
            "masked_lm_weights": tf.cast(is_used, tf.float32),
        }


def uniform_numbers(key: int, visits: tf.Tensor, count: int) -> tf.Tensor:
    """Draw multiples of 2**-53 from [0, 1), float64 [B, count]: one splitmix64 stream per visit, int64 [B]."""
    starts = _mix(tf.cast(visits, tf.uint64) * _uint64(_STEP) + _uint64(key))  # [B]
    steps = tf.cast(tf.range(1, count + 1), tf.uint64) * _uint64(_STEP)  # [count]
    bits = tf.bitwise.right_shift(_mix(starts[:, tf.newaxis] + steps), _uint64(11))
    return tf.cast(bits, tf.float64) * 2.0**-53


def _mix(state: tf.Tensor) -> tf.Tensor:
    for shift, factor in _MIXING:
        state = tf.bitwise.bitwise_xor(state, tf.bitwise.right_shift(state, _uint64(shift))) * _uint64(factor)
    return tf.bitwise.bitwise_xor(state, tf.bitwise.right_shift(state, _uint64(_LAST_SHIFT)))


def _uint64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.uint64)


def _choose_pieces(is_candidate: tf.Tensor, num_to_predict: tf.Tensor, order: tf.Tensor, num_slots: int) -> tf.Tensor:
    """Choose the first num_to_predict [B] candidates [B, S] in an order [B, S]: int32 [B, P], S in unused slots."""
    num_positions = tf.shape(is_candidate)[1]
    first, positions = tf.math.top_k(-tf.where(is_candidate, order, _NEVER), tf.minimum(num_slots, num_positions))
    is_chosen = (tf.range(tf.shape(first)[1]) < num_to_predict[:, tf.newaxis]) & (first > -_NEVER)
    return _in_slots(tf.where(is_chosen, positions, num_positions), num_slots, num_positions)


def _choose_words(
    is_candidate: tf.Tensor, continues_word: tf.Tensor, num_to_predict: tf.Tensor, order: tf.Tensor, num_slots: int
) -> tf.Tensor:
    """Choose words in a random order, skipping those that no longer fit; see `_choose_pieces`.

    The words of a record are numbered, and `order` has an entry per number; `continues_word` is bool [B, S].
    """
    num_positions = tf.shape(is_candidate)[1]
    # A record's first wordpiece always begins a word; a wordpiece after [SEP] may continue the word before it.
    is_first = tf.cumsum(tf.cast(is_candidate, tf.int32), axis=1) == 1
    is_start = is_candidate & (is_first | ~continues_word)
    word = tf.maximum(tf.cumsum(tf.cast(is_start, tf.int32), axis=1) - 1, 0)  # [B, S], word number per position
    row_starts = tf.range(tf.shape(word)[0])[:, tf.newaxis] * num_positions
    lengths = tf.math.unsorted_segment_sum(
        tf.cast(is_candidate, tf.int32), word + row_starts, tf.size(word)
    )  # [B * S]; a word has at least one position
    lengths = tf.reshape(lengths, tf.shape(word))
    words = tf.argsort(tf.where(lengths > 0, order, _NEVER))  # [B, S], word numbers in random order
    is_chosen = first_fit(tf.gather(lengths, words, batch_dims=1), num_to_predict)
    is_chosen = tf.gather(is_chosen, tf.argsort(words), batch_dims=1)  # back in word order
    is_chosen = is_candidate & tf.gather(is_chosen, word, batch_dims=1)  # [B, S], per position
    return _in_slots(tf.where(is_chosen, tf.range(num_positions), num_positions), num_slots, num_positions)


def _in_slots(positions: tf.Tensor, num_slots: int, unused: tf.Tensor) -> tf.Tensor:
    positions = tf.sort(positions, axis=1)[:, :num_slots]
    filled = tf.pad(positions, [[0, 0], [0, num_slots - tf.shape(positions)[1]]], constant_values=unused)
    return tf.ensure_shape(filled, [None, num_slots])


def first_fit(lengths: tf.Tensor, num_left: tf.Tensor) -> tf.Tensor:
    """Select items in order; an item that exceeds the remaining room is skipped, and later ones are tried.

    Lengths are int32 [B, S], 0 for no item, and the room is int32 [B]; lengths 2 4 1 1 and room 4 select the first,
    third and fourth item. Each round selects as many consecutive open items as fit. The room only shrinks, so all items
    longer than it are rejected, including the first that did not fit. Usually two or three rounds are enough.
    """

    def is_any_open(is_taken, is_open, num_left):
        return tf.reduce_any(is_open)

    def take(is_taken, is_open, num_left):
        needed = tf.where(is_open, lengths, 0)
        is_new = is_open & (tf.cumsum(needed, axis=1) <= num_left)
        num_left -= tf.reduce_sum(tf.where(is_new, lengths, 0), axis=1, keepdims=True)
        return is_taken | is_new, is_open & ~is_new & (lengths <= num_left), num_left

    num_left = num_left[:, tf.newaxis]
    is_open = (lengths > 0) & (lengths <= num_left)
    is_taken, _, _ = tf.while_loop(is_any_open, take, [tf.zeros_like(is_open), is_open, num_left])
    return is_taken
