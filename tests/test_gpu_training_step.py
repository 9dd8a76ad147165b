"""The benchmark of the training step on a GPU times the reference's step and counts its operations correctly."""

import json
import subprocess
import sys

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.optimization.schedules import LinearWarmupThenDecay
from tests.conftest import ROOT, golden_arrays, script_environment

BENCHMARK = ROOT / "benchmarks" / "gpu_training_step.py"
NUM_STEPS = 12
FAST_TO_COMPILE = {**script_environment(), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}

STEPS_PROGRAM = """
import dataclasses
import json
import os
import sys

os.environ["KERAS_BACKEND"] = "jax"
import jax
import numpy as np

sys.path.insert(0, sys.argv[1])
import gpu_training_step as benchmark
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel

golden = np.load(sys.argv[2])
config = BertConfig.from_json_file(sys.argv[3])
config = dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = PretrainingModel(BertEncoder(config))
paths = [variable.path for variable in model.trainable_variables]
for variable in model.trainable_variables:
    variable.assign(golden[variable.path])
step, state, losses = jax.jit(benchmark.our_step(model)), benchmark.our_state(model), []
for number, rate in enumerate(golden["rates"]):
    prefix = f"batch{number:02d}/"
    batch = {name.removeprefix(prefix): golden[name] for name in golden.files if name.startswith(prefix)}
    batch["next_sentence_labels"] = batch["next_sentence_labels"][:, 0]
    state, loss = step(state, batch, rate)
    losses.append(float(loss))


def products(jaxpr):
    "Operations and number type of each product of matrices, inner functions included."
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from products(inner)
        if equation.primitive.name == "dot_general":
            left, contracted = equation.invars[0].aval, equation.params["dimension_numbers"][0][0]
            summed = np.prod([left.shape[axis] for axis in contracted])
            yield 2 * int(np.prod(equation.outvars[0].aval.shape) * summed), str(left.dtype)


counts = []
for case in benchmark.CASES["tiny"]:
    model = benchmark.our_model(case, benchmark.STEP, "mixed_bfloat16")
    arguments = benchmark.our_state(model), benchmark.make_batch(case, 4, 0.0), 1e-4
    found = list(products(jax.make_jaxpr(benchmark.our_step(model))(*arguments).jaxpr))
    width = benchmark.MODELS["tiny"]["hidden_size"]
    counts.append((
        benchmark.model_flops(case, benchmark.sequence_lengths(case, 4, 0.0)),
        2 * 2 * 4 * case.length * 2 * width,  # looking segments up is a product of its own, forward and backward
        2 * 4 * width**2 if case.task == benchmark.SPAN else 0,  # a pooler that nobody reads; XLA leaves it out
        sum(flops for flops, number_type in found if number_type == "bfloat16"),
        sum(flops for flops, _ in found),
    ))
assert "tensorflow" not in sys.modules
np.savez(sys.argv[4], **dict(zip(paths, state["weights"], strict=True)))
print(json.dumps({"losses": losses, "counts": counts}))
"""


@pytest.mark.slow
@pytest.mark.endurance
def test_the_step_is_the_reference_s_and_its_operations_are_counted_right(model_dir, tmp_path):
    golden = golden_arrays("pretraining_model/trajectory.npz")
    first, last = (CheckpointReader(str(model_dir / name)) for name in ("bert_model.ckpt", "trained_model.ckpt-12"))
    schedule = LinearWarmupThenDecay(
        float(golden["learning_rate"]),
        num_train_steps=int(golden["num_train_steps"]),
        num_warmup_steps=int(golden["num_warmup_steps"]),
    )
    rates = [float(schedule(step)) for step in range(NUM_STEPS)]
    given, trained = tmp_path / "given.npz", tmp_path / "trained.npz"
    np.savez(given, rates=rates, **golden, **{name: first.read(name) for name in first.shapes})
    arguments = [str(BENCHMARK.parent), str(given), str(model_dir / "bert_config.json"), str(trained)]
    process = subprocess.run(
        [sys.executable, "-c", STEPS_PROGRAM, *arguments], env=FAST_TO_COMPILE, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)

    np.testing.assert_allclose(found["losses"], golden["loss"], rtol=1e-5)
    with np.load(trained) as weights:
        for name in weights.files:
            expected = last.read(name)
            np.testing.assert_allclose(weights[name], expected, atol=1e-5 * np.abs(expected).max(), err_msg=name)

    for counted, segments, unused, narrow, done in found["counts"]:
        assert counted + segments + unused == done
        assert narrow > 0.99 * counted
