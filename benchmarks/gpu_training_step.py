"""Training steps on a GPU: this project's on JAX and on TensorFlow, and those of PyTorch's `transformers`.

  timeout 5m python benchmarks/gpu_training_step.py
  python benchmarks/gpu_training_step.py --preset=tiny  # checks on a CPU that everything runs

Only Keras and JAX are needed. TensorFlow (one GPU, with XLA) and the peer are measured where they are installed. A step
is that of `run_pretraining`, in bfloat16 with float32 weights; our batches are put on the device in each step. The peer
uses scaled_dot_product_attention, torch.compile, bfloat16 autocast and fused AdamW; its batch stays on the device. With
the same weights and without dropout, all sides must have the same loss in a first step.

Fused attention needs steps without dropout of attention probabilities. The fraction of the rate counts the matrix
products of the model, with backward as twice forward, relative to JAX's product of large bfloat16 matrices. The sides
of a row compile at the same time and run in turn; "nan" was not measured.
"""

import argparse
import fcntl
import importlib.metadata
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from common import BACKWARD, QUIET, encoder_flops, pretraining_heads_flops
from training_step import POLICIES, make_batch, model_config

JAX, FUSED, TENSORFLOW, PEER = "JAX", "JAX, fused", "TensorFlow", "transformers"
BACKENDS = {JAX: "jax", FUSED: "jax", TENSORFLOW: "tensorflow", PEER: "torch"}
PACKAGES = {JAX: ["jax", "keras"], FUSED: ["jax"], TENSORFLOW: ["tensorflow"], PEER: ["torch", "transformers"]}
TOLERANCES = {"float32": 2e-4, "bfloat16": 2e-2}  # relative, of a loss; GPUs may multiply float32 as tf32
SHARED_MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
MODELS = {
    "base": {},
    "large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256},
}
# Models, lengths, positions in a batch, steps in a round, and width of the matrices whose product is measured.
PRESETS = {"full": (("base", "large"), (128, 512), 16_384, 20, 8192), "tiny": (("tiny",), (32,), 256, 2, 256)}
# To compare losses; wide initial weights, since otherwise all losses are close to that of guessing.
CHECKED = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2}


class Job(NamedTuple):
    """The work of a process for a side."""

    side: str
    model: str
    length: int
    batch_size: int
    changes: dict[str, float]  # of the config
    size: int  # number of steps in a round; for losses, width of the matrices to multiply
    weights_file: str = ""  # for losses: the weights of all sides, written by the first

    @property
    def num_predictions(self) -> int:
        return self.length * 20 // 128

    @property
    def config(self):
        return model_config(MODELS[self.model] | self.changes)


def batch_of(job: Job) -> dict[str, np.ndarray]:
    """Return random sequences; if losses are to be compared, the last fifth of every second one is padding."""
    batch = make_batch(job.batch_size, job.length, job.num_predictions)
    if job.weights_file:
        batch["input_mask"][::2, job.length * 4 // 5 :] = 0
    weights = np.ones([job.batch_size, job.num_predictions], np.float32)
    return {**{name: values.astype(np.int32) for name, values in batch.items()}, "masked_lm_weights": weights}


def our_steps(job: Job, number_type: str) -> Callable[[int], float]:
    """Return a function that takes steps and returns the last loss; so does `peer_steps`."""
    from official_bert.checkpoints.loading import load, open_pretrained
    from official_bert.modeling.encoder_options import EncoderOptions
    from official_bert.tasks.pretraining.task import PretrainingTask
    from official_bert.training.task import TrainingPlan

    options = {"dtype": POLICIES[number_type]}
    if job.side == TENSORFLOW:
        import tensorflow as tf

        from official_bert.training.tensorflow_devices import TensorFlowCluster

        cluster = TensorFlowCluster(tf.distribute.get_strategy(), use_xla=True)
        batches = tf.data.Dataset.from_tensors(batch_of(job)).repeat()
    else:
        from official_bert.training.jax_attention import LAYOUTS
        from official_bert.training.jax_devices import JaxCluster

        cluster, batches = JaxCluster(), itertools.repeat(batch_of(job))
        options["layout"] = LAYOUTS["fused" if job.side == FUSED else "plain"]
    lengths = {"max_seq_length": job.length, "max_predictions_per_seq": job.num_predictions}
    task = PretrainingTask(
        job.config, **lengths, eval_batch_size=job.batch_size, encoder_options=EncoderOptions(**options)
    )
    plan = TrainingPlan(train_batch_size=job.batch_size, num_train_steps=10**6, learning_rate=1e-4, use_xla=True)
    model = task.build_model()
    if os.path.exists(job.weights_file):
        load(open_pretrained(os.path.dirname(job.weights_file))[0], model.checkpoint_variables())
    elif job.weights_file:
        model.save_checkpoint(job.weights_file)
    steps = cluster.training_steps(task, model, plan)
    distributed = iter(cluster.distribute(batches))
    steps.compile(distributed)
    return lambda num_steps: float(steps.take(distributed, num_steps)["loss"][-1])


def peer_steps(job: Job, number_type: str) -> Callable[[int], float]:
    import safetensors.torch
    import torch
    import transformers
    from torch.nn.functional import cross_entropy

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.BertConfig(**job.config.to_dict() | {"hidden_act": "gelu_new"}, attn_implementation="sdpa")
    model = transformers.BertForPreTraining(config)
    if job.weights_file:
        model.load_state_dict(safetensors.torch.load_file(job.weights_file), strict=False)  # without the tied ones
    model.train().to(device)
    batch = {name: torch.as_tensor(values).to(device) for name, values in batch_of(job).items()}
    batch |= {name: values.long() for name, values in batch.items() if values.dtype == torch.int32}
    mask = batch["input_mask"] if job.weights_file else None  # None lets PyTorch choose its fastest kernel
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)

    @torch.compile
    def compute_loss():
        with torch.autocast(device, torch.bfloat16, enabled=number_type == "bfloat16"):
            encoded = model.bert(batch["input_ids"], attention_mask=mask, token_type_ids=batch["segment_ids"])
            hidden = torch.take_along_dim(encoded.last_hidden_state, batch["masked_lm_positions"][:, :, None], dim=1)
            masked_lm = cross_entropy(model.cls.predictions(hidden).flatten(0, 1), batch["masked_lm_ids"].flatten())
            next_sentence = model.cls.seq_relationship(encoded.pooler_output)
            return masked_lm + cross_entropy(next_sentence, batch["next_sentence_labels"])

    def take(num_steps):
        for _ in range(num_steps):
            loss = compute_loss()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    compute_loss().backward()  # compiles
    optimizer.zero_grad()
    torch.cuda.empty_cache()
    return take


