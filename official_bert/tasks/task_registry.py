"""The table of tasks, one row each, from which finished runs and exports are loaded.

A run writes the name of its task into `run_config.json`, an export into `official_bert.json`. Those of earlier
versions, which do not contain it, are recognized by a flag or an output that no other task had then.

The module `servable` of a task's folder has two functions. `servable_of_run(config, bert_config, tokenizer,
checkpoint, encoder_options)` loads what a run trained as a `Servable`, and `results(outputs)` turns what that returns
for N texts, name to array [N, ...], into a list of N results.
"""

import dataclasses
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.classifier import ClassificationModel
from official_bert.modeling.encoder_options import UNPADDED, EncoderOptions
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.span import SpanModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.serving.servable import Servable
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.question_answering.options import SquadConfig
from official_bert.tasks.tagging.options import TaggingConfig
from official_bert.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRow:
    """A task.

    Attributes:
      name: as in `run_config.json`; its folder has the same name.
      config_class: the flags of its script.
      model_class: the model.
      hf_head: the part of Hugging Face's models whose output is what this task predicts; see `HuggingFace.parts`.
      hf_flags: gives the flags of the run that would have left such a model, from the keys of its `config.json` and the
        most positions it can read.
      old_flag: a flag that of the runs of earlier versions only those of this task have; None if there are none.
      old_outputs: likewise what of the exports of earlier versions only those of this task give.
    """

    name: str
    config_class: type
    model_class: type
    hf_head: str
    hf_flags: Callable[[Mapping[str, Any], int], dict[str, Any]] = lambda _, length: {"max_seq_length": length}
    old_flag: str | None = None
    old_outputs: frozenset[str] = frozenset()

    def servable_of_run(
        self,
        config: Any,
        bert_config: BertConfig,
        tokenizer: Tokenizer,
        checkpoint: str,
        encoder_options: EncoderOptions = UNPADDED,
    ) -> Servable:
        """Load what a run trained.

        Args:
          config: the flags it was trained with.
          bert_config: its architecture.
          tokenizer: its tokenizer.
          checkpoint: its weights.
          encoder_options: how the encoder computes.

        Raises:
          UserError: the checkpoint cannot be read, or is of another model.
        """
        return self._servable_module.servable_of_run(config, bert_config, tokenizer, checkpoint, encoder_options)

    def results(self, outputs: Mapping[str, np.ndarray]) -> list[Any]:
        """Turn the outputs of a model that read N texts into N results."""
        return self._servable_module.results(outputs)

    @property
    def _servable_module(self) -> Any:
        return importlib.import_module(f"official_bert.tasks.{self.name}.servable")


TASKS = {
    row.name: row
    for row in (
        TaskRow(
            name="classification",
            config_class=ClassifierConfig,
            model_class=ClassificationModel,
            hf_head="classifier",
            hf_flags=ClassifierConfig.flags_of_hugging_face,
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
    )
}


def task_of_run(name: str | None, flags: Collection[str]) -> TaskRow | None:
    """Return the task of a run.

    Args:
      name: as the run wrote it down; None if it did not.
      flags: names of its flags.

    Returns:
      The row; None if there is none for it.
    """
    by_flags = (row for row in TASKS.values() if row.old_flag in flags)
    return TASKS.get(name) if name else next(by_flags, None)


def task_of_export(name: str | None, outputs: Collection[str]) -> TaskRow | None:
    """Return the task of an exported model; see `task_of_run`. `outputs` names the outputs of its signature `text`."""
    by_outputs = (row for row in TASKS.values() if not row.old_outputs.isdisjoint(outputs))
    return TASKS.get(name) if name else next(by_outputs, None)
