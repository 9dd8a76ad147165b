"""One frozen dataclass for each script: a field is a flag. The reference's flags come first, then ours."""

import dataclasses
from typing import Literal

from official_bert.config.options import (
    MAX_AXIS,
    MAX_BATCH_SIZE,
    MAX_PARTS,
    MAX_SEED,
    UNLIMITED,
    check_options,
    option,
)
from official_bert.errors import UserError

# Settings without which some flags have no meaning.
_CUSTOM = {"task_name": ("custom",)}
_WINDOWS = {"long_text": ("window",)}
_TO_HF = {"to_hf": (True,)}
_EXPORT = {"do_export": (True,)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataConfig:
    """Flags of `create_pretraining_data.py`."""

    input_file: str | None = option(
        None, "Text files: a comma-separated list of names and globs.", required=True, is_path=True
    )
    output_file: str | None = option(
        None,
        "TFRecord files to write: a comma-separated list; records go to them in turn.",
        required=True,
        is_path=True,
    )
    vocab_file: str | None = option(None, "The vocabulary, one wordpiece a line.", required=True, is_path=True)
    do_lower_case: bool = option(True, "Lower-case and strip accents; true for uncased vocabularies.")
    do_whole_word_mask: bool = option(False, "Mask all wordpieces of a word or none.")
    max_seq_length: int = option(
        128, "Maximum number of wordpieces per sequence, [CLS] and [SEP] included.", minimum=5, maximum=MAX_AXIS
    )
    max_predictions_per_seq: int = option(
        20, "Maximum number of masked wordpieces per sequence.", minimum=1, maximum=MAX_AXIS
    )
    random_seed: int = option(12345, "Seed; the same seed, text and flags give the same records.", maximum=UNLIMITED)
    dupe_factor: int = option(
        10, "Number of times each document is used, each time with other masks and pairs.", minimum=1
    )
    masked_lm_prob: float = option(0.15, "Fraction of the wordpieces to mask.", minimum=0, maximum=1)
    short_seq_prob: float = option(
        0.1, "Fraction of documents that are cut into shorter sequences.", minimum=0, maximum=1
    )

    def __post_init__(self):
        check_options(self)
        if "" in self.output_files:
            raise UserError(f"--output_file={self.output_file} holds an empty name")

    @property
    def output_files(self) -> list[str]:
        """The TFRecord files to write."""
        return [name.strip() for name in self.output_file.split(",")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Flags that say where to compute; every script that runs a model has them."""

    use_tpu: bool = option(False, "Train on a TPU.")
    tpu_name: str | None = option(None, "The TPU's name or grpc:// address, with --use_tpu.")
    tpu_zone: str | None = option(None, "The TPU's zone in the cloud, with --use_tpu.")
    gcp_project: str | None = option(None, "The TPU's project in the cloud, with --use_tpu.")
    master: str | None = option(None, "The TPU's address, if --tpu_name is not given.")
    num_tpu_cores: int = option(8, "Cores that the TPU must have, with --use_tpu.", minimum=1)

    num_replicas: int = option(
        1,
        "Devices to compute on: GPUs, or parts of the CPU if there is none; 0 for all GPUs.",
        minimum=0,
        maximum=MAX_PARTS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(DeviceOptions):
    """Flags of every script that trains."""

    bert_config_file: str | None = option(
        None, "The model's architecture, a bert_config.json.", required=True, is_path=True
    )
    init_checkpoint: str | None = option(None, "Checkpoint to take the initial weights from.", is_path=True)
    output_dir: str | None = option(None, "Folder for everything that the script writes.", required=True, is_path=True)
    do_train: bool = option(False, "Train.")
    train_batch_size: int = option(
        32, "Examples in a training step, over all devices.", minimum=1, maximum=MAX_BATCH_SIZE
    )
    learning_rate: float = option(5e-5, "Peak of the learning rate.", minimum=0)
    save_checkpoints_steps: int = option(1000, "Steps between checkpoints.", minimum=1)
    iterations_per_loop: int = option(
        1000, "Maximum number of steps in one compiled call; log lines and checkpoints end a call early.", minimum=1
    )

    adam_bias_correction: bool = option(
        False, "Correct the bias of Adam's first steps, as PyTorch does, the reference not; give a higher rate with it."
    )
    random_seed: int = option(12345, "Seed of weights, dropout and the order of records.", minimum=0, maximum=MAX_SEED)
    allow_inexact_resume: bool = option(
        False,
        "Resume although a flag that decides the order of the examples changed: batch size, seed or padding.",
    )
    log_steps: int = option(100, "Steps between two lines of the log.", minimum=1)
    keep_checkpoint_max: int = option(5, "Checkpoints to keep; 0 keeps all.", minimum=0)
    do_export: bool = option(False, "Export the model for TensorFlow Serving, reading raw text; see docs/serving.md.")
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

    vocab_file: str | None = option(None, "The vocabulary, one wordpiece a line.", required=True, is_path=True)
    do_lower_case: bool = option(True, "Lower-case and strip accents; true for uncased models.")
    predict_batch_size: int = option(
        8, "Examples in a prediction batch, over all devices.", minimum=1, maximum=MAX_BATCH_SIZE
    )
    num_train_epochs: float = option(3.0, "Passes over the training examples.", minimum=0)
    warmup_proportion: float = option(
        0.1, "Fraction of the steps in which the learning rate rises (warm-up).", minimum=0, maximum=1
    )

    eval_steps: int = option(
        0,
        "Steps between evaluations in training, the best checkpoint being kept in output_dir/best; 0 for none.",
        minimum=0,
    )
    early_stopping_patience: int = option(
        0, "Stop training after so many evaluations without a better one; 0 never stops.", minimum=0
    )
    use_best_checkpoint: bool = option(
        False, "Evaluate, predict and export with output_dir/best, not the last checkpoint."
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

    input_file: str | None = option(
        None,
        "TFRecord files: a comma-separated list of names and globs.",
        required=True,
        waived_with="do_export",
        is_path=True,
    )
    max_seq_length: int = option(128, "Positions in a record; must match the records.", minimum=1, maximum=MAX_AXIS)
    max_predictions_per_seq: int = option(
        20, "Masked positions in a record; must match the records.", minimum=1, maximum=MAX_AXIS
    )
    do_eval: bool = option(False, "Evaluate on the same records.")
    eval_batch_size: int = option(
        8, "Examples in an evaluation batch, over all devices.", minimum=1, maximum=MAX_BATCH_SIZE
    )
    num_train_steps: int = option(100000, "Training steps.", minimum=1)
    num_warmup_steps: int = option(10000, "Steps in which the learning rate rises (warm-up).", minimum=0)
    max_eval_steps: int = option(100, "Maximum number of batches to evaluate.", minimum=1)

    vocab_file: str | None = option(None, "With --do_export: the model's vocabulary.", only_with=_EXPORT, is_path=True)
    do_lower_case: bool = option(
        True, "With --do_export: lower-case and strip accents; true for uncased models.", only_with=_EXPORT
    )
    export_top_k: int = option(
        5, "With --do_export: number of words to give for each [MASK].", minimum=1, only_with=_EXPORT, maximum=MAX_AXIS
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_export):
            raise UserError("nothing to do: give --do_train, --do_eval, --do_export or several")
        if (self.do_train or self.do_eval) and not self.input_file:
            raise UserError(f"--{'do_train' if self.do_train else 'do_eval'} needs --input_file")
        if self.do_export and not self.vocab_file:
            raise UserError("--do_export needs --vocab_file, with which the exported model reads text")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(FinetuningOptions):
    """Flags of `run_classifier.py`."""

    data_dir: str | None = option(None, "Folder of the data set's files.", required=True, is_path=True)
    task_name: str | None = option(
        None,
        "The data set: cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli, ax, xnli, imdb, nsmc, or custom.",
        required=True,
    )
    max_seq_length: int = option(
        128, "Maximum number of wordpieces per sequence, [CLS] and [SEP] included.", minimum=4, maximum=MAX_AXIS
    )
    do_eval: bool = option(False, "Evaluate on the dev set.")
    do_predict: bool = option(False, "Predict the test set.")
    eval_batch_size: int = option(
        8, "Examples in an evaluation batch, over all devices.", minimum=1, maximum=MAX_BATCH_SIZE
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
        None, "With --task_name=custom: file to predict in --data_dir.", only_with=_CUSTOM, is_path=True
    )
    text_a_column: str | None = option(None, "Custom: name or number (from 0) of the text's column.", only_with=_CUSTOM)
    text_b_column: str | None = option(
        None, "Custom: name or number of the second text's column, if there is one.", only_with=_CUSTOM
    )
    label_column: str | None = option(None, "Custom: name or number of the label's column.", only_with=_CUSTOM)
    labels: str | None = option(
        None,
        "Custom: comma-separated labels; if not given, those of the training file.",
        only_with={**_CUSTOM, "regression": (False,)},
    )
    multi_label: bool = option(
        False, "Custom: an example has any number of labels, separated by commas.", only_with=_CUSTOM
    )
    regression: bool = option(False, "Custom: the label is a number.", only_with=_CUSTOM)
    has_header: bool = option(True, "Custom: the first row of a TSV or CSV file names its columns.", only_with=_CUSTOM)
    xnli_language: str = option(
        "zh", "Language of xnli, as in its files: ar, de, en, ...", only_with={"task_name": ("xnli",)}
    )
    dynamic_padding: bool = option(
        True, "Batch texts of similar length and pad no further than needed; results stay the same. Off on TPU."
    )
    long_text: str = option(
        "truncate", "What to do with texts beyond --max_seq_length.", choices=("truncate", "window")
    )
    doc_stride: int | None = option(
        None,
        "With --long_text=window: wordpieces between the starts of windows; if not given, half a window's text.",
        minimum=1,
        only_with=_WINDOWS,
        maximum=MAX_AXIS,
    )
    max_windows: int = option(
        8,
        "With --long_text=window: maximum number of windows per text; the rest is left out.",
        minimum=2,
        only_with=_WINDOWS,
        maximum=MAX_PARTS,
    )
    window_pooling: str = option(
        "mean",
        "With --long_text=window: how the scores of windows become one.",
        choices=("mean", "max"),
        only_with=_WINDOWS,
    )
    trainable_encoder: bool = option(True, "Train the encoder too; otherwise its outputs are computed once.")
    feature_layers: str | None = option(
        None,
        "What the classifier reads: layers, averaged over the positions; if not given, the pooler's output.",
        choices=("last", "second_to_last", "sum_last_four", "concat_last_four", "weighted_sum"),
    )
    glue_submission: bool = option(
        False, "Also write the predictions in the format of GLUE's site.", only_with={"do_predict": (True,)}
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_predict or self.do_export):
            raise UserError("nothing to do: give --do_train, --do_eval, --do_predict, --do_export or several")
        if self.multi_label and self.regression:
            raise UserError("--multi_label and --regression exclude each other")
        if self.labels is not None and "" in self.label_names:
            raise UserError(f"--labels={self.labels} holds an empty name")
        if not self.trainable_encoder and self.long_text == "window":
            raise UserError("--notrainable_encoder and --long_text=window exclude each other")
        if not self.trainable_encoder and self.do_train and not self.init_checkpoint:
            raise UserError("--notrainable_encoder needs --init_checkpoint: an untrained encoder says nothing")
        room = self.max_seq_length - 2  # [CLS] and [SEP] take their places
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
        """Whether the dev part is evaluated, in training or after it."""
        return self.do_eval or (self.do_train and self.eval_steps > 0)

    @property
    def custom_files(self) -> dict[str, str]:
        """The flags that name a file that --task_name=custom reads, each with the flag that wants it."""
        wanted = {
            "train_file": "do_train" if self.do_train else None,
            "eval_file": ("do_eval" if self.do_eval else "eval_steps") if self.is_evaluated else None,
            "predict_file": "do_predict" if self.do_predict else None,
        }
        return {name: flag for name, flag in wanted.items() if flag}

    @property
    def label_names(self) -> list[str]:
        """The labels that --labels lists."""
        return [name.strip() for name in self.labels.split(",")]

    @property
    def problem(self) -> str:
        """What --task_name=custom asks of a text, as the table of data sets calls it."""
        return "multi_label" if self.multi_label else "regression" if self.regression else "single_label"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Flags of every script that finds answers in texts."""

    max_seq_length: int = option(
        384, "Maximum number of wordpieces per window, question, [CLS] and [SEP] included.", minimum=5, maximum=MAX_AXIS
    )
    doc_stride: int = option(
        128, "Wordpieces between the starts of two windows of a long text.", minimum=1, maximum=MAX_AXIS
    )
    max_query_length: int = option(
        64, "Maximum number of wordpieces per question; longer questions are truncated.", minimum=1, maximum=MAX_AXIS
    )
    max_answer_length: int = option(30, "Maximum number of wordpieces per answer.", minimum=1, maximum=MAX_AXIS)
    version_2_with_negative: bool = option(False, "Questions may have no answer, as in SQuAD 2.0.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadConfig(FinetuningOptions, AnswerOptions):
    """Flags of `run_squad.py`."""

    train_file: str | None = option(None, "Questions to train on, in SQuAD's JSON format.", is_path=True)
    predict_file: str | None = option(
        None, "Questions to answer, in SQuAD's JSON format; scored if it has answers.", is_path=True
    )
    do_predict: bool = option(False, "Answer the questions of --predict_file.")
    n_best_size: int = option(20, "Number of answers per question in nbest_predictions.json.", minimum=1)
    verbose_logging: bool = option(False, "Log why an answer could not be found in the context's own words.")
    null_score_diff_threshold: float | Literal["auto"] = option(
        0.0, "With --version_2_with_negative: predict no answer above these null odds; auto: those with the best F1."
    )

    dataset: str = option("squad", "Whose normalization the scores use.", choices=("squad", "korquad"))
    drop_out_of_window: bool = option(
        False, "Do not train windows that miss the answer, or, in version 2.0, train them as having none."
    )
    answer_alignment: str = option(
        "reference",
        "How wordpieces become text: as in the reference, or by their offsets in the context, which is exact.",
        choices=("reference", "offsets"),
    )
    dynamic_padding: bool = option(
        True, "Batch windows of similar length and pad no further than needed; see docs/squad.md. Off on TPU."
    )
    ensemble_checkpoints: str | None = option(
        None, "Comma-separated checkpoints: predict with the mean of their logits, not with output_dir's.", is_path=True
    )
    num_processes: int = option(0, "Processes that tokenize; 0 for one a core.", minimum=0, maximum=MAX_PARTS)
    export_top_k: int = option(
        5,
        "With --do_export: number of answers to give for each question.",
        minimum=1,
        only_with=_EXPORT,
        maximum=MAX_AXIS,
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train or self.do_predict or self.do_export):
            raise UserError("nothing to do: give --do_train, --do_predict, --do_export or several")
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

    bert_config_file: str | None = option(
        None, "The model's architecture, a bert_config.json.", required=True, is_path=True
    )
    vocab_file: str | None = option(None, "The model's vocabulary.", required=True, is_path=True)
    doc_stride: int | None = option(
        None,
        "Wordpieces between the starts of two windows of a long text; if not given, 128, or what fits short windows.",
        minimum=1,
        maximum=MAX_AXIS,
    )
    init_checkpoint: str | None = option(None, "The checkpoint of a run of run_squad.py.", required=True, is_path=True)
    do_lower_case: bool = option(True, "Lower-case and strip accents; true for uncased models.")
    context_file: str | None = option(None, "The text to find answers in.", required=True, is_path=True)
    question: str | None = option(None, "The question; without it, questions are read from the terminal, one a line.")
    top_k: int = option(5, "Number of answers to print.", minimum=1, maximum=MAX_AXIS)

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerScoringConfig:
    """Flags of `tools/score_answers.py`."""

    squad_file: str | None = option(
        None, "Questions with the right answers, in SQuAD's JSON format.", required=True, is_path=True
    )
    predictions_file: str | None = option(
        None, "JSON: question id to text, as in predictions.json.", required=True, is_path=True
    )
    null_odds_file: str | None = option(
        None,
        "JSON: question id to null odds, or to probabilities of no answer; then the best thresholds are searched too, "
        "among the predictions that are not empty already.",
        only_with={"version_2_with_negative": (True,)},
        is_path=True,
    )
    null_odds_threshold: float = option(
        1.0,
        "With --null_odds_file: score predictions as empty whose null odds are above this. The default is that of "
        "SQuAD's script, made for probabilities.",
    )
    version_2_with_negative: bool = option(False, "Questions may have no answer, as in SQuAD 2.0.")
    dataset: str = option("squad", "Whose normalization the scores use.", choices=("squad", "korquad"))

    def __post_init__(self):
        check_options(self)
        if self.null_odds_threshold != 1.0 and not self.null_odds_file:
            raise UserError("--null_odds_threshold has no use without --null_odds_file; leave it out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig(ClassifierConfig):
    """Flags of `tools/sweep.py`: those of `run_classifier.py`, of which four take a list."""

    output_dir: str | None = option(
        None,
        "Folder for sweep.tsv, and for a folder of each run with all that run_classifier.py makes.",
        required=True,
        is_path=True,
    )
    do_train: bool = option(True, "Train; a sweep always does.")
    do_eval: bool = option(True, "Evaluate on the dev set; a sweep always does.")
    # The paper's grid.
    train_batch_size: str = option("16,32", "Comma-separated: examples in a training step, over all devices.")
    learning_rate: str = option("5e-5,3e-5,2e-5", "Comma-separated: peak of the learning rate.")
    num_train_epochs: str = option("2,3,4", "Comma-separated: passes over the training examples.")
    random_seed: str = option("12345", "Comma-separated: seeds; each combination is run with each of them.")

    keep_only_winner: bool = option(
        False, "Delete the checkpoints of a combination as soon as another one is better; all else stays."
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
        "Output folders of run_classifier.py: a comma-separated list of names and globs; those of a task are averaged.",
        required=True,
        is_path=True,
    )
    count_wnli: bool = option(
        False, "Let WNLI count in the average, as on GLUE's site; the BERT paper leaves it out. AX never counts."
    )
    table_format: str = option("aligned", "How to print the table.", choices=("aligned", "tsv", "markdown"))

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabConfig:
    """Flags of `tools/build_vocab.py`."""

    input_file: str | None = option(
        None, "Text files: a comma-separated list of names and globs.", required=True, is_path=True
    )
    vocab_file: str | None = option(None, "The vocabulary to write.", required=True, is_path=True)
    vocab_size: int = option(
        30000, "Maximum number of wordpieces, special ones and single characters included.", minimum=10
    )
    do_lower_case: bool = option(True, "Lower-case and strip accents.")
    min_frequency: int = option(
        2, "Minimum number of times a wordpiece must occur; single characters are exempt.", minimum=1
    )
    max_characters: int = option(1000, "Maximum number of different characters; raise it for Chinese.", minimum=1)

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskConfig:
    """Flags of `tools/fill_mask.py`."""

    bert_config_file: str | None = option(
        None, "The model's architecture, a bert_config.json.", required=True, is_path=True
    )
    vocab_file: str | None = option(None, "The model's vocabulary.", required=True, is_path=True)
    init_checkpoint: str | None = option(None, "The model's weights.", required=True, is_path=True)
    text: str | None = option(None, "Text with one [MASK] for each hidden wordpiece.", required=True)
    do_lower_case: bool = option(True, "Lower-case and strip accents; true for uncased models.")
    top_k: int = option(5, "Number of candidates to print for each mask.", minimum=1, maximum=MAX_AXIS)

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StripCheckpointConfig:
    """Flags of `tools/strip_checkpoint.py`."""

    init_checkpoint: str | None = option(
        None, "Checkpoint of a training run.", required=True, waived_with="checkpoint", is_path=True
    )
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt to.", required=True, waived_with="output", is_path=True
    )
    checkpoint: str | None = option(None, "Old name of --init_checkpoint.", is_path=True)
    output: str | None = option(
        None, "Instead of --output_dir: name of the checkpoint to write, as in out/bert_model.ckpt.", is_path=True
    )

    def __post_init__(self):
        check_options(self)
        for name, other in (("init_checkpoint", "checkpoint"), ("output_dir", "output")):
            if getattr(self, name) is not None and getattr(self, other) is not None:
                raise UserError(f"--{name} and --{other} exclude each other; give one")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HfConversionConfig:
    """Flags of `tools/convert_hf_checkpoint.py`."""

    output_dir: str | None = option(None, "Folder for the files to write.", required=True, is_path=True)
    hf_dir: str | None = option(
        None,
        "Hugging Face folder to read: config.json, model.safetensors, vocab.txt.",
        only_with={"to_hf": (False,)},
        is_path=True,
    )
    to_hf: bool = option(False, "Write a Hugging Face folder, from --init_checkpoint, instead.")
    init_checkpoint: str | None = option(None, "Checkpoint to read, with --to_hf.", only_with=_TO_HF, is_path=True)
    bert_config_file: str | None = option(
        None, "The checkpoint's bert_config.json, with --to_hf.", only_with=_TO_HF, is_path=True
    )
    vocab_file: str | None = option(None, "The checkpoint's vocabulary, with --to_hf.", only_with=_TO_HF, is_path=True)
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
        "demo_classifier_output", "Folder for everything that the demo writes; it is emptied first.", is_path=True
    )
    random_seed: int = option(12345, "Seed of weights, dropout and the order of records.", minimum=0, maximum=MAX_SEED)

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Flags of `tools/demo.py`."""

    output_dir: str = option(
        "demo_output", "Folder for everything that the demo writes; it is emptied first.", is_path=True
    )
    random_seed: int = option(12345, "Seed of records, weights and the order of records.", minimum=0, maximum=MAX_SEED)

    def __post_init__(self):
        check_options(self)
