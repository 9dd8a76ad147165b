"""Fixtures of the tests of servers."""

import os

import pytest


@pytest.fixture(scope="module")
def write_export(one_layer_config_file, vocab_file):
    # Imported here because it imports TensorFlow, which `tests/conftest.py` may not have set up yet.
    from tests.serving.tiny_exports import write_tiny_export

    def write(folder, task="classification", **options):
        return write_tiny_export(folder, task, bert_config_file=one_layer_config_file, vocab_file=vocab_file, **options)

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
