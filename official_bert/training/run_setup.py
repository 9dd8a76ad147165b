"""The setup of all runs that train: how the flags become batches, and what may change on a resume."""

import contextlib
import dataclasses
from collections.abc import Iterator

from absl import logging

from official_bert.checkpoints.folder import CheckpointFolder
from official_bert.checkpoints.opening import open_checkpoint
from official_bert.checkpoints.state_file import config_beside, latest_checkpoint, step_of
from official_bert.config.bert_config import BertConfig
from official_bert.data.token_budget import TokenBudget
from official_bert.modeling.encoder_options import EncoderOptions, UnpaddedLayout
from official_bert.modeling.transformer import PaddedLayout
from official_bert.options.option import flags_affecting
from official_bert.options.training import TrainingOptions
from official_bert.support import locks, writing
from official_bert.support.errors import UserError
from official_bert.tokenization import Vocabulary
from official_bert.training.precision import dtype_policy
from official_bert.training.run_folder import (
    RunFolder,
    read_run_config,
    settings_folder,
    write_model_files,
    write_run_config,
)


def warn_of_other_direction(init_checkpoint: str, bert_config: BertConfig) -> None:
    """Warn if the `bert_config.json` beside an initial checkpoint says that its model attended otherwise."""
    path = config_beside(open_checkpoint(init_checkpoint, "init_checkpoint").prefix)
    if path is None:
        return
    pretrained = BertConfig.from_json_file(path).attention_direction
    if pretrained != bert_config.attention_direction:
        logging.warning(
            "%s was trained with attention_direction=%s and goes on with %s",
            init_checkpoint,
            pretrained,
            bert_config.attention_direction,
        )


def training_batch_size(config: TrainingOptions, num_replicas: int, longest: int) -> int | TokenBudget:
    """Return the size of the batches, as `training_batches` takes it.

    Args:
      config: the flags.
      num_replicas: the devices that share a batch.
      longest: positions that an example may have.

    Raises:
      UserError: `train_batch_tokens` is too small for an example in each part of each device's share.
    """
    if not config.train_batch_tokens:
        return config.train_batch_size
    num_parts = config.gradient_accumulation_steps
    budget = TokenBudget(config.train_batch_tokens, multiple=num_replicas * num_parts)
    if budget.num_tokens < budget.minimum(longest):
        raise UserError(
            f"train_batch_tokens={budget.num_tokens} is too small: examples may have {longest} positions, and each of "
            f"{num_replicas} device(s) takes at least one"
            + (f" for each of gradient_accumulation_steps={num_parts}" if num_parts > 1 else "")
            + f"; give at least {budget.minimum(longest)}"
        )
    return budget


def encoder_options(config: TrainingOptions) -> EncoderOptions:
    """Gather the flags that say how the encoder of a run that trains or evaluate computes.

    Raises:
      UserError: the device cannot compute so.
    """
    return EncoderOptions(
        use_one_hot_embeddings=config.use_tpu,
        dtype=dtype_policy(config.mixed_precision, use_tpu=config.use_tpu),
        layout=UnpaddedLayout if config.unpad else PaddedLayout,
        recompute_layers=config.gradient_checkpointing,
    )


@contextlib.contextmanager
def training_folder(config: TrainingOptions, folder: RunFolder) -> Iterator[None]:
    """Create the output folder of a run; while it trains, no other run may. Evaluation may run at the same time.

    With `fallback`, a run that trains begins with the last checkpoint that is intact.

    Raises:
      UserError: the folder cannot be created, or another process trains into it.
    """
    if folder.is_written:
        writing.make_folders(folder.path)
    if not (config.do_train and folder.is_written):
        yield
        return
    with locks.exclusive_lock(folder.path, "trains into"):
        if config.fallback:  # all workers go on from what the chief finds
            CheckpointFolder(folder.path, keep_max=config.keep_checkpoint_max).drop_damaged()
        yield


def write_run_files(
    folder: RunFolder,
    config: TrainingOptions,
    bert_config: BertConfig,
    vocabulary: Vocabulary | None,
    num_devices: int,
) -> None:
    """Write what makes the folder of a training run complete, once all that is asked for has been accepted."""
    if folder.is_written:
        write_run_config(folder.path, config, vocabulary, num_devices)
        write_model_files(folder.path, bert_config, config)


def write_evaluation_flags(folder: RunFolder, config: TrainingOptions, vocabulary: Vocabulary | None) -> None:
    """Write the flags of a run that does not train; those of training, beside the checkpoints, are not overwritten."""
    if folder.is_written and not config.do_train:
        write_run_config(settings_folder(config), config, vocabulary)


def check_resumed_flags(config: TrainingOptions, num_train_steps: int, num_devices: int) -> None:
    """Compare the flags of a run that is resumed with those it was started with; warn of what changes the run.

    Args:
      config: the flags.
      num_train_steps: steps of the whole run.
      num_devices: how many devices share each batch.

    Raises:
      UserError: the rest of the run would silently see other examples than the flags say.
    """
    latest, run = latest_checkpoint(config.output_dir), read_run_config(config.output_dir)
    step = latest and step_of(latest)
    if not latest or not run or step == 0 or (step is not None and step >= num_train_steps):
        return
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    flags = {**defaults, **run.flags}  # a flag that is newer than the run had no effect in it
    order_flags = set(flags_affecting(config, "order"))
    if config.train_batch_tokens:  # batches that differ in size also depend on how many devices and parts share them
        order_flags.add("gradient_accumulation_steps")
    # The size that is not in use says nothing.
    unused = "train_batch_size" if config.train_batch_tokens or flags["train_batch_tokens"] else None
    for name in flags_affecting(config, "order", "learning"):
        if name == unused or name not in flags:
            continue
        old, new = flags[name], getattr(config, name)
        change = f"{name}={new}, but {latest} was trained with {name}={old}"
        if name == "train_batch_tokens" and new and not old:
            raise UserError(f"{change}, and does not count its examples; leave it out, or use another output_dir")
        if name == "optimizer" and old != new:
            raise UserError(f"{change}, whose slots it has; use the same one, or another output_dir")
        if old != new:
            _refuse_or_warn(config, change, changes_order=name in order_flags)
    if run.num_devices not in (None, num_devices):
        change = f"each batch is shared by {num_devices} device(s), but {latest} was trained with {run.num_devices}"
        _refuse_or_warn(config, change, changes_order=config.train_batch_tokens > 0)


def _refuse_or_warn(config: TrainingOptions, change: str, *, changes_order: bool) -> None:
    if changes_order and not config.allow_inexact_resume:
        raise UserError(
            f"{change}: with another value, the resumed run would see some examples of this epoch twice and others not "
            "at all; use the old value, allow_inexact_resume or another output_dir"
        )
    logging.warning("%s: the resumed run differs from an uninterrupted one", change)
