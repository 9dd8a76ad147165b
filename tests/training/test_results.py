"""Reading the scores of finished runs."""

import numpy as np
import pytest

from official_bert.support.errors import UserError
from official_bert.training.monitoring import write_results
from official_bert.training.run_folder import read_results


def test_results_are_read_as_they_were_written(tmp_path):
    results = {"loss": np.float32(0.25), "global_step": 12, "eval_accuracy": 1e-7}
    write_results(str(tmp_path / "eval_results.txt"), results)
    assert read_results(str(tmp_path / "eval_results.txt")) == results


@pytest.mark.parametrize("line", ["eval_accuracy 0.5", "eval_accuracy = high", "0.5", ""])
def test_a_line_that_is_no_result_is_located(tmp_path, line):
    (tmp_path / "eval_results.txt").write_text(f"loss = 0.5\n{line}\n")
    with pytest.raises(UserError, match="eval_results.txt, line 2:"):
        read_results(str(tmp_path / "eval_results.txt"))
