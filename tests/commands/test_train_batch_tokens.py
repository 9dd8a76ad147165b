"""Runs whose batches are limited by their number of tokens."""

import json
import random
import re
import shutil

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.commands import run_classifier, run_pretraining
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.pretraining.options import PretrainingConfig
from tests.conftest import UNMASKED_RECORDS, assert_refused, prints_error

WORDS = ("bright", "empty", "harbour", "town", "snow")
NUM_TEXTS = 50


@pytest.fixture(scope="module")
def settings(tmp_path_factory, one_layer_config_file, files_of_model):
    """Flags that fine-tune on texts of 1 to 20 words for two epochs."""
    folder = tmp_path_factory.mktemp("data")
    rng = random.Random(3)
    lines = [f"{' '.join(rng.choices(WORDS, k=rng.randint(1, 20)))}\t{rng.randrange(2)}\n" for _ in range(NUM_TEXTS)]
    (folder / "train.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    return {
        **files_of_model,
        "bert_config_file": one_layer_config_file,
        "task_name": "SST-2",
        "data_dir": str(folder),
        "do_train": True,
        "max_seq_length": 32,
        "train_batch_tokens": 128,
        "num_train_epochs": 2.0,
        "learning_rate": 1e-4,
        "save_checkpoints_steps": 1,
        "keep_checkpoint_max": 0,
        "log_steps": 4,
    }


@pytest.fixture(scope="module")
def whole(settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "out"
    run_classifier.run(ClassifierConfig(**settings, output_dir=str(folder)))
    return folder


def arrays(folder, step):
    reader = CheckpointReader(str(folder / f"model.ckpt-{step}"))
    return {name: reader.read(name) for name in reader.shapes}


def last_step(folder):
    return max(int(re.search(r"ckpt-(\d+)\.index", path.name)[1]) for path in folder.glob("model.ckpt-*.index"))


def metrics(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line["gradient_norm"]) for line in lines]


def broken_off(whole, folder, step):
    """Return a copy of a run in its state at a step."""
    shutil.copytree(whole, folder)
    for path in folder.glob("model.ckpt-*"):
        if int(re.search(r"ckpt-(\d+)", path.name)[1]) > step:
            path.unlink()
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    return folder


def assert_resumes_exactly(whole, tmp_path, steps, run):
    end = last_step(whole)
    expected = arrays(whole, end)
    for step in steps:
        resumed = broken_off(whole, tmp_path / str(step), step)
        run(str(resumed))
        found = arrays(resumed, end)
        assert found.keys() == expected.keys()
        for name, values in found.items():
            np.testing.assert_array_equal(values, expected[name], err_msg=name)
        assert metrics(resumed) == metrics(whole)


@pytest.mark.slow
@pytest.mark.endurance
def test_fine_tuning_uses_each_example_once_an_epoch(whole, settings, tmp_path, caplog):
    end = last_step(whole)
    assert 2 * NUM_TEXTS * 12 / 128 < end < 2 * NUM_TEXTS * 32 / 128
    counts = [int(arrays(whole, step)["num_examples"]) for step in range(end + 1)]
    assert counts[0] == 0 and counts[-1] == 2 * NUM_TEXTS
    assert len(set(np.diff(counts))) > 2
    assert is_training_state("num_examples", [])
    caplog.set_level("INFO", logger="absl")
    run_classifier.run(ClassifierConfig(**{**settings, "num_train_epochs": 1.0}, output_dir=str(tmp_path / "out")))
    assert arrays(tmp_path / "out", last_step(tmp_path / "out"))["num_examples"] == NUM_TEXTS
    described = re.search(
        r"train_batch_tokens=128: ([\d.]+) examples per step on average; padding is ([\d.]+)%", caplog.text
    )
    assert float(described[1]) == pytest.approx(NUM_TEXTS / last_step(tmp_path / "out"), abs=0.05)
    assert 5 < float(described[2]) < 40


@pytest.mark.slow
@pytest.mark.endurance
def test_a_resumed_run_equals_an_uninterrupted_one(whole, settings, tmp_path):
    def run(output_dir):  # with several steps per compiled call
        run_classifier.run(ClassifierConfig(**{**settings, "save_checkpoints_steps": 100}, output_dir=output_dir))

    assert_resumes_exactly(whole, tmp_path, (6,), run)