def seconds_a_step(take: Callable[[int], float], num_steps: int) -> float:
    if not np.isfinite(take(3)):  # warms the caches
        sys.exit("the loss is not finite")
    return statistics.median(timeit.repeat(lambda: take(num_steps), number=1, repeat=5)) / num_steps


def run_job(job: Job, lock: str) -> dict:
    """Return the seconds of a step, or the losses of first steps by number type and, from JAX, the device."""
    with open(lock) as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        steps = peer_steps if job.side == PEER else our_steps
        if job.weights_file:
            losses = {number_type: steps(job, number_type)(1) for number_type in TOLERANCES}
            return {"losses": losses, **(look_at_device(job.size) if job.side == JAX else {})}
        take = steps(job, "bfloat16")
        fcntl.flock(held, fcntl.LOCK_EX)  # until all sides have compiled, and none measures
        return {"seconds": seconds_a_step(take, job.size)}


def look_at_device(width: int) -> dict:
    import jax

    left, right = (jax.random.normal(jax.random.key(seed), [width, width], "bfloat16") for seed in range(2))
    multiply = jax.jit(lambda left, right: left @ right)
    seconds = seconds_a_step(lambda number: float([multiply(left, right) for _ in range(number)][-1][0, 0]), 20)
    return {"name": jax.devices()[0].device_kind, "flops": 2 * width**3 / seconds}


def run_all(jobs: list[Job]) -> dict[str, dict]:
    """Run each job in a process of its own, at the same time; return the results by side, without those that failed."""
    with tempfile.NamedTemporaryFile() as lock:
        processes = {}
        for job in jobs:
            command = [sys.executable, __file__, "--job", json.dumps(job), lock.name]
            environment = {**os.environ, **QUIET, **SHARED_MEMORY, "KERAS_BACKEND": BACKENDS[job.side]}
            processes[job.side] = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        outputs = {side: process.communicate()[0] for side, process in processes.items()}
    return {side: json.loads(out.splitlines()[-1]) for side, out in outputs.items() if not processes[side].returncode}


def check_losses(sides: list[str], width: int) -> dict:
    """Return what JAX knows of the device; exit unless all sides have the same losses with the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(JAX, "tiny", 32, 8, CHECKED, width, f"{folder}/model.safetensors")
        first, *others = (job._replace(side=side) for side in sides)
        found = run_all([first]) | run_all(others)
    for number_type, tolerance in TOLERANCES.items():
        losses = {side: found[side]["losses"][number_type] for side in sides}
        if not np.allclose(list(losses.values()), found[JAX]["losses"]["float32"], rtol=tolerance):
            sys.exit(f"the losses differ in {number_type}: {losses}")
    return found[JAX]


def report(preset: str) -> None:
    sides = [side for side, names in PACKAGES.items() if all(map(importlib.util.find_spec, names))]
    models, lengths, num_positions, num_steps, width = PRESETS[preset]
    device = check_losses(sides, width)
    versions = {name: importlib.metadata.version(name) for side in sides for name in PACKAGES[side]}
    print(f"Training step on {device['name']}, {num_positions:,} positions; {versions}; the losses agree")
    print(f"sequences/s, and fraction of the rate of products, {device['flops'] / 1e12:,.4g} TFLOP/s")
    row = "{:<34}" + "{:>18}" * len(sides) + "{:>8}"
    print(row.format("", *sides, "ratio"), flush=True)
    for dropout, model, length in itertools.product((0.0, 0.1), models, lengths):
        name = f"{model}, {length}{'' if dropout else ', no attention dropout'}"
        case = Job(JAX, model, length, num_positions // length, {"attention_probs_dropout_prob": dropout}, num_steps)
        found = run_all([case._replace(side=side) for side in sides if side != FUSED or not dropout])
        seconds = dict.fromkeys(sides, np.nan) | {side: measured["seconds"] for side, measured in found.items()}
        heads = pretraining_heads_flops(case.config, case.batch_size, case.num_predictions)
        flops = (1 + BACKWARD) * (encoder_flops(case.config, np.full(case.batch_size, length)) + heads)
        cells = [
            f"{case.batch_size / value:,.0f} {flops / value / device['flops']:>6.1%}" for value in seconds.values()
        ]
        ratio = f"{seconds.get(PEER, np.nan) / np.nanmin([seconds[JAX], seconds[FUSED]]):.2f}"
        print(row.format(name, *cells, ratio), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="full")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.job:
        print(json.dumps(run_job(Job(*json.loads(flags.job[0])), flags.job[1])))
    else:
        report(flags.preset)


if __name__ == "__main__":
    main()
