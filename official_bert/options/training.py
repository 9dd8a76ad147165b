"""Flags of training runs: batches, optimizer, trained weights, distillation, evaluation, fine-tuning."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from official_bert.config.bert_config import ATTENTION_DIRECTIONS
from official_bert.options.groups import (
    ArchitectureOptions,
    EvaluationOptions,
    TokenizerOptions,
    TpuOptions,
    VersionOptions,
    check_listed,
)
from official_bert.options.option import (
    MAX_AXIS,
    MAX_BATCH_SIZE,
    MAX_PARTS,
    MAX_SEED,
    Options,
    option,
    options,
    redeclared,
)
from official_bert.support.errors import UserError, check_installed

# Flags whose names without `adam_` are those of an optimizer's arguments.
_OF_OPTIMIZER = (
    *("layer_wise_lr_decay", "weight_decay_rate"),
    *("adam_bias_correction", "adam_beta_2", "adam_epsilon"),
)
TENSORFLOW, JAX = "tensorflow", "jax"  # values of `backend`
_OF_TPU_STRATEGY = ("use_tpu", "tpu_name", "tpu_zone", "gcp_project", "master", "num_tpu_cores")
_LAST = re.compile(r"last:([1-9][0-9]{0,3})")


def _with_do_export(name: str, **changes: Any) -> Any:
    return redeclared(VersionOptions, name, circumstances="With --do_export: ", **changes)


@options(group="optimizer and loss", affects="learning")
class OptimizerOptions(Options):
    optimizer: str = option(
        "adam",
        "adam: Google's BERT optimizer, Adam with weight decay; lamb: for batches of thousands of examples.",
        choices=("adam", "lamb"),
        affects="slots",
    )
    lr_schedule: str = option(
        "linear",
        "Learning rate after warm-up: linear and cosine fall to --end_learning_rate, constant stays at the peak.",
        choices=("linear", "cosine", "constant"),
    )
    end_learning_rate: float = option(0.0, "Learning rate of the last step, at most --learning_rate.", minimum=0)
    layer_wise_lr_decay: float = option(
        1.0,
        "Ratio of each encoder layer's learning rate to that of the layer above it; 1 for the same rate in all layers.",
        minimum=0,
        maximum=1,
    )
    adam_bias_correction: bool = option(
        False,
        "Apply Adam's bias correction, as PyTorch does and Google's BERT does not; use a higher learning rate with it. "
        "As in Keras, epsilon acts as sqrt(1 / (1 - beta_2)) times PyTorch's in the first step, by default 32 times.",
    )
    adam_beta_2: float = option(
        0.999, "Decay of the moving average of the squared gradients.", minimum=0, maximum=0.999999
    )
    adam_epsilon: float = option(1e-6, "Number added to the root of the averaged squares.", minimum=1e-20, maximum=1)
    weight_decay_rate: float = option(
        0.01,
        "Fraction of each weight, except biases and layer normalization, that a step subtracts, times the learning "
        "rate.",
        minimum=0,
    )


@options(group="trained weights", affects="slots")
class TrainedWeightsOptions(Options):
    """Flags that freeze a part of the weights."""

    train_layers: str | None = option(
        None,
        "last:N: train only the last N layers of the encoder, its pooler and the head; the embeddings and the other "
        "layers are frozen. By default everything is trained.",
    )
    train_only: str | None = option(
        None,
        "bias: train only the biases of the encoder, including those of layer normalization, and the head (BitFit); "
        "use a higher learning rate. By default everything is trained.",
        choices=("bias",),
    )
    lora_rank: int = option(
        0,
        "Rank of low-rank updates of the encoder's kernels (LoRA), which are trained with the pooler and the head "
        "instead of the encoder's weights; use a higher learning rate. 0 for none.",
        minimum=0,
        maximum=MAX_AXIS,
    )
    lora_alpha: float | None = option(
        None, "Factor of the updates, divided by --lora_rank; by default --lora_rank, a factor of 1.", minimum=0.001
    )
    lora_layers: str = option(
        "query,value",
        "Comma-separated list of the dense layers with updates: query, key, value; dense for all others of a layer.",
    )


@options(group="distillation", affects="learning")
class DistillationOptions(Options):
    teacher: str | None = option(
        None,
        "Output folder of a finished run of the same script, its subfolder best, or a Hugging Face folder with a "
        "fine-tuned head. Its model is the teacher for knowledge distillation: the student learns from its outputs and "
        "from the labels.",
        is_path=True,
    )
    distillation_temperature: float = option(
        2.0,
        "With --teacher: temperature that the logits of both models are divided by; above 1, unlikely classes count "
        "more.",
        minimum=0.01,
        maximum=1000,
    )
    soft_target_weight: float = option(
        0.5,
        "With --teacher: weight of the distillation loss; that of the labels has 1 minus this weight.",
        minimum=0,
        maximum=1,
    )


@options(group="training", affects="learning")
class TrainingOptions(
    VersionOptions, DistillationOptions, TrainedWeightsOptions, OptimizerOptions, TpuOptions, ArchitectureOptions
):
    task: ClassVar[str]  # name of the task, a key of the task registry
    # Flags that a later evaluation, prediction or export takes from its run, besides those that affect the model.
    of_run: ClassVar[tuple[str, ...]] = ("max_seq_length",)
    of_input_file: ClassVar[tuple[str, ...]] = ()  # likewise, unless another `input_file` is given

    init_checkpoint: str | None = option(
        None,
        "Folder of a pretrained model, which also has its vocabulary and configuration; or a checkpoint.",
        group="model",
        is_path=True,
        affects="data",
    )
    output_dir: str | None = option(None, "Folder for all output files.", required=True, is_path=True, affects="run")
    do_train: bool = option(False, "Run training.", affects="run")
    backend: str = option(
        TENSORFLOW,
        "Library that computes: tensorflow, or jax, which is faster on GPUs, also runs on TPUs, and uses all devices "
        "it finds.",
        group="devices",
        choices=(TENSORFLOW, JAX),
        affects="nothing",
    )
    distribution: str = option(
        "auto",
        "Distribution strategy: one device, several of this machine (mirrored: all GPUs, or --num_replicas of them), "
        "several machines (multi_worker) or a TPU. auto means tpu with --use_tpu, multi_worker if TF_CONFIG "
        "names several workers, mirrored if --num_replicas is not 1, and one_device otherwise.",
        group="devices",
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
        affects="nothing",
    )
    attention: str = option(
        "auto",
        "Attention with --backend=jax on NVIDIA GPUs. auto: cuDNN's fused attention in evaluation, and in training if "
        "attention_probs_dropout_prob is 0; fused: in training too, without that dropout; plain: as elsewhere.",
        group="devices",
        choices=("auto", "fused", "plain"),
    )
    attention_direction: str | None = option(
        None,
        "Positions that each position attends to: all, or itself and earlier ones. By default as in the model "
        "configuration; all published models are bidirectional.",
        group="rarely needed",
        choices=ATTENTION_DIRECTIONS,
        affects="nothing",
    )
    train_batch_size: int = option(
        32,
        "Number of examples per training step, over all devices.",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        affects="order",
    )
    train_batch_tokens: int = option(
        0,
        "Maximum number of positions per training step, padding included, over all devices; each batch is filled with "
        "examples of similar length. 0 for batches of --train_batch_size.",
        group="rarely needed",
        minimum=0,
        affects="order",
    )
    gradient_accumulation_steps: int = option(
        1,
        "Number of parts that each training batch is split into and computed in turn: less memory, same result except "
        "for the random numbers of dropout.",
        minimum=1,
        maximum=MAX_PARTS,
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
        "Resume even if a setting that determines the order of the examples has changed: batch size, seed or padding; "
        "with --train_batch_tokens also --gradient_accumulation_steps and the number of devices.",
        group="rarely needed",
        affects="nothing",
    )
    learning_rate: float = option(5e-5, "Peak learning rate.", minimum=0)
    do_export: bool = option(
        False,
        "Export the model for TensorFlow Serving, with raw text as input; see docs/serving.md.",
        group="export",
        affects="run",
    )
    export_dir: str | None = _with_do_export("export_dir", required=False)
    export_format: str = _with_do_export("export_format")
    export_precision: str = _with_do_export("export_precision")
    export_parallelism: int = _with_do_export("export_parallelism")
    save_checkpoints_steps: int = option(
        1000, "Number of steps between checkpoints.", group="output", minimum=1, affects="nothing"
    )
    save_checkpoints_secs: int = option(
        600,
        "Number of seconds after the last checkpoint until training saves another one, which the next checkpoint "
        "replaces; more if saving takes long, so that it takes at most 2 % of the time. 0 for none.",
        group="output",
        minimum=0,
        affects="nothing",
    )
    iterations_per_loop: int = option(
        1000,
        "Maximum number of steps per compiled call; logging and saving a checkpoint end a call early.",
        group="devices",
        minimum=1,
        affects="nothing",
    )
    gradient_checkpointing: bool = option(
        False,
        "Recompute the activations of each layer in the backward pass instead of storing them: less memory, more "
        "time, same result.",
        affects="nothing",
    )
    unpad: bool = option(
        False,
        "Skip padding in the computation, in training and evaluation, on CPU and GPU: faster for texts of different "
        "lengths.",
        group="devices",
    )
    use_xla: bool = option(
        False,
        "Compile training steps and evaluation with XLA, once per batch length.",
        group="rarely needed",
        affects="nothing",
    )
    log_steps: int = option(
        100, "Number of steps between log lines.", group="rarely needed", minimum=1, affects="nothing"
    )
    max_train_seconds: int = option(
        0,
        "Number of seconds after which training saves a checkpoint and the script exits with code 0; the same command "
        "resumes. 0 for no limit.",
        minimum=0,
        affects="nothing",
    )
    nan_policy: str = option(
        "stop",
        "How to handle a training step with a non-finite loss or gradient. stop: exit with an error; skip: skip the "
        "update.",
        group="rarely needed",
        choices=("stop", "skip"),
    )
    keep_checkpoint_max: int = option(
        5, "Maximum number of checkpoints to keep; 0 keeps all.", group="output", minimum=0, affects="nothing"
    )

    def __post_init__(self):
        super().__post_init__()
        self._check_what_is_done()
        self._check_trained_weights()
        self._check_optimizer()
        self._check_batches()

    def _check_what_is_done(self) -> None:
        if not self.do_train:
            names = ("gradient_checkpointing", "max_train_seconds", "nan_policy", "teacher")
            self.refuse(*names, because="needs --do_train")
        if not self.teacher:
            self.refuse("distillation_temperature", "soft_target_weight", because="needs --teacher")
        if not self.do_export:
            names = ("export_dir", "export_format", "export_precision", "export_parallelism")
            self.refuse(*names, because="needs --do_export")
        elif not self.export_dir:
            raise UserError("--do_export needs --export_dir, the folder for the versions of the model")
        names = [field.name for field in dataclasses.fields(self)]
        actions = [name for name in ("do_train", "do_eval", "do_predict", "do_export") if name in names]
        if not any(getattr(self, name) for name in actions):
            listed = ", ".join(f"--{name}" for name in actions[:-1])
            raise UserError(f"nothing to do: give at least one of {listed} and --do_export")

    def _check_trained_weights(self) -> None:
        check_listed("lora_layers", self.lora_layers.split(","), ("query", "key", "value", "dense"))
        if self.train_layers is not None and not _LAST.fullmatch(self.train_layers):
            raise UserError(f"--train_layers={self.train_layers:.80}: write last:N, as in last:4")
        if self.lora_rank:
            because = "cannot be used with --lora_rank; leave one of them out"
            self.refuse("train_layers", "train_only", "teacher", because=because)
        else:
            self.refuse("lora_alpha", "lora_layers", because="needs --lora_rank")
        if self.do_train and not self.init_checkpoint:
            because = "needs --init_checkpoint: the frozen weights would stay random"
            self.refuse("train_layers", "train_only", "lora_rank", because=because)

    def _check_optimizer(self) -> None:
        if self.optimizer != "adam":
            self.refuse("adam_bias_correction", because="needs --optimizer=adam")
        if self.lr_schedule == "constant":
            self.refuse("end_learning_rate", because="needs --lr_schedule=linear or cosine")
        if not self.layer_wise_lr_decay:
            raise UserError("--layer_wise_lr_decay=0: must be above 0; 1 gives all layers the same learning rate")
        if self.end_learning_rate > self.learning_rate:
            raise UserError(
                f"--end_learning_rate={self.end_learning_rate:g} is above --learning_rate={self.learning_rate:g}, the "
                "peak; give a lower one"
            )

    def _check_batches(self) -> None:
        if self.train_batch_tokens:
            self.refuse("train_batch_size", because="cannot be used with --train_batch_tokens; leave one of them out")
        for compiler, name in (("use_tpu", "a TPU"), ("use_xla", "XLA")):
            if getattr(self, compiler):
                because = f"cannot be used with --{compiler}: {name} needs batches of fixed shape; leave one out"
                self.refuse("unpad", "train_batch_tokens", because=because)
        if self.use_tpu:
            self.refuse("use_xla", because="is not needed: a TPU always compiles with XLA; leave it out")
        if self.backend == JAX:
            check_installed("jax", extra="jax", advice=" (jax-cuda in place of jax for NVIDIA GPUs, jax-tpu for TPUs)")
            self.refuse("use_xla", because="is not needed: --backend=jax always compiles with XLA; leave it out")
            because = "belongs to TensorFlow; --backend=jax uses the TPU of its machine without it; leave it out"
            self.refuse(*_OF_TPU_STRATEGY, because=because)
            because = "cannot be used with --backend=jax: its batches have a fixed shape; leave it out"
            self.refuse("unpad", because=because)
            if self.distribution in ("mirrored", "tpu"):
                raise UserError(
                    f"--distribution={self.distribution} is a strategy of TensorFlow; --backend=jax uses all devices "
                    "it finds; leave it out, or set --num_replicas"
                )
        elif self.attention == "fused":
            raise UserError("--attention=fused needs --backend=jax: TensorFlow has no fused attention")

    @property
    def optimizer_options(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer; those with default values are left out."""
        return {name.removeprefix("adam_"): getattr(self, name) for name in _OF_OPTIMIZER if self.is_given(name)}

    @property
    def uses_xla(self) -> bool:
        """True if XLA compiles the steps on CPU or GPU: then no shape may depend on values."""
        return self.use_xla or self.backend == JAX

    @property
    def num_trained_layers(self) -> int | None:
        """The number of layers to train, counted from the last; None for all."""
        return None if self.train_layers is None else int(_LAST.fullmatch(self.train_layers)[1])

    @property
    def trains_all_weights(self) -> bool:
        return self.train_layers is None and self.train_only is None and not self.lora_rank

    @property
    def lora(self) -> tuple[int, float, list[str]] | None:
        """The rank, the alpha and the layers of low-rank updates; None for none."""
        alpha = self.lora_rank if self.lora_alpha is None else self.lora_alpha
        return (self.lora_rank, alpha, self.lora_layers.split(",")) if self.lora_rank else None


