"""Table of tasks, one row each, used to load finished runs and exports.

A run writes its task's name to `run_config.json`, an export to `official_bert.json`. Older runs and exports without
the name are recognized by a flag or output that was unique to the task.

In a task's folder, the module `task` has `TEXT_MODEL`, a `TextModel`, and the module `servable` has `servable_of_run`,
which loads a `TrainedModel` as a `Servable` for TensorFlow.
The module `reader`, which imports no TensorFlow, has `READER`, a `Reader`, and `results(outputs)`, which converts the
outputs for N texts, name to array [N, ...], to a list of N results.
"""

import dataclasses
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from official_bert.modeling.heads import ClassificationModel, MultipleChoiceModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.sentence import SentenceModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.multiple_choice.options import MultipleChoiceConfig
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.question_answering.options import SquadConfig
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
from official_bert.tasks.tagging.options import TaggingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRow:
    name: str  # name in `run_config.json`, also of the task's folder
    config_class: type  # the flags of its command
    model_class: type  # the model class
    # the Hugging Face model head that predicts this task's output; see `HuggingFace.parts`; None if there is none
    hf_head: str | None = None
    # returns the equivalent flags for a Hugging Face model, given its `config.json` keys and maximum number of
    # positions
    hf_flags: Callable[[Mapping[str, Any], int], dict[str, Any]] = lambda _, length: {"max_seq_length": length}
    text_flags: tuple[str, ...] = ()  # the flags with the columns of its texts, in the order of the model's
    old_flag: str | None = None  # a flag that is unique to this task among older runs; None if there is none
    old_outputs: frozenset[str] = frozenset()  # outputs that are unique to this task among older exports

    module: str | None = None  # the module with `READER` and `results`, if it is not the task's `reader`

    @property
    def text_model(self) -> Any:
        return importlib.import_module(f"official_bert.tasks.{self.name}.task").TEXT_MODEL

    @property
    def servable_module(self) -> Any:
        return importlib.import_module(f"official_bert.tasks.{self.name}.servable")

    @property
    def reader_module(self) -> Any:
        return importlib.import_module(self.module or f"official_bert.tasks.{self.name}.reader")


TASKS = {
    row.name: row
    for row in (
        TaskRow(
            name="classification",
            config_class=ClassifierConfig,
            model_class=ClassificationModel,
            hf_head="classifier",
            hf_flags=ClassifierConfig.flags_of_hugging_face,
            text_flags=("text_a_column", "text_b_column"),
            old_flag="task_name",
            old_outputs=frozenset({"classes", "scores"}),
        ),
        TaskRow(
            name="question_answering",
            config_class=SquadConfig,
            model_class=SpanModel,
            hf_head="span head",
            hf_flags=SquadConfig.flags_of_hugging_face,
            old_flag="max_query_length",
            old_outputs=frozenset({"answers"}),
        ),
        TaskRow(
            name="tagging",
            config_class=TaggingConfig,
            model_class=TaggingModel,
            hf_head="tagger",
            old_flag="document_context",
            old_outputs=frozenset({"tags"}),
        ),
        TaskRow(
            name="pretraining",
            config_class=PretrainingConfig,
            model_class=PretrainingModel,
            hf_head="masked-LM head",
            old_flag="max_predictions_per_seq",
            old_outputs=frozenset({"words"}),
        ),
        TaskRow(
            name="multiple_choice",
            config_class=MultipleChoiceConfig,
            model_class=MultipleChoiceModel,
            hf_head="multiple-choice head",
            text_flags=("context_column", "question_column", "choice_columns"),
        ),
        TaskRow(name="sentence_encoder", config_class=SentenceEncoderConfig, model_class=SentenceModel),
    )
}


def task_of_run(name: str | None, flags: Collection[str]) -> TaskRow | None:
    by_flags = (row for row in TASKS.values() if row.old_flag in flags)
    return TASKS.get(name) if name else next(by_flags, None)


def task_of_export(name: str | None, outputs: Collection[str]) -> TaskRow | None:
    """Return the task of an exported model; `outputs` are the output names of its signature `text`."""
    by_outputs = (row for row in TASKS.values() if not row.old_outputs.isdisjoint(outputs))
    return TASKS.get(name) if name else next(by_outputs, None)
