"""Batches by a budget of tokens."""

import numpy as np
import pytest

from official_bert.data.batch_sizes import TokenBudget, padded_lengths


def test_the_documented_examples():
    lengths = [4, 8]
    for extents, expected in (
        ([5, 8, 2, 7, 1, 1, 3], [[8, 7], [5, 3], [2, 1, 1]]),
        ([5, 8, 2, 7, 1, 1, 3, 4], [[8, 7], [5, 4], [3, 2, 1, 1]]),
    ):
        extents = np.array(extents)
        batches = TokenBudget(16).split(extents, lengths, "seed")
        assert sorted((extents[rows].tolist() for rows in batches), reverse=True) == expected
    assert TokenBudget(16, multiple=3).minimum(8) == 24
    with pytest.raises(ValueError, match="is less than the 24 tokens that the longest examples need"):
        TokenBudget(23, multiple=3).split(np.array([8, 8, 8]), lengths, "seed")


@pytest.mark.parametrize("multiple", [1, 2, 8])
def test_every_batch_keeps_the_budget_and_all_are_in_one(multiple):
    rng = np.random.default_rng(1)
    lengths = padded_lengths(128)
    for num_tokens in (128 * multiple, 1024, 5000, 100_000):
        budget = TokenBudget(num_tokens, multiple)
        for num_groups in (1, 2, 3, 50):
            extents = rng.integers(1, 129, num_groups * multiple)
            batches = budget.split(extents, lengths, f"{num_groups}")
            assert sorted(np.concatenate(batches)) == list(range(len(extents)))
            for rows in batches:
                width = next(length for length in lengths if length >= extents[rows].max())
                assert len(rows) and len(rows) % multiple == 0
                assert len(rows) * width <= num_tokens


def test_batches_are_full_and_the_last_two_share():
    extents = np.full(103, 8)
    sizes = sorted(len(rows) for rows in TokenBudget(80).split(extents, [8], "seed"))
    assert sizes == [6, 7] + [10] * 9
    assert sorted(len(rows) for rows in TokenBudget(80, 2).split(extents[:102], [8], "seed")) == [6, 6] + [10] * 9


def test_batches_come_in_an_order_of_the_seed():
    extents = np.arange(1, 101)
    orders = [[rows.tolist() for rows in TokenBudget(200).split(extents, [50, 100], seed)] for seed in ("1", "1", "2")]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])
