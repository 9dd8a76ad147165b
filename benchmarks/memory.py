"""Peak memory and time of training steps that need less memory, each in a process of its own.

  python benchmarks/memory.py checkpointing
  python benchmarks/memory.py weights
  python benchmarks/memory.py parts --sides 32 1024/32 256

checkpointing: pretraining of BERT-Base, 8 x 512 tokens, with and without --gradient_checkpointing.
weights: fine-tuning of BERT-Base, 8 x 128 tokens, by the weights that are trained; CPU time of all threads.
parts: a sentence encoder of the size of MiniLM, with contrastive loss on pairs of texts. A side is the number of pairs
of a batch, and after a slash the number of its parts (--gradient_accumulation_steps). Its memory is the growth since
before the first step, when the model and the optimizer exist.

The memory is the operating system's VmHWM, the time that of the steps after the first.
"""

import argparse
import json
import pathlib
import re
import statistics
import time

import numpy as np
from common import measure_in_process
from training_step import VOCABULARY, architecture_of, classification_step, make_batch, model_config, our_step, step_of

BASE = architecture_of("12x768")
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
# The options of `TrainingPlan` and the rank and alpha of updates.
WEIGHTS = {
    "everything": ({}, None),
    "--train_layers=last:4": ({"num_trained_layers": 4}, None),
    "--train_only=bias": ({"train_only": "bias"}, None),
    "--lora_rank=8": ({}, (8, 8.0)),
}


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text()).group(1))


def measured(step, num_steps: int, clock=time.perf_counter, before: int = 0) -> dict[str, float]:
    """Take a first step and then others; return the memory above `before` and the median time of the others."""
    step()
    seconds = []
    for _ in range(num_steps):
        began = clock()
        step()
        seconds.append(clock() - began)
    return {"gib": (peak_bytes() - before) / 2**30, "seconds": statistics.median(seconds)}


def checkpointing(side: str, length: int) -> dict[str, float]:
    step = our_step(BASE, make_batch(8, length), recompute_layers=side == "recomputed")
    return measured(step, 1)


def weights(side: str, length: int) -> dict[str, float]:
    from official_bert.modeling.encoder_options import EncoderOptions, LoraSettings

    plan_options, updates = WEIGHTS[side]
    options = EncoderOptions(lora=updates and LoraSettings(*updates))
    step = classification_step(BASE, make_batch(8, length), options, **plan_options)
    return measured(step, 3, time.process_time)


def parts(side: str, length: int) -> dict[str, float]:
    import tensorflow as tf

    from official_bert.tasks.sentence_encoder.data import example_schema
    from official_bert.tasks.sentence_encoder.task import Objective, SentenceEncoderTask

    batch_size, num_parts = (int(number) for number in f"{side}/1".split("/")[:2])
    config = model_config(MINILM)
    schema = example_schema(length, 2, config.vocab_size, config.num_segments)
    options = {"temperature": 0.05, "symmetric": False}
    task = SentenceEncoderTask(config, schema, Objective("contrastive", options))
    batch = {
        "input_ids": np.random.default_rng(1).integers(1000, VOCABULARY, [batch_size, 2 * length]),
        "input_mask": np.ones([batch_size, 2 * length]),
        "segment_ids": np.zeros([batch_size, 2 * length]),
        "text_lengths": np.full([batch_size, 2], length),
        "text_numbers": np.arange(1, 2 * batch_size + 1).reshape([batch_size, 2]),
    }
    tensors = {name: tf.constant(values, tf.int32) for name, values in batch.items()}
    step = step_of(task, tensors, gradient_accumulation_steps=num_parts)
    return measured(step, 1, before=peak_bytes())


# By name: the function, its sides, the usual length, the title, and the unit of the time.
KINDS = {
    "checkpointing": (
        checkpointing,
        ["stored", "recomputed"],
        512,
        "Gradient checkpointing: 12 layers of BERT-Base, 8 x {} tokens",
        "s/step",
    ),
    "weights": (weights, list(WEIGHTS), 128, "Fine-tuning BERT-Base, 8 x {} tokens", "s of CPU time/step"),
    "parts": (
        parts,
        ["32", "1024/32", "256"],
        64,
        "A training step of pairs of texts of {} tokens, of an encoder of the size of MiniLM; pairs/parts",
        "s/step",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--sides", nargs="+", help="what to measure; by default everything of the kind")
    parser.add_argument("--length", type=int, help="tokens per sequence")
    parser.add_argument("--side", help=argparse.SUPPRESS)  # for the processes that measure one side
    flags = parser.parse_args()
    measure, sides, usual_length, title, unit = KINDS[flags.kind]
    length = flags.length or usual_length
    if flags.side:
        print(json.dumps(measure(flags.side, length)))
        return
    print(title.format(length))
    for side in flags.sides or sides:
        found = measure_in_process(__file__, flags.kind, f"--length={length}", f"--side={side}")
        print(f"  {side:<24} {found['gib']:6.2f} GiB {found['seconds']:8.1f} {unit}", flush=True)


if __name__ == "__main__":
    main()
