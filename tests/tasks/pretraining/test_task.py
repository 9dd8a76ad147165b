"""The pretraining task: losses compared with the reference's, scores with plain loops."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import BertConfig
from official_bert.tasks.pretraining.task import PretrainingTask
from tests.conftest import golden_arrays


@pytest.fixture(scope="module")
def make(model_dir):
    """Return a function that creates a task with some settings."""
    config = BertConfig.from_json_file(str(model_dir / "bert_config.json"))
    sizes = {"max_seq_length": 40, "max_predictions_per_seq": 8, "eval_batch_size": 4}
    return lambda **settings: PretrainingTask(config, **sizes, **settings)


@pytest.fixture(scope="module")
def golden():
    return golden_arrays("pretraining_model/activations.npz")


@pytest.fixture(scope="module")
def compute(model_dir, golden):
    """Return a function from a task to its losses and predictions for the golden batch."""

    def compute(task):
        model = task.build_model()
        load(CheckpointReader(str(model_dir / "bert_model.ckpt")), model.trainable_variables)
        batch = {name[3:]: tf.constant(values) for name, values in golden.items() if name.startswith("in/")}
        batch["next_sentence_labels"] = batch["next_sentence_labels"][:, 0]
        outputs = model(batch)
        predictions = {name: np.asarray(value) for name, value in task.predictions(outputs, batch).items()}
        return task.losses(outputs, batch), predictions

    return compute


@pytest.fixture(scope="module")
def computed(make, compute):
    return compute(make())


def test_losses_and_hits_are_those_of_the_reference(computed, golden):
    losses, predictions = computed
    for name in ("masked_lm", "next_sentence"):
        loss = losses[name].total / losses[name].weight
        np.testing.assert_allclose(loss, golden[f"out/{name}_loss"], rtol=1e-5)
        example_losses = predictions[f"{name}_loss"].reshape(-1)
        np.testing.assert_allclose(example_losses, golden[f"out/{name}_example_loss"], rtol=1e-5)
        labels = golden["in/masked_lm_ids" if name == "masked_lm" else "in/next_sentence_labels"]
        likeliest = golden[f"out/{name}_log_probs"].argmax(axis=-1).reshape(labels.shape)
        hits = predictions[f"{name}_hit"].reshape(labels.shape)
        np.testing.assert_array_equal(hits, likeliest == labels)


def test_scores(make):
    rng = np.random.default_rng(1)
    weight = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1], [1, 0, 0], [0, 0, 0]], float)
    masked_loss, next_loss = rng.random([7, 3]), rng.random(7)
    masked_hit, next_hit = rng.integers(0, 2, [7, 3]).astype(float), np.array([1, 1, 0, 1, 0, 1, 1.0])
    scores = make().scores(
        {
            "masked_lm_loss": masked_loss, "masked_lm_hit": masked_hit, "masked_lm_weight": weight,
            "next_sentence_loss": next_loss, "next_sentence_hit": next_hit,
        }
    )  # fmt: skip
    batch_losses = [
        (masked_loss * weight)[batch].sum() / (weight[batch].sum() + 1e-5) + next_loss[batch].mean()
        for batch in (slice(4), slice(4, 7))  # eval_batch_size is 4
    ]
    assert scores == pytest.approx(
        {
            "loss": np.mean(batch_losses),
            "masked_lm_accuracy": (masked_hit * weight).sum() / 13,
            "masked_lm_loss": (masked_loss * weight).sum() / 13,
            "next_sentence_accuracy": 5 / 7,
            "next_sentence_loss": next_loss.mean(),
        }
    )
    assert scores["loss"] != pytest.approx(scores["masked_lm_loss"] + scores["next_sentence_loss"], rel=1e-3)


def test_the_order_of_sentences_is_scored_under_its_name(make, compute, computed):
    ordered = make(sentence_order=True)
    losses, predictions = compute(ordered)
    np.testing.assert_allclose(losses["sentence_order"].total, computed[0]["next_sentence"].total, rtol=1e-6)
    found, others = ordered.scores(predictions), make().scores(computed[1])
    expected = {name.replace("next_sentence", "sentence_order"): value for name, value in others.items()}
    assert found == pytest.approx(expected) and found.keys() != others.keys()


def test_without_the_next_sentence_the_masked_words_alone_are_learned_and_scored(make, compute, computed):
    alone = make(use_next_sentence=False)
    losses, predictions = compute(alone)
    assert losses.keys() == {"masked_lm"}
    np.testing.assert_allclose(losses["masked_lm"].total, computed[0]["masked_lm"].total, rtol=1e-6)
    scores, scores_of_both = alone.scores(predictions), make().scores(computed[1])
    assert scores.keys() == {"loss", "masked_lm_accuracy", "masked_lm_loss"}
    assert scores["masked_lm_loss"] == pytest.approx(scores_of_both["masked_lm_loss"])
    assert scores["loss"] < scores_of_both["loss"]
