"""Selection and replacement of masked words."""

import math
import random

import pytest

from official_bert.data.masking import Masker, shuffle
from official_bert.support.errors import UserError
from official_bert.tokenization import Vocabulary
from tests.data.masking_vocabulary import CLS, FIRST_SUFFIX, FIRST_WORD, PIECES, SEP, BareFirstWords

VOCABULARY = Vocabulary({piece: index for index, piece in enumerate(PIECES)})


def masker(vocabulary=VOCABULARY, **changes):
    options = {"masked_lm_prob": 0.15, "max_predictions_per_seq": 20, "whole_word": False}
    return Masker(vocabulary, **{**options, **changes})


def sequence(rng, length=100):
    body = [rng.randrange(FIRST_WORD, len(PIECES)) for _ in range(length - 3)]
    middle = length // 2
    return [CLS, *body[:middle], SEP, *body[middle:], SEP]


@pytest.mark.parametrize("kind", [Vocabulary, BareFirstWords])
def test_whole_words_stay_whole(kind):
    rng, vocabulary = random.Random(4), kind(VOCABULARY.token_to_id)
    across = 0
    for _ in range(300):
        ids = sequence(rng)
        masked = masker(vocabulary, whole_word=True).mask(ids, rng)
        hidden = set(masked.positions)
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
    for _ in range(300):
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
    drawn = [masker(**NGRAMS, max_predictions_per_seq=2).mask(ids, rng).positions for _ in range(2000)]
    both = [3 in positions for positions in drawn if 1 in positions]
    assert len(both) > 100
    assert sum(both) / len(both) < 0.15  # by chance; as one unit they would be masked together in a third of the cases


def test_lengths_of_ngrams_have_probabilities_in_proportion_to_their_inverse():
    """Three masked words in a text of hundreds are together, two and one, or all separate, in known proportions."""
    rng, counts, total = random.Random(7), {}, 3000
    ids = [CLS, *[*range(FIRST_WORD, FIRST_WORD + 50)] * 8, SEP]
    for _ in range(total):
        first, second, third = masker(**NGRAMS, max_predictions_per_seq=3).mask(ids, rng).positions
        kind = (second - first == 1) + (third - second == 1)
        counts[kind] = counts.get(kind, 0) + 1
    one, two, three = 6 / 11, 3 / 11, 2 / 11
    for kind, share in {2: three, 1: two + one * (two + three), 0: one * one}.items():
        error = 3 * math.sqrt(share * (1 - share) / total)
        assert abs(counts[kind] / total - share) < error + 0.02  # two may be adjacent by chance


def test_a_vocabulary_without_mask_is_refused():
    with pytest.raises(UserError, match=r"lacks \[MASK\]"):
        Masker(Vocabulary({"[CLS]": 0, "[SEP]": 1}), masked_lm_prob=0.1, max_predictions_per_seq=1, whole_word=False)


def test_shuffle_is_random_shuffle_bit_for_bit():
    for seed, length in enumerate([*range(100), *range(505, 520), 2000]):
        expected, ours = list(range(length)), list(range(length))
        first, second = random.Random(seed), random.Random(seed)
        first.shuffle(expected)
        shuffle(ours, second)
        assert ours == expected
        assert second.random() == first.random()
