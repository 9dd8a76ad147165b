"""Masking in a graph, compared with the plain rules for the same random numbers, and with the records' masker."""

import random

import pytest
import tensorflow as tf

from official_bert.data.graph_masking import GraphMasker, uniform_numbers
from official_bert.data.masking import Replacements
from official_bert.tokenization import Vocabulary
from tests.conftest import endurance
from tests.data.masking_vocabulary import CLS, FIRST_SUFFIX, FIRST_WORD, MASK, PIECES, SEP, BareFirstWords

# Like a vocabulary file with a repeated line, where the piece has the number of its last line.
TOKEN_TO_ID = {piece: index for index, piece in enumerate(PIECES)} | {"w7": len(PIECES)}
VOCABULARY = Vocabulary(TOKEN_TO_ID)
LENGTH = 64


def options(whole_word=False, masked_lm_prob=0.15, max_predictions_per_seq=12):
    return {
        "whole_word": whole_word,
        "masked_lm_prob": masked_lm_prob,
        "max_predictions_per_seq": max_predictions_per_seq,
    }


def graph_masker(length=LENGTH, random_seed=1, purpose="training", vocabulary=VOCABULARY, **changes):
    limits = {**options(), **changes, "max_seq_length": length, "random_seed": random_seed, "purpose": purpose}
    return GraphMasker(vocabulary, **limits)


def sequence(rng, num_wordpieces, share_of_suffixes=0.5):
    """Return two parts; the second may begin within a word, as if its front was cut."""
    kinds = [rng.random() < share_of_suffixes for _ in range(num_wordpieces - 3)]
    body = [rng.randrange(*((FIRST_SUFFIX, len(PIECES)) if kind else (FIRST_WORD, FIRST_SUFFIX))) for kind in kinds]
    middle = rng.randint(1, len(body))
    return [CLS, *body[:middle], SEP, *body[middle:], SEP]


def batch_of(sequences, length=LENGTH):
    padded = {
        "input_ids": [ids + [0] * (length - len(ids)) for ids in sequences],
        "input_mask": [[1] * len(ids) + [0] * (length - len(ids)) for ids in sequences],
        "segment_ids": [[0] * length for _ in sequences],
    }
    return {name: tf.constant(rows, tf.int32, [len(sequences), length]) for name, rows in padded.items()}


def masked(masker, sequences, first_visit=0, length=LENGTH):
    visits = first_visit + tf.range(len(sequences), dtype=tf.int64)
    compiled = tf.function(masker.mask)
    return {name: value.numpy() for name, value in compiled(batch_of(sequences, length), visits).items()}


def masked_by_plain_rules(
    ids, uniform, *, whole_word, masked_lm_prob, max_predictions_per_seq, replacements, parts_texts=False
):
    """Return ids, positions and labels of one record, using loops and lists."""
    num_slots = max_predictions_per_seq
    kind, replacement, order = uniform[:num_slots], uniform[num_slots : 2 * num_slots], uniform[2 * num_slots :]
    words = []
    for position, index in enumerate(ids):
        if index in (CLS, SEP):
            continue
        begins = parts_texts and ids[position - 1] in (CLS, SEP)
        if whole_word and words and FIRST_SUFFIX <= index < len(PIECES) and not begins:
            words[-1].append(position)
        else:
            words.append([position])
    # A word's rank in the random order is the number at its index, among the words or the positions.
    places = {word[0]: number if whole_word else word[0] for number, word in enumerate(words)}
    words.sort(key=lambda word: order[places[word[0]]])
    num_to_predict = min(num_slots, max(1, round(len(ids) * masked_lm_prob)))
    chosen = []
    for word in words:
        if len(chosen) + len(word) <= num_to_predict:
            chosen += word
    chosen.sort()
    result = list(ids)
    pieces = list(TOKEN_TO_ID.values())
    for slot, position in enumerate(chosen):
        if kind[slot] < replacements.mask:
            result[position] = MASK
        elif kind[slot] >= 1 - replacements.random:
            result[position] = pieces[int(replacement[slot] * len(pieces))]
    return result, chosen, [ids[position] for position in chosen]


def splitmix64(state, count):
    """Return the next numbers of the published generator, with Python integers."""
    numbers = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        number = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) % 2**64
        numbers.append(number ^ (number >> 31))
    return numbers


def test_the_random_numbers_are_those_of_the_published_generator():
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    key, visits = 2**64 - 59, [0, 1, 2**40]
    found = uniform_numbers(key, tf.constant(visits, tf.int64), 50).numpy()
    for visit, row in zip(visits, found, strict=True):
        (start,) = splitmix64((key + (visit - 1) * 0x9E3779B97F4A7C15) % 2**64, 1)
        assert row.tolist() == [(number >> 11) / 2**53 for number in splitmix64(start, 50)]


@pytest.mark.parametrize("whole_word", [False, True])
@pytest.mark.parametrize(
    ("share", "num_slots", "kind", "replacements"),
    [
        (0.15, 12, Vocabulary, Replacements()), (0.5, 20, BareFirstWords, Replacements(0.7, 0.3)),
        (0.01, 3, Vocabulary, Replacements(0.0, 1.0)),
        *endurance(
            (1.0, LENGTH + 6, Vocabulary, Replacements(0.5, 0.25)), (0.3, 1, Vocabulary, Replacements(0.0, 0.0)),
            (0.3, 7, Vocabulary, Replacements(1.0, 0.0)),
        ),
    ],
)  # fmt: skip
def test_masks_are_those_of_the_plain_rules(whole_word, share, num_slots, kind, replacements):
    rng = random.Random(4)
    changes = {**options(whole_word, share, num_slots), "replacements": replacements}
    masker = graph_masker(**changes, vocabulary=kind(TOKEN_TO_ID))
    sequences = [sequence(rng, rng.randint(4, LENGTH), rng.choice([0.1, 0.6, 0.95])) for _ in range(300)]
    sequences.append([CLS, SEP, SEP])  # nothing to mask
    uniform = uniform_numbers(masker._key, tf.range(len(sequences), dtype=tf.int64), 2 * num_slots + LENGTH).numpy()
    found = masked(masker, sequences)
    for row, ids in enumerate(sequences):
        changes["parts_texts"] = not kind.marks_first_word
        expected, positions, labels = masked_by_plain_rules(ids, uniform[row].tolist(), **changes)
        unused = [0] * (num_slots - len(positions))
        assert found["input_ids"][row].tolist() == expected + [0] * (LENGTH - len(ids)), row
        assert found["masked_lm_positions"][row].tolist() == positions + unused, row
        assert found["masked_lm_ids"][row].tolist() == labels + unused, row
        assert found["masked_lm_weights"][row].tolist() == [1.0] * len(positions) + unused, row
