r"""Training steps on a GPU: this model with Keras on JAX, compared with PyTorch's `transformers` on the same chip.

  python benchmarks/gpu_training_step.py
  python benchmarks/gpu_training_step.py --models=base --lengths=128 --variants="training step,no dropout" \
      --number_types=bfloat16
  python benchmarks/gpu_training_step.py --preset=tiny

--preset=tiny checks within minutes, also on a CPU, that everything runs; its rates are meaningless. Needs JAX and
Keras, not TensorFlow; the peer needs PyTorch and `transformers` 5, and is left out if they are missing.

A training step is forward, backward, clipping by global norm and Adam with weight decay, on one batch that stays on
the device. Both sides have the same shapes, tasks and dropout, and for both only the masked positions are scored. Ours
is compiled by XLA, with the reference's optimizer; in bfloat16 with Keras's `mixed_bfloat16` policy. The peer uses
scaled_dot_product_attention, torch.compile and fused AdamW; in bfloat16 with autocast. Weights are float32, and float32
products may be computed as tf32. Before the measurement, all sides get the same weights and must give the same losses.

Dropout of attention probabilities is the reference's, but needs random bits for each pair of positions and rules out
some fused kernels, so the variant "no attention dropout" is measured, too, on our side in bfloat16 also with cuDNN's
fused attention. Other variants leave out more, to find the bottleneck.

The utilization counts only the operations that the model needs: matrix products, with backward as twice forward,
without padding, recomputation and dropout. It is relative to the rate of a product of large random matrices of the same
number type, the better of the two frameworks, measured first.

The sides compile at the same time, each in a process of its own, and then run one after another, while no other process
uses the device.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
from common import BACKWARD, QUIET, encoder_flops, measure_in_process, pretraining_heads_flops

from official_bert.config.bert_config import BertConfig

# For the child processes.
os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several processes share the device's memory
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

OURS, FUSED, PEER = "ours", "fused attention", "transformers"
PRETRAINING, SPAN = "pretraining", "span"
STEP, NO_ATTENTION_DROPOUT, NO_DROPOUT, FORWARD = "training step", "no attention dropout", "no dropout", "forward alone"
VARIANTS = (STEP, NO_ATTENTION_DROPOUT, NO_DROPOUT, FORWARD)
BFLOAT16, FLOAT32 = "bfloat16", "float32"
POLICIES = {BFLOAT16: "mixed_bfloat16", FLOAT32: "float32"}

MODELS = {
    "base": {"vocab_size": 30_522},
    "large": {
        "vocab_size": 30_522,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    "tiny": {
        "vocab_size": 1000,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
    },
}
LEARNING_RATE = 1e-4
# The reference's optimizer; see official_bert.optimization.optimizers.
BETA_1, BETA_2, EPSILON, WEIGHT_DECAY, CLIP_NORM = 0.9, 0.999, 1e-6, 0.01, 1.0
NO_DECAY = re.compile("LayerNorm|bias")

NUM_ROUNDS = 5
CHECK_TOLERANCES = {FLOAT32: 2e-3, BFLOAT16: 2e-2}  # relative, of a loss; GPUs may multiply float32 as tf32


@dataclasses.dataclass(frozen=True)
class Case:
    """A case to measure: model, task, sequence length and number of predictions per sequence."""

    model: str
    task: str
    length: int
    num_predictions: int = 0

    @property
    def name(self) -> str:
        """Name in the table."""
        return f"{self.model}, {self.task}, {self.length}"


CASES = {
    "full": [
        Case(model, *case)
        for model in ("base", "large")
        for case in ((PRETRAINING, 128, 20), (PRETRAINING, 512, 80), (SPAN, 384))
    ],
    "tiny": [Case("tiny", PRETRAINING, 32, 5), Case("tiny", SPAN, 48)],
}


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes for a chip: positions per batch by number type, steps per round, and the width of multiplied matrices."""

    positions: dict[str, int]
    num_steps: int
    matrix_width: int


SIZES = {
    "full": Size({BFLOAT16: 16_384, FLOAT32: 8192}, 10, 8192),
    "tiny": Size({BFLOAT16: 128, FLOAT32: 128}, 2, 256),
}


@dataclasses.dataclass(frozen=True)
class Measurement:
    """A measurement of one side, made in a process of its own; the steps are those of a round."""

    case: Case
    variant: str
    number_type: str
    side: str
    batch_size: int
    padding: float
    num_steps: int


