"""What `run_pretraining.py` evaluates and refuses; how it trains is in tests/training and tests/test_scripts.py."""

import json

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader, write_checkpoint
from official_bert.config.run_configs.pretraining import PretrainingConfig
from official_bert.runs import run_pretraining
from official_bert.training.results import read_results
from tests.conftest import assert_refused


@pytest.fixture
def flags(records_file, model_dir, tmp_path):
    return {
        "input_file": records_file,
        "output_dir": str(tmp_path / "out"),
        "bert_config_file": str(model_dir / "bert_config.json"),
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
        "train_batch_size": 8,
        "num_train_steps": 12,
    }


@pytest.fixture
def refuse(flags):
    """Asserts that training with some other flags ends in a message with the parts given."""

    def run(changes, *parts):
        assert_refused(run_pretraining.run, PretrainingConfig, {**flags, "do_train": True, **changes}, *parts)

    return run


def test_evaluation_of_a_given_checkpoint_covers_the_first_batches_in_file_order(flags, tmp_path, model_dir):
    scores = []
    for max_eval_steps, eval_batch_size in ((3, 8), (6, 4), (100, 8)):  # twice the same 24 records, then all
        sizes = {"max_eval_steps": max_eval_steps, "eval_batch_size": eval_batch_size}
        checkpoint = str(model_dir / "bert_model.ckpt")
        run_pretraining.run(PretrainingConfig(**flags, **sizes, do_eval=True, init_checkpoint=checkpoint))
        scores.append(read_results(str(tmp_path / "out" / "eval_results.txt")))
    assert scores[0]["global_step"] == 0
    for name in ("masked_lm_accuracy", "masked_lm_loss", "next_sentence_accuracy", "next_sentence_loss"):
        assert scores[0][name] == pytest.approx(scores[1][name], rel=1e-5), name
    assert scores[0]["loss"] != pytest.approx(scores[1]["loss"], rel=1e-6)  # a mean over batches
    num_hits = 110 * scores[2]["next_sentence_accuracy"]  # each of 110 records counts once
    assert num_hits == pytest.approx(round(num_hits), abs=1e-3)
    assert scores[2]["masked_lm_loss"] != scores[0]["masked_lm_loss"]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"max_seq_length": 128}, ["--max_seq_length=128 exceeds max_position_embeddings=64"]),
        ({"max_seq_length": 32}, ["train.tfrecord: record 0", "input_ids has 64 values, expected 32"]),
        ({"max_predictions_per_seq": 20}, ["record 0", "masked_lm_positions has 10 values, expected 20"]),
        ({"init_checkpoint": "absent.ckpt"}, ["--init_checkpoint absent.ckpt: no such checkpoint"]),
        ({"input_file": "absent"}, ["no file matches 'absent'"]),
        ({"master": "grpc://elsewhere:1"}, ["--master=grpc://elsewhere:1", "no session masters"]),
        ({"do_train": False}, ["give at least one of --do_train, --do_eval and --do_export"]),
        ({"do_train": False, "do_eval": True}, ["no checkpoint in --output_dir"]),
    ],
)
def test_flags_and_files_that_do_not_serve(refuse, changes, parts):
    refuse(changes, *parts)


def test_ids_beyond_the_model_are_located(refuse, model_dir, tmp_path):
    smaller = json.loads((model_dir / "bert_config.json").read_text())
    smaller["vocab_size"] = 1100
    (tmp_path / "smaller.json").write_text(json.dumps(smaller))
    message = ("train.tfrecord: record ", "which is not in the range from 0 to 1099")
    refuse({"bert_config_file": tmp_path / "smaller.json"}, *message)


def test_a_file_of_another_kind_is_named(refuse, tmp_path):
    (tmp_path / "records.zip").write_bytes(b"PK\x03\x04 and what follows in such a file")
    refuse({"input_file": tmp_path / "records.zip"}, "records.zip: record 0", "is it a complete TFRecord file?")


def test_a_cut_off_record_file_is_located(refuse, records_file, tmp_path):
    (tmp_path / "cut.tfrecord").write_bytes(open(records_file, "rb").read()[:-100])
    refuse({"input_file": tmp_path / "cut.tfrecord"}, "cut.tfrecord: record ", "damaged or truncated")


def test_an_output_folder_of_another_model_is_refused(refuse, tmp_path):
    (tmp_path / "out").mkdir()
    write_checkpoint(str(tmp_path / "out" / "model.ckpt-3"), {"bert/embeddings/word_embeddings": tf.zeros([10, 4])})
    (tmp_path / "out" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    refuse({}, "model.ckpt-3 lacks", "another model")


def test_a_loss_that_is_not_finite_stops_the_run(refuse, tmp_path, model_dir):
    reader = CheckpointReader(str(model_dir / "bert_model.ckpt"))
    arrays = {name: reader.read(name) for name in reader.shapes}
    arrays["bert/pooler/dense/bias"][0] = np.nan
    write_checkpoint(str(tmp_path / "nan.ckpt"), arrays)
    message = ("loss nan", "at step 1;", "the last good checkpoint is", "model.ckpt-0")
    refuse({"init_checkpoint": tmp_path / "nan.ckpt", "log_steps": 4}, *message)
    assert [path.name for path in (tmp_path / "out").glob("*.index")] == ["model.ckpt-0.index"]
