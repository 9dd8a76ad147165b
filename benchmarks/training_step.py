r"""Training steps per second on the CPU, compared with PyTorch's `transformers`; in bfloat16, and without padding.

  python benchmarks/training_step.py
  python benchmarks/training_step.py --bfloat16 --shapes 4x256 6x384 12x768
  python benchmarks/training_step.py --unpad
  python benchmarks/training_step.py --backends --shapes 2x128 6x384 4x768

The first compares pretraining with `BertForPreTraining`. Both sides have the same shapes and number of parameters,
dropout, and AdamW with clipping: batch 32 x 128 tokens, 20 predictions, vocabulary 30,522. The peer computes logits at
all 128 positions, as `transformers` does; ours only at the 20 masked ones, as the reference does.

--bfloat16 compares the same step, and the encoder alone without dropout, in bfloat16 with float32 and with
`transformers` under autocast. The CPU should have AMX or AVX512-BF16.

--unpad compares steps with and without the flag: pretraining with 10% and 40% padding, and fine-tuning on 32 pairs with
the lengths of MRPC's (25 to 85 wordpieces, 53 on average), padded to 128, as with `--nodynamic_padding`.

--backends compares the same step on JAX with that on TensorFlow, with 16 x 128 tokens.

The sides alternate in separate processes.
"""

import argparse
import json
import statistics
import time

import numpy as np
from common import compare, measure_in_process

BATCH, LENGTH, PREDICTIONS, VOCABULARY = 32, 128, 20, 30_522
NUM_STEPS = 8
WORK = ("training", "prediction")
# Mean and standard deviation of the lengths, in positions.
LENGTHS = {"pretraining, 10% padding": (115, 16), "pretraining, 40% padding": (77, 32), "fine-tuning": (53, 13)}
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def architecture_of(shape: str) -> dict[str, int]:
    """Return the sizes of a model, given as layers x hidden size."""
    num_layers, width = map(int, shape.split("x"))
    return {
        "hidden_size": width,
        "num_hidden_layers": num_layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
    }


