"""Pretraining steps per second on the CPU, compared with `BertForPreTraining` of PyTorch `transformers`.

  python benchmarks/training_step.py

Both sides have the same shapes and number of parameters, dropout, and AdamW with clipping: 4 layers, hidden size 256,
batch 32 x 128 tokens, 20 predictions, vocabulary 30,522. The sides alternate in separate processes. The peer computes
logits at all 128 positions, as `transformers` does; ours only at the 20 masked ones, as the reference does.
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


def make_batch(batch_size: int = BATCH, length: int = LENGTH) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "input_ids": rng.integers(1000, VOCABULARY, [batch_size, length]),
        "input_mask": np.ones([batch_size, length], np.int64),
        "segment_ids": (np.arange(length) >= length // 2).astype(np.int64) * np.ones([batch_size, 1], np.int64),
        "masked_lm_positions": np.stack(
            [np.sort(rng.choice(length, PREDICTIONS, replace=False)) for _ in range(batch_size)]
        ),
        "masked_lm_ids": rng.integers(1000, VOCABULARY, [batch_size, PREDICTIONS]),
        "next_sentence_labels": rng.integers(0, 2, [batch_size]),
    }


def our_step(architecture=ARCHITECTURE, batch=None, **options):
    """Return a training step of ours; the options are those of `EncoderOptions`."""
    import tensorflow as tf

    from official_bert.config.bert_config import BertConfig
    from official_bert.modeling.encoder_options import EncoderOptions
    from official_bert.tasks.pretraining.task import PretrainingTask

    batch = make_batch() if batch is None else batch
    batch_size, length = batch["input_ids"].shape
    task = PretrainingTask(
        BertConfig.from_dict({"vocab_size": VOCABULARY, "type_vocab_size": 2, **architecture}),
        max_seq_length=length,
        max_predictions_per_seq=PREDICTIONS,
        eval_batch_size=batch_size,
        encoder_options=EncoderOptions(**options),
    )
    tensors = {name: tf.constant(values, tf.int32) for name, values in batch.items()}
    return step_of(task, {**tensors, "masked_lm_weights": tf.ones([batch_size, PREDICTIONS])})


def step_of(task, batch, **options):
    """Return a training step of a task that reuses one batch; the options are those of `TrainingPlan`."""
    import tensorflow as tf

    from official_bert.training.step import TrainingSteps
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
    steps = TrainingSteps(task, task.build_model(), tf.distribute.get_strategy(), plan)
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    return lambda: steps.take(iterator, 1)


def peer_step(architecture=ARCHITECTURE, is_autocast=False):
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


def measure(side: str) -> None:
    step = our_step() if side == "ours" else peer_step()
    print(json.dumps({"steps_per_second": per_second(step)}))


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