def model_config(case: Case, variant: str) -> BertConfig:
    changes = {
        NO_ATTENTION_DROPOUT: {"attention_probs_dropout_prob": 0.0},
        NO_DROPOUT: {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0},
    }
    return BertConfig(type_vocab_size=2, **MODELS[case.model], **changes.get(variant, {}))


def sequence_lengths(case: Case, batch_size: int, padding: float) -> np.ndarray:
    """Return evenly spread lengths with which a fraction `padding` of the positions is padding."""
    shares = 1 - 2 * padding * (np.arange(batch_size) + 0.5) / batch_size
    return np.round(case.length * shares).astype(int)


def make_batch(case: Case, batch_size: int, padding: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    lengths = sequence_lengths(case, batch_size, padding)
    input_mask = (np.arange(case.length) < lengths[:, None]).astype(np.int32)
    batch = {
        "input_ids": rng.integers(1, MODELS[case.model]["vocab_size"], [batch_size, case.length]) * input_mask,
        "input_mask": input_mask,
        "segment_ids": (np.arange(case.length) >= lengths[:, None] // 2) * input_mask,
    }
    if case.task == SPAN:
        return batch | {f"{edge}_positions": rng.integers(0, lengths) for edge in ("start", "end")}
    positions = [np.sort(rng.choice(length, case.num_predictions, replace=False)) for length in lengths]
    return batch | {
        "masked_lm_positions": np.stack(positions),
        "masked_lm_ids": rng.integers(1, MODELS[case.model]["vocab_size"], [batch_size, case.num_predictions]),
        "masked_lm_weights": np.ones([batch_size, case.num_predictions], np.float32),
        "next_sentence_labels": rng.integers(0, 2, [batch_size]),
    }


def model_flops(case: Case, lengths: np.ndarray, *, is_forward_alone: bool = False) -> int:
    """Return the floating-point operations of a step's matrix products, at unpadded positions."""
    config, num_sequences = model_config(case, STEP), len(lengths)
    forward = encoder_flops(config, lengths)
    if case.task == SPAN:
        forward += 2 * int(lengths.sum()) * config.hidden_size * 2
    else:
        forward += pretraining_heads_flops(config, num_sequences, case.num_predictions)
    return forward if is_forward_alone else (1 + BACKWARD) * forward


def seconds_a_step(take: Callable[[int], None], num_steps: int) -> float:
    """Return the median seconds per step over rounds; `take` runs steps and waits for the last."""
    take(3)  # warms the caches
    times = []
    for _ in range(NUM_ROUNDS):
        began = time.perf_counter()
        take(num_steps)
        times.append((time.perf_counter() - began) / num_steps)
    return statistics.median(times)


# Ours. JAX and PyTorch are imported on use: each runs in a separate process that has the device to itself.


def our_model(case: Case, variant: str, policy: str):
    import keras

    from official_bert.modeling.encoder import BertEncoder
    from official_bert.modeling.heads import SpanModel
    from official_bert.modeling.pretraining import PretrainingModel

    keras.config.set_dtype_policy(policy)
    return {PRETRAINING: PretrainingModel, SPAN: SpanModel}[case.task](BertEncoder(model_config(case, variant)))


@contextlib.contextmanager
def fused_attention(has_padding: bool) -> Iterator[None]:
    """Compute attention by cuDNN's fused kernel on a GPU, and by XLA elsewhere, without dropout of probabilities."""
    import jax

    from official_bert.modeling import transformer

    implementation = "cudnn" if jax.default_backend() == "gpu" else "xla"

    def attend(query, key, value, bias, drop_out):
        heads = [tensor.transpose(0, 2, 1, 3) for tensor in (query, key, value)]  # [B, S, N, H]
        lengths = (bias[:, 0, 0] == 0).sum(-1).astype("int32") if has_padding else None
        context = jax.nn.dot_product_attention(*heads, key_value_seq_lengths=lengths, implementation=implementation)
        return context.transpose(0, 2, 1, 3), None

    plain, transformer.attend = transformer.attend, attend
    try:
        yield
    finally:
        transformer.attend = plain


def our_loss(outputs, batch):
    """Return the loss of the batch's task, as in `official_bert.tasks`."""
    import jax
    import jax.numpy as jnp

    def cross_entropy(logits, labels):
        return jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]

    if "start_positions" in batch:
        losses = [cross_entropy(outputs[f"{edge}_logits"], batch[f"{edge}_positions"]) for edge in ("start", "end")]
        return (losses[0].mean() + losses[1].mean()) / 2
    weights = batch["masked_lm_weights"]
    masked_lm = cross_entropy(outputs["masked_lm_logits"], batch["masked_lm_ids"])
    next_sentence = cross_entropy(outputs["next_sentence_logits"], batch["next_sentence_labels"])
    return (masked_lm * weights).sum() / (weights.sum() + 1e-5) + next_sentence.mean()


def our_state(model) -> dict[str, list]:
    """Return the state that a step changes: weights, both moments, and dropout seeds."""
    import jax.numpy as jnp

    weights = [variable.value for variable in model.trainable_variables]
    return {
        "weights": weights,
        "first": [jnp.zeros_like(weight) for weight in weights],
        "second": [jnp.zeros_like(weight) for weight in weights],
        "seeds": [variable.value for variable in model.non_trainable_variables],
    }


def our_forward(model) -> Callable:
    """Return a function from weights, seeds and batch to the loss and the next seeds."""

    def forward(weights, seeds, batch):
        outputs, seeds = model.stateless_call(weights, seeds, batch, training=True)
        return our_loss(outputs, batch), seeds

    return forward


def our_step(model) -> Callable:
    """Return a function from state, batch and learning rate to the next state and the loss."""
    import jax
    import jax.numpy as jnp

    is_decayed = [not NO_DECAY.search(variable.path) for variable in model.trainable_variables]

    def step(state, batch, learning_rate):
        (loss, seeds), gradients = jax.value_and_grad(our_forward(model), has_aux=True)(
            state["weights"], state["seeds"], batch
        )
        norm = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in gradients))
        scale = CLIP_NORM / jnp.maximum(norm, CLIP_NORM)
        updated = {"weights": [], "first": [], "second": [], "seeds": seeds}
        for weight, first, second, gradient, decays in zip(
            state["weights"], state["first"], state["second"], gradients, is_decayed, strict=True
        ):
            first = BETA_1 * first + (1 - BETA_1) * scale * gradient
            second = BETA_2 * second + (1 - BETA_2) * (scale * gradient) ** 2
            change = first / (jnp.sqrt(second) + EPSILON) + (WEIGHT_DECAY * weight if decays else 0)
            updated["weights"].append(weight - learning_rate * change)
            updated["first"].append(first)
            updated["second"].append(second)
        return updated, loss

    return step


