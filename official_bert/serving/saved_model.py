"""Write a `Servable` as a version of a model for TensorFlow Serving, with everything that the server needs."""

import dataclasses
import os
from collections.abc import Callable, Iterator

import tensorflow as tf
from absl import logging

from official_bert.config.batching_settings import BatchingSettings
from official_bert.serving.servable import EXAMPLES, SERVING_DEFAULT, SERVING_INT64, TEXT, TOKENIZE, Servable, Tensors
from official_bert.serving.versions import logging_errors_only, path_with_parents, write_version
from official_bert.serving.warmup import prediction_log, write_warmup
from official_bert.support import files, writing

WARMUP_FILE = "tf_serving_warmup_requests"
MODELS_FILE, BATCHING_FILE = "models.config", "batching_parameters.txt"

_WARMUP_BATCHES = (1, 2, 8)  # examples per request
_BATCHING = """\
max_batch_size { value: %(max_batch_size)d }
max_execution_batch_size { value: %(max_execution_batch_size)d }
enable_large_batch_splitting { value: true }
batch_timeout_micros { value: %(batch_timeout_micros)d }
max_enqueued_batches { value: %(max_enqueued_batches)d }
num_batch_threads { value: %(num_batch_threads)d }
pad_variable_length_inputs: true
"""
_MODELS = """\
model_config_list {
  config {
    name: "%(name)s"
    base_path: "%(path)s"
    model_platform: "tensorflow"
  }
}
"""


def write_export(export_dir: str, servable: Servable) -> str:
    """Write the next version of a model, with the server's settings.

    Args:
      export_dir: folder of the versions; its name becomes the model's name.
      servable: the model; its vocabulary file is included as `assets/vocab.txt` or `assets/spiece.model`.

    Returns:
      The folder of the version. It gets this name only when complete and flushed to disk.

    Raises:
      UserError: the folder is not writable, or the vocabulary is a pipe, which can be read only once.
    """
    name = os.path.basename(os.path.realpath(export_dir))
    signatures = servable.signatures()
    if not servable.reads_texts:
        logging.warning(
            "%s: the export reads ids and no texts, since its byte-level BPE has no TensorFlow operations", export_dir
        )

    def add_warmup(folder: str) -> None:
        records = (
            prediction_log(name, signature, inputs) for signature, inputs in warmup_requests(servable, signatures)
        )
        write_warmup(path_with_parents(folder, "assets.extra", WARMUP_FILE), records)

    path = write_version(export_dir, servable, save=lambda folder: _save(servable, signatures, folder), add=add_warmup)
    _write_settings(export_dir, name)
    logging.info("exported %s, with the signatures %s", path, ", ".join(signatures))
    return path


def warmup_requests(
    servable: Servable, signatures: dict[str, Callable[..., Tensors]]
) -> Iterator[tuple[str, dict[str, tf.Tensor]]]:
    """Return requests of several lengths and batch sizes for every signature: name and inputs."""
    lengths = [length for length in (16, 64, 256) if length < servable.max_seq_length] + [servable.max_seq_length]
    for length in lengths:
        for num_examples in _WARMUP_BATCHES:
            sample = [tf.constant([text] * num_examples) for text in servable.sample_texts(length)]
            texts = dict(zip(servable.text_names, sample, strict=True))
            ids = servable.flat_ids(servable.tokenize(**texts))
            if servable.reads_texts:
                yield TEXT, texts
                yield TOKENIZE, texts
                yield from servable.more_warmup_requests(texts)
            yield SERVING_DEFAULT, ids
            yield SERVING_INT64, {name: tf.cast(values, tf.int64) for name, values in ids.items()}
            yield EXAMPLES, {"examples": tf.constant(_examples(servable, ids))}


def _examples(servable: Servable, ids: Tensors) -> list[bytes]:
    rows = zip(*(values.numpy().tolist() for values in ids.values()), strict=True)
    return [servable.example_schema.encode(dict(zip(ids, row, strict=True))) for row in rows]


def _save(servable: Servable, signatures: dict[str, Callable[..., Tensors]], path: str) -> None:
    with logging_errors_only():  # harmless warnings about lookup tables and captured inputs
        tf.saved_model.save(servable, path, signatures)


def _write_settings(export_dir: str, name: str) -> None:
    """Write the server's settings, unless they exist: the user may have changed them."""
    path = export_dir if files.is_remote(export_dir) else os.path.realpath(export_dir)
    settings = {
        MODELS_FILE: _MODELS % {"name": _quoted(name), "path": _quoted(path)},
        BATCHING_FILE: _BATCHING % dataclasses.asdict(BatchingSettings(num_batch_threads=os.cpu_count() or 1)),
    }
    for file_name, content in settings.items():
        path = os.path.join(export_dir, file_name)
        if not files.exists(path):
            with writing.atomic_write(path) as sink:
                sink.write(content)


def _quoted(text: str) -> str:
    return text.translate({ord(char): f"\\{escape}" for char, escape in zip('\\"\n\r', '\\"nr', strict=True)})
