"""Joining one or two texts into a sequence."""

import random

import pytest

from official_bert.tokenization.sequences import Specials, join_pair, join_texts, truncate_and_join, truncate_pair

SPECIALS = Specials(cls_id=2, sep_id=3)


def test_pairs_lose_wordpieces_one_by_one_from_the_longer_text():
    rng = random.Random(1)
    for _ in range(300):
        first, second = list(range(rng.randrange(12))), list(range(100, 100 + rng.randrange(12)))
        limit = rng.randrange(24)
        expected = list(first), list(second)
        while len(expected[0]) + len(expected[1]) > limit:
            max(reversed(expected), key=len).pop()  # ties go to the second text
        assert truncate_pair(first, second, limit) == expected


def test_sequences_by_hand():
    pair = join_pair([11, 12], [21], SPECIALS)
    assert pair == ([2, 11, 12, 3, 21, 3], bytes([0, 0, 0, 0, 1, 1]))
    assert pair.input_mask == bytes([1] * 6)
    assert join_texts([11, 12], [21], SPECIALS) == pair
    assert join_texts([11, 12], [], SPECIALS) == ([2, 11, 12, 3], bytes(4))
    doubled = SPECIALS._replace(num_between=2, second_segment=0, pad_id=1)
    assert join_texts([11, 12], [21], doubled) == ([2, 11, 12, 3, 3, 21, 3], bytes(7))
    assert join_texts([11, 12], [], doubled) == ([2, 11, 12, 3], bytes(4))
    assert truncate_and_join([11], [21, 22], doubled, max_seq_length=6).input_ids == [2, 11, 3, 3, 21, 3]
    assert truncate_and_join([11], [21, 22], doubled, max_seq_length=3).input_ids == [2, 3]
    assert join_pair([11, 12], [], SPECIALS) == ([2, 11, 12, 3, 3], bytes([0, 0, 0, 0, 1]))  # an empty context


@pytest.mark.parametrize(
    ("first", "second", "max_seq_length", "expected"),
    [
        ([11, 12, 13], [], 5, [2, 11, 12, 13, 3]),
        ([11, 12, 13], [], 4, [2, 11, 12, 3]),
        ([11, 12, 13], [21], 6, [2, 11, 12, 3, 21, 3]),
        ([11, 12], [21, 22], 6, [2, 11, 12, 3, 21, 3]),
        ([11], [21], 4, [2, 11, 3]),  # nothing is left of the second text, so it is omitted
        ([11], [21], 3, [2, 3]),
        ([], [], 3, [2, 3]),
    ],
)
def test_short_texts_are_kept(first, second, max_seq_length, expected):
    sequence = truncate_and_join(first, second, SPECIALS, max_seq_length=max_seq_length)
    assert sequence.input_ids == expected
    assert len(sequence.segment_ids) == len(expected) <= max_seq_length