def our_forward_alone(model) -> Callable:
    """Return a function like that of `our_step` that only draws dropout masks and computes the loss."""
    forward = our_forward(model)

    def step(state, batch, learning_rate):
        del learning_rate
        loss, seeds = forward(state["weights"], state["seeds"], batch)
        return {**state, "seeds": seeds}, loss

    return step


def measure_ours(given: Measurement, wait_for_device: Callable[[], None]) -> float:
    import jax

    model = our_model(given.case, given.variant, POLICIES[given.number_type])
    batch = make_batch(given.case, given.batch_size, given.padding)
    step = (our_forward_alone if given.variant == FORWARD else our_step)(model)
    with fused_attention(given.padding > 0) if given.side == FUSED else contextlib.nullcontext():
        lowered = jax.jit(step, donate_argnums=0).lower(jax.eval_shape(lambda: our_state(model)), batch, LEARNING_RATE)
    compiled = lowered.compile()
    wait_for_device()
    state, batch = our_state(model), jax.device_put(batch)

    def take(num_steps):
        nonlocal state
        for _ in range(num_steps):
            state, loss = compiled(state, batch, LEARNING_RATE)
        jax.block_until_ready((state, loss))

    return seconds_a_step(take, given.num_steps)


def our_chip(width: int) -> dict:
    """Return the device's name and its rates of matrix products by number type."""
    import jax

    multiply = jax.jit(lambda left, right: left @ right)

    def rate(number_type):
        left, right = (jax.random.normal(jax.random.key(seed), [width, width], number_type) for seed in range(2))

        def take(num_steps):
            for _ in range(num_steps):
                product = multiply(left, right)
            product.block_until_ready()

        return 2 * width**3 / seconds_a_step(take, 20)

    return {"name": jax.devices()[0].device_kind, "flops": {number_type: rate(number_type) for number_type in POLICIES}}


