"""The compiled step compared with the reference's trajectory."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import BertConfig
from official_bert.optimization import replicas
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.training.step import TrainingSteps
from official_bert.training.task import TrainingPlan
from tests.training.trajectory import NOISE, NUM_STEPS, golden_batches, golden_plan, golden_task, golden_trajectory


@pytest.fixture(scope="module")
def golden():
    return golden_trajectory()


def make_steps(model_dir, golden, *, strategy=None, dropout=0.0, seed=1, num_parts=1, bias_correction=False):
    strategy = strategy or tf.distribute.get_strategy()
    task = golden_task(model_dir, dropout=dropout)
    with strategy.scope():
        model = task.build_model()
    load(CheckpointReader(str(model_dir / "bert_model.ckpt")), model.trainable_variables)
    plan = golden_plan(
        golden,
        random_seed=seed,
        gradient_accumulation_steps=num_parts,
        optimizer_options={"bias_correction": bias_correction},
    )
    return model, TrainingSteps(task, model, strategy, plan)


@pytest.fixture(scope="module")
def twelve_steps(model_dir, golden):
    """The model, the steps and their reports, after the reference's twelve steps."""
    model, steps = make_steps(model_dir, golden)
    iterator = iter(golden_batches(golden))
    # Five steps in one compiled call, then seven: how steps are grouped must not matter.
    first, second = [steps.take(iterator, count) for count in (5, 7)]
    return model, steps, {name: np.concatenate([first[name], second[name]]) for name in first}


def test_twelve_steps_follow_the_reference(twelve_steps, model_dir, golden):
    model, steps, history = twelve_steps
    np.testing.assert_allclose(history["loss"], golden["loss"], rtol=1e-4)
    np.testing.assert_allclose(history["gradient_norm"][0], golden["grad_global_norm"][0], rtol=1e-5)
    assert steps.step.numpy() == NUM_STEPS

    reference = CheckpointReader(str(model_dir / "trained_model.ckpt-12"))
    ours = {**{variable.path: variable for variable in model.trainable_variables}, **steps.slots}
    assert set(reference.shapes) == {*ours, "global_step"}
    for name, variable in ours.items():
        expected = reference.read(name)
        np.testing.assert_allclose(variable, expected, atol=max(1e-3 * np.abs(expected).max(), NOISE), err_msg=name)


@pytest.mark.slow
def test_bias_correction_shortens_the_first_step(model_dir, golden):
    changes = []
    for bias_correction in (False, True):
        model, steps = make_steps(model_dir, golden, bias_correction=bias_correction)
        bias = model.masked_lm.output_bias  # not decayed
        before = np.asarray(bias).copy()
        steps.take(iter(golden_batches(golden)), 1)
        changes.append(np.asarray(bias) - before)
    assert np.abs(changes[0]).max() > 1e-6
    np.testing.assert_allclose(changes[1], changes[0] * np.sqrt(1 - 0.999) / (1 - 0.9), rtol=1e-2, atol=1e-8)


def test_reported_scalars_belong_together(twelve_steps, golden):
    _, _, history = twelve_steps
    np.testing.assert_allclose(history["loss"], history["masked_lm_loss"] + history["next_sentence_loss"], rtol=1e-6)
    np.testing.assert_allclose(history["next_sentence_loss"], golden["next_sentence_loss"], rtol=1e-3)
    assert history["tokens"].tolist() == [golden[f"batch{n:02d}/input_mask"].sum() for n in range(NUM_STEPS)]
    assert history["positions"].tolist() == [golden[f"batch{n:02d}/input_mask"].size for n in range(NUM_STEPS)]
    expected_rates = [0.25e-3, 0.5e-3, 0.75e-3, *(1e-3 * (1 - n / 12) for n in range(4, 13))]
    np.testing.assert_allclose(history["learning_rate"], expected_rates, atol=1e-9)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_call(model_dir, golden):
    model, steps = make_steps(model_dir, golden)
    bad = np.array(model.encoder.word_embeddings)
    bad[5] = np.nan  # [MASK], which every batch contains
    batches = golden_batches(golden)
    iterator = iter(batches)
    steps.take(iterator, 3)
    model.encoder.word_embeddings.assign(bad)
    history = steps.take(iterator, 9)
    assert len(history["loss"]) == 1
    assert np.isnan(history["loss"][0])
    assert steps.step.numpy() == 4


