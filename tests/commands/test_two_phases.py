"""The recipe of docs/large_batches.md: most steps on short sequences, the rest on long ones, with LAMB."""

import json

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.commands import run_pretraining
from official_bert.tasks.pretraining.options import PretrainingConfig
from tests.conftest import run_script

SHORT, LONG = 32, 64


@pytest.fixture(scope="module")
def short_records_file(tmp_path_factory, corpus_file, vocab_file):
    path = tmp_path_factory.mktemp("short") / "train.tfrecord"
    flags = {"input_file": corpus_file, "output_file": path, "vocab_file": vocab_file, "dupe_factor": 2}
    result = run_script("create_pretraining_data.py", **flags, max_seq_length=SHORT, max_predictions_per_seq=5)
    assert result.code == 0, result
    return str(path)


def arrays(folder, step):
    reader = CheckpointReader(str(folder / f"model.ckpt-{step}"))
    return {name: reader.read(name) for name in reader.shapes}


@pytest.mark.slow
def test_the_second_phase_has_the_weights_of_the_first_and_its_own_schedule(
    short_records_file, records_file, one_layer_config_file, tmp_path
):
    first, second = tmp_path / "128", tmp_path / "512"
    shared = {"bert_config_file": one_layer_config_file, "do_train": True, "optimizer": "lamb", "log_steps": 1}
    run_pretraining.run(
        PretrainingConfig(
            **shared, input_file=short_records_file, output_dir=str(first), max_seq_length=SHORT,
            max_predictions_per_seq=5, train_batch_size=16, learning_rate=4e-3, num_train_steps=9, num_warmup_steps=3,
        )
    )  # fmt: skip
    run_pretraining.run(
        PretrainingConfig(
            **shared, input_file=records_file, output_dir=str(second), init_checkpoint=str(first),
            max_seq_length=LONG, max_predictions_per_seq=10, train_batch_size=8, learning_rate=2e-3, num_train_steps=2,
            num_warmup_steps=1,
        )
    )  # fmt: skip

    end, start = arrays(first, 9), arrays(second, 0)
    assert end.keys() == start.keys()
    assert end["global_step"] == 9 and start["global_step"] == 0
    slots = [name for name in end if name.endswith(("/lamb_m", "/lamb_v"))]
    assert slots
    for name in slots:
        assert np.any(end[name]), name
        assert not np.any(start[name]), name
    for name in set(end) - {*slots, "global_step"}:
        np.testing.assert_array_equal(start[name], end[name], err_msg=name)
    lines = [json.loads(line) for line in (second / "metrics.jsonl").read_text().splitlines()]
    assert [line["learning_rate"] for line in lines] == pytest.approx([1e-3, 0.0], abs=1e-9)
