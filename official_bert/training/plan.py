"""The settings of a training run that `Trainer` and the training step need, for any task."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from official_bert.options.training import TrainingOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Length and speed of training, and what to save. What is a flag of the commands has its name.

    Attributes:
      train_batch_size: examples in a step, over all replicas; None if the steps differ, so that examples are counted.
      num_train_steps: steps in all, those before a resume included.
      num_warmup_steps: steps of rising learning rate.
      learning_rate: its peak.
      end_learning_rate: what it falls to in the last step, where the schedule lets it fall.
      lr_schedule: name of how it rises and falls, a row of `optimization.schedules`.
      optimizer: name of the optimizer, a row of `optimization.optimizers`.
      optimizer_options: the optimizer's own options, such as `{"bias_correction": True}`.
      gradient_accumulation_steps: parts that each batch is split into, computed one after another.
      random_seed: of dropout.
      iterations_per_loop: maximum number of steps in one compiled call.
      use_xla: whether XLA compiles the step, on one device.
      save_checkpoints_steps: steps between checkpoints.
      save_checkpoints_secs: seconds between checkpoints, beside those of the steps; 0 for none by the clock.
      max_train_seconds: seconds after which training stops with a checkpoint, to be resumed; 0 for no limit.
      nan_policy: what to do about a step whose loss or gradients are not finite: "stop" training, "skip" it, so that it
        changes nothing, or "rollback" to the weights of the last checkpoint and go on with the next batch.
      keep_checkpoint_max: checkpoints to keep, 0 for all.
      log_steps: steps between log lines.
      eval_steps: steps between evaluations, None for none.
    """

    train_batch_size: int | None
    num_train_steps: int
    num_warmup_steps: int = 0
    learning_rate: float = 5e-5
    end_learning_rate: float = 0.0
    lr_schedule: str = "linear"
    optimizer: str = "adam"
    optimizer_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    gradient_accumulation_steps: int = 1
    random_seed: int = 12345
    iterations_per_loop: int = 1000
    use_xla: bool = False
    save_checkpoints_steps: int = 1000
    save_checkpoints_secs: float = 0
    max_train_seconds: float = 0
    keep_checkpoint_max: int = 5
    nan_policy: str = "stop"
    log_steps: int = 100
    eval_steps: int | None = None

    @classmethod
    def from_config(cls, config: TrainingOptions, **others: Any) -> Self:
        """Take from the flags of a run what they say; `others` are what they leave open, by name."""
        if config.train_batch_tokens:
            others["train_batch_size"] = None
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: others[name] if name in others else getattr(config, name) for name in names})