def seeds(steps, part):
    """Return the dropout seeds of all layers in a part of a step."""
    pairs = steps._dropout_seeds(tf.constant(part, tf.int64))
    return [tuple(value.numpy().tolist()) for _, value in pairs]


def test_every_layer_and_every_part_of_a_step_drops_out_by_itself(model_dir, golden):
    _, steps = make_steps(model_dir, golden, dropout=0.1)
    drawn = [seed for part in range(10) for seed in seeds(steps, part)]
    assert len(drawn) == 5 * 2 * (1 + 3 * 3)  # the embeddings' dropout, and three in each of three layers
    assert len(set(drawn)) == len(drawn)
    assert seeds(steps, 3) == seeds(steps, 3)
    _, other = make_steps(model_dir, golden, dropout=0.1, seed=2)
    assert not set(seeds(other, 1)) & set(seeds(steps, 1))


@pytest.mark.slow
def test_dropout_changes_from_step_to_step_and_repeats_with_the_seed(model_dir, golden):
    first_batch = golden_batches(golden).take(1).repeat()

    def losses(seed):
        # A learning rate of 0: the weights are constant, so that only dropout can change the loss.
        _, steps = make_steps(model_dir, {**golden, "learning_rate": 0.0}, dropout=0.1, seed=seed)
        return steps.take(iter(first_batch), 3)["loss"].tolist()

    first, again, other = losses(1), losses(1), losses(2)
    assert len(set(first)) == 3
    assert first == again
    assert first != other


def check_same_steps(one, other):
    """Compare histories, weights and slots of (history, model, steps)."""
    (history, model, steps), (other_history, other_model, other_steps) = one, other
    for name in history:
        np.testing.assert_allclose(other_history[name], history[name], rtol=1e-3, err_msg=name)
    np.testing.assert_allclose(other_history["loss"], history["loss"], rtol=1e-5)
    for variable, other in zip(model.trainable_variables, other_model.trainable_variables, strict=True):
        tolerance = 1e-3 * np.abs(np.asarray(variable)).max()
        np.testing.assert_allclose(other, variable, atol=tolerance, err_msg=variable.path)
    for name, slot in steps.slots.items():
        tolerance = max(1e-3 * np.abs(slot.numpy()).max(), NOISE)
        np.testing.assert_allclose(other_steps.slots[name].numpy(), slot, atol=tolerance, err_msg=name)


@pytest.mark.slow
def test_two_devices_of_three_parts_each_take_the_steps_of_one(twelve_steps, model_dir, golden, two_devices):
    """Parts alone are tested below, devices alone in test_multi_worker.py."""
    model, steps, history = twelve_steps
    one = history, model, steps
    model, steps = make_steps(model_dir, golden, strategy=two_devices, num_parts=3)
    iterator = iter(two_devices.experimental_distribute_dataset(golden_batches(golden)))
    check_same_steps(one, (steps.take(iterator, NUM_STEPS), model, steps))


@pytest.mark.slow
def test_parts_of_a_batch_give_its_gradient(model_dir, golden):
    gradients = []
    for num_parts in (1, 2, 6):
        model, steps = make_steps(model_dir, golden, num_parts=num_parts)
        batch = next(iter(golden_batches(golden)))
        found, _ = tf.function(steps._gradients, autograph=False)(batch, steps.step + 1)
        gradients.append(
            {
                variable.path: gradient
                for variable, gradient in zip(model.trainable_variables, replicas.dense(found), strict=True)
            }
        )
    whole, *others = gradients
    for parts in others:
        for path, gradient in whole.items():
            tolerance = max(3e-6 * np.abs(gradient).max(), 20 * NOISE)  # different order of summation
            np.testing.assert_allclose(parts[path], gradient, atol=tolerance, err_msg=path)


@pytest.mark.slow
@pytest.mark.endurance
def test_parts_of_a_model_whose_sums_are_large():
    """TensorFlow's graph optimizer rewrites large sums, which once failed inside two loops."""
    config = BertConfig(30522, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
    task = PretrainingTask(config, max_seq_length=128, max_predictions_per_seq=20, eval_batch_size=8)
    plan = TrainingPlan(train_batch_size=32, num_train_steps=10, gradient_accumulation_steps=4)
    steps = TrainingSteps(task, task.build_model(), tf.distribute.get_strategy(), plan)
    batch = {field.name: np.ones([32, *field.shape], field.dtype) for field in task.schema.fields}
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    assert [len(steps.take(iterator, count)["loss"]) for count in (1, 2)] == [1, 2]