def our_losses(case: Case, weights_file: str) -> dict[str, list[float]]:
    """Return the losses without dropout by number type, and write the weights under the peer's names."""
    import jax

    batch, weights, losses = make_batch(case, 4, 0.2), None, {}
    for number_type, policy in reversed(POLICIES.items()):
        model = our_model(case, NO_DROPOUT, policy)
        state = our_state(model)
        seeds = state["seeds"]
        if weights is None:
            weights, paths = state["weights"], [variable.path for variable in model.trainable_variables]
        losses[number_type] = [float(jax.jit(our_forward(model))(weights, seeds, batch)[0])]
        if number_type == BFLOAT16:
            with fused_attention(has_padding=True):
                losses[number_type].append(float(jax.jit(our_forward(model))(weights, seeds, batch)[0]))
    np.savez(weights_file, **dict(peer_weight(*pair) for pair in zip(paths, weights, strict=True)))
    return losses


def peer_weight(path: str, weight) -> tuple[str, np.ndarray]:
    """Convert the name and layout of a variable to those of `transformers`; only kernels are transposed."""
    weight = np.asarray(weight)
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", path).replace("cls/squad/", "qa_outputs/").replace("/", ".")
    if name.endswith(".kernel"):
        return name.removesuffix("kernel") + "weight", weight.T
    name = name.replace("output_weights", "weight").replace("output_bias", "bias")
    name = re.sub(r"gamma$", "weight", name)
    name = re.sub(r"beta$", "bias", name)
    return (f"{name}.weight" if name.endswith("embeddings") else name), weight


# The peer.


def peer_model(case: Case, variant: str):
    import torch
    import transformers

    values = model_config(case, variant).to_dict() | {"hidden_act": "gelu_new"}
    # The model classes of `transformers` handle tied weights and the choice of kernels.
    classes = {PRETRAINING: transformers.BertForPreTraining, SPAN: transformers.BertForQuestionAnswering}
    config = transformers.BertConfig(**values, attn_implementation="sdpa")
    return classes[case.task](config).train().to("cuda" if torch.cuda.is_available() else "cpu")


def peer_batch(case: Case, batch_size: int, padding: float, device):
    import torch

    return {name: torch.as_tensor(values).to(device) for name, values in make_batch(case, batch_size, padding).items()}


def peer_loss(model, batch, has_padding: bool):
    """Return the loss of the task; without padding there is no mask, which lets PyTorch choose its fastest kernel."""
    import torch
    from torch.nn.functional import cross_entropy

    inputs = {
        "input_ids": batch["input_ids"],
        "token_type_ids": batch["segment_ids"].long(),
        "attention_mask": batch["input_mask"] if has_padding else None,
    }
    if "start_positions" in batch:
        return model(**inputs, start_positions=batch["start_positions"], end_positions=batch["end_positions"]).loss
    encoded = model.bert(**inputs)
    hidden = torch.take_along_dim(encoded.last_hidden_state, batch["masked_lm_positions"][:, :, None], dim=1)
    masked_lm = cross_entropy(model.cls.predictions(hidden).flatten(0, 1), batch["masked_lm_ids"].flatten())
    next_sentence = model.cls.seq_relationship(encoded.pooler_output)
    return masked_lm + cross_entropy(next_sentence, batch["next_sentence_labels"])


def measure_peer(given: Measurement, wait_for_device: Callable[[], None]) -> float:
    import torch

    torch.set_float32_matmul_precision("high")
    model = peer_model(given.case, given.variant)
    device = model.device
    batch = peer_batch(given.case, given.batch_size, given.padding, device)
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if not NO_DECAY.search(name)], "weight_decay": WEIGHT_DECAY},
        {"params": [p for name, p in named if NO_DECAY.search(name)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(BETA_1, BETA_2), eps=EPSILON, fused=True)

    @torch.compile
    def loss_of(batch):
        with torch.autocast(device.type, torch.bfloat16, enabled=given.number_type == BFLOAT16):
            return peer_loss(model, batch, given.padding > 0)

    def compute():
        if given.variant == FORWARD:
            with torch.no_grad():
                loss_of(batch)
        else:
            loss_of(batch).backward()

    def take(num_steps):
        for _ in range(num_steps):
            compute()
            if given.variant != FORWARD:
                torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
                optimizer.step()
                optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()

    compute()  # compiles
    optimizer.zero_grad()
    torch.cuda.empty_cache()
    wait_for_device()
    return seconds_a_step(take, given.num_steps)


def peer_chip(width: int) -> dict:
    """Return the device's name and its rates of matrix products by number type."""
    import torch

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def rate(number_type):
        dtype = getattr(torch, number_type)
        left, right = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))

        def take(num_steps):
            for _ in range(num_steps):
                left @ right
            if device == "cuda":
                torch.cuda.synchronize()

        return 2 * width**3 / seconds_a_step(take, 20)

    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"name": name, "flops": {number_type: rate(number_type) for number_type in POLICIES}}


