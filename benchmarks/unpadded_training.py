"""Training steps with and without --unpad on the CPU.

  python benchmarks/unpadded_training.py

Pretraining: batches of 32 x 128 with 10% and 40% padding. Fine-tuning: 32 pairs with the lengths of MRPC's (25 to 85
wordpieces, 53 on average), padded to 128, as with `--nodynamic_padding`. Each side runs in separate processes.
"""

import argparse
import json
import sys

import numpy as np
import training_step
from common import compare, measure_in_process

# Mean and standard deviation of the lengths, in positions.
LENGTHS = {"pretraining, 10% padding": (115, 16), "pretraining, 40% padding": (77, 32), "fine-tuning": (53, 13)}


def make_batch(work: str) -> dict[str, np.ndarray]:
    mean, deviation = LENGTHS[work]
    batch = training_step.make_batch()
    lengths = np.random.default_rng(2).normal(mean, deviation, [training_step.BATCH, 1])
    lengths = np.clip(lengths.round(), training_step.PREDICTIONS, training_step.LENGTH).astype(np.int64)
    batch["input_mask"] = (np.arange(training_step.LENGTH) < lengths).astype(np.int64)
    batch["masked_lm_positions"] = batch["masked_lm_positions"] * lengths // training_step.LENGTH
    return batch


def finetuning_step(batch, **options):
    import tensorflow as tf

    from official_bert.config.bert_config import BertConfig
    from official_bert.modeling.encoder_options import EncoderOptions
    from official_bert.tasks.classification.task import ClassificationTask

    task = ClassificationTask(
        BertConfig(vocab_size=training_step.VOCABULARY, type_vocab_size=2, **training_step.ARCHITECTURE),
        problem="single_label",
        num_labels=2,
        metric_names=(),
        max_length=training_step.LENGTH,
        eval_batch_size=training_step.BATCH,
        encoder_options=EncoderOptions(**options),
    )
    tensors = {name: tf.constant(batch[name], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    labels = tf.constant(batch["next_sentence_labels"], tf.int32)
    return training_step.step_of(task, {**tensors, "label_ids": labels, "is_real_example": tf.ones_like(labels)})


def measure(side: str, work: str) -> None:
    from official_bert.modeling.encoder_options import FlatLayout, UnpaddedLayout

    options = {"layout": UnpaddedLayout if side == "unpadded" else FlatLayout}
    batch = make_batch(work)
    if work == "fine-tuning":
        step = finetuning_step(batch, **options)
    else:
        step = training_step.our_step(batch=batch, **options)
    print(json.dumps({"steps_per_second": training_step.per_second(step)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    for work in LENGTHS:
        padding = 1 - make_batch(work)["input_mask"].mean()
        print(f"Leaving padding out: {work}, {padding:.1%} of the positions are padding", flush=True)

        def side(name, work=work):
            return lambda: measure_in_process(__file__, "--side", name, work)["steps_per_second"]

        compare("steps/s", side("unpadded"), side("padded"), "padded", rounds=flags.rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure(*sys.argv[2:])
    else:
        main()
