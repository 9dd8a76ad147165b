"""`TensorFlowModel`, which `Predictor` calls for SavedModels and for the models of runs; see also `EngineModel`."""

import dataclasses
import functools
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from official_bert.checkpoints.locate import BEST_FOLDER
from official_bert.config.bert_config import BertConfig
from official_bert.inference import finished_runs
from official_bert.inference.functional_models import KERAS, folder_of_model, is_functional, load_functional
from official_bert.inference.text_encoder import TextEncoder
from official_bert.modeling.encoder_options import UNPADDED
from official_bert.serving.engine_model import USUAL_SIZES
from official_bert.serving.saved_model import call_signature
from official_bert.serving.servable import Servable
from official_bert.serving.signatures import EXAMPLES, TEXT, Arrays, RequestError
from official_bert.serving.versions import NUM_POSITIONS, description
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.head import find_head
from official_bert.tasks.task_registry import TASKS, TaskRow
from official_bert.training.devices import dtype_policy, require_backend


@dataclasses.dataclass(kw_only=True)
class TensorFlowModel:
    """A model with its signatures; without a task it has only a text encoder."""

    signature: Callable[[str], Any] | None = None  # returns a signature by its name
    row: TaskRow | None = None
    text_names: Sequence[str] = ()
    takes_one_text: bool = False
    config: BertConfig = USUAL_SIZES
    num_positions: int = 0  # of an example
    text_encoder: TextEncoder | None = None
    source: Any = None  # keeps the weights and tables alive

    @classmethod
    def of_servable(cls, servable: Servable, path: str | None = None) -> "TensorFlowModel":
        head = None if path is None else find_head(path, servable.encoder)
        return cls(
            signature=functools.cache(servable.signature),
            row=TASKS.get(servable.task, KERAS),
            text_names=servable.text_names,
            takes_one_text=servable.takes_one_text,
            config=servable.bert_config,
            num_positions=servable.num_example_positions,
            text_encoder=TextEncoder(servable.encoder, servable.tokenizer, head=head),
            source=servable,
        )

    @property
    def task(self) -> str | None:
        return self.row and self.row.name

    @functools.cached_property
    def outputs(self) -> Mapping[str, Any]:
        """The outputs of the signature for texts, by name."""
        return {TEXT: self.signature(TEXT).structured_outputs}

    def answer(self, texts: Mapping[str, Sequence[bytes]]) -> Arrays:
        return call_signature(TEXT, self.signature(TEXT), texts)

    def answer_records(self, records: Sequence[bytes]) -> Arrays:
        try:
            return call_signature(EXAMPLES, self.signature(EXAMPLES), {"examples": records})
        except RequestError as error:
            raise UserError(f"it does not fit the model: {error}") from error

    def results(self, outputs: Arrays) -> list[Any]:
        return importlib.import_module(self.row.results_module).results(outputs)


def load(
    path: str,
    changes: dict[str, Any],
    check_unused: Callable[[str], None],
    *,
    use_best_checkpoint: bool,
    mixed_precision: str,
    top_k: int | None,
) -> TensorFlowModel:
    """Load a model; see `Predictor`.

    Args:
      check_unused: raises UserError if arguments for output folders are given; called with "FOLDER is an export".
    """
    path = folder_of_model(path)
    version = finished_runs.find_export(path)
    if version is not None:
        check_unused(f"{version} is an export")
        export, row, names = finished_runs.load_exported(version)
        said = description(version)
        return TensorFlowModel(
            signature=export.signatures.__getitem__,
            row=row,
            text_names=names,
            num_positions=said.get(NUM_POSITIONS, said.get("max_seq_length", USUAL_SIZES.max_length)),
            source=export,
        )
    if is_functional(path):
        check_unused(f"{path} is a functional model")
    require_backend("Predictor")
    choices = {
        "use_best_checkpoint": use_best_checkpoint,
        "encoder_options": dataclasses.replace(UNPADDED, dtype=dtype_policy(mixed_precision)),
    }
    run = finished_runs.find_run(path)
    if top_k is not None:
        changes = {**changes, "export_top_k": top_k, "do_export": True, "export_dir": path}  # the flag needs the others
        if not (run and hasattr(run.task.config_class, "export_top_k")):
            raise UserError("top_k is for words of [MASK] and for answers; a classifier gives all probabilities")
    if functional := load_functional(path):
        return TensorFlowModel.of_servable(functional)
    if run:
        folder = os.path.join(path, BEST_FOLDER) if use_best_checkpoint else path
        return TensorFlowModel.of_servable(finished_runs.load(run, changes=changes, **choices), folder)
    return TensorFlowModel(text_encoder=finished_runs.load_text_encoder(path, changes=changes, **choices))
