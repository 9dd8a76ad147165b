"""The flags of `run_classifier`."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from official_bert.options.groups import HeadOptions, IdOptions
from official_bert.options.option import MAX_AXIS, MAX_PARTS, option, options
from official_bert.options.training import LabellingOptions
from official_bert.support.errors import UserError
from official_bert.tasks.classification.datasets import DATASETS, TASK_NAMES, check_task_name

BALANCED = "balanced"  # a value of class_weights
# Of zero-shot classification: the place of the label in a hypothesis, and the usual one.
PLACE, HYPOTHESIS = "{}", "This example is {}."


@options(group="input", affects="data")
class ClassifierConfig(IdOptions, HeadOptions, LabellingOptions):
    task: ClassVar[str] = "classification"

    data_dir: str | None = option(None, "Folder with the files of the data set.", required=True, is_path=True)
    task_name: str | None = option(
        None, f"Data set: {', '.join(TASK_NAMES[:-1])}, or {TASK_NAMES[-1]}.", required=True, affects="task"
    )
    train_file: str | None = option(None, "With --task_name=custom or xnli: training file in --data_dir.", is_path=True)
    eval_file: str | None = option(None, "With --task_name=custom: evaluation file in --data_dir.", is_path=True)
    predict_file: str | None = option(
        None, "With --task_name=custom: file in --data_dir with the texts to predict.", is_path=True
    )
    text_a_column: str | None = option(None, "Custom: name or number (from 0) of the text column.", affects="task")
    text_b_column: str | None = option(
        None, "Custom: name or number of the column of the second text, for pairs.", affects="task"
    )
    label_column: str | None = option(None, "Custom: name or number of the label column.")
    labels: str | None = option(None, "Custom: comma-separated list of labels; by default those of the training file.")
    multi_label: bool = option(
        False, "Custom: an example has any number of labels, separated by commas.", affects="model"
    )
    regression: bool = option(False, "Custom: the label is a number.", affects="model")
    ranking: bool = option(
        False,
        "Custom, pairs: also score how the second texts of each first text are ranked, by the number or the "
        "probability of the second of two labels: MRR and nDCG of the first 10.",
        group="rarely needed",
        affects="use",
    )
    xnli_language: str = option(
        "zh", "With --task_name=xnli: language code, as in its files: ar, de, en ...", group="rarely needed"
    )
    long_text: str = option(
        "truncate",
        "How to handle texts longer than --max_seq_length.",
        group="text",
        choices=("truncate", "window"),
        affects="model",
    )
    doc_stride: int | None = option(
        None,
        "With --long_text=window: number of wordpieces between the starts of windows; by default half a window.",
        group="long texts",
        minimum=1,
        maximum=MAX_AXIS,
    )
    max_windows: int = option(
        8,
        "With --long_text=window: maximum number of windows per text; the rest of the text is ignored.",
        group="long texts",
        minimum=2,
        maximum=MAX_PARTS,
        affects="use",
    )
    window_pooling: str = option(
        "mean",
        "With --long_text=window: how to pool the scores of the windows.",
        group="long texts",
        choices=("mean", "max"),
        affects="head",
    )
    feature_layers: str | None = option(
        None,
        "Encoder layers that the classifier reads, averaged over the positions; by default the output of the pooler.",
        group="model",
        choices=("last", "second_to_last", "sum_last_four", "concat_last_four", "weighted_sum"),
        affects="head",
    )
    class_weights: str | None = option(
        None,
        "Weights of the classes in the training loss: a comma-separated list in the order of the labels, or balanced "
        "for weights inversely proportional to the numbers of training examples.",
        group="training",
        affects="learning",
    )
    label_smoothing: float = option(
        0.0,
        "Fraction of each training label that is spread evenly over all labels.",
        group="optimizer and loss",
        minimum=0,
        maximum=0.99,
        affects="learning",
    )
    focal_gamma: float = option(
        0.0,
        "Exponent of the focal loss, such as 2: the higher, the less weight easy examples have; 0 for the usual loss.",
        group="optimizer and loss",
        minimum=0,
        maximum=100,
        affects="learning",
    )
    tune_thresholds: bool = option(
        False,
        "With two labels or --multi_label: predict a label if its probability exceeds the threshold that maximizes the "
        "macro F1 on the dev set, instead of 0.5; stored and used by later predictions and exports.",
        group="rarely needed",
        affects="nothing",
    )
    glue_submission: bool = option(
        False,
        "Also write the predictions in the submission format of the GLUE website.",
        group="rarely needed",
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        check_task_name(self.task_name)
        self._check_data_set()
        self._check_head()

    def _check_data_set(self) -> None:
        name = self.task_name.lower()
        if name not in ("custom", "xnli"):
            self.refuse("train_file", because="needs --task_name=custom or xnli")
        if name != "xnli":
            self.refuse("xnli_language", because="needs --task_name=xnli")
        if name != "custom":
            self.refuse(
                *("eval_file", "predict_file", "text_a_column", "text_b_column", "label_column", "labels"),
                *("multi_label", "regression", "ranking", "has_header", "delimiter", "id_column"),
                because="needs --task_name=custom",
            )
        elif not self.text_a_column:
            raise UserError("--task_name=custom needs --text_a_column")
        else:
            for file, flag in self.required_files.items():
                if not getattr(self, file):
                    raise UserError(f"--task_name=custom needs --{file} for --{flag}")
        if not self.text_b_column:
            self.refuse("ranking", because="needs --text_b_column")
        if not self.do_eval:
            self.refuse("tune_thresholds", because="needs --do_eval")
        if not self.do_predict:
            self.refuse("glue_submission", because="needs --do_predict")
        if self.glue_submission and (name not in DATASETS or not DATASETS[name].glue_name):
            raise UserError(f"--glue_submission: {name} is not one of GLUE's data sets")
        if self.multi_label and self.regression:
            raise UserError("--multi_label and --regression exclude each other")
        if self.multi_label:
            self.refuse("ranking", because="cannot be used with --multi_label")
        if self.regression:
            self.refuse("labels", "tune_thresholds", because="cannot be used with --regression")
        if self.problem != "single_label":
            self.refuse(
                *("class_weights", "label_smoothing", "focal_gamma"), because=f"cannot be used with --{self.problem}"
            )
        if self.labels is not None and "" in self.label_names:
            raise UserError(f"--labels={self.labels} contains an empty name")

    def _check_head(self) -> None:
        if self.long_text != "window":
            self.refuse("doc_stride", "max_windows", "window_pooling", because="needs --long_text=window")
        if not self.trainable_encoder and self.long_text == "window":
            raise UserError("--notrainable_encoder and --long_text=window exclude each other")
        if self.head == "bilstm" and self.feature_layers is not None:
            raise UserError("--head=bilstm reads the last layer at every position; leave --feature_layers out")
        if self.head == "bilstm" and not self.trainable_encoder:
            raise UserError("--head=bilstm and --notrainable_encoder exclude each other; choose one")
        _ = self.weights_of_classes  # raises if it is not a list of numbers
        max_tokens = self.max_seq_length - 2  # excluding [CLS] and [SEP]
        if self.doc_stride and self.doc_stride > max_tokens:
            raise UserError(
                f"--doc_stride={self.doc_stride} would skip wordpieces: a window of --max_seq_length="
                f"{self.max_seq_length} has room for {max_tokens}; give at most {max_tokens}, or leave the flag out "
                "for half of it"
            )

    @staticmethod
    def flags_of_hugging_face(config: Mapping[str, Any], max_seq_length: int) -> dict[str, Any]:
        """Return the flags for a model with this Hugging Face `config.json`; see `TaskRow.hf_flags`."""
        problem = config.get("problem_type")
        num_classes = len(config.get("id2label") or ()) or config.get("num_labels", 2)
        if problem == "regression" and num_classes != 1:
            raise UserError(f"problem_type is regression with {num_classes} numbers; a regression here predicts one")
        return {
            "task_name": "custom",
            "text_a_column": "0",
            "text_b_column": "1",
            "multi_label": problem == "multi_label_classification",
            "regression": num_classes == 1 and problem != "multi_label_classification",
            "max_seq_length": max_seq_length,
        }

    @property
    def model_options(self) -> dict[str, Any]:
        return {
            **super().model_options,
            "head_dropout": self.head_dropout,
            "feature_layers": self.feature_layers,
            "window_length": self.max_seq_length if self.long_text == "window" else None,
            "window_pooling": self.window_pooling,
        }

    @property
    def weights_of_classes(self) -> list[float] | None:
        if self.class_weights in (None, BALANCED):
            return None
        try:
            weights = [float(weight) for weight in self.class_weights.split(",")]
        except ValueError:
            weights = []
        if not weights or not all(1e-6 <= weight <= 1e6 for weight in weights):
            raise UserError(
                f"--class_weights={self.class_weights}: must be {BALANCED}, or a number from 0.000001 to 1000000 for "
                "each label, separated by commas"
            )
        return weights

    @property
    def label_names(self) -> list[str]:
        return [name.strip() for name in self.labels.split(",")]

    @property
    def problem(self) -> str:
        """The problem type of --task_name=custom, as in the table of data sets."""
        return "multi_label" if self.multi_label else "regression" if self.regression else "single_label"


def check_labels(labels: Sequence[str], hypothesis: str) -> None:
    if not isinstance(labels, (list, tuple)) or not all(isinstance(text, str) for text in (*labels, hypothesis)):
        raise UserError(f"labels={labels!r:.80}, hypothesis={hypothesis!r:.80}: give a list of strings, and a string")
    if len(set(labels)) < len(labels) or not labels or not all(map(str.strip, labels)):
        raise UserError(f"labels={','.join(labels)}: give different labels, none of them empty")
    if PLACE not in hypothesis:
        raise UserError(f"hypothesis={hypothesis!r} has no place for the label; write it as {PLACE}")
