"""Flags of `run_multiple_choice`, and a row of `LAYOUTS` for each published data set."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from official_bert.options.groups import IdOptions
from official_bert.options.option import option, options
from official_bert.options.training import LabellingOptions
from official_bert.support.errors import UserError


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns and files of a data set."""

    context: str  # column of the context; in JSON, `a.b` is the key b of the object a
    # columns of the choices. A value is a text, or a list of texts or of objects with `text` and `label`, or an
    # object of lists `text` and `label`
    choices: tuple[str, ...]
    # column of the right choice: its name, its number from 0, or its letter from A; None if there is none
    label: str | None = None
    question: str | None = None  # column of the text before each choice; None if there is none
    # file name of each split in the data folder; or a folder, whose `.txt` files hold an object each
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_header: bool = True  # whether the first row of TSV and CSV names the columns
    delimiter: str = ","  # between the columns of CSV
    id: str | None = None  # column of the ids of the test split; None for the first of `id`, `example_id` and `idx`
    phrases: Mapping[str, str] | None = None  # texts that replace the values of the question column
    # whether a row has lists of questions, their choices and labels, as in RACE's own files
    shares_context: bool = False


def _files(pattern: str, *names: str) -> dict[str, str]:
    return {split: pattern.format(name) for split, name in zip(("train", "dev", "test"), names, strict=True)}


_QUESTION_OBJECTS = Layout("question.stem", ("question.choices",), "answerKey")
LAYOUTS = {
    "swag": Layout(
        "sent1",
        tuple(f"ending{number}" for number in range(4)),
        "label",
        question="sent2",
        files=_files("{}.csv", "train", "val", "test"),
    ),
    "race": Layout(
        "article",
        ("options",),
        "answer",
        question="question",
        files=_files("{}", "train", "dev", "test"),
        shares_context=True,
    ),
    "arc-easy": dataclasses.replace(_QUESTION_OBJECTS, files=_files("ARC-Easy-{}.jsonl", "Train", "Dev", "Test")),
    "arc-challenge": dataclasses.replace(
        _QUESTION_OBJECTS, files=_files("ARC-Challenge-{}.jsonl", "Train", "Dev", "Test")
    ),
    "commonsenseqa": dataclasses.replace(
        _QUESTION_OBJECTS, files=_files("{}.jsonl", "train_rand_split", "dev_rand_split", "test_rand_split_no_answers")
    ),
    "copa": Layout(
        "premise",
        ("choice1", "choice2"),
        "label",
        question="question",
        files=_files("{}.jsonl", "train", "val", "test"),
        phrases={"cause": "What was the cause of this?", "effect": "What happened as a result?"},
    ),
}
TASK_NAMES = (*LAYOUTS, "custom")


@options(group="input", affects="data")
class MultipleChoiceConfig(IdOptions, LabellingOptions):
    task: ClassVar[str] = "multiple_choice"

    data_dir: str | None = option(None, "Folder with the files of the data set.", required=True, is_path=True)
    task_name: str = option(
        "custom", f"Data set: {', '.join(TASK_NAMES[:-1])}, or custom.", choices=TASK_NAMES, affects="task"
    )
    train_file: str | None = option(None, "Training file in --data_dir, if not the data set's own.", is_path=True)
    eval_file: str | None = option(None, "Evaluation file in --data_dir, if not the data set's own.", is_path=True)
    predict_file: str | None = option(
        None, "File in --data_dir with the examples to predict, if not the data set's own.", is_path=True
    )
    context_column: str | None = option(None, "Custom: name or number (from 0) of the column of the context.")
    question_column: str | None = option(
        None,
        "Custom: column of a text before each choice, such as a question or the beginning of a sentence.",
        affects="task",
    )
    choice_columns: str | None = option(
        None,
        "Custom: comma-separated columns of the choices; the last ones may be empty. In JSON Lines and Parquet, a "
        "column may hold a list of choices.",
    )
    label_column: str | None = option(
        None, "Custom: column of the right choice: its number from 0, or its letter from A."
    )

    def __post_init__(self):
        super().__post_init__()
        if self.task_name != "custom":
            self.refuse(
                *("context_column", "question_column", "choice_columns", "label_column", "has_header", "delimiter"),
                because="needs --task_name=custom",
            )
            return
        if not self.required_files:
            return
        for name in ("context_column", "choice_columns"):
            if not getattr(self, name):
                raise UserError(f"--task_name=custom needs --{name}")
        for name, flag in self.required_files.items():
            if not getattr(self, name):
                raise UserError(f"--{flag} needs --{name}")
            if name != "predict_file" and not self.label_column:
                raise UserError(f"--{flag} needs --label_column")
        columns = [self.context_column, self.question_column, *self.choice_names, self.label_column]
        twice = next((name for name in columns if name is not None and columns.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"the flags name the column {twice} twice")

    @property
    def choice_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.choice_columns.split(",")) if self.choice_columns else ()

    @property
    def layout(self) -> Layout:
        files = {"train": self.train_file, "dev": self.eval_file, "test": self.predict_file}
        files = {split: file for split, file in files.items() if file}
        if self.task_name != "custom":
            layout = LAYOUTS[self.task_name]
            return dataclasses.replace(layout, files={**layout.files, **files}, id=self.id_column)
        return Layout(
            self.context_column,
            self.choice_names,
            self.label_column,
            question=self.question_column,
            files=files,
            has_header=self.has_header,
            delimiter=self.delimiter,
            id=self.id_column,
        )

    @property
    def has_question(self) -> bool:
        """True if a text precedes each choice."""
        return self.layout.question is not None

    @property
    def model_options(self) -> dict[str, Any]:
        return {"head_dropout": self.head_dropout}
