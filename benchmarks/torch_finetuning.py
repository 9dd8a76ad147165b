"""How PyTorch and `transformers` fine-tune: what the peers of `transformers_*.py` share."""

import random
from collections.abc import Callable, Sequence

import torch


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
) -> int:
    """Trains as BERT's authors did, but with PyTorch's AdamW, which corrects its bias.

    Args:
      model: trained in place.
      examples: what there is to learn.
      loss_of: the mean loss of a batch of them, a scalar.
      batch_size: examples in a step.
      num_epochs: passes over the examples.
      learning_rate: its peak.
      warmup_proportion: share of the steps in which it rises.
      seed: of the order of the examples.

    Returns:
      The number of steps, counted as the reference counts them.
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
    order: list = []
    for _ in range(num_steps):
        while len(order) < batch_size:
            order += rng.sample(range(len(examples)), len(examples))
        batch, order = order[:batch_size], order[batch_size:]
        loss_of([examples[index] for index in batch]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    return num_steps
