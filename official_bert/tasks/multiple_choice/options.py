"""Flags of `run_multiple_choice`."""

from typing import Any, ClassVar

from official_bert.options.option import option, options
from official_bert.options.training import LabellingOptions
from official_bert.support.errors import UserError

TASK_NAMES = ("swag", "race", "arc-easy", "arc-challenge", "commonsenseqa", "copa", "custom")


@options(group="input", affects="data")
class MultipleChoiceConfig(LabellingOptions):
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
    has_header: bool = option(True, "Custom: the first row of a TSV or CSV file names its columns.")

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_state_weight:
            raise UserError("--hidden_state_weight cannot be used for multiple choice; leave it out")
        if self.task_name != "custom":
            self.refuse(
                *("context_column", "question_column", "choice_columns", "label_column", "has_header"),
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
    def has_question(self) -> bool:
        """True if a text precedes each choice."""
        return self.question_column is not None or self.task_name in ("swag", "race", "copa")

    @property
    def model_options(self) -> dict[str, Any]:
        """The arguments of `MultipleChoiceModel`."""
        return {"head_dropout": self.head_dropout}
