"""Shuffling with the reference's bits."""

import random

from official_bert.data.masking import shuffle


def test_shuffle_is_random_shuffle_bit_for_bit():
    for seed, length in enumerate([*range(100), *range(505, 520), 2000]):
        expected, ours = list(range(length)), list(range(length))
        first, second = random.Random(seed), random.Random(seed)
        first.shuffle(expected)
        shuffle(ours, second)
        assert ours == expected
        assert second.random() == first.random()
