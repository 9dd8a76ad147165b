"""Losses, their gradients and predictions of every task for random outputs, in TensorFlow or JAX."""

import functools
import types

import keras
import numpy as np

from official_bert.modeling.encoder_options import PLAIN
from official_bert.tasks.classification.task import ClassificationTask, ClassLoss
from official_bert.tasks.pretraining.task import cosine_loss
from official_bert.tasks.sentence_encoder.data import example_schema
from official_bert.tasks.sentence_encoder.task import Objective, SentenceEncoderTask
from official_bert.tasks.tagging.task import TaggingTask

WEIGHTED = ClassLoss((1.0, 0.5, 2.0), label_smoothing=0.1, focal_gamma=0.5)
OBJECTIVES = (
    Objective("contrastive", {"temperature": 0.05, "symmetric": True}, {"temperature": 0.5}, vector_sizes=(2,)),
    *(Objective(name, {}, {"temperature": 0.5}) for name in ("cosine", "cosent", "softmax")),
    Objective("triplet", {"margin": 1.0}, {"temperature": 0.5}),
    Objective("distillation", {"temperature": 0.5}, {"temperature": 0.5}, regularizer_weights=(0.1, 0.2)),
)


def cases():
    """Yield name, task, outputs and batch."""
    from tests.training.task_batches import CONFIG, LENGTH, SIZE, TASKS, batch_of  # imports TensorFlow

    rng = np.random.default_rng(1)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    batches = {name: {key: np.asarray(value) for key, value in batch_of(name).items()} for name in TASKS}
    for name in ("pretraining", "classification", "multiple choice", "question answering", "tagging"):
        task, batch = TASKS[name](PLAIN), batches[name]
        symbols = {key: keras.KerasTensor(each.shape, each.dtype) for key, each in batch.items()}
        is_by_values = name == "multiple choice"  # its shapes depend on the lengths of the batch
        shown = keras.KerasTensor([SIZE, 3]) if is_by_values else task.build_model()(symbols)
        yield name, task, keras.tree.map_structure(lambda logits: normal(*logits.shape), shown), batch
    sizes = {"num_labels": 3, "metric_names": (), "max_length": LENGTH, "eval_batch_size": SIZE}
    numbers = rng.integers(3, size=[SIZE, 3])
    labels = {"single_label": numbers[:, 0], "multi_label": numbers % 2, "regression": normal(SIZE)}
    for problem, values in labels.items():
        loss = WEIGHTED if problem == "single_label" else None
        task = ClassificationTask(CONFIG, problem=problem, training_loss=loss, **sizes)
        yield problem, task, normal(SIZE, 3), {"label_ids": values, "is_real_example": np.array([1, 1, 1, 0])}
    task = TaggingTask(CONFIG, num_tags=4, max_seq_length=LENGTH + 2, head="crf", decodes_sequences=True)
    for variable in task.build_model().weights:
        variable.assign(rng.normal(0, 0.01, variable.shape))  # that of the transitions counts
    yield "crf", task, normal(SIZE, LENGTH, 4), batches["tagging"]
    batch = {"text_numbers": numbers, "scores": normal(SIZE, 2), "label_ids": numbers[:, 0]}
    for objective in OBJECTIVES:
        task = SentenceEncoderTask(CONFIG, example_schema(LENGTH, 3, 50, 2), objective)
        yield objective.loss, task, {"vectors": normal(SIZE, 3, 6), "logits": normal(SIZE, 3)}, batch
    task = types.SimpleNamespace(losses=of_layers, predictions=lambda *_: {})
    yield "layers", task, normal(2, SIZE, LENGTH, 6), batches["tagging"]


def of_layers(outputs, batch):
    pair = outputs[0] * batch["input_mask"][..., None], outputs[1]  # a zero vector has no direction
    mask = np.ones_like(batch["input_mask"])
    return {"cosine": cosine_loss(*pair, mask)}


def minimized(task, batch, outputs):
    """Return the sum of all losses, with soft targets if the task has them, and all values by name."""
    losses = task.losses(outputs, batch)
    if hasattr(task, "soft_target_loss"):
        teacher = outputs["masked_lm_logits"] if "masked_lm_ids" in batch else task.logits(outputs)
        losses["soft_target"] = task.soft_target_loss(outputs, teacher[::-1], batch, 2.0)
    values = {f"{name} {part}": getattr(loss, part) for name, loss in losses.items() for part in ("total", "weight")}
    return sum(loss.total / loss.weight for loss in losses.values()), values | task.predictions(outputs, batch)


def computed():
    """Return the values and the gradients of the outputs by name, computed in compiled functions."""
    found, all_cases = {}, list(cases())
    outputs = [outputs for _, _, outputs, _ in all_cases]
    losses = [functools.partial(minimized, task, batch) for _, task, _, batch in all_cases]
    if keras.backend.backend() == "jax":
        import jax

        functions = [jax.value_and_grad(loss, has_aux=True) for loss in losses]
        compiled = jax.jit(lambda *given: [function(each) for function, each in zip(functions, given, strict=True)])
        results = [(values, gradients) for (_, values), gradients in compiled(*outputs)]
    else:
        outputs = keras.tree.map_structure(keras.ops.convert_to_tensor, outputs)
        results = map(in_tensorflow, losses, outputs)
    for (name, *_), (values, gradients) in zip(all_cases, results, strict=True):
        found |= {f"loss: {name} {key}": value for key, value in values.items()}
        for key, gradient in enumerate(keras.tree.flatten(gradients)):
            found[f"loss: {name} gradient {key}"] = gradient
    return found


def in_tensorflow(loss, outputs):
    import tensorflow as tf

    @tf.function(autograph=False)
    def function():
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            total, values = loss(outputs)
        return values, tape.gradient(total, outputs, unconnected_gradients="zero")

    return function()
