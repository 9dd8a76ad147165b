"""Flags that several scripts share: of texts, of devices, of training, of fine-tuning."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from official_bert.config.bert_config import ATTENTION_DIRECTIONS
from official_bert.config.text_settings import TAKES_WORDS_AS_THEY_ARE, TextSettings
from official_bert.options.option import (
    MAX_AXIS,
    MAX_BATCH_SIZE,
    MAX_PARTS,
    MAX_SEED,
    check_options,
    layer_numbers,
    option,
    options,
)
from official_bert.support.errors import UserError

# Settings without which some flags have no effect.
EXPORT = {"do_export": (True,)}

# The values of `export_precision` that each `export_format` has.
_PRECISIONS = {"saved_model": ("float32", "bfloat16"), "tflite": ("float32", "float16", "int8")}

# What `option` takes for each flag of `TextOptions`.
_TEXT_FLAGS: dict[str, dict[str, Any]] = {
    "do_lower_case": {"help_text": "Lowercase the text and strip accents; true for uncased models."},
    "strip_accents": {
        "help_text": "With --do_lower_case: strip accents, which also takes Hangul syllables apart.",
        "only_with": {"do_lower_case": (True,)},
    },
    "basic_tokenize": {
        "help_text": "Clean the text and split it at punctuation and Chinese characters; otherwise it is split "
        "already: words are what stands between white space, and are looked up as they are.",
        "not_with": {"do_lower_case": TAKES_WORDS_AS_THEY_ARE},
    },
}


def text_option(name: str, circumstances: str = "", only_with: Mapping[str, Sequence[Any]] | None = None) -> Any:
    """Declares one of the flags of `TextOptions`.

    Args:
      name: the flag.
      circumstances: what its help text begins with, such as "With --do_export: ", if it has an effect only then.
      only_with: as of `option`.

    Returns:
      A `dataclasses.field`.
    """
    limits = dict(_TEXT_FLAGS[name])
    if circumstances:
        limits["help_text"] = circumstances + limits["help_text"][0].lower() + limits["help_text"][1:]
    return option(
        True,
        affects="model",
        group="text",
        **{**limits, "only_with": {**(only_with or {}), **limits.get("only_with", {})}},
    )


def spm_model_option() -> Any:
    """Declares the flag that names ALBERT's tokenizer."""
    return option(
        None,
        "SentencePiece model, as of ALBERT's released models, instead of --vocab_file.",
        affects="data",
        group="model",
        is_path=True,
    )


def bert_config_option(help_text: str = "Model configuration, a bert_config.json.") -> Any:
    """Declares the flag that names the architecture of the model in --init_checkpoint."""
    return option(None, help_text, affects="data", required=True, from_checkpoint=True, is_path=True)


def compression_option() -> Any:
    """Declares the flag of scripts that write TFRecord files."""
    return option(
        "none",
        "Compression of the TFRecord files that are written.",
        affects="nothing",
        group="output",
        choices=("none", "gzip"),
    )


@options(group="text")
class TextOptions:
    """Flags that say what the tokenizer does to text; every script that reads text has them."""

    do_lower_case: bool = text_option("do_lower_case")
    strip_accents: bool = text_option("strip_accents")
    basic_tokenize: bool = text_option("basic_tokenize")

    @property
    def text_settings(self) -> TextSettings:
        """These flags as one value."""
        return TextSettings(*(getattr(self, name) for name in TextSettings._fields))


@options(group="model")
class TokenizerOptions(TextOptions):
    """Flags that name a tokenizer; every script that turns text into ids has them."""

    vocab_file: str | None = option(
        None,
        "Vocabulary file, one wordpiece per line.",
        required=True,
        waived_with="spm_model_file",
        from_checkpoint=True,
        not_with={"spm_model_file": "--vocab_file has no effect with --spm_model_file; leave it out"},
        is_path=True,
        affects="data",
    )
    spm_model_file: str | None = spm_model_option()

    @property
    def tokenizer_file(self) -> str:
        """The one that is given."""
        return self.spm_model_file or self.vocab_file


