"""One or two texts joined into a sequence."""

import itertools
import random

import pytest

from official_bert.tokenization.joining import (
    join_pair,
    join_texts,
    split_windows,
    truncate_and_join,
    truncate_pair,
)

SPECIALS = {"cls_id": 2, "sep_id": 3}


def test_pairs_lose_wordpieces_one_by_one_from_the_longer_text():
    rng = random.Random(1)
    for _ in range(300):
        first, second = list(range(rng.randrange(12))), list(range(100, 100 + rng.randrange(12)))
        limit = rng.randrange(24)
        expected = list(first), list(second)
        while len(expected[0]) + len(expected[1]) > limit:
            max(reversed(expected), key=len).pop()  # of equals the second
        assert truncate_pair(first, second, limit) == expected


def test_sequences_by_hand():
    pair = join_pair([11, 12], [21], **SPECIALS)
    assert pair == ([2, 11, 12, 3, 21, 3], bytes([0, 0, 0, 0, 1, 1]))
    assert pair.input_mask == bytes([1] * 6)
    assert join_texts([11, 12], [21], **SPECIALS) == pair
    assert join_texts([11, 12], [], **SPECIALS) == ([2, 11, 12, 3], bytes(4))
    assert join_pair([11, 12], [], **SPECIALS) == ([2, 11, 12, 3, 3], bytes([0, 0, 0, 0, 1]))  # an empty context


@pytest.mark.parametrize(
    ("first", "second", "max_seq_length", "expected"),
    [
        ([11, 12, 13], [], 5, [2, 11, 12, 13, 3]),
        ([11, 12, 13], [], 4, [2, 11, 12, 3]),
        ([11, 12, 13], [21], 6, [2, 11, 12, 3, 21, 3]),
        ([11, 12], [21, 22], 6, [2, 11, 12, 3, 21, 3]),
        ([11], [21], 4, [2, 11, 3]),  # of the second nothing is left, so there is none
        ([11], [21], 3, [2, 3]),
        ([], [], 3, [2, 3]),
    ],
)
def test_what_fits_is_kept(first, second, max_seq_length, expected):
    sequence = truncate_and_join(first, second, max_seq_length=max_seq_length, **SPECIALS)
    assert sequence.input_ids == expected
    assert len(sequence.segment_ids) == len(expected) <= max_seq_length


@pytest.mark.parametrize("room", [4, 7, 10])
def test_windows_hold_every_id_of_the_longer_text_and_fit(room):
    for num_first, num_second in itertools.product(range(14), repeat=2):
        windows = split_windows(num_first, num_second, room)
        assert all(len(first) + len(second) <= room for first, second in windows)
        longer, shorter = (0, 1) if num_first > num_second else (1, 0)
        numbers = num_first, num_second
        assert {place for window in windows for place in window[longer]} == set(range(numbers[longer]))
        assert {window[shorter] for window in windows} == {range(min(numbers[shorter], room // 2))}
        starts = [window[longer].start for window in windows]
        assert starts == sorted(set(starts))


def test_windows_by_hand():
    assert split_windows(7, 0, 4) == [(range(4), range(0)), (range(2, 6), range(0)), (range(4, 7), range(0))]
    assert split_windows(7, 0, 4, stride=3) == [(range(4), range(0)), (range(3, 7), range(0))]
    assert split_windows(1, 5, 4, stride=9) == [(range(1), range(3)), (range(1), range(3, 5))]
