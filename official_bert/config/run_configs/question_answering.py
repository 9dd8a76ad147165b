"""Flags of `run_squad.py`, and of the tools that answer and score."""

from typing import ClassVar, Literal

from official_bert.config.options import MAX_AXIS, MAX_PARTS, check_options, option, options
from official_bert.config.run_configs.training import (
    EXPORT,
    FinetuningOptions,
    HeadOptions,
    TokenizerOptions,
    bert_config_option,
)
from official_bert.support.errors import UserError


@options(group="text")
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
    max_answer_length: int = option(
        30, "Maximum number of wordpieces per answer.", group="output", minimum=1, maximum=MAX_AXIS
    )
    version_2_with_negative: bool = option(False, "Questions may have no answer, as in SQuAD 2.0.", group="input")


@options(group="evaluation")
class SquadConfig(FinetuningOptions, AnswerOptions):
    """Flags of `run_squad.py`."""

    task: ClassVar[str] = "question_answering"

    train_file: str | None = option(None, "Questions to train on, in SQuAD's JSON format.", group="input", is_path=True)
    predict_file: str | None = option(
        None,
        "Questions to answer, in SQuAD's JSON format; scored if the file has the answers.",
        group="input",
        is_path=True,
    )
    do_predict: bool = option(False, "Answer the questions of --predict_file.")
    n_best_size: int = option(
        20, "Number of answers per question in nbest_predictions.json.", group="output", minimum=1
    )
    verbose_logging: bool = option(
        False, "Log why the exact text of a predicted answer could not be found in the context.", group="rarely needed"
    )
    null_score_diff_threshold: float | Literal["auto"] = option(
        0.0,
        "With --version_2_with_negative: predict no answer if the null odds exceed this; auto: the best for F1.",
        group="output",
    )

    dataset: str = option("squad", "Data set whose answer normalization the scores use.", choices=("squad", "korquad"))
    drop_out_of_window: bool = option(
        False,
        "Leave windows without the answer out of training, or, in version 2.0, train them as having no answer.",
        group="training",
    )
    answer_alignment: str = option(
        "reference",
        "How to turn wordpieces into text: as Google's BERT does, or by their offsets in the context, which is exact "
        "and what --spm_model_file always does.",
        group="output",
        choices=("reference", "offsets"),
    )
    dynamic_padding: bool = option(
        True,
        "Batch windows of similar length and pad each batch to its longest; see docs/squad.md. Off on TPU.",
        group="devices",
    )
    ensemble_checkpoints: str | None = option(
        None,
        "Comma-separated checkpoints: predict with the mean of their logits, not with the checkpoint in --output_dir.",
        is_path=True,
    )
    num_processes: int = option(
        0,
        "Number of processes for tokenization; 0 for one per core.",
        group="rarely needed",
        minimum=0,
        maximum=MAX_PARTS,
    )
    export_top_k: int = option(
        5,
        "With --do_export: number of answers to return per question.",
        group="export",
        minimum=1,
        only_with=EXPORT,
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


@options(group="text")
class AnswerConfig(AnswerOptions, TokenizerOptions, HeadOptions):
    """Flags of `tools/answer.py`."""

    bert_config_file: str | None = bert_config_option()
    doc_stride: int | None = option(
        None,
        "Number of wordpieces between the starts of windows of a long text; by default 128, less for short windows.",
        minimum=1,
        maximum=MAX_AXIS,
    )
    init_checkpoint: str | None = option(None, "Checkpoint trained by run_squad.py.", required=True, is_path=True)
    context_file: str | None = option(None, "Text file to find answers in.", required=True, is_path=True)
    question: str | None = option(
        None, "The question; by default questions are read from standard input, one per line.", group="input"
    )
    top_k: int = option(5, "Number of answers to print.", group="output", minimum=1, maximum=MAX_AXIS)

    def __post_init__(self):
        check_options(self)


@options(group="input")
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
