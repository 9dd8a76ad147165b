"""Flags for training."""

from typing import ClassVar

from official_bert.config.bert_config import ATTENTION_DIRECTIONS
from official_bert.options.batches import BatchOptions
from official_bert.options.devices import DeviceOptions
from official_bert.options.export import ExportOptions
from official_bert.options.model import ArchitectureOptions
from official_bert.options.optimizer import OptimizerOptions
from official_bert.options.option import Options, option, options
from official_bert.options.trained_weights import TrainedWeightOptions
from official_bert.support.errors import UserError


@options(group="training")
class RunOptions(Options):
    """Flags for the initial checkpoint and the output folder of a run."""

    init_checkpoint: str | None = option(
        None,
        "Checkpoint to initialize the weights from.",
        group="model",
        is_path=True,
        affects="data",
    )
    output_dir: str | None = option(None, "Folder for all output files.", required=True, is_path=True, affects="run")
    do_train: bool = option(False, "Run training.", affects="run")
    attention_direction: str | None = option(
        None,
        "Positions that each position attends to: all, or itself and earlier ones. By default as in the model "
        "configuration; all published models are bidirectional.",
        group="model",
        choices=ATTENTION_DIRECTIONS,
        affects="nothing",
    )


@options(group="training")
class TrainingOptions(
    ExportOptions,
    TrainedWeightOptions,
    OptimizerOptions,
    BatchOptions,
    RunOptions,
    DeviceOptions,
    ArchitectureOptions,
):
    """Flags of every command that trains.

    Attributes:
      task: name of the task, a key of the task registry.
    """

    task: ClassVar[str]

    save_checkpoints_steps: int = option(
        1000, "Number of steps between checkpoints.", group="output", minimum=1, affects="nothing"
    )
    iterations_per_loop: int = option(
        1000,
        "Maximum number of steps per compiled call; logging and saving a checkpoint end a call early.",
        group="rarely needed",
        minimum=1,
        affects="nothing",
    )
    gradient_checkpointing: bool = option(
        False,
        "Recompute the activations of each layer in the backward pass instead of storing them: less memory, more "
        "time, same result.",
        only_with={"do_train": (True,)},
        affects="nothing",
    )
    unpad: bool = option(
        False,
        "Skip padding in the computation, in training and evaluation, on CPU and GPU: faster for texts of different "
        "lengths.",
        group="devices",
        not_with={
            "use_tpu": "--unpad cannot be used with use_tpu: a TPU needs batches of fixed shape; leave one of them out",
            "use_xla": "--unpad cannot be used with use_xla: XLA needs batches of fixed shape; leave one of them out",
        },
        affects="learning",
    )
    use_xla: bool = option(
        False,
        "Compile training steps and evaluation with XLA, once per batch length.",
        group="devices",
        not_with={"use_tpu": "--use_xla is not needed: a TPU always compiles with XLA; leave it out"},
        affects="nothing",
    )
    log_steps: int = option(
        100, "Number of steps between log lines.", group="rarely needed", minimum=1, affects="nothing"
    )
    save_checkpoints_secs: int = option(
        0,
        "Number of seconds between checkpoints, in addition to --save_checkpoints_steps; 0 for none.",
        group="rarely needed",
        minimum=0,
        affects="nothing",
    )
    max_train_seconds: int = option(
        0,
        "Number of seconds after which training saves a checkpoint and the script exits with code 0; the same command "
        "resumes. With --lr_schedule=budget, the training time of all runs of the folder. 0 for no limit.",
        minimum=0,
        only_with={"do_train": (True,)},
        affects="nothing",
    )
    nan_policy: str = option(
        "stop",
        "How to handle a training step with a non-finite loss or gradient. stop: exit with an error; skip: skip the "
        "update; rollback: restore the weights of the last checkpoint and continue with the next batch.",
        group="rarely needed",
        choices=("stop", "skip", "rollback"),
        only_with={"do_train": (True,)},
        affects="learning",
    )
    fallback: bool = option(
        True,
        "If the last checkpoint is damaged, warn and resume from the previous one; otherwise exit with an error.",
        group="rarely needed",
        only_with={"do_train": (True,)},
        affects="nothing",
    )
    keep_checkpoint_max: int = option(
        5,
        "Maximum number of checkpoints to keep; 0 keeps all.",
        group="output",
        minimum=0,
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.do_train and self.lr_schedule == "budget" and not self.max_train_seconds:
            raise UserError("--lr_schedule=budget needs --max_train_seconds, the training time")
