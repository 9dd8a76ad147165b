"""Flags of `run_squad` and of answering questions."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from official_bert.options.groups import HeadOptions
from official_bert.options.option import MAX_AXIS, MAX_PARTS, Options, option, options, redeclared
from official_bert.options.training import FinetuningOptions
from official_bert.support.errors import UserError


@options(group="text", affects="data")
class AnswerOptions(Options):
    max_seq_length: int = option(
        384,
        "Maximum number of wordpieces per window, including the question, [CLS] and [SEP].",
        minimum=5,
        maximum=MAX_AXIS,
        affects="learning",
    )
    doc_stride: int = option(
        128, "Number of wordpieces between the starts of windows of a long text.", minimum=1, maximum=MAX_AXIS
    )
    max_query_length: int = option(
        64, "Maximum number of wordpieces per question; longer questions are truncated.", minimum=1, maximum=MAX_AXIS
    )
    max_answer_length: int = option(
        30, "Maximum number of wordpieces per answer.", group="output", minimum=1, maximum=MAX_AXIS, affects="use"
    )
    version_2_with_negative: bool = option(False, "Questions may have no answer, as in SQuAD 2.0.", group="input")


@options(group="evaluation", affects="data")
class SquadConfig(HeadOptions, FinetuningOptions, AnswerOptions):
    task: ClassVar[str] = "question_answering"

    train_file: str | None = option(
        None,
        "Questions to train on, in SQuAD's JSON format; of several answers to a question the first is learnt.",
        group="input",
        is_path=True,
    )
    predict_file: str | None = option(
        None,
        "Questions to answer, in SQuAD's JSON format; scored if the file has the answers.",
        group="input",
        is_path=True,
    )
    do_predict: bool = redeclared(FinetuningOptions, "do_predict", help="Answer the questions of --predict_file.")
    n_best_size: int = option(
        20, "Number of answers per question in nbest_predictions.json.", group="output", minimum=1, affects="use"
    )
    verbose_logging: bool = option(
        False,
        "Log why the exact text of a predicted answer could not be found in the context.",
        group="output",
        affects="nothing",
    )
    null_score_diff_threshold: float | Literal["auto"] = option(
        0.0,
        "With --version_2_with_negative: predict no answer if the null odds exceed this; auto: the best for F1.",
        group="output",
        affects="use",
    )

    dataset: str = option(
        "squad",
        "Data set whose answer normalization is used for scoring.",
        choices=("squad", "korquad", "klue"),
        affects="use",
    )
    drop_out_of_window: bool = option(
        False,
        "Leave windows without the answer out of training, or, in version 2.0, train them as having no answer.",
        group="rarely needed",
    )
    answer_alignment: str = option(
        "reference",
        "How to convert wordpieces to text: as Google's BERT does, or by their offsets in the context, which is exact "
        "and always used with --spm_model_file.",
        group="output",
        choices=("reference", "offsets"),
        affects="use",
    )
    dynamic_padding: bool = redeclared(
        FinetuningOptions,
        "dynamic_padding",
        help="Batch windows of similar length and pad each batch to its longest; see docs/squad.md. Off on TPU.",
    )
    ensemble_checkpoints: str | None = option(
        None,
        "Comma-separated checkpoints: predict with the mean of their logits instead of the checkpoint in --output_dir.",
        is_path=True,
        affects="nothing",
    )
    num_processes: int = option(
        0,
        "Number of processes for tokenization; 0 for one per core.",
        group="rarely needed",
        minimum=0,
        maximum=MAX_PARTS,
        affects="nothing",
    )
    export_top_k: int = option(
        5,
        "With --do_export: number of answers to return per question.",
        group="export",
        minimum=1,
        maximum=MAX_AXIS,
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.do_export:
            self.refuse("export_top_k", because="needs --do_export")
        for name, flag in self.required_files.items():
            if not getattr(self, name):
                raise UserError(f"--{flag} needs --{name}{', whose questions it scores' * (flag == 'eval_steps')}")
        if self.null_score_diff_threshold == "auto" and not self.version_2_with_negative:
            raise UserError("--null_score_diff_threshold=auto needs --version_2_with_negative")
        if self.ensemble_checkpoints is not None and (
            not self.do_predict or self.do_train or self.use_best_checkpoint or not all(self.ensemble)
        ):
            raise UserError(
                f"--ensemble_checkpoints={self.ensemble_checkpoints}: give comma-separated checkpoints; "
                "needs --do_predict, and cannot be used with --do_train or --use_best_checkpoint"
            )

        if self.ensemble_checkpoints is not None and self.do_export:
            raise UserError("--do_export exports one checkpoint; leave --ensemble_checkpoints out")

    @classmethod
    def flags_of_hugging_face(cls, config: Mapping[str, Any], max_seq_length: int) -> dict[str, Any]:
        """Return the flags for a Hugging Face model; see `TaskRow.hf_flags`."""
        del config
        length = min(cls.max_seq_length, max_seq_length)
        return {
            "max_seq_length": length,
            "doc_stride": min(cls.doc_stride, length // 2),
            "max_query_length": min(cls.max_query_length, length // 2),
        }

    @property
    def is_evaluated(self) -> bool:
        """True if the prediction questions are scored during training."""
        return self.do_train and self.eval_steps > 0

    @property
    def required_files(self) -> dict[str, str]:
        of_predict = "do_predict" if self.do_predict else "eval_steps" if self.is_evaluated else None
        required_by = {"train_file": "do_train" if self.do_train else None, "predict_file": of_predict}
        return {name: flag for name, flag in required_by.items() if flag}

    @property
    def ensemble(self) -> list[str]:
        return [path.strip() for path in self.ensemble_checkpoints.split(",")] if self.ensemble_checkpoints else []
