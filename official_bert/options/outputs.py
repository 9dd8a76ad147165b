"""The check of the files that a command writes, before it runs: none may be one that it reads."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator

from official_bert.options.option import Options
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.manifest import find_inputs

_FOLDERS = ("init_checkpoint", "teacher")  # flags of models besides those named `..._dir`
# Files of a model, a run or an export; others in such a folder, as earlier predictions, may be replaced.
_OF_MODEL = re.compile(
    r"checkpoint|graph\.pbtxt|saved_model\.pb|fingerprint\.pb|.+\.(index|meta|data-\d+-of-\d+)|model\.(tflite|onnx)"
    r"|.+\.(safetensors|bin|h5|keras|index\.json)|.*config.*\.json|.*tokenizer.*\.json|special_tokens_map\.json"
    r"|.*vocab.*\.(txt|json)|.+\.(spm|model)|merges\.txt|(bpe|modules|added_tokens|task)\.json"
    r"|(labels|thresholds|evaluations)\.json|metrics\.jsonl|eval_results\.txt|events\.out\.tfevents\..+"
)


def check_outputs(config: Options) -> None:
    """Raise unless the output files can be written, and none would replace an input or a file of an input model."""
    fields = [field for field in dataclasses.fields(config) if field.metadata["is_path"]]
    outputs = config.output_files
    if not outputs:
        return
    given = {field.name: getattr(config, field.name) for field in fields if not field.metadata["is_output"]}
    inputs = [path for name, value in given.items() if value for path in _inputs(name, value, outputs)]
    writing.check_outputs(outputs, inputs, name=next(field.name for field in fields if field.metadata["is_output"]))


def _inputs(name: str, value: str, outputs: list[str]) -> Iterator[str]:
    """Yield the files that a flag names, and those of the outputs that are files of the model that it names."""
    if not (name.endswith("_dir") or name in _FOLDERS):
        with contextlib.suppress(UserError):  # the check of the command describes what is wrong
            yield from [value] if os.path.isfile(value) else find_inputs(value)
        return
    for path in value.split(","):
        folder = os.path.realpath(path if files.is_folder(path) else os.path.dirname(path))
        for output in outputs:
            place = os.path.realpath(output)
            is_near = os.path.dirname(place) == os.path.dirname(folder) or place.startswith(os.path.join(folder, ""))
            if is_near and _OF_MODEL.fullmatch(os.path.basename(place)):  # the model of RUN/best is RUN's
                yield output
