"""Steps of all tasks from the same weights on any engine: their losses, and the weights after them."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder_options import PLAIN, EncoderOptions, LoraSettings
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.pretraining.task import DistilledPretrainingTask, PretrainingTask, ReplacedTokenTask
from official_bert.tasks.sentence_encoder.data import example_schema
from official_bert.tasks.sentence_encoder.task import Objective, SentenceEncoderTask
from official_bert.training.cluster import Cluster
from official_bert.training.step import TrainingSteps
from official_bert.training.task import Task, TrainingPlan
from tests.conftest import GOLDEN
from tests.training.task_batches import CONFIG, LENGTH, PREDICTIONS, SIZE, SIZES, TASKS, batch_of
from tests.training.trajectory import golden_batches, golden_plan, golden_task, golden_trajectory

MODEL = GOLDEN / "pretraining_model"
RECOMPUTED = EncoderOptions(recompute_layers=True)
LORA = EncoderOptions(lora=LoraSettings(2, 6.0, ("value", "dense")))
PARTS = {"gradient_accumulation_steps": 2}
ON_TWO = {"plan": PARTS, "num_devices": 2}
NUMBERS = tf.constant([[1, 2, 3], [4, 5, 6], [1, 7, 8], [9, 10, 0]])  # the last example lacks its third text


class Row(NamedTuple):
    make_task: Callable[[EncoderOptions], Task]
    batch: Mapping[str, Any]
    options: EncoderOptions = PLAIN
    plan: Mapping[str, Any] = {}
    num_devices: int = 1


def of_table(name, **row):
    return Row(TASKS[name], batch_of(name), **row)


def contrastive(options):
    objective = Objective("contrastive", {"temperature": 0.05, "symmetric": True}, vector_sizes=(5,))
    schema = example_schema(LENGTH // 3, 3, CONFIG.vocab_size, 2)
    more = {"is_padded_to_longest": False, "encoder_options": options, "layers_after": [None]}
    return SentenceEncoderTask(CONFIG, schema, objective, **more)


def replaced_tokens(options):
    config = BertConfig.from_dict({**CONFIG.to_dict(), "family": "electra", "embedding_size": 12})
    return ReplacedTokenTask(config, generator_size=0.5, encoder_options=options, **SIZES)


def taught(options):
    """Learn from a teacher that reads the same batches."""
    flags = {"input_file": "-", "output_dir": "-", "bert_config_file": "-", "do_train": True, "max_seq_length": LENGTH}
    dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    config = BertConfig.from_dict({**json.loads((MODEL / "bert_config.json").read_text()), **dropout})
    task = PretrainingTask(config, encoder_options=options, **SIZES)
    return DistilledPretrainingTask(task, config, PretrainingConfig(**flags, teacher=str(MODEL / "bert_model.ckpt")))


LAYERS = {
    "num_trained_layers": 1,
    "optimizer_options": {"layer_wise_lr_decay": 0.5, "bias_correction": True},
    "nan_policy": "skip",
}
ROWS = {
    "windows": lambda: of_table("classification of windows", options=LORA),
    "all layers": lambda: of_table("classification by all layers", plan=LAYERS, num_devices=4),
    "contrastive": lambda: Row(contrastive, {**batch_of("multiple choice"), "text_numbers": NUMBERS}, **ON_TWO),
    "taught": lambda: Row(taught, batch_of("pretraining"), plan=PARTS),
    "replaced tokens": lambda: Row(replaced_tokens, batch_of("pretraining")),
    "LSTM": lambda: of_table("tagging by an LSTM", plan={"train_only": "bias"}),
}


def arrays_of(model: keras.Model, steps: TrainingSteps, history: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    named = {variable.path: variable for variable in model.trainable_variables} | steps.slots
    return {**history, **{name: np.asarray(variable.value) for name, variable in named.items()}}


def ten_steps(row: Row, cluster: Cluster) -> dict[str, np.ndarray]:
    """Take ten steps from weights that do not depend on the engine."""
    with cluster.scope():
        task = row.make_task(row.options)
        model = task.build_model()
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0  # that of heads
    rng = np.random.default_rng(2)
    for variable in sorted(model.weights, key=lambda each: each.path):
        variable.assign(variable.path.endswith("gamma") + rng.normal(0, 0.2, variable.shape))
    settings = {"num_train_steps": 20, "num_warmup_steps": 2, "learning_rate": 3e-4, **row.plan}
    plan = TrainingPlan(train_batch_size=SIZE, **settings)
    steps = cluster.training_steps(task, model, plan)
    batches = iter(cluster.distribute(tf.data.Dataset.from_tensors(row.batch).repeat()))
    noise = rng.uniform(0.1, 0.9, [SIZE, PREDICTIONS, CONFIG.vocab_size]).astype(np.float32)
    with mock.patch("keras.random.uniform", lambda *_, **__: keras.ops.convert_to_tensor(noise)):  # of sampled tokens
        return arrays_of(model, steps, steps.take(batches, 10))


def golden_steps(cluster: Cluster, calls: Sequence[int], *, size: int = 6, dropout: float = 0.0, options=PLAIN, **plan):
    """Take the reference's steps in some calls; return the model, the steps and the scalars of each."""
    golden = golden_trajectory()
    task = golden_task(MODEL, encoder_options=options, dropout=dropout, num_layers=1 if dropout else 3)
    model = task.build_model()
    load(CheckpointReader(str(MODEL / "bert_model.ckpt")), model.trainable_variables)
    steps = cluster.training_steps(task, model, golden_plan(golden, random_seed=1, **plan))
    batches = distributed(cluster, size)
    parts = [steps.take(batches, count) for count in calls]
    return model, steps, batches, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def distributed(cluster: Cluster, size: int):
    batches = golden_batches(golden_trajectory()).map(lambda batch: {name: each[:size] for name, each in batch.items()})
    return iter(cluster.distribute(batches))


