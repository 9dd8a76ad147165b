"""Fine-tuning with PyTorch and `transformers`, used by `transformers_*.py`."""

import random
from collections.abc import Callable, Iterator, Sequence

import torch

_POOLED_BATCHES = 50  # batches that are sorted by length together


def fine_tune(
    model: torch.nn.Module,
    examples: Sequence,
    loss_of: Callable[[Sequence], torch.Tensor],
    *,
    batch_size: int,
    num_epochs: float,
    learning_rate: float,
    warmup_proportion: float,
    seed: int,
    length_of: Callable | None = None,
) -> int:
    """Train as BERT's authors did, but with PyTorch's AdamW, which has bias correction.

    Args:
      model: the model, trained in place.
      examples: the training examples.
      loss_of: returns the mean loss of a batch, a scalar.
      batch_size: examples per step.
      num_epochs: passes over the examples.
      learning_rate: peak learning rate.
      warmup_proportion: fraction of the steps with rising learning rate.
      seed: random seed of the order of the examples.
      length_of: returns the length of an example, for batches of similar lengths as with Hugging Face's
        `group_by_length`.

    Returns:
      The number of steps, counted as in the reference.
    """
    num_steps = int(len(examples) / batch_size * num_epochs)
    num_warmup_steps = int(num_steps * warmup_proportion)
    no_decay = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if not name.endswith(no_decay)], "weight_decay": 0.01},
        {"params": [p for name, p in named if name.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, eps=1e-6)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: step / num_warmup_steps if step < num_warmup_steps else (num_steps - step) / num_steps,
    )
    rng = random.Random(seed)
    model.train()
    batches = _batches(examples, batch_size, rng, length_of)
    for _ in range(num_steps):
        loss_of(next(batches)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    return num_steps


def _batches(examples: Sequence, batch_size: int, rng: random.Random, length_of: Callable | None) -> Iterator[list]:
    """Shuffle and repeat the examples endlessly; a batch may span two epochs."""
    pool_size = _POOLED_BATCHES * batch_size if length_of else batch_size
    waiting: list = []
    while True:
        while len(waiting) < pool_size:
            waiting += rng.sample(examples, len(examples))
        pool, waiting = waiting[:pool_size], waiting[pool_size:]
        if length_of:
            pool.sort(key=length_of)
        batches = [pool[start : start + batch_size] for start in range(0, pool_size, batch_size)]
        rng.shuffle(batches)
        yield from batches
