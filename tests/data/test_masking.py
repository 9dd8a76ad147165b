"""Selection and replacement of masked words, for records, and in a graph by plain rules for its random numbers."""

import math
import random

import pytest
import tensorflow as tf

from official_bert.data.graph_masking import GraphMasker, uniform_numbers
from official_bert.data.masking import Masker, Replacements, shuffle
from official_bert.tokenization import Vocabulary

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(50)), *(f"##s{n}" for n in range(50))]
CLS, SEP, MASK = 2, 3, 4
FIRST_WORD, FIRST_SUFFIX = 5, 55
VOCABULARY = Vocabulary({piece: index for index, piece in enumerate(PIECES)})


class BareFirstWords(Vocabulary):
    """A vocabulary like that of a byte-level BPE, in which nothing marks the first word of a text."""

    marks_first_word = False


def masker(vocabulary=VOCABULARY, **changes):
    options = {"masked_lm_prob": 0.15, "max_predictions_per_seq": 20, "whole_word": False}
    return Masker(vocabulary, **{**options, **changes})


def sequence(rng, length=100, share_of_suffixes=0.5):
    """Return two parts; the second may begin within a word, as if its front was cut."""
    kinds = [rng.random() < share_of_suffixes for _ in range(length - 3)]
    body = [rng.randrange(*((FIRST_SUFFIX, len(PIECES)) if kind else (FIRST_WORD, FIRST_SUFFIX))) for kind in kinds]
    middle = rng.randint(1, len(body) - 1)
    return [CLS, *body[:middle], SEP, *body[middle:], SEP]


@pytest.mark.parametrize("kind", [Vocabulary, BareFirstWords])
def test_whole_words_stay_whole(kind):
    rng, across = random.Random(4), 0
    of_words = masker(kind(VOCABULARY.token_to_id), whole_word=True)
    for _ in range(200):
        ids = sequence(rng)
        hidden = set(of_words.mask(ids, rng).positions)
        assert len(hidden) <= 15
        words = []
        for position, index in enumerate(ids):
            if index in (CLS, SEP):
                continue
            if words and index >= FIRST_SUFFIX and (kind is Vocabulary or ids[position - 1] not in (CLS, SEP)):
                words[-1].append(position)
            else:
                words.append([position])
        for word in words:
            assert set(word) <= hidden or not set(word) & hidden
        middle = ids.index(SEP)
        across += ids[middle + 1] >= FIRST_SUFFIX and len({middle - 1, middle + 1} & hidden) == 1
    assert (across > 0) == (kind is BareFirstWords)  # the first word of the second text is another one


NGRAMS = {"whole_word": True, "max_ngram_length": 3, "masked_lm_prob": 0.5}


def test_ngrams_are_whole_neighbouring_words_of_one_text():
    rng = random.Random(6)
    for _ in range(200):
        ids = sequence(rng)
        ids[ids.index(SEP) + 1] = FIRST_WORD  # a continuation would belong to the word before [SEP]
        masked = masker(whole_word=True, max_ngram_length=3).mask(ids, rng)
        hidden = set(masked.positions)
        assert 0 < len(hidden) == len(masked.positions) <= 15
        assert not any(ids[position] in (CLS, SEP) for position in hidden)
        for position, index in enumerate(ids):
            if index >= FIRST_SUFFIX and ids[position - 1] not in (CLS, SEP):
                assert (position in hidden) == (position - 1 in hidden)
    ids = [CLS, FIRST_WORD, SEP, *range(FIRST_WORD, FIRST_WORD + 20), SEP]
    of_two = masker(**NGRAMS, max_predictions_per_seq=2)
    drawn = [of_two.mask(ids, rng).positions for _ in range(2000)]
    both = [3 in positions for positions in drawn if 1 in positions]
    assert len(both) > 100
    assert sum(both) / len(both) < 0.15  # by chance; as one unit they would be masked together in a third of the cases


def test_lengths_of_ngrams_have_probabilities_in_proportion_to_their_inverse():
    """Three masked words in a text of hundreds are together, two and one, or all separate, in known proportions."""
    rng, counts, total = random.Random(7), {}, 2000
    ids = [CLS, *[*range(FIRST_WORD, FIRST_WORD + 50)] * 4, SEP]
    of_three = masker(**NGRAMS, max_predictions_per_seq=3)
    for _ in range(total):
        first, second, third = of_three.mask(ids, rng).positions
        kind = (second - first == 1) + (third - second == 1)
        counts[kind] = counts.get(kind, 0) + 1
    one, two, three = 6 / 11, 3 / 11, 2 / 11
    for kind, share in {2: three, 1: two + one * (two + three), 0: one * one}.items():
        error = 3 * math.sqrt(share * (1 - share) / total)
        assert abs(counts[kind] / total - share) < error + 0.02  # two may be adjacent by chance


def test_shuffle_is_random_shuffle_bit_for_bit():
    for seed, length in enumerate([*range(100), *range(505, 520), 2000]):
        expected, ours = list(range(length)), list(range(length))
        first, second = random.Random(seed), random.Random(seed)
        first.shuffle(expected)
        shuffle(ours, second)
        assert ours == expected
        assert second.random() == first.random()


# Like a vocabulary file with a repeated line, where the piece has the number of its last line.
TOKEN_TO_ID = {piece: index for index, piece in enumerate(PIECES)} | {"w7": len(PIECES)}


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
    ],
)  # fmt: skip
def test_masks_in_a_graph_are_those_of_the_plain_rules(whole_word, share, num_slots, kind, replacements):
    rng, length = random.Random(4), 64
    options = {"whole_word": whole_word, "masked_lm_prob": share, "max_predictions_per_seq": num_slots}
    options["replacements"] = replacements
    masker = GraphMasker(kind(TOKEN_TO_ID), **options, max_seq_length=length, random_seed=1, purpose="training")
    sequences = [sequence(rng, rng.randint(5, length), rng.choice([0.1, 0.6, 0.95])) for _ in range(120)]
    sequences.append([CLS, SEP, SEP])  # nothing to mask
    visits = tf.range(len(sequences), dtype=tf.int64)
    batch = {
        "input_ids": [ids + [0] * (length - len(ids)) for ids in sequences],
        "input_mask": [[1] * len(ids) + [0] * (length - len(ids)) for ids in sequences],
        "segment_ids": [[0] * length for _ in sequences],
    }
    found = tf.function(masker.mask)({name: tf.constant(rows, tf.int32) for name, rows in batch.items()}, visits)
    found = {name: values.numpy().tolist() for name, values in found.items()}
    for row, uniform in enumerate(uniform_numbers(masker._key, visits, 2 * num_slots + length).numpy().tolist()):
        parts_texts = not kind.marks_first_word
        expected, positions, labels = masked_by_plain_rules(sequences[row], uniform, **options, parts_texts=parts_texts)
        unused = [0] * (num_slots - len(positions))
        assert found["input_ids"][row] == expected + [0] * (length - len(expected)), row
        assert found["masked_lm_positions"][row] == positions + unused, row
        assert found["masked_lm_ids"][row] == labels + unused, row
        assert found["masked_lm_weights"][row] == [1.0] * len(positions) + unused, row
