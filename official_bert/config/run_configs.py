"""One frozen dataclass per script, one field per flag. The reference's flags come first, then those of this project."""

import dataclasses
from typing import ClassVar, Literal

from official_bert.config.options import (
    MAX_AXIS,
    MAX_BATCH_SIZE,
    MAX_PARTS,
    MAX_SEED,
    UNLIMITED,
    check_options,
    option,
)
from official_bert.support.errors import UserError

# Settings without which some flags have no effect.
_CUSTOM = {"task_name": ("custom",)}
_WINDOWS = {"long_text": ("window",)}
_TO_HF = {"to_hf": (True,)}
_EXPORT = {"do_export": (True,)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataConfig:
    """Flags of `create_pretraining_data.py`."""

    input_file: str | None = option(
        None, "Text files: comma-separated list of names and globs.", required=True, is_path=True
    )
    output_file: str | None = option(
        None,
        "TFRecord files to write: comma-separated list; records are written to them in turn.",
        required=True,
        is_path=True,
    )
    vocab_file: str | None = option(None, "Vocabulary file, one wordpiece per line.", required=True, is_path=True)
    do_lower_case: bool = option(True, "Lowercase the text and strip accents; true for uncased vocabularies.")
    do_whole_word_mask: bool = option(False, "Mask either all wordpieces of a word or none.")
    max_seq_length: int = option(
        128, "Maximum number of wordpieces per sequence, including [CLS] and [SEP].", minimum=5, maximum=MAX_AXIS
    )
    max_predictions_per_seq: int = option(
        20, "Maximum number of masked wordpieces per sequence.", minimum=1, maximum=MAX_AXIS
    )
    random_seed: int = option(
        12345, "Random seed; the same seed, text and flags give the same records.", maximum=UNLIMITED
    )
    dupe_factor: int = option(
        10, "Number of times each document is used, each time with different masks and pairs.", minimum=1
    )
    masked_lm_prob: float = option(0.15, "Fraction of wordpieces to mask.", minimum=0, maximum=1)
    short_seq_prob: float = option(
        0.1, "Fraction of documents that are cut into shorter sequences.", minimum=0, maximum=1
    )

    def __post_init__(self):
        check_options(self)
        if "" in self.output_files:
            raise UserError(f"--output_file={self.output_file} contains an empty name")

    @property
    def output_files(self) -> list[str]:
        """The TFRecord files to write."""
        return [name.strip() for name in self.output_file.split(",")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Flags that choose the devices; every script that runs a model has them."""

    use_tpu: bool = option(False, "Train on a TPU.")
    tpu_name: str | None = option(None, "Name or grpc:// address of the TPU, with --use_tpu.")
    tpu_zone: str | None = option(None, "Google Cloud zone of the TPU, with --use_tpu.")
    gcp_project: str | None = option(None, "Google Cloud project of the TPU, with --use_tpu.")
    master: str | None = option(None, "Address of the TPU, if --tpu_name is not given.")
    num_tpu_cores: int = option(8, "Number of cores that the TPU must have, with --use_tpu.", minimum=1)

    num_replicas: int = option(
        1,
        "Number of devices to use: GPUs, or virtual CPU devices if there are no GPUs; 0 for all GPUs.",
        minimum=0,
        maximum=MAX_PARTS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(DeviceOptions):
    """Flags of every script that trains.

    Attributes:
      task: name of the task, a key of the task registry.
    """

    task: ClassVar[str]

    bert_config_file: str | None = option(None, "Model configuration, a bert_config.json.", required=True, is_path=True)
    init_checkpoint: str | None = option(None, "Checkpoint to initialize the weights from.", is_path=True)
    output_dir: str | None = option(None, "Folder for all files that the script writes.", required=True, is_path=True)
    do_train: bool = option(False, "Run training.")
    train_batch_size: int = option(
        32, "Number of examples per training step, over all devices.", minimum=1, maximum=MAX_BATCH_SIZE
    )
    learning_rate: float = option(5e-5, "Peak learning rate.", minimum=0)
    save_checkpoints_steps: int = option(1000, "Number of steps between checkpoints.", minimum=1)
    iterations_per_loop: int = option(
        1000, "Maximum number of steps per compiled call; log lines and checkpoints end a call early.", minimum=1
    )

    adam_bias_correction: bool = option(
        False,
        "Apply Adam's bias correction, as PyTorch does and Google's BERT does not; use a higher learning rate with it.",
    )
    random_seed: int = option(
        12345, "Random seed for weights, dropout and the order of records.", minimum=0, maximum=MAX_SEED
    )
    allow_inexact_resume: bool = option(
        False,
        "Resume even if a flag that determines the order of the examples has changed: batch size, seed or padding.",
    )
    log_steps: int = option(100, "Number of steps between log lines.", minimum=1)
    keep_checkpoint_max: int = option(5, "Maximum number of checkpoints to keep; 0 keeps all.", minimum=0)
    do_export: bool = option(
        False, "Export the model for TensorFlow Serving, with raw text as its input; see docs/serving.md."
    )
    export_dir: str | None = option(
        None, "With --do_export: folder for the versions of the exported model.", only_with=_EXPORT, is_path=True
    )

    def __post_init__(self):
        check_options(self)
        if self.do_export and not self.export_dir:
            raise UserError("--do_export needs --export_dir, the folder for the versions of the model")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningOptions(TrainingOptions):
    """Flags of every script that fine-tunes on texts."""

    vocab_file: str | None = option(None, "Vocabulary file, one wordpiece per line.", required=True, is_path=True)
    do_lower_case: bool = option(True, "Lowercase the text and strip accents; true for uncased models.")
    predict_batch_size: int = option(
        8, "Number of examples per prediction batch, over all devices.", minimum=1, maximum=MAX_BATCH_SIZE
    )
    num_train_epochs: float = option(3.0, "Number of training epochs.", minimum=0)
    warmup_proportion: float = option(
        0.1, "Fraction of the training steps that are used for learning-rate warm-up.", minimum=0, maximum=1
    )

    eval_steps: int = option(
        0,
        "Number of steps between evaluations in training; the best checkpoint is kept in output_dir/best. 0 for none.",
        minimum=0,
    )
    early_stopping_patience: int = option(
        0, "Number of evaluations without improvement after which training stops; 0 disables early stopping.", minimum=0
    )
    use_best_checkpoint: bool = option(
        False, "Evaluate, predict and export with output_dir/best instead of the last checkpoint."
    )

    def __post_init__(self):
        super().__post_init__()
        if self.do_train and not self.num_train_epochs:
            raise UserError("--num_train_epochs=0 trains nothing; give a number above 0, or leave --do_train out")
        if self.early_stopping_patience and not self.eval_steps:
            raise UserError("--early_stopping_patience needs --eval_steps")
        if self.use_best_checkpoint and self.do_train and not self.eval_steps:
            raise UserError("--use_best_checkpoint with --do_train needs --eval_steps, which finds the best")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig(TrainingOptions):
    """Flags of `run_pretraining.py`."""

    task: ClassVar[str] = "pretraining"

    input_file: str | None = option(
        None,
        "TFRecord files: comma-separated list of names and globs.",
        required=True,
        waived_with="do_export",
        is_path=True,
    )
    max_seq_length: int = option(
        128, "Number of positions per record; must match the records.", minimum=1, maximum=MAX_AXIS
    )
    max_predictions_per_seq: int = option(
        20, "Number of masked positions per record; must match the records.", minimum=1, maximum=MAX_AXIS
    )
    do_eval: bool = option(False, "Run evaluation on the same records.")
    eval_batch_size: int = option(
        8, "Number of examples per evaluation batch, over all devices.", minimum=1, maximum=MAX_BATCH_SIZE
    )
    num_train_steps: int = option(100000, "Number of training steps.", minimum=1)
    num_warmup_steps: int = option(10000, "Number of learning-rate warm-up steps.", minimum=0)
    max_eval_steps: int = option(100, "Maximum number of batches to evaluate.", minimum=1)

    vocab_file: str | None = option(None, "With --do_export: vocabulary of the model.", only_with=_EXPORT, is_path=True)
    do_lower_case: bool = option(
        True, "With --do_export: lowercase the text and strip accents; true for uncased models.", only_with=_EXPORT
    )
    export_top_k: int = option(
        5,
        "With --do_export: number of words to return for each [MASK].",
        minimum=1,
        only_with=_EXPORT,
        maximum=MAX_AXIS,
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_export):
            raise UserError("nothing to do: give at least one of --do_train, --do_eval and --do_export")
        if (self.do_train or self.do_eval) and not self.input_file:
            raise UserError(f"--{'do_train' if self.do_train else 'do_eval'} needs --input_file")
        if self.do_export and not self.vocab_file:
            raise UserError("--do_export needs --vocab_file, with which the exported model reads text")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(FinetuningOptions):
    """Flags of `run_classifier.py`."""

    task: ClassVar[str] = "classification"

    data_dir: str | None = option(None, "Folder with the files of the data set.", required=True, is_path=True)
    task_name: str | None = option(
        None,
        "Data set: cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli, ax, xnli, imdb, nsmc, or custom.",
        required=True,
    )
    max_seq_length: int = option(
        128, "Maximum number of wordpieces per sequence, including [CLS] and [SEP].", minimum=4, maximum=MAX_AXIS
    )
    do_eval: bool = option(False, "Run evaluation on the dev set.")
    do_predict: bool = option(False, "Run prediction on the test set.")
    eval_batch_size: int = option(
        8, "Number of examples per evaluation batch, over all devices.", minimum=1, maximum=MAX_BATCH_SIZE
    )

    train_file: str | None = option(
        None,
        "With --task_name=custom or xnli: training file in --data_dir.",
        only_with={"task_name": ("custom", "xnli")},
        is_path=True,
    )
    eval_file: str | None = option(
        None, "With --task_name=custom: evaluation file in --data_dir.", only_with=_CUSTOM, is_path=True
    )
    predict_file: str | None = option(
        None, "With --task_name=custom: file in --data_dir with the texts to predict.", only_with=_CUSTOM, is_path=True
    )
    text_a_column: str | None = option(None, "Custom: name or number (from 0) of the text column.", only_with=_CUSTOM)
    text_b_column: str | None = option(
        None, "Custom: name or number of the column of the second text, for pairs.", only_with=_CUSTOM
    )
    label_column: str | None = option(None, "Custom: name or number of the label column.", only_with=_CUSTOM)
    labels: str | None = option(
        None,
        "Custom: comma-separated list of labels; by default those of the training file.",
        only_with={**_CUSTOM, "regression": (False,)},
    )
    multi_label: bool = option(
        False, "Custom: an example has any number of labels, separated by commas.", only_with=_CUSTOM
    )
    regression: bool = option(False, "Custom: the label is a number.", only_with=_CUSTOM)
    has_header: bool = option(True, "Custom: the first row of a TSV or CSV file names its columns.", only_with=_CUSTOM)
    xnli_language: str = option(
        "zh",
        "With --task_name=xnli: language code, as in its files: ar, de, en, ...",
        only_with={"task_name": ("xnli",)},
    )
    dynamic_padding: bool = option(
        True, "Batch texts of similar length and pad each batch to its longest; results stay the same. Off on TPU."
    )
    long_text: str = option(
        "truncate", "How to handle texts longer than --max_seq_length.", choices=("truncate", "window")
    )
    doc_stride: int | None = option(
        None,
        "With --long_text=window: number of wordpieces between the starts of windows; by default half a window.",
        minimum=1,
        only_with=_WINDOWS,
        maximum=MAX_AXIS,
    )
    max_windows: int = option(
        8,
        "With --long_text=window: maximum number of windows per text; the rest of the text is ignored.",
        minimum=2,
        only_with=_WINDOWS,
        maximum=MAX_PARTS,
    )
    window_pooling: str = option(
        "mean",
        "With --long_text=window: how to pool the scores of the windows.",
        choices=("mean", "max"),
        only_with=_WINDOWS,
    )
    trainable_encoder: bool = option(
        True, "Train the encoder too; otherwise it is frozen, and its outputs are computed only once."
    )
    feature_layers: str | None = option(
        None,
        "Encoder layers that the classifier reads, averaged over the positions; by default the output of the pooler.",
        choices=("last", "second_to_last", "sum_last_four", "concat_last_four", "weighted_sum"),
    )
    glue_submission: bool = option(
        False,
        "Also write the predictions in the submission format of the GLUE website.",
        only_with={"do_predict": (True,)},
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_predict or self.do_export):
            raise UserError("nothing to do: give at least one of --do_train, --do_eval, --do_predict and --do_export")
        if self.multi_label and self.regression:
            raise UserError("--multi_label and --regression exclude each other")
        if self.labels is not None and "" in self.label_names:
            raise UserError(f"--labels={self.labels} contains an empty name")
        if not self.trainable_encoder and self.long_text == "window":
            raise UserError("--notrainable_encoder and --long_text=window exclude each other")
        if not self.trainable_encoder and self.do_train and not self.init_checkpoint:
            raise UserError(
                "--notrainable_encoder needs --init_checkpoint: the outputs of an untrained encoder are useless"
            )
        room = self.max_seq_length - 2  # without [CLS] and [SEP]
        if self.doc_stride and self.doc_stride > room:
            raise UserError(
                f"--doc_stride={self.doc_stride} would skip wordpieces: a window of --max_seq_length="
                f"{self.max_seq_length} has room for {room}; give at most {room}, or leave the flag out for half of it"
            )
        if self.task_name.lower() == "custom":
            if not self.text_a_column:
                raise UserError("--task_name=custom needs --text_a_column")
            for name, flag in self.custom_files.items():
                if not getattr(self, name):
                    raise UserError(f"--task_name=custom needs --{name} for --{flag}")

    @property
    def is_evaluated(self) -> bool:
        """Whether the dev set is evaluated, during training or after it."""
        return self.do_eval or (self.do_train and self.eval_steps > 0)

    @property
    def custom_files(self) -> dict[str, str]:
        """The flags that name a file that --task_name=custom reads, each with the flag that requires it."""
        required_by = {
            "train_file": "do_train" if self.do_train else None,
            "eval_file": ("do_eval" if self.do_eval else "eval_steps") if self.is_evaluated else None,
            "predict_file": "do_predict" if self.do_predict else None,
        }
        return {name: flag for name, flag in required_by.items() if flag}

    @property
    def label_names(self) -> list[str]:
        """The labels that --labels lists."""
        return [name.strip() for name in self.labels.split(",")]

    @property
    def problem(self) -> str:
        """The kind of problem that --task_name=custom poses, as named in the table of data sets."""
        return "multi_label" if self.multi_label else "regression" if self.regression else "single_label"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureConfig(DeviceOptions):
    """Flags of `extract_features.py`."""

    input_file: str | None = option(
        None,
        "Text file, one text per line, or `text ||| text` for a pair; - for standard input.",
        required=True,
        is_path=True,
    )
    output_file: str | None = option(
        None, "File to write; - for standard output, with --output_format=jsonl.", required=True, is_path=True
    )
    layers: str = option("-1,-2,-3,-4", "Comma-separated list of layers: 0 is the first, -1 the last.")
    bert_config_file: str | None = option(None, "Model configuration, a bert_config.json.", required=True, is_path=True)
    max_seq_length: int = option(
        128, "Maximum number of wordpieces per sequence, including [CLS] and [SEP].", minimum=4, maximum=MAX_AXIS
    )
    init_checkpoint: str | None = option(None, "Checkpoint with the weights of the model.", required=True, is_path=True)
    vocab_file: str | None = option(None, "Vocabulary file, one wordpiece per line.", required=True, is_path=True)
    do_lower_case: bool = option(True, "Lowercase the text and strip accents; true for uncased models.")
    batch_size: int = option(
        32,
        "Number of texts of 64 wordpieces per batch and device; batches of shorter texts are larger, of longer texts "
        "smaller. On TPU, number of texts of any length.",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
    )
    use_one_hot_embeddings: bool = option(
        False, "Look up embeddings by multiplying with one-hot vectors, which is faster on TPU."
    )

    output_format: str = option(
        "jsonl",
        "jsonl: JSON lines, as Google's BERT writes them; npz, npy: NumPy files; tfrecord: one Example per text.",
        choices=("jsonl", "npz", "tfrecord", "npy"),
    )
    pooling: str = option(
        "none",
        "none: vectors of all wordpieces; otherwise one vector per text and layer: that of [CLS], or the mean or "
        "maximum over the wordpieces, including [CLS] and [SEP]; mean_no_special excludes these.",
        choices=("none", "cls", "mean", "max", "mean_no_special"),
    )
    dtype: str = option(
        "float32",
        "With --output_format=npz or npy: data type of the stored vectors.",
        choices=("float32", "float16"),
        only_with={"output_format": ("npz", "npy")},
    )
    text_column: str | None = option(
        None, "Read a table: name or number (from 0) of the text column; in JSON lines its key."
    )
    text_b_column: str | None = option(None, "With --text_column: column of the second text, for pairs.")
    input_format: str | None = option(
        None,
        "With --text_column: format of the table; by default that of the file name's extension.",
        choices=("tsv", "csv", "jsonl"),
    )
    has_header: bool = option(True, "With --text_column: the first row of TSV and CSV names the columns.")
    long_text: str = option(
        "truncate",
        "How to handle texts longer than --max_seq_length: truncate them, or average overlapping windows.",
        choices=("truncate", "window"),
    )
    shard_size: int = option(
        0,
        "Number of texts per output file: NAME-00000.npz, NAME-00001.npz, ... are written, and finished ones of an "
        "earlier run are kept; 0 for one file.",
        minimum=0,
        maximum=10**6,
    )

    def __post_init__(self):
        check_options(self)
        try:
            _ = self.layer_indices
        except ValueError as error:
            raise UserError(f"--layers={self.layers}: give whole numbers separated by commas, as in -1,-2") from error
        if self.text_column is None:
            for name, default in (("text_b_column", None), ("input_format", None), ("has_header", True)):
                if getattr(self, name) != default:
                    raise UserError(f"--{name} has no effect without --text_column; leave it out")
        if self.output_format == "npy" and self.pooling == "none":
            raise UserError("--output_format=npy holds one vector per text; give --pooling, or --output_format=npz")
        if self.output_file == "-" and (self.output_format != "jsonl" or self.shard_size):
            other = "--shard_size" if self.shard_size else f"--output_format={self.output_format}"
            raise UserError(f"--output_file=-: standard output takes jsonl in one piece; leave {other} out")

    @property
    def layer_indices(self) -> list[int]:
        """The numbers that --layers lists."""
        return [int(layer) for layer in self.layers.split(",")]

    @property
    def text_columns(self) -> list[str] | None:
        """The columns to read of a table; None for lines."""
        return [column for column in (self.text_column, self.text_b_column) if column is not None] or None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Flags of every script that finds answers in texts."""

    max_seq_length: int = option(
        384,
        "Maximum number of wordpieces per window, including the question, [CLS] and [SEP].",
        minimum=5,
        maximum=MAX_AXIS,
    )
    doc_stride: int = option(
        128, "Number of wordpieces between the starts of windows of a long text.", minimum=1, maximum=MAX_AXIS
    )
    max_query_length: int = option(
        64, "Maximum number of wordpieces per question; longer questions are truncated.", minimum=1, maximum=MAX_AXIS
    )
    max_answer_length: int = option(30, "Maximum number of wordpieces per answer.", minimum=1, maximum=MAX_AXIS)
    version_2_with_negative: bool = option(False, "Questions may have no answer, as in SQuAD 2.0.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadConfig(FinetuningOptions, AnswerOptions):
    """Flags of `run_squad.py`."""

    task: ClassVar[str] = "question_answering"

    train_file: str | None = option(None, "Questions to train on, in SQuAD's JSON format.", is_path=True)
    predict_file: str | None = option(
        None, "Questions to answer, in SQuAD's JSON format; scored if the file has the answers.", is_path=True
    )
    do_predict: bool = option(False, "Answer the questions of --predict_file.")
    n_best_size: int = option(20, "Number of answers per question in nbest_predictions.json.", minimum=1)
    verbose_logging: bool = option(
        False, "Log why the exact text of a predicted answer could not be found in the context."
    )
    null_score_diff_threshold: float | Literal["auto"] = option(
        0.0,
        "With --version_2_with_negative: predict no answer if the null odds exceed this; auto: the best for F1.",
    )

    dataset: str = option("squad", "Data set whose answer normalization the scores use.", choices=("squad", "korquad"))
    drop_out_of_window: bool = option(
        False, "Leave windows without the answer out of training, or, in version 2.0, train them as having no answer."
    )
    answer_alignment: str = option(
        "reference",
        "How to turn wordpieces into text: as Google's BERT does, or by their offsets in the context, which is exact.",
        choices=("reference", "offsets"),
    )
    dynamic_padding: bool = option(
        True, "Batch windows of similar length and pad each batch to its longest; see docs/squad.md. Off on TPU."
    )
    ensemble_checkpoints: str | None = option(
        None,
        "Comma-separated checkpoints: predict with the mean of their logits, not with the checkpoint in --output_dir.",
        is_path=True,
    )
    num_processes: int = option(
        0, "Number of processes for tokenization; 0 for one per core.", minimum=0, maximum=MAX_PARTS
    )
    export_top_k: int = option(
        5,
        "With --do_export: number of answers to return per question.",
        minimum=1,
        only_with=_EXPORT,
        maximum=MAX_AXIS,
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train or self.do_predict or self.do_export):
            raise UserError("nothing to do: give at least one of --do_train, --do_predict and --do_export")
        if self.do_train and not self.train_file:
            raise UserError("--do_train needs --train_file")
        if self.do_predict and not self.predict_file:
            raise UserError("--do_predict needs --predict_file")
        if self.do_train and self.eval_steps and not self.predict_file:
            raise UserError("--eval_steps needs --predict_file, whose questions it scores")
        if self.null_score_diff_threshold == "auto" and not self.version_2_with_negative:
            raise UserError("--null_score_diff_threshold=auto needs --version_2_with_negative")
        if self.ensemble_checkpoints is not None and (
            not self.do_predict or self.do_train or self.use_best_checkpoint or not all(self.ensemble)
        ):
            raise UserError(
                f"--ensemble_checkpoints={self.ensemble_checkpoints}: a list of checkpoints to predict with; it goes "
                "with --do_predict, but not with --do_train or --use_best_checkpoint"
            )

        if self.ensemble_checkpoints is not None and self.do_export:
            raise UserError("--do_export exports one checkpoint; leave --ensemble_checkpoints out")

    @property
    def ensemble(self) -> list[str]:
        """The checkpoints that --ensemble_checkpoints lists."""
        return [path.strip() for path in self.ensemble_checkpoints.split(",")] if self.ensemble_checkpoints else []


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerConfig(AnswerOptions):
    """Flags of `tools/answer.py`."""

    bert_config_file: str | None = option(None, "Model configuration, a bert_config.json.", required=True, is_path=True)
    vocab_file: str | None = option(None, "Vocabulary of the model.", required=True, is_path=True)
    doc_stride: int | None = option(
        None,
        "Number of wordpieces between the starts of windows of a long text; by default 128, less for short windows.",
        minimum=1,
        maximum=MAX_AXIS,
    )
    init_checkpoint: str | None = option(None, "Checkpoint trained by run_squad.py.", required=True, is_path=True)
    do_lower_case: bool = option(True, "Lowercase the text and strip accents; true for uncased models.")
    context_file: str | None = option(None, "Text file to find answers in.", required=True, is_path=True)
    question: str | None = option(
        None, "The question; by default questions are read from standard input, one per line."
    )
    top_k: int = option(5, "Number of answers to print.", minimum=1, maximum=MAX_AXIS)

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerScoringConfig:
    """Flags of `tools/score_answers.py`."""

    squad_file: str | None = option(
        None, "Questions with the correct answers, in SQuAD's JSON format.", required=True, is_path=True
    )
    predictions_file: str | None = option(
        None, "JSON file that maps question ids to texts, as in predictions.json.", required=True, is_path=True
    )
    null_odds_file: str | None = option(
        None,
        "JSON file that maps question ids to null odds, or to probabilities of no answer; adds the best thresholds, "
        "found among the predictions that are not empty.",
        only_with={"version_2_with_negative": (True,)},
        is_path=True,
    )
    null_odds_threshold: float = option(
        1.0,
        "With --null_odds_file: predictions whose null odds exceed this are scored as empty. The default is that of "
        "SQuAD's script, which is meant for probabilities.",
    )
    version_2_with_negative: bool = option(False, "Questions may have no answer, as in SQuAD 2.0.")
    dataset: str = option("squad", "Data set whose answer normalization the scores use.", choices=("squad", "korquad"))

    def __post_init__(self):
        check_options(self)
        if self.null_odds_threshold != 1.0 and not self.null_odds_file:
            raise UserError("--null_odds_threshold has no effect without --null_odds_file; leave it out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig(ClassifierConfig):
    """Flags of `tools/sweep.py`: those of `run_classifier.py`, of which four take a list."""

    output_dir: str | None = option(
        None,
        "Folder for sweep.tsv and for one folder per run with everything that run_classifier.py writes.",
        required=True,
        is_path=True,
    )
    do_train: bool = option(True, "Run training; a sweep always does.")
    do_eval: bool = option(True, "Run evaluation on the dev set; a sweep always does.")
    # The paper's grid.
    train_batch_size: str = option(
        "16,32", "Comma-separated list: number of examples per training step, over all devices."
    )
    learning_rate: str = option("5e-5,3e-5,2e-5", "Comma-separated list: peak learning rate.")
    num_train_epochs: str = option("2,3,4", "Comma-separated list: number of training epochs.")
    random_seed: str = option("12345", "Comma-separated list: random seeds; each combination is run with each of them.")

    keep_only_winner: bool = option(
        False, "Delete the checkpoints of a combination as soon as another one scores better; keep its other files."
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train and self.do_eval):
            raise UserError("a sweep trains and evaluates; leave --nodo_train and --nodo_eval out")
        if self.do_export:
            raise UserError("a sweep does not export; export the winner with run_classifier.py --do_export")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueAverageConfig:
    """Flags of `tools/glue_average.py`."""

    output_dirs: str | None = option(
        None,
        "Output folders of run_classifier.py: comma-separated list of names and globs; averages the folders of a task.",
        required=True,
        is_path=True,
    )
    count_wnli: bool = option(
        False,
        "Include WNLI in the average, as the GLUE website does; the BERT paper leaves it out. AX is never included.",
    )
    table_format: str = option("aligned", "How to print the table.", choices=("aligned", "tsv", "markdown"))

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabConfig:
    """Flags of `tools/build_vocab.py`."""

    input_file: str | None = option(
        None, "Text files: comma-separated list of names and globs.", required=True, is_path=True
    )
    vocab_file: str | None = option(None, "Vocabulary file to write.", required=True, is_path=True)
    vocab_size: int = option(
        30000, "Maximum number of wordpieces, including special tokens and single characters.", minimum=10
    )
    do_lower_case: bool = option(True, "Lowercase the text and strip accents.")
    min_frequency: int = option(
        2, "Minimum number of times a wordpiece must occur; single characters are exempt.", minimum=1
    )
    max_characters: int = option(1000, "Maximum number of distinct characters; raise it for Chinese.", minimum=1)

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskConfig:
    """Flags of `tools/fill_mask.py`."""

    bert_config_file: str | None = option(None, "Model configuration, a bert_config.json.", required=True, is_path=True)
    vocab_file: str | None = option(None, "Vocabulary of the model.", required=True, is_path=True)
    init_checkpoint: str | None = option(None, "Checkpoint with the weights of the model.", required=True, is_path=True)
    text: str | None = option(None, "Text with one [MASK] for each masked wordpiece.", required=True)
    do_lower_case: bool = option(True, "Lowercase the text and strip accents; true for uncased models.")
    top_k: int = option(5, "Number of candidates to print for each mask.", minimum=1, maximum=MAX_AXIS)

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StripCheckpointConfig:
    """Flags of `tools/strip_checkpoint.py`."""

    init_checkpoint: str | None = option(
        None, "Checkpoint written by a training run.", required=True, waived_with="checkpoint", is_path=True
    )
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt to.", required=True, waived_with="output", is_path=True
    )
    checkpoint: str | None = option(None, "Old name of --init_checkpoint.", is_path=True)
    output: str | None = option(
        None, "Instead of --output_dir: name of the checkpoint to write, such as out/bert_model.ckpt.", is_path=True
    )

    def __post_init__(self):
        check_options(self)
        for name, other in (("init_checkpoint", "checkpoint"), ("output_dir", "output")):
            if getattr(self, name) is not None and getattr(self, other) is not None:
                raise UserError(f"--{name} and --{other} exclude each other; give one")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HfConversionConfig:
    """Flags of `tools/convert_hf_checkpoint.py`."""

    output_dir: str | None = option(None, "Folder to write the converted files to.", required=True, is_path=True)
    hf_dir: str | None = option(
        None,
        "Hugging Face folder to read: config.json, model.safetensors, vocab.txt.",
        only_with={"to_hf": (False,)},
        is_path=True,
    )
    to_hf: bool = option(False, "Convert --init_checkpoint to a Hugging Face folder instead.")
    init_checkpoint: str | None = option(None, "Checkpoint to read, with --to_hf.", only_with=_TO_HF, is_path=True)
    bert_config_file: str | None = option(
        None, "Model configuration of the checkpoint, a bert_config.json, with --to_hf.", only_with=_TO_HF, is_path=True
    )
    vocab_file: str | None = option(None, "Vocabulary of the checkpoint, with --to_hf.", only_with=_TO_HF, is_path=True)
    do_lower_case: bool = option(True, "Whether the vocabulary is uncased, with --to_hf.", only_with=_TO_HF)

    def __post_init__(self):
        check_options(self)
        for name in ("init_checkpoint", "bert_config_file", "vocab_file") if self.to_hf else ("hf_dir",):
            if getattr(self, name) is None:
                raise UserError(f"--{name} is missing; it is needed {'with' if self.to_hf else 'without'} --to_hf")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierDemoConfig:
    """Flags of `tools/demo_classifier.py`."""

    output_dir: str = option(
        "demo_classifier_output", "Folder for all files that the demo writes; emptied first.", is_path=True
    )
    random_seed: int = option(
        12345, "Random seed for weights, dropout and the order of records.", minimum=0, maximum=MAX_SEED
    )

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Flags of `tools/demo.py`."""

    output_dir: str = option("demo_output", "Folder for all files that the demo writes; emptied first.", is_path=True)
    random_seed: int = option(
        12345, "Random seed for masks and pairs, weights and the order of records.", minimum=0, maximum=MAX_SEED
    )

    def __post_init__(self):
        check_options(self)