@options(group="training", affects="learning")
class FinetuningOptions(TokenizerOptions, TrainingOptions):
    """Flags of every command that fine-tunes; each also has `train_file`, `predict_file` and perhaps `eval_file`."""

    ensemble: ClassVar[Sequence[str]] = ()  # checkpoints to predict with instead of the output folder's; usually none
    # Flags of some of the commands. The last two have no annotation, which would give them a place in --help.
    do_eval: ClassVar[bool] = False
    eval_batch_size = None
    trainable_encoder = True
    do_predict: bool = option(False, "Run prediction on the test set.", group="evaluation", affects="run")
    predict_batch_size: int = option(
        8,
        "Number of examples per prediction batch, over all devices.",
        group="evaluation",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        affects="use",
    )
    dynamic_padding: bool = option(
        True,
        "Batch texts of similar length and pad each batch to its longest text; results stay the same. Off on TPU.",
        group="devices",
        affects="order",
    )
    num_train_epochs: float = option(3.0, "Number of training epochs.", minimum=0)
    warmup_proportion: float = option(
        0.1, "Fraction of the training steps used for learning-rate warm-up.", minimum=0, maximum=1
    )
    eval_steps: int = option(
        0,
        "Number of steps between evaluations during training; the best checkpoint is kept in output_dir/best. 0 for "
        "none.",
        group="evaluation",
        minimum=0,
    )
    early_stopping_patience: int = option(
        0, "Number of evaluations without improvement after which training stops; 0 disables early stopping.", minimum=0
    )
    use_best_checkpoint: bool = option(
        False,
        "Evaluate, predict and export with output_dir/best instead of the last checkpoint.",
        group="evaluation",
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.dynamic_padding:
            self.refuse("train_batch_tokens", because="needs batches of similar length; leave --nodynamic_padding out")
        if self.do_train and not self.num_train_epochs:
            raise UserError("--num_train_epochs=0 trains nothing; give a number above 0, or leave --do_train out")
        if self.early_stopping_patience and not self.eval_steps:
            raise UserError("--early_stopping_patience needs --eval_steps")
        if self.use_best_checkpoint and self.do_train and not self.eval_steps:
            raise UserError("--use_best_checkpoint with --do_train needs --eval_steps, which finds the best checkpoint")

    @property
    def batch_sizes(self) -> dict[str, int]:
        """The batch sizes over all devices, by flag."""
        sizes = {
            "train_batch_size": None if self.train_batch_tokens else self.train_batch_size,
            "predict_batch_size": self.predict_batch_size,
            "eval_batch_size": self.eval_batch_size,
        }
        return {name: size for name, size in sizes.items() if size}

    @property
    def pads_dynamically(self) -> bool:
        """True if each batch is padded to its longest text."""
        return self.dynamic_padding and not self.use_tpu

    @property
    def trains_encoder(self) -> bool:
        """True if all weights of the encoder are trained."""
        return self.do_train and self.trains_all_weights and self.trainable_encoder

    @property
    def is_evaluated(self) -> bool:
        """True if the dev set is evaluated, during training or after it."""
        return self.do_eval or (self.do_train and self.eval_steps > 0)

    @property
    def required_files(self) -> dict[str, str]:
        """The flags whose input file is needed, each with the flag that requires it."""
        required_by = {
            "train_file": "do_train" if self.do_train else None,
            "eval_file": ("do_eval" if self.do_eval else "eval_steps") if self.is_evaluated else None,
            "predict_file": "do_predict" if self.do_predict else None,
        }
        return {name: flag for name, flag in required_by.items() if flag}


@options(group="evaluation", affects="learning")
class LabellingOptions(EvaluationOptions, FinetuningOptions):
    """Flags of commands that label texts or words."""

    feature_layers: ClassVar[str | None] = None  # a flag in commands whose head can read several layers
    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces per sequence, including [CLS] and [SEP].",
        group="text",
        minimum=4,
        maximum=MAX_AXIS,
    )
    trainable_encoder: bool = option(
        True,
        "Train the encoder; otherwise it is frozen and its outputs are computed only once.",
        group="trained weights",
        affects="frozen",
    )
    primary_metric: str | None = option(
        None,
        "Score that selects the best checkpoint, by its name in eval_results.txt without eval_: macro_f1, for example; "
        "by default the main score of the data set.",
        affects="selection",
    )
    head_dropout: float = option(
        0.1,
        "Dropout rate before the output layer; hidden_dropout_prob of the model configuration applies to the encoder "
        "only.",
        minimum=0,
        maximum=0.99,
        group="optimizer and loss",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.trainable_encoder:
            return
        self.refuse(
            *("train_batch_tokens", "gradient_checkpointing", "teacher", "train_layers", "train_only", "lora_rank"),
            because="cannot be used with --notrainable_encoder, whose outputs are computed once, before training",
        )
        if self.do_train and not self.init_checkpoint:
            raise UserError(
                "--notrainable_encoder needs --init_checkpoint: the outputs of an untrained encoder are useless"
            )
