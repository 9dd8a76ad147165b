"""Peak memory and CPU time of a fine-tuning step of BERT-Base, by the weights that are trained.

  python benchmarks/trained_weights.py

Each row takes four steps in a separate process; its memory is the operating system's VmHWM, its time the CPU time of
all threads, the median of the last three steps.
"""

import argparse
import json
import statistics
import sys
import time

import numpy as np
from common import measure_in_process
from gradient_checkpointing import BASE, peak_bytes
from training_step import VOCABULARY, make_batch, step_of

# The options of `TrainingPlan` and the rank and alpha of updates.
SIDES = {
    "everything": ({}, None),
    "--train_layers=last:4": ({"num_trained_layers": 4}, None),
    "--train_only=bias": ({"train_only": "bias"}, None),
    "--lora_rank=8": ({}, (8, 8.0)),
}


def measure(side: str, batch_size: int, length: int) -> None:
    import tensorflow as tf

    from official_bert.config.bert_config import BertConfig
    from official_bert.modeling.encoder_options import EncoderOptions, LoraSettings
    from official_bert.tasks.classification.task import ClassificationTask

    plan_options, updates = SIDES[side]
    task = ClassificationTask(
        BertConfig.from_dict({"vocab_size": VOCABULARY, "type_vocab_size": 2, **BASE}),
        problem="single_label",
        num_labels=2,
        metric_names=(),
        max_length=length,
        eval_batch_size=batch_size,
        encoder_options=EncoderOptions(lora=updates and LoraSettings(*updates)),
    )
    inputs = make_batch(batch_size, length)
    batch = {name: inputs[name] for name in ("input_ids", "input_mask", "segment_ids")}
    batch |= {"label_ids": np.arange(batch_size) % 2, "is_real_example": np.ones(batch_size)}
    step = step_of(task, {name: tf.constant(values, tf.int32) for name, values in batch.items()}, **plan_options)
    step()
    seconds = []
    for _ in range(3):
        began = time.process_time()
        step()
        seconds.append(time.process_time() - began)
    print(json.dumps({"bytes": peak_bytes(), "seconds": statistics.median(seconds)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    flags = parser.parse_args()
    print(f"Fine-tuning BERT-Base, {flags.batch_size} x {flags.length} tokens")
    for side in SIDES:
        found = measure_in_process(__file__, "--side", side, str(flags.batch_size), str(flags.length))
        print(f"  {side:<24} {found['bytes'] / 2**30:6.2f} GiB {found['seconds']:8.1f} s of CPU time/step", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
