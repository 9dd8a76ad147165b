"""Flags of `run_sentence_encoder`, and a row of `LAYOUTS` for each published data set."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from official_bert.config.poolings import BM25, HEAD, poolings_of
from official_bert.config.sentence_modules import SPLADE
from official_bert.options.groups import EvaluationOptions, TableOptions, VectorOptions, listed_pooling_help
from official_bert.options.option import MAX_AXIS, option, options, redeclared
from official_bert.options.training import FinetuningOptions
from official_bert.support.errors import UserError

_LOSS_OPTIONS = ("temperature", "symmetric", "margin")
LOSSES: dict[str, tuple[str, ...]] = {
    "contrastive": ("temperature", "symmetric"),
    "cosine": (),
    "cosent": (),
    "triplet": ("margin",),
    "softmax": (),
    "distillation": (),  # see `soft_target_options`
}
"""The losses, each with the flags that it reads, of `_LOSS_OPTIONS`."""
REGULARIZER_WEIGHTS = ("query_regularizer_weight", "document_regularizer_weight")
_NEED_SCORES = ("cosine", "cosent", "distillation")


@dataclasses.dataclass(frozen=True)
class Layout:
    texts: tuple[str, ...]  # text columns, by name or by number from 0
    scores: tuple[str, ...] = ()  # score columns
    label: str | None = None  # class column; None if there is none
    max_score: float = 1.0  # divisor of the scores
    losses: tuple[str, ...] = ()  # the losses that a published data set allows, the default first
    keeps: str | None = None  # only rows of this class are read, as examples without a class; None to read all rows
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)  # file name of each split in the data folder
    has_header: bool = True  # whether the first row of TSV and CSV names the columns
    delimiter: str = ","  # between the columns of CSV

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.texts, *self.scores, *filter(None, [self.label]))


_FILES = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
LAYOUTS = {
    "sts-b": Layout(("sentence1", "sentence2"), ("score",), losses=("cosent", "cosine"), max_score=5.0, files=_FILES),
    "qnli": Layout(("question", "sentence"), losses=("contrastive",), label="label", keeps="entailment", files=_FILES),
}
TASK_NAMES = (*LAYOUTS, "custom")


@options(group="input", affects="data")
class SentenceEncoderConfig(TableOptions, VectorOptions, EvaluationOptions, FinetuningOptions):
    task: ClassVar[str] = "sentence_encoder"
    known_poolings: ClassVar[Sequence[str]] = (*poolings_of(HEAD), BM25)

    data_dir: str | None = option(None, "Folder with the files of the data set.", required=True, is_path=True)
    task_name: str = option("custom", f"Data set: {', '.join(TASK_NAMES[:-1])}, or custom.", choices=TASK_NAMES)
    train_file: str | None = option(None, "Custom: training file in --data_dir.", is_path=True)
    eval_file: str | None = option(None, "Custom: evaluation file in --data_dir.", is_path=True)
    predict_file: str | None = option(
        None, "Custom: file in --data_dir with the texts to compute vectors of.", is_path=True
    )
    text_columns: str | None = option(
        None,
        "Custom: comma-separated names or numbers (from 0) of the text columns: one for texts with a class; two for "
        "an anchor and its positive or for scored pairs; three or more for an anchor, its positive and hard negatives.",
    )
    score_columns: str | None = option(
        None,
        "Custom: comma-separated score columns: one for pairs or, with --loss=distillation, one for each text after "
        "the anchor.",
    )
    label_column: str | None = option(
        None, "Custom: column of the class: that of each text or, with --loss=softmax, of each pair."
    )
    max_score: float = option(
        1.0,
        "Custom: highest possible score; scores are divided by it to compare them with cosine similarities.",
        minimum=1e-6,
    )
    query_prefix: str = option("", "Prefix of every anchor, such as 'query: '.", group="text", affects="model")
    passage_prefix: str = option("", "Prefix of all other texts, such as 'passage: '.", group="text", affects="model")
    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces per text, including [CLS] and [SEP]; longer texts are truncated.",
        group="text",
        minimum=4,
        maximum=MAX_AXIS,
        affects="learning",
    )
    dense_size: int = option(
        0,
        "Units of a dense layer with tanh after pooling; 0 for none.",
        group="model",
        minimum=0,
        maximum=MAX_AXIS,
        affects="model",
    )
    pooling: str = redeclared(VectorOptions, "pooling", help=listed_pooling_help(known_poolings))
    normalize: bool = redeclared(
        VectorOptions, "normalize", default=True, help=f"Scale the vectors to length 1, except with --pooling={SPLADE}."
    )
    loss: str | None = option(
        None,
        "contrastive: pick the positive from all texts of the batch (in-batch negatives); cosine: squared error of "
        "the cosine similarity; cosent: order pairs by their scores; triplet: margin between distances; softmax: "
        "classify pairs; distillation: match another model's scores. Default: cosent for scored pairs, distillation "
        "for more scores, softmax for pairs with classes, otherwise contrastive.",
        choices=tuple(LOSSES),
        affects="learning",
        group="training",
    )
    temperature: float | None = option(
        None,
        "Divisor of the similarities before the softmax, for --loss=contrastive, distillation of several scores, or "
        f"--teacher with negatives. Default: 0.05, or 1 for the dot products of --pooling={SPLADE}.",
        minimum=1e-4,
        maximum=1000,
        affects="learning",
        group="training",
    )
    symmetric: bool = option(
        False,
        "For --loss=contrastive: also pick the anchor of each positive from all anchors.",
        affects="learning",
        group="training",
    )
    margin: float = option(1.0, "Margin of --loss=triplet.", minimum=0, affects="learning", group="training")
    query_regularizer_weight: float = option(
        5e-5,
        f"For --pooling={SPLADE}: weight of the FLOPS regularizer of the anchors, which makes their vectors sparse; it "
        "rises quadratically in the first third of the training.",
        minimum=0,
        affects="learning",
        group="training",
    )
    document_regularizer_weight: float = option(
        3e-5, "Likewise of the other texts.", minimum=0, affects="learning", group="training"
    )
    matryoshka_sizes: str | None = option(
        None,
        "Comma-separated vector sizes: the loss is also computed on vectors truncated to each size, so that "
        "the trained model's vectors can be truncated to them.",
        affects="learning",
        group="training",
    )
    retrieval_dir: str | None = option(
        None,
        "Folder in the BEIR layout (corpus.jsonl, queries.jsonl, qrels/) on which to evaluate retrieval.",
        group="evaluation",
        is_path=True,
        affects="selection",
    )
    retrieval_split: str = option(
        "test",
        "Split of --retrieval_dir: name of the file in qrels/, without .tsv.",
        group="evaluation",
        affects="selection",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.task_name != "custom":
            self.refuse(
                *("train_file", "eval_file", "predict_file", "text_columns", "score_columns", "label_column"),
                *("max_score", "has_header", "delimiter"),
                because="needs --task_name=custom",
            )
        self.refuse("distillation_temperature", because="cannot be used for sentence encoders; leave it out")
        read = {**self.loss_options, **(self.soft_target_options if self.teacher else {})}
        unread = [name for name in _LOSS_OPTIONS if name not in read]
        self.refuse(*unread, because=f"has no effect on --loss={self.loss_name}; leave it out")
        self._check_sparse()
        if self.vector_sizes and self.loss_name == "softmax":
            raise UserError("--matryoshka_sizes cannot be used with --loss=softmax; leave it out")
        if self.task_name != "custom":
            allowed = self.layout.losses
            if self.loss_name not in allowed:
                raise UserError(f"--task_name={self.task_name} has no --loss={self.loss}, only {' and '.join(allowed)}")
            return
        if not (self.do_train or self.is_evaluated or self.do_predict):
            return  # nothing is read
        if not self.text_names:
            raise UserError("--task_name=custom needs --text_columns, the columns of the texts")
        for name, flag in self.required_files.items():
            if not getattr(self, name):
                raise UserError(f"--{flag} needs --{name}")
        self._check_columns()

    def _check_sparse(self) -> None:
        if not self.is_sparse:
            self.refuse(*REGULARIZER_WEIGHTS, because=f"needs --pooling={SPLADE}")
            return
        self.refuse("dense_size", "matryoshka_sizes", because=f"cannot be used with --pooling={SPLADE}")
        if len(self.poolings) > 1 or self.loss_name == "softmax":
            raise UserError(f"--pooling={SPLADE} cannot be used with another pooling or --loss=softmax")

    def _check_columns(self) -> None:
        num_texts, num_scores = len(self.text_names), len(self.score_names)
        columns = [*self.text_names, *self.score_names, *filter(None, [self.label_column])]
        twice = next((name for name in columns if columns.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"--text_columns, --score_columns and --label_column name the column {twice} twice")
        if self.loss_name in _NEED_SCORES and not num_scores:
            raise UserError(f"--loss={self.loss_name} needs --score_columns")
        if self.loss_name not in _NEED_SCORES and num_scores:
            raise UserError(f"--loss={self.loss_name} does not use scores; leave out --score_columns")
        if self.loss_name in ("cosine", "cosent") and (num_texts, num_scores) != (2, 1):
            raise UserError(f"--loss={self.loss_name} needs two --text_columns and one score column")
        if self.loss_name == "distillation" and (num_texts < 2 or num_scores != num_texts - 1):
            raise UserError(
                "--loss=distillation needs one score column for each text column after the first, the anchor; "
                f"there are {num_texts} --text_columns and {num_scores} --score_columns"
            )
        if self.loss_name == "softmax" and (num_texts != 2 or not self.label_column):
            raise UserError("--loss=softmax needs two --text_columns and --label_column")
        if self.loss_name == "triplet" and num_texts < 3:
            raise UserError("--loss=triplet needs three --text_columns: anchor, positive and negative")
        if num_texts == 1 and not self.label_column and (self.do_train or self.is_evaluated):
            raise UserError("a single text column needs --label_column: texts of the same class are paired")
        if num_texts > 1 and self.label_column and self.loss_name != "softmax":
            raise UserError(f"--loss={self.loss_name} does not use classes of pairs; leave out --label_column")

    @property
    def layout(self) -> Layout:
        if self.task_name != "custom":
            return LAYOUTS[self.task_name]
        files = {"train": self.train_file, "dev": self.eval_file, "test": self.predict_file}
        return Layout(
            self.text_names,
            self.score_names,
            self.label_column,
            self.max_score,
            files={split: file for split, file in files.items() if file},
            has_header=self.has_header,
            delimiter=self.delimiter,
        )

    @property
    def loss_name(self) -> str:
        """The loss: --loss, or the default for the columns."""
        if self.loss:
            return self.loss
        if self.task_name != "custom":
            return self.layout.losses[0]
        if self.score_names:
            return "cosent" if len(self.text_names) == 2 else "distillation"
        return "softmax" if self.label_column and len(self.text_names) > 1 else "contrastive"

    @property
    def loss_options(self) -> dict[str, Any]:
        """The flags that the loss reads, with their values."""
        if self.loss_name == "distillation":
            return self.soft_target_options
        options = {name: getattr(self, name) for name in LOSSES[self.loss_name]}
        return options | ({"temperature": self._divisor} if "temperature" in options else {})

    @property
    def soft_target_options(self) -> dict[str, Any]:
        """The flags that distillation reads, with their values; the squared error of pairs needs none."""
        return {"temperature": self._divisor} if len(self.text_names) > 2 else {}

    @property
    def _divisor(self) -> float:
        return self.temperature or (1.0 if self.is_sparse else 0.05)

    @property
    def is_sparse(self) -> bool:
        return SPLADE in self.poolings

    @property
    def text_names(self) -> tuple[str, ...]:
        return _names(self.text_columns)

    @property
    def score_names(self) -> tuple[str, ...]:
        return _names(self.score_columns)

    @property
    def vector_sizes(self) -> tuple[int, ...]:
        names = _names(self.matryoshka_sizes)
        wrong = next((name for name in names if not name.isdecimal() or not int(name)), None)
        if wrong is not None:
            raise UserError(
                f"--matryoshka_sizes={self.matryoshka_sizes}: {wrong!r} is not a size; give numbers above 0"
            )
        return tuple(map(int, names))

    @property
    def layers_after(self) -> list[tuple[int, str] | None]:
        if self.is_sparse:
            return []
        return [*([(self.dense_size, "tanh")] if self.dense_size else []), *([None] if self.normalize else [])]

    @property
    def required_files(self) -> dict[str, str]:
        """See `FinetuningOptions`; --retrieval_dir replaces the evaluation file."""
        needed = super().required_files
        return {name: flag for name, flag in needed.items() if name != "eval_file" or not self.retrieval_dir}

    @property
    def prompts(self) -> dict[str, str]:
        """The prefixes, by the names that sentence-transformers gives them."""
        return {"query": self.query_prefix, "document": self.passage_prefix}

    @property
    def model_options(self) -> dict[str, Any]:
        return {"poolings": self.poolings, "layers_after": self.layers_after}


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",")) if value else ()