@options(group="devices")
class DeviceOptions:
    """Flags that choose the devices; every script that runs a model has them."""

    use_tpu: bool = option(False, "Train on a TPU.", affects="learning")
    tpu_name: str | None = option(
        None, "Name or grpc:// address of the TPU, with --use_tpu.", group="rarely needed", affects="nothing"
    )
    tpu_zone: str | None = option(
        None, "Google Cloud zone of the TPU, with --use_tpu.", group="rarely needed", affects="nothing"
    )
    gcp_project: str | None = option(
        None, "Google Cloud project of the TPU, with --use_tpu.", group="rarely needed", affects="nothing"
    )
    master: str | None = option(
        None, "Address of the TPU, if --tpu_name is not given.", group="rarely needed", affects="nothing"
    )
    num_tpu_cores: int = option(
        8,
        "Number of cores that the TPU must have, with --use_tpu.",
        group="rarely needed",
        minimum=1,
        affects="nothing",
    )

    distribution: str = option(
        "auto",
        "Where to compute: one device, several of this machine (mirrored: all GPUs, or --num_replicas of them), "
        "several machines (multi_worker) or a TPU. auto means tpu with --use_tpu, multi_worker if TF_CONFIG "
        "names several workers, mirrored if --num_replicas is not 1, and one_device otherwise.",
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
        affects="nothing",
    )
    num_replicas: int = option(
        1,
        "Number of devices to use: GPUs, or virtual CPU devices if there are no GPUs; 0 for all GPUs.",
        minimum=0,
        maximum=MAX_PARTS,
        affects="nothing",
    )
    mixed_precision: str = option(
        "none",
        "Number format of activations and gradients; weights, softmax, normalization and losses stay float32. auto "
        "chooses what is fast on the devices that are found; none computes all in float32.",
        choices=("none", "bfloat16", "float16", "auto"),
        affects="learning",
    )


