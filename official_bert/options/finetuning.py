"""Flags for fine-tuning."""

from typing import ClassVar

from official_bert.options.corpus import RecordFileOptions
from official_bert.options.distillation import DistillationOptions
from official_bert.options.evaluation import EvaluationOptions
from official_bert.options.option import MAX_AXIS, MAX_BATCH_SIZE, option, options
from official_bert.options.text import TokenizerOptions
from official_bert.options.training import TrainingOptions
from official_bert.support.errors import UserError


@options(group="training")
class FinetuningOptions(DistillationOptions, RecordFileOptions, TokenizerOptions, TrainingOptions):
    """Flags of every command that fine-tunes."""

    do_eval: ClassVar[bool] = False  # a flag in commands that evaluate separately from prediction
    do_predict: bool = option(False, "Run prediction on the test set.", group="evaluation", affects="run")
    predict_batch_size: int = option(
        8,
        "Number of examples per prediction batch, over all devices.",
        group="evaluation",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        affects="nothing",
        sizes_run_with="do_predict",
    )
    dynamic_padding: bool = option(
        True,
        "Batch texts of similar length and pad each batch to its longest text; results stay the same. Off on TPU.",
        group="devices",
        not_with={
            "train_batch_tokens": "--train_batch_tokens needs batches of similar length; leave --nodynamic_padding out"
        },
        affects="order",
    )
    num_train_epochs: float = option(3.0, "Number of training epochs.", minimum=0, affects="learning")
    warmup_proportion: float = option(
        0.1,
        "Fraction of the training steps used for learning-rate warm-up.",
        minimum=0,
        maximum=1,
        affects="learning",
    )

    eval_steps: int = option(
        0,
        "Number of steps between evaluations during training; the best checkpoint is kept in output_dir/best. 0 for "
        "none.",
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
        if self.do_train and not self.num_train_epochs:
            raise UserError("--num_train_epochs=0 trains nothing; give a number above 0, or leave --do_train out")
        if self.early_stopping_patience and not self.eval_steps:
            raise UserError("--early_stopping_patience needs --eval_steps")
        if self.use_best_checkpoint and self.do_train and not self.eval_steps:
            raise UserError("--use_best_checkpoint with --do_train needs --eval_steps, which finds the best checkpoint")

    @property
    def batch_sizes(self) -> dict[str, int]:
        """The batch sizes over all devices, by flag."""
        of_training = {} if self.train_batch_tokens else {"train_batch_size": self.train_batch_size}
        return {**of_training, "predict_batch_size": self.predict_batch_size}

    @property
    def pads_dynamically(self) -> bool:
        """True if each batch is padded to its longest text."""
        return self.dynamic_padding and not self.use_tpu

    @property
    def trains_encoder(self) -> bool:
        """True if all weights of the encoder are trained."""
        return self.do_train and self.trains_all_weights


@options(group="evaluation")
class EvaluatedOptions(EvaluationOptions, FinetuningOptions):
    """Flags of commands that train, evaluate and predict with a file each.

    Each command also has the flags `train_file`, `eval_file` and `predict_file`, which `required_files` refers to.
    """

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_predict or self.do_export):
            raise UserError("nothing to do: give at least one of --do_train, --do_eval, --do_predict and --do_export")

    @property
    def batch_sizes(self) -> dict[str, int]:
        """See `FinetuningOptions`."""
        return {**super().batch_sizes, "eval_batch_size": self.eval_batch_size}

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


@options(group="evaluation")
class LabellingOptions(EvaluatedOptions):
    """Flags of commands that label texts or words."""

    feature_layers: ClassVar[str | None] = None  # a flag in commands whose head can read several layers
    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces per sequence, including [CLS] and [SEP].",
        group="text",
        minimum=4,
        maximum=MAX_AXIS,
        affects="learning",
        sizes_run_with="always",
    )
    trainable_encoder: bool = option(
        True,
        "Train the encoder; otherwise it is frozen and its outputs are computed only once.",
        group="training",
        not_with={
            "train_batch_tokens": "--train_batch_tokens cannot be used with a frozen encoder, whose outputs are "
            "computed before training; use --train_batch_size",
            "gradient_checkpointing": "--gradient_checkpointing cannot be used with a frozen encoder, which has no "
            "backward pass",
            "teacher": "--teacher cannot be used with a frozen encoder's outputs; leave --notrainable_encoder out",
            "train_layers": "--train_layers cannot be used with --notrainable_encoder, which freezes all layers",
            "train_only": "--train_only cannot be used with --notrainable_encoder, which freezes the biases, too",
            "lora_rank": "--lora_rank cannot be used with --notrainable_encoder; leave one of them out",
        },
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
        group="training",
        affects="learning",
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.trainable_encoder and self.do_train and not self.init_checkpoint:
            raise UserError(
                "--notrainable_encoder needs --init_checkpoint: the outputs of an untrained encoder are useless"
            )

    @property
    def trains_encoder(self) -> bool:
        """See `FinetuningOptions`."""
        return super().trains_encoder and self.trainable_encoder
