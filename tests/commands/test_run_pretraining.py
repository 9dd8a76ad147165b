"""Evaluation and errors of `run_pretraining.py`; for training see tests/training and tests/test_scripts.py."""

import json
import shutil

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
from official_bert.support.errors import UserError
from official_bert.training.run_folder import read_results
from tests.commands.conftest import assert_same_arrays, json_lines
from tests.conftest import assert_refused, run_here


@pytest.fixture
def flags(records_file, one_layer_config_file, tmp_path):
    return {
        "input_file": records_file, "output_dir": str(tmp_path / "out"),
        "bert_config_file": one_layer_config_file, "max_seq_length": 64, "max_predictions_per_seq": 10,
        "train_batch_size": 8, "num_train_steps": 12,
    }  # fmt: skip


@pytest.fixture
def refuse(flags):
    """Return a function that asserts that training with changed flags fails with the given message parts."""

    def run(changes, *parts):
        assert_refused("run_pretraining", {**flags, "do_train": True, **changes}, *parts)

    return run


@pytest.mark.slow
def test_evaluation_of_a_given_checkpoint_covers_the_first_batches_in_file_order(flags, tmp_path, model_dir):
    scores = []
    for max_eval_steps, eval_batch_size in ((3, 8), (6, 4), (100, 8)):  # twice the same 24 records, then all
        sizes = {"max_eval_steps": max_eval_steps, "eval_batch_size": eval_batch_size}
        checkpoint = str(model_dir / "bert_model.ckpt")
        run_here("run_pretraining", **flags, **sizes, do_eval=True, init_checkpoint=checkpoint)
        scores.append(read_results(str(tmp_path / "out" / "eval_results.txt")))
    assert scores[0]["global_step"] == 0
    for name in ("masked_lm_accuracy", "masked_lm_loss", "next_sentence_accuracy", "next_sentence_loss"):
        assert scores[0][name] == pytest.approx(scores[1][name], rel=1e-5), name
    assert scores[0]["loss"] != pytest.approx(scores[1]["loss"], rel=1e-6)  # a mean over batches
    num_hits = 110 * scores[2]["next_sentence_accuracy"]  # each of 110 records counts once
    assert num_hits == pytest.approx(round(num_hits), abs=1e-3)
    assert scores[2]["masked_lm_loss"] != scores[0]["masked_lm_loss"]


@pytest.fixture
def dynamic(unmasked_records_file, vocab_file):
    """Flags for masking records during training."""
    return {"input_file": unmasked_records_file, "dynamic_masking": True, "vocab_file": vocab_file}


def test_flags_and_files_that_do_not_serve(refuse, dynamic):
    unmasked = {"input_file": dynamic["input_file"]}
    for changes, *parts in (
        ({"max_seq_length": 32}, "train.tfrecord: record 0", "input_ids has 64 values, expected 32"),
        ({"max_predictions_per_seq": 20}, "record 0", "masked_lm_positions has 10 values, expected 20"),
        ({"mask_replace_prob": 0.9}, "--mask_replace_prob needs --dynamic_masking"),
        ({"do_whole_word_mask": True}, "--do_whole_word_mask needs --dynamic_masking"),
        (unmasked, "unmasked.tfrecord: record 0", "if it was made with masking=none, use --dynamic_masking"),
        ({**dynamic, "mask_replace_prob": 0.9, "random_replace_prob": 0.2}, "_prob=0.9 and --random_replace_prob"),
    ):
        refuse(changes, *parts)


def test_records_with_masks_are_not_masked_again(refuse, dynamic, records_file, tmp_path):
    message = "record 0 (counted from 0): it has masks already; leave out --dynamic_masking, or make the records with"
    refuse({**dynamic, "input_file": records_file}, f"train.tfrecord: {message}")
    refuse({**dynamic, "input_file": f"{dynamic['input_file']},{records_file}"}, f"train.tfrecord: {message}")
    assert not (tmp_path / "out").exists()


