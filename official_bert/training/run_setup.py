"""The setup of training runs: precision, batch sizes from flags, and the checks of a resumed run's flags."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.locate import latest_checkpoint, locate, step_of
from official_bert.config.bert_config import BertConfig
from official_bert.data.batch_sizes import TokenBudget
from official_bert.modeling.encoder_options import EncoderOptions, FlatLayout, LoraSettings, UnpaddedLayout
from official_bert.options.option import flags_affecting
from official_bert.options.training import TrainingOptions
from official_bert.support import writing
from official_bert.support.errors import UserError
from official_bert.tokenization import Vocabulary
from official_bert.training.run_folder import (
    read_run_config,
    settings_folder,
    write_model_files,
    write_run_config,
)

NONE, BFLOAT16, FLOAT16, AUTO = "none", "bfloat16", "float16", "auto"
_POLICIES = {NONE: "float32", BFLOAT16: "mixed_bfloat16", FLOAT16: "mixed_float16"}  # Keras's

_CPU_INFO = pathlib.Path("/proc/cpuinfo")
_BFLOAT16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16")  # names in Linux; used by TensorFlow's oneDNN
_TENSOR_CORES, _BFLOAT16_TENSOR_CORES = (7, 0), (8, 0)  # NVIDIA compute capabilities
# Flags that select the weights to train, and so determine the optimizer's slots.
_TRAINED_WEIGHTS = ("train_layers", "train_only", "lora_rank", "lora_alpha", "lora_layers")


def dtype_policy(mixed_precision: str, *, use_tpu: bool = False) -> str:
    """Return the name of Keras's dtype policy; for "auto", log the choice and the reason.

    The choice depends only on the machine, so a resumed run makes the same one. No device is initialized.
    """
    if mixed_precision not in (*_POLICIES, AUTO):
        raise UserError(f"mixed_precision={mixed_precision!r}: choose one of {', '.join((*_POLICIES, AUTO))}")
    if use_tpu and mixed_precision == FLOAT16:
        raise UserError("mixed_precision=float16: a TPU computes in bfloat16; use that, or auto")
    if mixed_precision == AUTO:
        mixed_precision, reason = _chosen(use_tpu)
        logging.info("mixed_precision=auto: %s (%s)", mixed_precision, reason)
    return _POLICIES[mixed_precision]


def _chosen(use_tpu: bool) -> tuple[str, str]:
    """Return the fastest precision, and the reason."""
    if use_tpu:
        return BFLOAT16, "the native format of TPUs"
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return _of_gpus([tf.config.experimental.get_device_details(gpu) for gpu in gpus])
    return _of_cpu(_CPU_INFO, os.environ.get("TF_ENABLE_ONEDNN_OPTS"))


def _of_gpus(details: list[dict]) -> tuple[str, str]:
    """Return the choice for GPUs; the oldest one decides."""
    oldest = min(details, key=lambda gpu: gpu.get("compute_capability", (0, 0)))
    capability = oldest.get("compute_capability", (0, 0))
    reason = f"{oldest.get('device_name', 'a GPU')} has compute capability {capability[0]}.{capability[1]}"
    if capability >= _BFLOAT16_TENSOR_CORES:
        return BFLOAT16, reason
    return (FLOAT16 if capability >= _TENSOR_CORES else NONE), reason


def _of_cpu(cpu_info: pathlib.Path, onednn: str | None) -> tuple[str, str]:
    """Return the choice for a CPU, from Linux's CPU flags and TF_ENABLE_ONEDNN_OPTS."""
    if onednn == "0":
        return NONE, "TF_ENABLE_ONEDNN_OPTS=0 disables bfloat16 multiplication"
    words = set(cpu_info.read_text().split()) if cpu_info.exists() else set()
    found = [instruction for instruction in _BFLOAT16_INSTRUCTIONS if instruction in words]
    if found:
        return BFLOAT16, f"this CPU supports {found[0]}"
    return NONE, f"this CPU supports neither {' nor '.join(_BFLOAT16_INSTRUCTIONS)}"


def warn_of_other_direction(init_checkpoint: str, bert_config: BertConfig) -> None:
    """Warn if the `bert_config.json` beside an initial checkpoint has another attention direction."""
    path = locate(init_checkpoint, "init_checkpoint").config_file
    if path is None:
        return
    pretrained = BertConfig.from_json_file(path).attention_direction
    if pretrained != bert_config.attention_direction:
        logging.warning(
            "%s was trained with attention_direction=%s, but this run uses %s",
            init_checkpoint,
            pretrained,
            bert_config.attention_direction,
        )


