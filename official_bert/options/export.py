"""Flags for exporting a trained model."""

from typing import Any

from official_bert.options.option import MAX_AXIS, MAX_PARTS, Options, option, options, redeclared
from official_bert.support.errors import UserError

# Settings that some flags need.
_EXPORT = {"do_export": (True,)}
_SAVED_MODEL = {"export_format": ("saved_model",)}

# Supported values of `export_precision` for each `export_format`.
_PRECISIONS = {
    "saved_model": ("float32", "bfloat16"),
    "tflite": ("float32", "float16", "int8"),
    "onnx": ("float32", "int8"),
}


def top_k_option(what: str) -> Any:
    """Declare `top_k` for tasks whose exports return several `what`, such as "words to return for each [MASK]"."""
    return option(
        5,
        f"With --do_export: number of {what}.",
        group="export",
        minimum=1,
        maximum=MAX_AXIS,
        only_with=_EXPORT,
        affects="nothing",
    )


@options(group="export")
class VersionOptions(Options):
    """Flags for the next version of an exported model."""

    export_dir: str | None = option(
        None, "Folder for the versions of the exported model.", required=True, is_path=True, affects="run"
    )
    export_format: str = option(
        "saved_model",
        "saved_model for servers, with raw text as input; with ids as input, tflite for LiteRT on phones and onnx for "
        "ONNX Runtime and OpenVINO.",
        choices=tuple(_PRECISIONS),
        affects="nothing",
    )
    export_precision: str = option(
        "float32",
        "Number format of the exported weights and the activations they are multiplied with; outputs stay float32. "
        "bfloat16 is for saved_model, and fast on CPUs with AVX512-BF16 or AMX; float16 is for tflite, int8 for tflite "
        "and onnx.",
        choices=("float32", "bfloat16", "float16", "int8"),
        affects="nothing",
    )
    export_parallelism: int = option(
        0,
        "Number of parts that each layer of a saved_model is split into, for different cores to compute at the same "
        "time; must divide the number of attention heads and intermediate_size. 0 means 2, or 1 if 2 does not divide "
        "them. 1 is best for GPUs.",
        minimum=0,
        maximum=MAX_PARTS,
        only_with=_SAVED_MODEL,
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        precisions = _PRECISIONS[self.export_format]
        if self.export_precision not in precisions:
            raise UserError(
                f"--export_format={self.export_format} does not support --export_precision={self.export_precision}; "
                f"choose one of {', '.join(precisions)}"
            )


def _with_do_export(name: str, **changes: Any) -> Any:
    return redeclared(VersionOptions, name, **{"circumstances": "With --do_export: ", "only_with": _EXPORT} | changes)


@options(group="export")
class ExportOptions(VersionOptions):
    """Flags of every command that exports its trained model."""

    do_export: bool = option(
        False,
        "Export the model for TensorFlow Serving, with raw text as input; see docs/serving.md.",
        affects="run",
    )
    export_dir: str | None = _with_do_export("export_dir", required=False)
    export_format: str = _with_do_export("export_format")
    export_precision: str = _with_do_export("export_precision")
    export_parallelism: int = _with_do_export("export_parallelism", only_with={**_EXPORT, **_SAVED_MODEL})

    def __post_init__(self):
        super().__post_init__()
        if self.do_export and not self.export_dir:
            raise UserError("--do_export needs --export_dir, the folder for the versions of the model")