def make_batch(
    batch_size: int = BATCH, length: int = LENGTH, num_predictions: int = PREDICTIONS
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "input_ids": rng.integers(1000, VOCABULARY, [batch_size, length]),
        "input_mask": np.ones([batch_size, length], np.int64),
        "segment_ids": (np.arange(length) >= length // 2).astype(np.int64) * np.ones([batch_size, 1], np.int64),
        "masked_lm_positions": np.stack(
            [np.sort(rng.choice(length, num_predictions, replace=False)) for _ in range(batch_size)]
        ),
        "masked_lm_ids": rng.integers(1000, VOCABULARY, [batch_size, num_predictions]),
        "next_sentence_labels": rng.integers(0, 2, [batch_size]),
    }


def padded_batch(work: str) -> dict[str, np.ndarray]:
    mean, deviation = LENGTHS[work]
    batch = make_batch()
    lengths = np.random.default_rng(2).normal(mean, deviation, [BATCH, 1])
    lengths = np.clip(lengths.round(), PREDICTIONS, LENGTH).astype(np.int64)
    batch["input_mask"] = (np.arange(LENGTH) < lengths).astype(np.int64)
    batch["masked_lm_positions"] = batch["masked_lm_positions"] * lengths // LENGTH
    return batch


def model_config(architecture: dict[str, int]):
    from official_bert.config.bert_config import BertConfig

    return BertConfig.from_dict({"vocab_size": VOCABULARY, "type_vocab_size": 2, **architecture})


def our_step(architecture, batch=None, **options):
    """Return a training step of ours; the options are those of `EncoderOptions`."""
    import tensorflow as tf

    from official_bert.modeling.encoder_options import EncoderOptions
    from official_bert.tasks.pretraining.task import PretrainingTask

    batch = make_batch() if batch is None else batch
    batch_size, length = batch["input_ids"].shape
    task = PretrainingTask(
        model_config(architecture),
        max_seq_length=length,
        max_predictions_per_seq=PREDICTIONS,
        eval_batch_size=batch_size,
        encoder_options=EncoderOptions(**options),
    )
    tensors = {name: tf.constant(values, tf.int32) for name, values in batch.items()}
    return step_of(task, {**tensors, "masked_lm_weights": tf.ones([batch_size, PREDICTIONS])})


def classification_step(architecture, batch, encoder_options, **plan_options):
    """Return a training step of a classifier with two classes."""
    import tensorflow as tf

    from official_bert.tasks.classification.task import ClassificationTask

    batch_size, length = batch["input_ids"].shape
    task = ClassificationTask(
        model_config(architecture),
        problem="single_label",
        num_labels=2,
        metric_names=(),
        max_length=length,
        eval_batch_size=batch_size,
        encoder_options=encoder_options,
    )
    tensors = {name: tf.constant(batch[name], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    labels = tf.constant(batch["next_sentence_labels"], tf.int32)
    return step_of(task, {**tensors, "label_ids": labels, "is_real_example": tf.ones_like(labels)}, **plan_options)


def step_of(task, batch, **options):
    """Return a training step of a task that reuses one batch; the options are those of `TrainingPlan`."""
    import keras
    import tensorflow as tf

    from official_bert.training.devices import open_cluster
    from official_bert.training.task import TrainingPlan

    batch_size = batch["input_ids"].shape[0]
    plan = TrainingPlan(
        train_batch_size=batch_size,
        num_train_steps=1000,
        num_warmup_steps=10,
        learning_rate=1e-4,
        random_seed=1,
        **options,
    )
    cluster = open_cluster(backend=keras.backend.backend())
    steps = cluster.training_steps(task, task.build_model(), plan)
    iterator = iter(cluster.distribute(tf.data.Dataset.from_tensors(batch).repeat()))
    return lambda: steps.take(iterator, 1)


def peer_step(architecture, is_autocast):
    """Return a training step of `transformers`; with autocast, its forward pass runs in bfloat16."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    model = BertForPreTraining(BertConfig(vocab_size=VOCABULARY, hidden_act="gelu_new", **architecture)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01)
    batch = {name: torch.tensor(values) for name, values in make_batch().items()}
    labels = torch.full([BATCH, LENGTH], -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            outputs = model(
                input_ids=batch["input_ids"],
                attention_mask=batch["input_mask"],
                token_type_ids=batch["segment_ids"],
                labels=labels,
                next_sentence_label=batch["next_sentence_labels"],
            )
        outputs.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def our_prediction(architecture, dtype):
    import tensorflow as tf

    from official_bert.modeling.encoder import create_encoder
    from official_bert.modeling.encoder_options import EncoderOptions

    encoder = create_encoder(model_config(architecture), EncoderOptions(dtype=dtype))
    batch = {name: tf.constant(values, tf.int32) for name, values in make_batch().items()}
    encode = tf.function(lambda: tf.cast(encoder(batch)["sequence_output"], tf.float32))
    return lambda: encode().numpy()


def peer_prediction(architecture, is_autocast):
    import torch
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(vocab_size=VOCABULARY, hidden_act="gelu_new", **architecture)).eval()
    batch = {name: torch.tensor(values) for name, values in make_batch().items()}

    def predict():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            model(batch["input_ids"], batch["input_mask"], batch["segment_ids"])

    return predict


def our_work(work: str, shape: str, number_type: str):
    """Return a training step or a forward pass of ours."""
    if work == "training":
        return our_step(architecture_of(shape), dtype=POLICIES[number_type])
    return our_prediction(architecture_of(shape), POLICIES[number_type])


def padded_step(work: str, shape: str, side: str):
    from official_bert.modeling.encoder_options import EncoderOptions, FlatLayout, UnpaddedLayout

    layout = UnpaddedLayout if side == "unpadded" else FlatLayout
    if work == "fine-tuning":
        return classification_step(architecture_of(shape), padded_batch(work), EncoderOptions(layout=layout))
    return our_step(architecture_of(shape), padded_batch(work), layout=layout)


def measure(side: str, work: str, shape: str, number_type: str, num_steps: int) -> float:
    """Return the steps per second of one side."""
    if work in LENGTHS:
        step = padded_step(work, shape, side)
    elif side in ("jax", "tensorflow"):
        step = our_step(architecture_of(shape), make_batch(16))
    elif side == "transformers":
        make = peer_step if work == "training" else peer_prediction
        step = make(architecture_of(shape), is_autocast=number_type == "bfloat16")
    else:
        step = our_work(work, shape, number_type)
    return per_second(step, num_steps)


def per_second(step, num_steps: int = NUM_STEPS) -> float:
    """Return the number of steps per second, after two warm-up steps."""
    for _ in range(2):
        step()
    times = []
    for _ in range(num_steps):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return 1 / statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["4x256"], help="layers x hidden size")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--bfloat16", action="store_true", help="compare bfloat16 with float32 and transformers")
    kind.add_argument("--unpad", action="store_true", help="compare --unpad with padding")
    kind.add_argument("--backends", action="store_true", help="compare JAX with TensorFlow")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="steps per round")
    parser.add_argument("--side", nargs=4, help=argparse.SUPPRESS)  # for the processes that measure one side
    flags = parser.parse_args()
    if flags.side:
        print(json.dumps(measure(*flags.side, flags.steps)))
        return

    def alternate(unit: str, ours: tuple[str, ...], peer: tuple[str, ...]) -> None:
        sides = [
            lambda side=side: measure_in_process(
                __file__,
                f"--steps={flags.steps}",
                "--side",
                *side,
                environment={"KERAS_BACKEND": "jax" if side[0] == "jax" else "tensorflow"},
            )
            for side in (ours, peer)
        ]
        compare(unit, *sides, peer[0], rounds=flags.rounds)

    for shape in flags.shapes:
        if flags.unpad:
            for work in LENGTHS:
                padding = 1 - padded_batch(work)["input_mask"].mean()
                print(f"Leaving padding out: {work}, {padding:.1%} of the positions are padding", flush=True)
                alternate("steps/s", ("unpadded", work, shape, "float32"), ("padded", work, shape, "float32"))
        elif flags.backends:
            print(f"Libraries: {architecture_of(shape)}, batch 16 x {LENGTH}, float32, CPU", flush=True)
            alternate("steps/s", ("jax", "training", shape, "float32"), ("tensorflow", "training", shape, "float32"))
        elif flags.bfloat16:
            for work in WORK:
                for peer, number_type in (("float32", "float32"), ("transformers", "bfloat16")):
                    print(f"Mixed precision: {work}, {shape}, ours in bfloat16 against {peer}", flush=True)
                    alternate(f"{work} steps/s", ("ours", work, shape, "bfloat16"), (peer, work, shape, number_type))
        else:
            print(f"Training step: {architecture_of(shape)}, batch {BATCH} x {LENGTH}, {PREDICTIONS} predictions, CPU")
            alternate("steps/s", ("ours", "training", shape, "float32"), ("transformers", "training", shape, "float32"))


if __name__ == "__main__":
    main()
