"""Reads exports, without TensorFlow: their numbered versions, descriptions and checksums."""

import os
from typing import Any

from official_bert.config.bert_config import BertConfig
from official_bert.options.groups import VersionOptions
from official_bert.support import files, text_files
from official_bert.support.errors import UserError, check_installed

SAVED_MODEL_FILE, LITE_FILE, ONNX_FILE = "saved_model.pb", "model.tflite", "model.onnx"
ASSETS_FOLDER = "assets"
QUERY_WEIGHTS = "query_weights.npy"  # in the assets of inference-free SPLADE: float32 [V], by wordpiece
DESCRIPTION_FILE, CHECKSUMS_FILE = "official_bert.json", "checksums.json"
KERAS_FILE = "model.keras"  # of a functional model
MODEL_FILES = (SAVED_MODEL_FILE, LITE_FILE, ONNX_FILE)  # of which a version has one

MOST_ONNX_BYTES = 1 << 31  # of float32 weights, the limit of protocol buffers

# In the description of an export for an engine: the outputs of its signatures, and the number of values of each input.
OUTPUTS, LIMITS = "outputs", "limits"
NUM_POSITIONS = "num_example_positions"  # in the description of an export, if its examples have several windows


def check_is_no_version(export_dir: str) -> None:
    if any(files.exists(os.path.join(export_dir, name)) for name in MODEL_FILES):
        raise UserError(f"export_dir={export_dir} is itself an exported version; give its parent folder")


def check_export_dir(export_dir: str) -> None:
    """Check the folder of versions, which need not exist yet."""
    files.check_name(export_dir)
    check_is_no_version(export_dir)
    if files.is_remote(export_dir):
        return
    folder = os.path.abspath(export_dir)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise UserError(f"export_dir={export_dir}: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"export_dir={export_dir}: the folder {folder} is not writable")


def check_export(config: VersionOptions, bert_config: BertConfig) -> None:
    """Check an export to come before any long computation."""
    check_export_dir(config.export_dir)
    export_parts(bert_config, config.export_parallelism)
    if config.export_format == "onnx":
        if 4 * bert_config.num_parameters >= MOST_ONNX_BYTES:
            raise UserError(
                f"export_format=onnx: a file holds at most 2 GB, but the {bert_config.num_parameters:,} parameters of "
                "the encoder need more; use export_format=saved_model"
            )
        for package in ("tf2onnx", *(["onnxruntime"] if config.export_precision == "int8" else [])):
            check_installed(package, extra="onnx")


def export_parts(config: BertConfig, parallelism: int) -> int:
    """Return the number of parts that split the layers of an exported model."""
    sizes = {name: getattr(config, name) for name in ("num_attention_heads", "intermediate_size")}
    undivided = [name for name in sizes if sizes[name] % (parallelism or 2)]
    if undivided and parallelism:
        raise UserError(
            f"export_parallelism={parallelism} does not divide {undivided[0]}={sizes[undivided[0]]} of the exported "
            "model; give a number that does"
        )
    return 1 if undivided else parallelism or 2


def versions(export_dir: str) -> list[int]:
    """Return the version numbers in a folder, in ascending order."""
    names = [entry.rstrip("/") for entry in files.list_folder(export_dir)]  # remote folders end in a slash
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def complete_versions(export_dir: str) -> list[int]:
    """Return the numbers of versions with a model, in ascending order."""
    return [number for number in versions(export_dir) if model_file(os.path.join(export_dir, str(number)))]


def model_file(folder: str) -> str | None:
    """Return the name of the model in the folder of a version; None if there is none."""
    return next((name for name in MODEL_FILES if files.exists(os.path.join(folder, name))), None)


def find_version(path: str) -> str | None:
    """Return the folder of a version, or of the highest in a folder of versions; None if there is none."""
    if model_file(path):
        return path
    numbers = complete_versions(path)
    return os.path.join(path, str(numbers[-1])) if numbers else None


def engine_version(path: str) -> str | None:
    """Return the version of `find_version` if LiteRT, ONNX Runtime or OpenVINO computes it, without TensorFlow."""
    version = find_version(path) if files.is_folder(path) else None
    return version if version and model_file(version) != SAVED_MODEL_FILE else None


def find_export(path: str) -> str | None:
    """Return the folder of an exported version, or of the highest in a folder of versions; None if there is none."""
    if not files.is_folder(path):
        raise UserError(f"there is no folder {path}; give an export or the output folder of a run")
    version = find_version(path)
    return None if version == path and model_file(path) == SAVED_MODEL_FILE and _is_encoder(path) else version


def _is_encoder(folder: str) -> bool:
    """Return True for a SavedModel from TensorFlow Hub; a damaged one is treated, and reported, as an export."""
    if files.exists(os.path.join(folder, DESCRIPTION_FILE)):
        return False
    from official_bert.checkpoints import model_garden  # imports TensorFlow
    from official_bert.serving.signatures import EXAMPLES, TEXT

    try:
        return {TEXT, EXAMPLES}.isdisjoint(model_garden.signatures(os.path.join(folder, SAVED_MODEL_FILE)))
    except UserError:
        return False


def folder_of_model(path: str) -> str:
    """Return the folder of a .keras file of `save_model`; other paths unchanged."""
    if not path.endswith(os.path.splitext(KERAS_FILE)[1]) or files.is_folder(path):
        return path
    folder = os.path.dirname(path) or "."
    if os.path.basename(path) != KERAS_FILE or not is_functional(folder):
        raise UserError(
            f"{path}: a .keras file has no vocabulary; save the model with save_model(folder, model, tokenizer), and "
            "give that folder"
        )
    return folder


def is_functional(folder: str) -> bool:
    """Return True for a folder in which `save_model` saved a functional model."""
    return all(files.exists(os.path.join(folder, name)) for name in (KERAS_FILE, DESCRIPTION_FILE))


def highest_version(export_dir: str) -> int:
    check_is_no_version(export_dir)
    if numbers := complete_versions(export_dir):
        return numbers[-1]
    raise UserError(f"export_dir={export_dir} contains no exported version (a folder named by a number, such as 1)")


def check_whole(folder: str) -> None:
    """Verify the checksums of the files of a version.

    TensorFlow itself does not detect all corruption, and some of it crashes the process. Versions without a checksum
    file, as written by other programs, are not checked.
    """
    path = os.path.join(folder, CHECKSUMS_FILE)
    if not files.exists(path):
        return
    for name, checksum in text_files.read_json(path, "file of checksums").items():
        part = os.path.join(folder, name)
        if not files.exists(part):
            raise UserError(f"{folder} is damaged: {name} is missing; export the model again, or copy it once more")
        if files.sha256(part) != checksum:
            raise UserError(
                f"{folder} is damaged: {name} does not match its checksum in {CHECKSUMS_FILE}; export the model "
                "again, or copy it once more"
            )


def read_query_weights(folder: str) -> Any:
    """Read a version's weights of wordpieces in queries, float32 [V]; None unless it is inference-free SPLADE."""
    import numpy as np

    path = os.path.join(folder, ASSETS_FOLDER, QUERY_WEIGHTS)
    if not files.exists(path):
        return None
    with files.open_file(path, "rb") as source:
        return np.load(source, allow_pickle=False)


def description(folder: str) -> dict[str, Any]:
    """Read a version's description; empty if another program or an earlier version of this package wrote it."""
    path = os.path.join(folder, DESCRIPTION_FILE)
    return text_files.read_json(path, "description of the export") if files.exists(path) else {}
