"""Ten thousand labels: training, evaluation and prediction, without memory quadratic in their number."""

import json

import pytest

from official_bert.training.run_folder import read_results
from tests.conftest import run_script

NUM_LABELS = 10_000


@pytest.mark.endurance
def test_ten_thousand_labels(tmp_path, one_layer_config_file, files_of_model):
    for name, count in (("train", NUM_LABELS), ("dev", 500), ("test", 20)):
        rows = [{"text": f"the harbour of town {row}", "label": f"label {row % NUM_LABELS}"} for row in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = {
        **files_of_model, "bert_config_file": one_layer_config_file, "task_name": "custom", "data_dir": tmp_path,
        "train_file": "train.jsonl", "eval_file": "dev.jsonl", "predict_file": "test.jsonl", "text_a_column": "text",
        "label_column": "label", "output_dir": tmp_path / "out", "max_seq_length": 16, "train_batch_size": 64,
        "num_train_epochs": 0.1,
    }  # fmt: skip
    result = run_script("run_classifier.py", "--do_train", "--do_eval", "--do_predict", **flags)
    assert result.code == 0, result
    assert "no " in result.errors and "confusion_matrix.tsv: it would have 100,000,000 cells" in result.errors
    scores = read_results(str(tmp_path / "out" / "eval_results.txt"))
    assert 0 <= scores["eval_accuracy"] <= 1 and scores["eval_count_label 499"] == 1 and len(scores) > 4 * NUM_LABELS
    assert "eval_count_label" not in result.errors  # only the file has the scores of so many labels
    assert (tmp_path / "out" / "report.html").stat().st_size < 3_000_000
    assert len((tmp_path / "out" / "test_results.tsv").read_text().splitlines()) == 20
