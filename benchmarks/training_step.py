"""Pretraining steps a second on the CPU, against `BertForPreTraining` of PyTorch `transformers`.

  python benchmarks/training_step.py

Same shapes, same number of parameters, dropout on, AdamW with clipping on both sides: 4 layers, hidden 256, batch 32 x
128 tokens, 20 predictions, vocabulary 30,522. Each side runs in processes of its own, in turn. The peer scores the
whole vocabulary at all 128 positions, as `transformers` does; ours at the 20 masked ones, as the reference did.
"""

import json
import statistics
import sys
import time

import numpy as np
from common import compare, measure_in_process

BATCH, LENGTH, PREDICTIONS, VOCABULARY = 32, 128, 20, 30_522
ARCHITECTURE = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
NUM_STEPS = 8


def make_batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "input_ids": rng.integers(1000, VOCABULARY, [BATCH, LENGTH]),
        "input_mask": np.ones([BATCH, LENGTH], np.int64),
        "segment_ids": (np.arange(LENGTH) >= LENGTH // 2).astype(np.int64) * np.ones([BATCH, 1], np.int64),
        "masked_lm_positions": np.stack(
            [np.sort(rng.choice(LENGTH, PREDICTIONS, replace=False)) for _ in range(BATCH)]
        ),
        "masked_lm_ids": rng.integers(1000, VOCABULARY, [BATCH, PREDICTIONS]),
        "next_sentence_labels": rng.integers(0, 2, [BATCH]),
    }


def our_step():
    import tensorflow as tf

    from official_bert.config.bert_config import BertConfig
    from official_bert.tasks.pretraining.task import PretrainingTask
    from official_bert.training.plan import TrainingPlan
    from official_bert.training.step import TrainingSteps

    config = BertConfig(vocab_size=VOCABULARY, type_vocab_size=2, **ARCHITECTURE)
    task = PretrainingTask(
        config,
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        eval_batch_size=BATCH,
    )
    steps = TrainingSteps(
        task,
        task.build_model(),
        tf.distribute.get_strategy(),
        TrainingPlan(batch_size=BATCH, num_train_steps=1000, num_warmup_steps=10, learning_rate=1e-4, seed=1),
    )
    batch = {name: tf.constant(values, tf.int32) for name, values in make_batch().items()}
    batch["masked_lm_weights"] = tf.ones([BATCH, PREDICTIONS])
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    return lambda: steps.take(iterator, 1)


def peer_step():
    import torch
    from transformers import BertConfig, BertForPreTraining

    model = BertForPreTraining(BertConfig(vocab_size=VOCABULARY, hidden_act="gelu_new", **ARCHITECTURE)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01)
    batch = {name: torch.tensor(values) for name, values in make_batch().items()}
    labels = torch.full([BATCH, LENGTH], -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])

    def step():
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


def measure(side: str) -> None:
    step = our_step() if side == "ours" else peer_step()
    for _ in range(2):  # compiles, and warms the caches
        step()
    times = []
    for _ in range(NUM_STEPS):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    print(json.dumps({"steps_per_second": 1 / statistics.median(times)}))


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    print(f"Training step: {ARCHITECTURE}, batch {BATCH} x {LENGTH}, {PREDICTIONS} predictions, CPU")
    compare(
        "steps/s",
        lambda: measure_in_process(__file__, "ours")["steps_per_second"],
        lambda: measure_in_process(__file__, "peer")["steps_per_second"],
        "transformers",
        rounds=3,
    )


if __name__ == "__main__":
    main()