def peer_losses(case: Case, weights_file: str) -> dict[str, list[float]]:
    import torch

    model = peer_model(case, NO_DROPOUT)
    with np.load(weights_file) as weights:
        loaded = {name: torch.as_tensor(weights[name]) for name in weights.files}
    missing, unexpected = model.load_state_dict(loaded, strict=False)
    # Tied names have no separate weights; a span head has no pooler here.
    assert set(missing) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}, missing
    assert all(name.startswith("bert.pooler.") for name in unexpected), unexpected
    batch = peer_batch(case, 4, 0.2, model.device)
    losses = {FLOAT32: [peer_loss(model, batch, True).item()]}
    with torch.autocast(model.device.type, torch.bfloat16):
        losses[BFLOAT16] = [peer_loss(model, batch, True).item()]
    return losses


# Both.

CHIPS = {OURS: our_chip, PEER: peer_chip}
LOSSES = {OURS: our_losses, PEER: peer_losses}
MEASURES = {OURS: measure_ours, FUSED: measure_ours, PEER: measure_peer}


def installed_sides() -> list[str]:
    """Return our side, and the peer if it is installed."""
    return [OURS, *([PEER] if all(importlib.util.find_spec(name) for name in ("torch", "transformers")) else [])]


def look_at_chip(sides: list[str], preset: str) -> list[dict]:
    """Return the chip as seen by each side; exit unless the same weights give the same losses."""
    with tempfile.TemporaryDirectory() as folder:
        job = ["--job=chip", f"--preset={preset}", f"--folder={folder}"]
        chips = [measure_in_process(__file__, *job, f"--side={side}") for side in sides]
    for side, chip in zip(sides, chips, strict=True):
        for case, losses in chip["losses"].items():
            (expected,) = chips[0]["losses"][case][FLOAT32]
            for number_type, tolerance in CHECK_TOLERANCES.items():
                for loss in losses[number_type]:
                    if not abs(loss - expected) <= tolerance * expected:
                        sys.exit(f"{case}: {side} has a loss of {loss} in {number_type}, ours in float32 is {expected}")
    return chips


def seconds_of(measurements: list[Measurement]) -> dict[str, float]:
    """Return the seconds of a step by side, from processes that compile at the same time and then take turns."""
    processes = {}
    with tempfile.NamedTemporaryFile() as lock:
        for measurement in measurements:
            # A process shares the device's lock from its start, and has it alone when it measures.
            with open(lock.name) as held:
                fcntl.flock(held, fcntl.LOCK_SH)
                job = ["--job=step", f"--measurement={json.dumps(dataclasses.asdict(measurement))}"]
                command = [sys.executable, __file__, *job, f"--lock={held.fileno()}"]
                processes[measurement.side] = subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **QUIET},
                    pass_fds=[held.fileno()],
                )
        outputs = {side: process.communicate()[0] for side, process in processes.items()}
    if failed := [side for side, process in processes.items() if process.returncode]:
        sys.exit(f"{measurements[0].case.name}: {' and '.join(failed)} failed")
    return {side: json.loads(output.splitlines()[-1])["seconds"] for side, output in outputs.items()}


def print_row(name: str, cells: list[str], ratio: str) -> None:
    print(f"{name:<56}{''.join(f'{cell:>18}' for cell in cells)}{ratio:>8}", flush=True)


