"""The best checkpoint of a run."""

import pytest

from official_bert.checkpoints.best import BestCheckpoint
from official_bert.errors import UserError


def test_the_first_of_equals_is_the_best(tmp_path):
    best = BestCheckpoint(str(tmp_path))
    assert best.num_since_best == 0
    assert [best.add(step, score) for step, score in ((10, 0.5), (20, 0.7), (30, 0.7), (40, 0.6))] == [
        True,
        True,
        False,
        False,
    ]
    assert best.num_since_best == 2


def test_a_resumed_run_forgets_the_evaluations_ahead_of_it(tmp_path):
    for step, score in ((10, 0.5), (20, 0.7), (30, 0.6)):
        BestCheckpoint(str(tmp_path)).add(step, score)
    best = BestCheckpoint(str(tmp_path))
    assert best.num_since_best == 1
    assert best.add(20, 0.7)  # made again
    assert best.num_since_best == 0


def test_a_damaged_history_is_named(tmp_path):
    BestCheckpoint(str(tmp_path)).add(10, 0.5)
    (tmp_path / "best" / "evaluations.json").write_text("[[10, 0.")
    with pytest.raises(UserError, match="evaluations.json is damaged .*; delete it"):
        BestCheckpoint(str(tmp_path))