def test_ids_beyond_the_model_are_located(refuse, model_dir, records_file, tmp_path):
    smaller = json.loads((model_dir / "bert_config.json").read_text())
    smaller["vocab_size"] = 1100
    (tmp_path / "smaller.json").write_text(json.dumps(smaller))
    smaller = {"bert_config_file": tmp_path / "smaller.json"}
    refuse(smaller, "train.tfrecord.vocab.txt has 1182 wordpieces", "smaller.json a vocab_size of 1100")
    shutil.copy(records_file, tmp_path / "alone.tfrecord")
    message = ("alone.tfrecord: record ", "which is not in the range from 0 to 1099")
    refuse({**smaller, "input_file": tmp_path / "alone.tfrecord"}, *message)


def test_a_file_that_holds_no_records_is_named(refuse, tmp_path):
    (tmp_path / "records.zip").write_bytes(b"PK\x03\x04 and what follows in such a file")
    refuse({"input_file": tmp_path / "records.zip"}, "records.zip: record 0", "is it a complete TFRecord file?")


@pytest.mark.endurance
def test_a_left_to_right_model_is_one_in_all_that_follows(flags, tmp_path, model_dir, vocab_file, caplog):
    initial = str(model_dir / "bert_model.ckpt")
    changes = {"num_train_steps": 2, "attention_direction": "left_to_right", "init_checkpoint": initial}
    run_here("run_pretraining", **{**flags, **changes}, do_train=True)
    out = str(tmp_path / "out")
    warning = f"{initial} was trained with attention_direction=bidirectional, but this run uses left_to_right"
    assert warning in caplog.text
    assert BertEncoder.from_checkpoint(out).config.is_left_to_right
    filled = Predictor(out, vocab_file=vocab_file)(["the [MASK] town", "the [MASK] harbour"])
    assert filled[0] == filled[1]  # later positions are not visible
    evaluated = {**flags, "do_eval": True}
    message = (
        "attention_direction is 'bidirectional', but the checkpoints in .* with attention_direction 'left_to_right'"
    )
    with pytest.raises(UserError, match=message):
        run_here("run_pretraining", **evaluated)
    run_here("run_pretraining", **{**evaluated, "bert_config_file": f"{out}/bert_config.json"})
    by_file = read_results(f"{out}/eval_results.txt")
    run_here("run_pretraining", **evaluated, attention_direction="left_to_right")
    assert read_results(f"{out}/eval_results.txt") == by_file


@pytest.mark.endurance
def test_a_second_phase_has_the_weights_of_the_first_and_its_own_schedule(flags, tmp_path):
    """The recipe of docs/large_batches.md, with LAMB."""
    flags |= {"do_train": True, "optimizer": "lamb", "log_steps": 1}
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    steps = {"num_train_steps": 4, "num_warmup_steps": 3, "learning_rate": 4e-3}
    run_here("run_pretraining", **flags | steps | {"output_dir": first})
    steps = {"num_train_steps": 2, "num_warmup_steps": 1, "learning_rate": 2e-3, "init_checkpoint": first}
    run_here("run_pretraining", **flags | steps | {"output_dir": second})
    end, start = CheckpointReader(f"{first}/model.ckpt-4"), CheckpointReader(f"{second}/model.ckpt-0")
    assert end.shapes == start.shapes
    assert (end.step, start.step) == (4, 0)
    slots = [name for name in end.shapes if name.endswith(("/lamb_m", "/lamb_v"))]
    assert slots and all(np.any(end.read(name)) and not np.any(start.read(name)) for name in slots)
    assert_same_arrays(start.prefix, end.prefix, end.shapes.keys() - {*slots, "global_step"})
    lines = json_lines(tmp_path / "second" / "metrics.jsonl")
    assert [line["learning_rate"] for line in lines] == pytest.approx([1e-3, 0.0], abs=1e-9)