def report(flags: argparse.Namespace) -> None:
    """Print one line per case, variant and number type; with --json, also write them to a file after each line."""
    sides, size = installed_sides(), SIZES[flags.preset]
    chips = look_at_chip(sides, flags.preset)
    rates = {number_type: max(chip["flops"][number_type] for chip in chips) for number_type in flags.number_types}
    packages = ["jax", "keras", *(["torch", "transformers"] if PEER in sides else [])]
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    print(f"Training step on {chips[-1]['name']}; {versions}; the losses agree")
    for number_type, rate in rates.items():
        positions = f"{size.positions[number_type]:,} positions per step, {flags.padding:.0%} of them padding"
        print(f"{number_type} products: {rate / 1e12:,.4g} TFLOP/s; {positions}")
    columns = [OURS, FUSED, *sides[1:]]
    print_row("sequences/s, and share of that rate", columns, "ratio")
    rows = []
    for case, variant, number_type in itertools.product(CASES[flags.preset], flags.variants, flags.number_types):
        if case.model not in flags.models or case.length not in flags.lengths:
            continue
        can_be_fused = number_type == BFLOAT16 and variant in (NO_ATTENTION_DROPOUT, NO_DROPOUT)
        batch_size = size.positions[number_type] // case.length
        seconds = seconds_of(
            [
                Measurement(case, variant, number_type, side, batch_size, flags.padding, size.num_steps)
                for side in columns
                if side != FUSED or can_be_fused
            ]
        )
        lengths = sequence_lengths(case, batch_size, flags.padding)
        flops = model_flops(case, lengths, is_forward_alone=variant == FORWARD)
        cells = {
            side: f"{batch_size / value:,.1f} {flops / value / rates[number_type]:>6.1%}"
            for side, value in seconds.items()
        }
        ours = min(seconds[side] for side in (OURS, FUSED) if side in seconds)
        ratio = f"{seconds[PEER] / ours:.2f}" if PEER in seconds else ""
        print_row(f"{case.name}, {variant}, {number_type}", [cells.get(side, "") for side in columns], ratio)
        row = {"case": case.name, "variant": variant, "number_type": number_type, "batch": batch_size}
        rows.append({**row, "seconds": seconds, "flops": flops})
        if flags.json:
            pathlib.Path(flags.json).write_text(json.dumps({"chips": chips, "rows": rows}, indent=1))


def run_job(flags: argparse.Namespace) -> dict:
    if flags.job == "chip":
        losses = {case.name: LOSSES[flags.side](case, f"{flags.folder}/{case.name}.npz") for case in CASES["tiny"]}
        return {**CHIPS[flags.side](SIZES[flags.preset].matrix_width), "losses": losses}
    given = json.loads(flags.measurement)
    given = Measurement(**{**given, "case": Case(**given["case"])})
    return {"seconds": MEASURES[given.side](given, lambda: fcntl.flock(flags.lock, fcntl.LOCK_EX))}


def parse_flags() -> argparse.Namespace:
    def list_of(known: list) -> Callable[[str], list]:
        def parse(text: str) -> list:
            values = [type(known[0])(value.strip()) for value in text.split(",")]
            if not set(values) <= set(known):
                raise argparse.ArgumentTypeError(f"{text!r}; choose from {', '.join(map(str, known))}")
            return values

        return parse

    cases = [case for preset in CASES.values() for case in preset]
    lengths = sorted({case.length for case in cases})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=CASES, default="full")
    parser.add_argument("--models", type=list_of(list(MODELS)), default=list(MODELS), help="comma-separated")
    parser.add_argument("--lengths", type=list_of(lengths), default=lengths, help="comma-separated")
    parser.add_argument(
        "--variants",
        type=list_of(list(VARIANTS)),
        default=[STEP, NO_ATTENTION_DROPOUT],
        help=f"comma-separated: {', '.join(VARIANTS)}",
    )
    parser.add_argument("--number_types", type=list_of(list(POLICIES)), default=list(POLICIES), help="comma-separated")
    parser.add_argument("--padding", type=float, default=0.0, help="fraction of the positions, below 0.4")
    parser.add_argument("--json", help="file for the measurements")
    parser.add_argument("--job", choices=["chip", "step"], help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=[OURS, PEER], help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--measurement", help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if not any(case.model in flags.models and case.length in flags.lengths for case in CASES[flags.preset]):
        parser.error("--preset has no case with these --models and --lengths")
    if not 0 <= flags.padding < 0.4:
        parser.error(f"--padding={flags.padding} must be at least 0 and below 0.4")
    return flags


def main() -> None:
    flags = parse_flags()
    if flags.job:
        print(json.dumps(run_job(flags)))
    else:
        report(flags)


if __name__ == "__main__":
    main()
