"""Fixtures of the tests of servers."""

import json
import os
import shutil
import zlib

import pytest

from tests.conftest import shared


@pytest.fixture(scope="session")
def write_export(one_layer_config_file, vocab_file, tmp_path_factory):
    """Write the next version of a tiny model into a folder; each is made once and copied."""
    # Imported here because it imports TensorFlow, which `tests/conftest.py` may not have set up yet.
    from tests.serving.tiny_exports import write_tiny_export

    files = {"bert_config_file": one_layer_config_file, "vocab_file": vocab_file}

    def write(folder, task="classification", **options):
        name = f"export-{zlib.crc32(json.dumps([task, options]).encode())}"
        made = shared(tmp_path_factory, name, lambda made: write_tiny_export(made, task, **files, **options))
        os.makedirs(folder, exist_ok=True)
        number = 1 + max((int(name) for name in os.listdir(folder)), default=0)
        copy = shutil.copytree(made / "1", os.path.join(folder, ".copy"))  # renamed when complete, since servers look
        path = os.path.join(folder, str(number))
        os.rename(copy, path)
        return path

    return write


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory, write_export):
    folder = tmp_path_factory.mktemp("serving") / "reviews"
    write_export(folder)
    return str(folder)


@pytest.fixture(scope="module")
def signatures(export_dir):
    import tensorflow as tf

    return tf.saved_model.load(os.path.join(export_dir, "1")).signatures