def resumed(cluster: Cluster) -> dict[str, np.ndarray]:
    """Take steps with dropout, and then three more: twice from the same state, and once from another step."""
    model, steps, _, history = golden_steps(cluster, **DROPOUT)
    found = {f"0 {name}": array for name, array in arrays_of(model, steps, history).items()}
    state = [*model.trainable_variables, *steps.slots.values(), steps.step]
    before = [np.array(variable.value) for variable in state]
    for number in range(1, 4):
        for variable, value in zip(state, before, strict=True):
            variable.assign(value + number // 3 if variable is steps.step else value)
        end = arrays_of(model, steps, steps.take(distributed(cluster, DROPOUT["size"]), 3))
        found |= {f"{number} {name}": array for name, array in end.items()}
    return found


def overflowing(cluster: Cluster) -> dict[str, np.ndarray]:
    """Take steps in float16, and then two whose loss scale is too large."""
    options = EncoderOptions(dtype="mixed_float16")
    model, steps, batches, history = golden_steps(cluster, (5,), options=options)
    before = arrays_of(model, steps, {})
    steps.loss_scale_state["loss_scale/scale"].assign(2.0**30)
    found = steps.take(batches, 2)
    after = arrays_of(model, steps, {})
    changed = [name for name, array in before.items() if not np.array_equal(after[name], array)]
    return {**history, "changed": np.array(changed), **{f"later {name}": values for name, values in found.items()}}


def golden_row(cluster, calls=(12,), **options):
    model, steps, _, history = golden_steps(cluster, calls, **options)
    return arrays_of(model, steps, history)


def numbers_of_devices(_):
    """Return how many of four devices are used by flags."""
    from official_bert.training.jax_devices import create_cluster

    flags = ("auto", None), ("auto", 0), ("auto", 1), ("one_device", None)
    return {"numbers": np.array([create_cluster(*each).num_replicas for each in flags])}


DROPOUT = {"size": 4, "dropout": 0.1, "calls": (6,)}
GOLDEN_ROWS = {
    "golden": lambda clusters: golden_row(clusters[2], (5, 7), gradient_accumulation_steps=3),
    "devices": numbers_of_devices,
    "dropout on 4": lambda clusters: resumed(clusters[4]),
    "dropout recomputed": lambda clusters: golden_row(clusters[1], **DROPOUT, options=RECOMPUTED),
    "float16": lambda clusters: overflowing(clusters[1]),
}


def main(path: str, *names: str) -> None:
    """Write the arrays of some rows to a file, as "row|name", computed on virtual devices of JAX."""
    import jax

    from official_bert.training.jax_devices import JaxCluster

    clusters = {count: JaxCluster(jax.devices()[:count]) for count in (1, 2, 4)}
    found = {}
    keras.initializers.TruncatedNormal = lambda **_: "zeros"  # all weights are assigned, and JAX compiles each shape
    for name in names:
        if name in ROWS:
            row = ROWS[name]()
            arrays = ten_steps(row, clusters[row.num_devices])
        else:
            arrays = GOLDEN_ROWS[name](clusters)
        found |= {f"{name}|{key}": array for key, array in arrays.items()}
    np.savez(path, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