@options(group="training")
class TrainingOptions(DeviceOptions):
    """Flags of every script that trains.

    Attributes:
      task: name of the task, a key of the task registry.
    """

    task: ClassVar[str]

    bert_config_file: str | None = bert_config_option()
    init_checkpoint: str | None = option(
        None,
        "Checkpoint to initialize the weights from.",
        group="model",
        is_path=True,
        affects="data",
    )
    output_dir: str | None = option(
        None, "Folder for all files that the script writes.", required=True, is_path=True, affects="run"
    )
    do_train: bool = option(False, "Run training.", affects="run")
    train_batch_size: int = option(
        32,
        "Number of examples per training step, over all devices.",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        not_with={
            "train_batch_tokens": "--train_batch_size has no effect with --train_batch_tokens; leave one of them out"
        },
        affects="order",
        sizes_run_with="do_train",
    )
    learning_rate: float = option(5e-5, "Peak learning rate.", minimum=0, affects="learning")
    save_checkpoints_steps: int = option(
        1000, "Number of steps between checkpoints.", group="output", minimum=1, affects="nothing"
    )
    iterations_per_loop: int = option(
        1000,
        "Maximum number of steps per compiled call; log lines and checkpoints end a call early.",
        group="rarely needed",
        minimum=1,
        affects="nothing",
    )

    train_batch_tokens: int = option(
        0,
        "Maximum number of positions per training step, padding included, over all devices: a batch has as many "
        "examples of similar length as fit. 0 for batches of --train_batch_size.",
        minimum=0,
        not_with={
            "use_tpu": "--train_batch_tokens makes batches of many shapes, each of which a TPU would compile; use "
            "--train_batch_size",
            "use_xla": "--train_batch_tokens makes batches of many shapes, each of which XLA would compile; leave one "
            "of them out",
        },
        affects="order",
        sizes_run_with="do_train",
    )
    optimizer: str = option(
        "adam",
        "adam: that of Google's BERT; lamb: for batches of thousands of examples.",
        choices=("adam", "lamb"),
        affects="learning",
    )
    lr_schedule: str = option(
        "linear",
        "Learning rate after warm-up: linear and cosine fall to --end_learning_rate, constant stays at the peak.",
        choices=("linear", "cosine", "constant"),
        affects="learning",
    )
    end_learning_rate: float = option(
        0.0,
        "Learning rate of the last step, at most --learning_rate.",
        minimum=0,
        only_with={"lr_schedule": ("linear", "cosine")},
        affects="learning",
    )
    layer_wise_lr_decay: float = option(
        1.0,
        "Learning rate of each layer of the encoder divided by that of the layer above it; 1 for the same in all.",
        minimum=0,
        maximum=1,
        affects="learning",
    )
    adam_bias_correction: bool = option(
        False,
        "Apply Adam's bias correction, as PyTorch does and Google's BERT does not; use a higher learning rate with it.",
        only_with={"optimizer": ("adam",)},
        affects="learning",
    )
    gradient_accumulation_steps: int = option(
        1,
        "Number of parts that each training batch is split into, computed one after another: less memory, same result "
        "but for the random numbers of dropout.",
        minimum=1,
        maximum=MAX_PARTS,
        affects="learning",
    )
    gradient_checkpointing: bool = option(
        False,
        "Compute the activations of each layer again in the backward pass instead of storing them: less memory, more "
        "time, same result.",
        only_with={"do_train": (True,)},
        affects="nothing",
    )
    unpad: bool = option(
        False,
        "Leave padding out of the computation, in training and evaluation, on CPU and GPU: faster with texts of "
        "different lengths.",
        group="devices",
        not_with={
            "use_tpu": "--unpad: a TPU needs batches of one shape; leave it or use_tpu out",
            "use_xla": "--unpad: XLA needs batches of one shape; leave it or use_xla out",
        },
        affects="learning",
    )
    use_xla: bool = option(
        False,
        "Compile training steps and evaluation with XLA, once for each length of a batch.",
        group="devices",
        not_with={"use_tpu": "--use_xla: a TPU always compiles with XLA; leave it out"},
        affects="nothing",
    )
    random_seed: int = option(
        12345,
        "Random seed for weights, dropout and the order of records.",
        minimum=0,
        maximum=MAX_SEED,
        affects="order",
    )
    allow_inexact_resume: bool = option(
        False,
        "Resume even if what determines the order of the examples has changed: batch size, seed or padding; with "
        "--train_batch_tokens also --gradient_accumulation_steps and the number of devices.",
        group="rarely needed",
        affects="nothing",
    )
    log_steps: int = option(
        100, "Number of steps between log lines.", group="rarely needed", minimum=1, affects="nothing"
    )
    save_checkpoints_secs: int = option(
        0,
        "Number of seconds between checkpoints, beside those of --save_checkpoints_steps; 0 for none.",
        group="rarely needed",
        minimum=0,
        affects="nothing",
    )
    max_train_seconds: int = option(
        0,
        "Number of seconds after which training saves a checkpoint and the script ends with exit code 0; the same "
        "command resumes. 0 for no limit.",
        minimum=0,
        only_with={"do_train": (True,)},
        affects="nothing",
    )
    nan_policy: str = option(
        "stop",
        "What to do about a training step whose loss or gradients are not finite. stop: end with an error; skip: leave "
        "it out; rollback: go back to the weights of the last checkpoint, and on with the next batch.",
        group="rarely needed",
        choices=("stop", "skip", "rollback"),
        only_with={"do_train": (True,)},
        affects="learning",
    )
    fallback: bool = option(
        True,
        "Resume from the checkpoint before if the last one is damaged, with a warning; otherwise refuse.",
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
    do_export: bool = option(
        False,
        "Export the model for TensorFlow Serving, with raw text as its input; see docs/serving.md.",
        group="export",
        affects="run",
    )
    export_dir: str | None = option(
        None,
        "With --do_export: folder for the versions of the exported model.",
        group="export",
        only_with=EXPORT,
        is_path=True,
        affects="run",
    )
    export_format: str = option(
        "saved_model",
        "With --do_export: saved_model for servers, which reads texts; tflite for LiteRT on phones, which reads ids.",
        group="export",
        choices=("saved_model", "tflite"),
        only_with=EXPORT,
        affects="nothing",
    )
    export_precision: str = option(
        "float32",
        "With --do_export: number format of the exported weights and of what they are multiplied with; outputs stay "
        "float32. bfloat16 is for saved_model, and fast on CPUs with AVX512-BF16 or AMX; float16 and int8 are for "
        "tflite.",
        group="export",
        choices=("float32", "bfloat16", "float16", "int8"),
        only_with=EXPORT,
        affects="nothing",
    )
    export_parallelism: int = option(
        0,
        "With --do_export: number of parts of each layer of a saved_model that different cores compute at the same "
        "time; must divide the attention heads and intermediate_size. 0 for 2, or 1 where 2 does not divide them. 1 is "
        "best for GPUs.",
        group="export",
        minimum=0,
        maximum=MAX_PARTS,
        only_with={**EXPORT, "export_format": ("saved_model",)},
        affects="nothing",
    )

    attention_direction: str | None = option(
        None,
        "What a position attends to: all positions, or itself and those before it; by default what the model "
        "configuration says, bidirectional in all published ones.",
        group="model",
        choices=ATTENTION_DIRECTIONS,
        affects="nothing",
    )

    def __post_init__(self):
        check_options(self)
        if self.do_export and not self.export_dir:
            raise UserError("--do_export needs --export_dir, the folder for the versions of the model")
        precisions = _PRECISIONS[self.export_format]
        if self.export_precision not in precisions:
            raise UserError(
                f"--export_format={self.export_format} has no --export_precision={self.export_precision}; choose one "
                f"of {', '.join(precisions)}"
            )
        if self.train_batch_tokens and not getattr(self, "dynamic_padding", True):
            raise UserError("--train_batch_tokens needs batches of similar length; leave --nodynamic_padding out")
        if self.train_batch_tokens and not getattr(self, "trainable_encoder", True):
            raise UserError(
                "--train_batch_tokens has no effect on a frozen encoder, whose outputs are computed before; use "
                "--train_batch_size"
            )
        if self.gradient_checkpointing and not getattr(self, "trainable_encoder", True):
            raise UserError(
                "--gradient_checkpointing has no effect on a frozen encoder, which has no backward pass; leave it out"
            )
        if not self.layer_wise_lr_decay:
            raise UserError("--layer_wise_lr_decay=0: must be above 0; 1 gives all layers the same learning rate")
        is_list = isinstance(self.learning_rate, str)  # that of a sweep, each of whose runs is checked
        if not is_list and self.end_learning_rate > self.learning_rate:
            raise UserError(
                f"--end_learning_rate={self.end_learning_rate:g} is above --learning_rate={self.learning_rate:g}, the "
                "peak; give a lower one"
            )


@options(group="model")
class HeadOptions:
    """Flags that say what stands on the encoder; every script that fine-tunes has them."""

    head: str = option(
        "linear",
        "What stands on the encoder. linear: one layer; bilstm: two layers of bidirectional LSTM before it.",
        choices=("linear", "bilstm"),
        affects="head",
    )
    lstm_units: int | None = option(
        None,
        "With --head=bilstm: number of units per direction; by default the hidden size of the encoder.",
        minimum=1,
        maximum=MAX_AXIS,
        only_with={"head": ("bilstm",)},
        affects="head",
    )


def temperature_option() -> Any:
    """Declares a flag of distillation."""
    return option(
        2.0,
        "With --teacher: what the logits of both models are divided by; above 1, unlikely answers count more.",
        affects="learning",
        group="distillation",
        minimum=0.01,
        maximum=1000,
    )


@options(group="distillation")
class DistillationOptions:
    """Flags of every script that fine-tunes, for learning from another model."""

    teacher: str | None = option(
        None,
        "Output folder of a finished run of the same script, or best in it: its outputs for the training examples are "
        "learned beside the labels (knowledge distillation).",
        is_path=True,
        only_with={"do_train": (True,)},
        affects="learning",
    )
    distillation_temperature: float = temperature_option()
    soft_target_weight: float = option(
        0.5,
        "With --teacher: weight of the teacher's outputs in the loss; the labels have the rest.",
        minimum=0,
        maximum=1,
        affects="learning",
    )
    hidden_state_weight: float = option(
        0.0,
        "With --teacher: weight in the loss of the squared differences between what the layers of both compute, those "
        "of the student projected to the teacher's size; the teacher then reads every batch anew. 0 leaves them out.",
        minimum=0,
        affects="learning",
    )
    teacher_layers: str | None = option(
        None,
        "With --hidden_state_weight: comma-separated list of the teacher's layers, one to learn for each of the "
        "student's, 0 is the first, -1 the last; by default evenly spaced, up to the last.",
        affects="learning",
    )

    def check_distillation(self) -> None:
        """Raises if its flags would be ignored."""
        check_needs_teacher(self, ("distillation_temperature", "soft_target_weight", "hidden_state_weight"))
        if self.teacher_layers is not None:
            layer_numbers(self.teacher_layers, "teacher_layers")
            if not self.hidden_state_weight:
                raise UserError("--teacher_layers has no effect without --hidden_state_weight; leave it out")
        if self.hidden_state_weight and getattr(self, "long_text", "truncate") == "window":
            raise UserError("--hidden_state_weight and --long_text=window exclude each other; choose one")
        if self.teacher and not getattr(self, "trainable_encoder", True):
            raise UserError("--teacher has no effect on a frozen encoder's outputs; leave --notrainable_encoder out")


def check_needs_teacher(config: Any, names: Sequence[str]) -> None:
    """Raises if one of some flags is given without `teacher`, which gives them their meaning."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name in names:
        if config.teacher is None and getattr(config, name) != defaults[name]:
            raise UserError(f"--{name} has no effect without --teacher; leave it out")


@options(group="training")
class FinetuningOptions(DistillationOptions, HeadOptions, TokenizerOptions, TrainingOptions):
    """Flags of every script that fine-tunes on texts."""

    predict_batch_size: int = option(
        8,
        "Number of examples per prediction batch, over all devices.",
        group="evaluation",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        affects="nothing",
        sizes_run_with="do_predict",
    )
    compression: str = compression_option()
    num_train_epochs: float = option(3.0, "Number of training epochs.", minimum=0, affects="learning")
    warmup_proportion: float = option(
        0.1,
        "Fraction of the training steps that are used for learning-rate warm-up.",
        minimum=0,
        maximum=1,
        affects="learning",
    )

    eval_steps: int = option(
        0,
        "Number of steps between evaluations in training; the best checkpoint is kept in output_dir/best. 0 for none.",
        group="evaluation",
        minimum=0,
        affects="learning",
    )
    early_stopping_patience: int = option(
        0,
        "Number of evaluations without improvement after which training stops; 0 disables early stopping.",
        minimum=0,
        affects="learning",
    )
    use_best_checkpoint: bool = option(
        False,
        "Evaluate, predict and export with output_dir/best instead of the last checkpoint.",
        group="evaluation",
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        self.check_distillation()
        if self.do_train and not self.num_train_epochs:
            raise UserError("--num_train_epochs=0 trains nothing; give a number above 0, or leave --do_train out")
        if self.early_stopping_patience and not self.eval_steps:
            raise UserError("--early_stopping_patience needs --eval_steps")
        if self.use_best_checkpoint and self.do_train and not self.eval_steps:
            raise UserError("--use_best_checkpoint with --do_train needs --eval_steps, which finds the best")


@options(group="evaluation")
class LabellingOptions(FinetuningOptions):
    """Flags of the scripts that give labels to texts or to their words."""

    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces per sequence, including [CLS] and [SEP].",
        group="text",
        minimum=4,
        maximum=MAX_AXIS,
        affects="learning",
        sizes_run_with="always",
    )
    do_eval: bool = option(False, "Run evaluation on the dev set.", affects="run")
    do_predict: bool = option(False, "Run prediction on the test set.", affects="run")
    eval_batch_size: int = option(
        8,
        "Number of examples per evaluation batch, over all devices.",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        affects="nothing",
        sizes_run_with="do_eval",
    )
    dynamic_padding: bool = option(
        True,
        "Batch texts of similar length and pad each batch to its longest; results stay the same. Off on TPU.",
        group="devices",
        affects="order",
    )
    trainable_encoder: bool = option(
        True,
        "Train the encoder too; otherwise it is frozen, and its outputs are computed only once.",
        group="training",
        affects="frozen",
    )
    head_dropout: float = option(
        0.1,
        "Fraction of the numbers before the output layer that training drops; hidden_dropout_prob of the model "
        "configuration is that of the encoder alone.",
        minimum=0,
        maximum=0.99,
        group="training",
        affects="learning",
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_predict or self.do_export):
            raise UserError("nothing to do: give at least one of --do_train, --do_eval, --do_predict and --do_export")
        if not self.trainable_encoder and self.do_train and not self.init_checkpoint:
            raise UserError(
                "--notrainable_encoder needs --init_checkpoint: the outputs of an untrained encoder are useless"
            )

    @property
    def is_evaluated(self) -> bool:
        """Whether the dev set is evaluated, during training or after it."""
        return self.do_eval or (self.do_train and self.eval_steps > 0)

    @property
    def required_files(self) -> dict[str, str]:
        """The flags that name a file to read, each with the flag that requires it."""
        required_by = {
            "train_file": "do_train" if self.do_train else None,
            "eval_file": ("do_eval" if self.do_eval else "eval_steps") if self.is_evaluated else None,
            "predict_file": "do_predict" if self.do_predict else None,
        }
        return {name: flag for name, flag in required_by.items() if flag}