def training_batch_size(config: TrainingOptions, num_replicas: int, longest: int) -> int | TokenBudget:
    """Return the batch size in the form that `training_batches` takes."""
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
    """Return the encoder options that the flags of a training or evaluation run select."""
    return EncoderOptions(
        use_one_hot_embeddings=config.use_tpu,
        dtype=dtype_policy(config.mixed_precision, use_tpu=config.use_tpu),
        layout=UnpaddedLayout if config.unpad else FlatLayout,
        recompute_layers=config.gradient_checkpointing,
        lora=LoraSettings(*config.lora) if config.lora and config.do_train else None,  # otherwise merged when read
    )


@contextlib.contextmanager
def training_folder(config: TrainingOptions, *, is_written: bool) -> Iterator[None]:
    """Create and lock the output folder of a run: only one run may train into it at a time.

    With `fallback`, training resumes from the last intact checkpoint.
    """
    if is_written:
        writing.make_folders(config.output_dir)
    if not (config.do_train and is_written):
        yield
        return
    with writing.exclusive_lock(config.output_dir, "trains into"):
        if config.fallback:  # all workers continue from the state that the chief finds
            CheckpointFolder(config.output_dir, keep_max=config.keep_checkpoint_max).drop_damaged()
        yield


def write_run_files(
    config: TrainingOptions, bert_config: BertConfig, vocabulary: Vocabulary | None, num_devices: int
) -> None:
    """Write the model files and flags of a training run, once all flags and files have been validated."""
    write_run_config(config.output_dir, config, vocabulary, num_devices)
    write_model_files(config.output_dir, bert_config, config)


def write_evaluation_flags(config: TrainingOptions, vocabulary: Vocabulary | None) -> None:
    """Write the flags of an evaluation-only run; the training flags beside the checkpoints are kept."""
    if not config.do_train:
        write_run_config(settings_folder(config), config, vocabulary)


def check_resumed_flags(config: TrainingOptions, num_train_steps: int, num_devices: int) -> None:
    """Compare the flags of a resumed run with the original ones; warn about changes that affect it."""
    latest, run = latest_checkpoint(config.output_dir), read_run_config(config.output_dir)
    if not latest or not run:
        return
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    flags = {**defaults, **run.flags}  # a flag that did not exist when the run was started
    for name in _TRAINED_WEIGHTS:  # even without a step between, the checkpoint could not be read
        if flags[name] != getattr(config, name):
            raise UserError(
                f"{name}={getattr(config, name)}, but {latest} was trained with {name}={flags[name]}, and "
                "its checkpoint holds optimizer slots of the weights trained then; use the same value, or another "
                "output_dir"
            )
    step = step_of(latest)
    if step == 0 or (step is not None and step >= num_train_steps):
        return
    order_flags = set(flags_affecting(config, "order"))
    if config.train_batch_tokens:  # variable batch sizes also depend on the number of devices and accumulation steps
        order_flags.add("gradient_accumulation_steps")
    # Ignore the batch size that is not in use.
    unused = "train_batch_size" if config.train_batch_tokens or flags["train_batch_tokens"] else None
    selection = flags_affecting(config, "selection")
    if selection and not (flags["eval_steps"] and config.eval_steps):
        selection = []  # there is no best checkpoint
    for name in [*selection, *flags_affecting(config, "order", "learning", "frozen")]:
        if name == unused or name not in flags:
            continue
        old, new = flags[name], getattr(config, name)
        change = f"{name}={new}, but {latest} was trained with {name}={old}"
        if name in ("train_batch_tokens", "batch_ramp_up_steps") and new and not old:
            raise UserError(f"{change}, which did not count examples; leave it out, or use another output_dir")
        if name == "optimizer" and old != new:
            raise UserError(
                f"{change}, and its checkpoint holds that optimizer's slots; use the same one, or another output_dir"
            )
        if old != new and name in selection:
            raise UserError(
                f"{change}: the best checkpoint so far was chosen by another evaluation, whose scores cannot be "
                "compared; use the same value, or another output_dir"
            )
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
