"""Fixtures of the tests of servers."""

import os

import pytest


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory, write_export):
    folder = tmp_path_factory.mktemp("serving") / "reviews"
    write_export(folder)
    return str(folder)


@pytest.fixture(scope="module")
def unoptimized_graphs():
    """Leave out the optimization of graphs that this process calls once or twice: it takes longer than the calls."""
    from tensorflow.config import optimizer

    optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture(scope="module")
def signatures(export_dir):
    import tensorflow as tf

    return tf.saved_model.load(os.path.join(export_dir, "1")).signatures
