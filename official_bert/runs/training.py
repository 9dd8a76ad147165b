"""What all runs that train have in common: how the flags become a plan and batches."""

import contextlib
from collections.abc import Callable, Sequence

import tensorflow as tf

from official_bert import files
from official_bert.config.run_configs import TrainingOptions
from official_bert.data.pipeline import training_batches
from official_bert.data.schema import RecordSchema
from official_bert.training.loop import TrainingPlan


def training_plan(
    config: TrainingOptions,
    *,
    num_train_steps: int,
    num_warmup_steps: int,
    eval_steps: int | None = None,
) -> TrainingPlan:
    """Gathers the flags that say how to train; the arguments are those of `TrainingPlan`."""
    return TrainingPlan(
        batch_size=config.train_batch_size,
        num_train_steps=num_train_steps,
        num_warmup_steps=num_warmup_steps,
        learning_rate=config.learning_rate,
        seed=config.random_seed,
        iterations_per_loop=config.iterations_per_loop,
        save_checkpoints_steps=config.save_checkpoints_steps,
        keep_checkpoint_max=config.keep_checkpoint_max,
        log_steps=config.log_steps,
        eval_steps=eval_steps,
        bias_correction=config.adam_bias_correction,
    )


def training_folder(output_dir: str, *, do_train: bool) -> contextlib.AbstractContextManager:
    """Creates the output folder of a run; while it trains no other may. Evaluation may go on beside it.

    Raises:
      UserError: the folder cannot be created, or another process trains into it.
    """
    files.make_folders(output_dir)
    return files.sole_user(output_dir, "trains into") if do_train else contextlib.nullcontext()


def batches_from(
    config: TrainingOptions,
    paths: Sequence[str],
    schema: RecordSchema,
    *,
    num_records: int,
    lengths: Sequence[int] | None = None,
) -> Callable[[int], tf.data.Dataset]:
    """A function for the Trainer: from the number of records used so far to the batches from there on.

    Args:
      config: tells batch size and seed.
      paths: TFRecord files.
      schema: what a record holds.
      num_records: records in all files together.
      lengths: see `training_batches`.
    """

    def batches(start_record: int) -> tf.data.Dataset:
        return training_batches(
            paths,
            schema,
            batch_size=config.train_batch_size,
            num_records=num_records,
            seed=config.random_seed,
            start_record=start_record,
            lengths=lengths,
        )

    return batches