@pytest.mark.slow
@pytest.mark.endurance
def test_parts_of_a_batch_are_computed_one_after_another(settings, tmp_path):
    run_classifier.run(
        ClassifierConfig(**settings, output_dir=str(tmp_path), num_replicas=2, gradient_accumulation_steps=2)
    )
    counts = [int(arrays(tmp_path, step)["num_examples"]) for step in range(last_step(tmp_path) + 1)]
    assert 2 * NUM_TEXTS - 16 < counts[-1] <= 2 * NUM_TEXTS
    assert all(count % 4 == 0 for count in counts)
    assert all(np.isfinite(loss) for _, loss, _ in metrics(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("batches", [{"train_batch_tokens": 1024}, {"train_batch_size": 32, "batch_ramp_up_steps": 14}])
def test_pretraining_with_batches_of_different_sizes_resumes_exactly(
    one_layer_config_file, unmasked_records_file, vocab_file, tmp_path, batches
):
    flags = {
        "bert_config_file": one_layer_config_file, "input_file": unmasked_records_file, "do_train": True,
        "dynamic_masking": True, "vocab_file": vocab_file, "max_seq_length": 64,
        "max_predictions_per_seq": 10, **batches, "num_train_steps": 20, "num_warmup_steps": 2,
        "save_checkpoints_steps": 1, "keep_checkpoint_max": 0, "log_steps": 4, "learning_rate": 1e-3,
    }  # fmt: skip

    def run(output_dir):
        run_pretraining.run(PretrainingConfig(**flags, output_dir=output_dir))

    run(str(tmp_path / "whole"))
    sizes = np.diff([int(arrays(tmp_path / "whole", step)["num_examples"]) for step in range(21)])
    assert sizes.min() < sizes.max() and sizes.max() >= 16  # short records come in larger batches
    if "batch_ramp_up_steps" in batches:
        assert sizes.tolist() == [4] * 4 + [8] * 5 + [16] * 5 + [32] * 6
    assert sizes.sum() > 2 * UNMASKED_RECORDS
    assert_resumes_exactly(tmp_path / "whole", tmp_path, (9,), run)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"train_batch_tokens": 31}, ["--train_batch_tokens=31 is too small: examples may have 32", "at least 32"]),
        ({"train_batch_tokens": 63, "num_replicas": 2}, ["each of 2 device(s) takes at least one; give at least 64"]),
        (
            {"train_batch_tokens": 63, "gradient_accumulation_steps": 2},
            ["takes at least one for each of --gradient_accumulation_steps=2; give at least 64"],
        ),
        ({"train_batch_size": 8}, ["--train_batch_size cannot be used with --train_batch_tokens; leave one of them"]),
        ({"dynamic_padding": False}, ["needs batches of similar length; leave --nodynamic_padding out"]),
        ({"trainable_encoder": False}, ["--train_batch_tokens cannot be used with --notrainable_encoder"]),
        ({"use_tpu": True}, ["--train_batch_tokens cannot be used with --use_tpu: a TPU needs batches of fixed shape"]),
        ({"use_xla": True}, ["--train_batch_tokens cannot be used with --use_xla: XLA needs batches of fixed shape"]),
        (
            {"train_batch_tokens": 10**6, "num_train_epochs": 0.5},
            ["50 examples for --num_train_epochs=0.5 make less than one step of --train_batch_tokens=1000000"],
        ),
    ],
)
def test_what_does_not_go_together_is_refused(settings, tmp_path, changes, parts):
    flags = {**settings, "output_dir": str(tmp_path / "out"), **changes}
    assert_refused(run_classifier.run, ClassifierConfig, flags, *parts)


@pytest.mark.slow
def test_a_resume_in_another_order_is_refused(whole, settings, tmp_path):
    folder = broken_off(whole, tmp_path / "out", 3)
    flags = {**settings, "output_dir": str(folder)}
    for changes, message in (
        (
            {"train_batch_tokens": 256},
            "--train_batch_tokens=256, but .*ckpt-3 was trained with --train_batch_tokens=128",
        ),
        ({"num_replicas": 2}, r"shared by 2 device\(s\), but .*ckpt-3 was trained with 1: .*twice"),
        ({"train_batch_tokens": 0, "num_train_epochs": 10.0}, "--train_batch_tokens=0, but"),
    ):
        with prints_error(message, ClassifierConfig):
            run_classifier.run(ClassifierConfig(**{**flags, **changes}))
    run_classifier.run(
        ClassifierConfig(**{**flags, "train_batch_tokens": 0, "num_train_epochs": 10.0, "allow_inexact_resume": True})
    )
    config = json.loads((folder / "run_config.json").read_text())
    assert config["flags"]["train_batch_tokens"] == 0
    folder = broken_off(folder, tmp_path / "other", 3)
    with prints_error("--train_batch_tokens=128, .* did not count examples; leave it out", ClassifierConfig):
        run_classifier.run(ClassifierConfig(**{**flags, "output_dir": str(folder)}))
