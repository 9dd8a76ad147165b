"""Whole runs with --unpad, --gradient_checkpointing and --use_xla give the same results as without."""

import json
import random

import numpy as np
import pytest

from official_bert.commands import run_classifier
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.training.run_folder import read_results
from tests.conftest import prints_error
from tests.sentences import sentence


@pytest.fixture(scope="module")
def settings(tmp_path_factory, one_layer_config_file, model_dir, vocab_file):
    folder = tmp_path_factory.mktemp("data")
    config = json.loads(open(one_layer_config_file).read())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (folder / "bert_config.json").write_text(json.dumps(config))
    rng = random.Random(1)
    for split, count in (("train", 48), ("dev", 19)):
        rows = [f"{sentence(rng, row % 2)} {'snow ' * rng.randrange(9)}\t{row % 2}\n" for row in range(count)]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    return {
        "task_name": "SST-2",
        "data_dir": str(folder),
        "bert_config_file": str(folder / "bert_config.json"),
        "vocab_file": vocab_file,
        "init_checkpoint": str(model_dir / "bert_model.ckpt"),
        "max_seq_length": 24,
        "train_batch_size": 8,
        "num_train_epochs": 1.0,
        "learning_rate": 1e-3,
        "do_train": True,
        "do_eval": True,
    }


def run(settings, folder, **more):
    run_classifier.run(ClassifierConfig(**{**settings, "output_dir": str(folder), **more}))
    return read_results(str(folder / "eval_results.txt"))


@pytest.fixture(scope="module")
def plain_results(settings, tmp_path_factory):
    return run(settings, tmp_path_factory.mktemp("plain"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"unpad": True, "gradient_checkpointing": True},
        pytest.param({"unpad": True, "trainable_encoder": False}, marks=pytest.mark.endurance),
        {"use_xla": True},
    ],
    ids=lambda options: "-".join(options),
)
def test_results_are_those_of_a_plain_run(settings, plain_results, tmp_path, options):
    expected = plain_results
    if "trainable_encoder" in options:
        expected = run(settings, tmp_path / "frozen", trainable_encoder=False)
    results = run(settings, tmp_path / "out", **options)
    # All runs have dropout in the head, for which XLA draws other random numbers.
    assert results["eval_loss"] == pytest.approx(expected["eval_loss"], abs=0.05 if "use_xla" in options else 1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unpad": True, "use_tpu": True}, "--unpad cannot be used with --use_tpu: a TPU needs batches of fixed shape"),
        ({"unpad": True, "use_xla": True}, "--unpad cannot be used with --use_xla: XLA needs batches of fixed shape"),
        ({"use_xla": True, "use_tpu": True}, "--use_xla is not needed: a TPU always compiles with XLA; leave it out"),
        (
            {"gradient_checkpointing": True, "do_train": False},
            "--gradient_checkpointing needs --do_train",
        ),
        (
            {"gradient_checkpointing": True, "trainable_encoder": False},
            "--gradient_checkpointing cannot be used with --notrainable_encoder",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(settings, tmp_path, changes, message):
    with prints_error(message, ClassifierConfig):
        run(settings, tmp_path, **changes)
    assert np.array_equal(list(tmp_path.iterdir()), [])


@pytest.mark.slow
@pytest.mark.endurance
def test_a_bilstm_is_trained_evaluated_and_served(settings, tmp_path):
    options = {"head": "bilstm", "lstm_units": 16}
    trained = run(settings, tmp_path / "out", **options, do_export=True, export_dir=str(tmp_path / "export"))
    assert run(settings, tmp_path / "out", **options, do_train=False) == trained
    texts = ["the snow is warm", "a cold day"]
    answers = [Predictor(str(tmp_path / folder))(texts) for folder in ("out", "export")]
    for answer, other in zip(*answers, strict=True):
        assert answer.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    with pytest.raises(UserError, match="head=linear, lstm_units=None, but .* with head=bilstm, lstm_units=16"):
        run(settings, tmp_path / "out", do_train=False)


def test_a_bilstm_reads_all_positions_of_a_trained_encoder(settings, tmp_path):
    for changes, message in (
        ({"feature_layers": "last"}, "--head=bilstm reads the last layer at every position; leave --feature_layers"),
        ({"trainable_encoder": False}, "--head=bilstm and --notrainable_encoder exclude each other; choose one"),
    ):
        with pytest.raises(UserError, match=message):
            run(settings, tmp_path / "out", head="bilstm", **changes)
    with pytest.raises(UserError, match="--lstm_units needs --head=bilstm"):
        run(settings, tmp_path / "out", lstm_units=3)
