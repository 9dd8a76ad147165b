"""Loading checkpoints into models."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader, Weights, write_checkpoint
from official_bert.checkpoints.loading import LoadReport, load
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.support.errors import UserError
from tests.record_files import arrays_of


def of_encoder(name):
    return name.startswith("bert/")


@pytest.fixture
def model(model_dir):
    return PretrainingModel(BertEncoder(BertConfig.from_json_file(str(model_dir / "bert_config.json"))))


@pytest.fixture
def arrays(model_dir):
    return arrays_of(model_dir / "trained_model.ckpt-12")


@pytest.fixture
def write(tmp_path):
    def write_arrays(arrays):
        prefix = str(tmp_path / "given.ckpt")
        write_checkpoint(prefix, arrays)
        return prefix

    return write_arrays


def test_an_initial_checkpoint_sets_weights_and_reports(model, arrays, write, caplog):
    caplog.set_level("INFO", logger="absl")
    del arrays["cls/seq_relationship/output_bias"]
    arrays["cls/squad/output_bias"] = np.zeros([2], np.float32)
    report = load(CheckpointReader(write(arrays)), model.trainable_variables, required=of_encoder)
    assert len(report.matched) == len(model.trainable_variables) - 1
    assert report.missing == ["cls/seq_relationship/output_bias"]
    assert report.unused == ["cls/squad/output_bias"]
    for variable in model.trainable_variables:
        if variable.path in report.matched:
            np.testing.assert_array_equal(variable, arrays[variable.path])
    reader = CheckpointReader(write(arrays))
    reader.weights = Weights({}, new=frozenset({"bert/pooler/dense/bias"}))  # a Hugging Face model without a pooler
    with_new = load(reader, model.trainable_variables, required=of_encoder)
    assert with_new.missing == [*report.missing, *reader.weights.new]
    assert set(with_new.matched) == set(report.matched) - reader.weights.new
    np.testing.assert_array_equal(model.encoder.pooler.dense.bias, arrays["bert/pooler/dense/bias"])
    pooler = ["bert/pooler/dense/bias"]  # a masked-LM head does not use it, a new classifier does
    for missing, idle, warns in ((pooler, pooler, False), (pooler, [], True), ([*pooler, "output_bias"], pooler, True)):
        caplog.clear()
        LoadReport("it", [], missing, [], frozenset(idle)).log(is_trained_next=False)
        assert ("to be trained before use" in caplog.text) is warns
    caplog.clear()
    report.log()
    assert caplog.messages == [
        f"{report.source}: 61 variables loaded, 1 newly initialized, 1 unused",
        "newly initialized: cls/seq_relationship/output_bias",
        "unused: cls/squad/output_bias",
    ]
    del arrays["bert/encoder/layer_1/output/dense/kernel"]
    message = "lacks bert/encoder/layer_1/output/dense/kernel: it belongs to another model; use the bert"
    with pytest.raises(UserError, match=message):
        load(CheckpointReader(write(arrays)), model.trainable_variables, required=of_encoder)


def test_a_head_for_another_number_of_classes_is_made_anew_in_training_alone(model, arrays, write, caplog):
    name = "cls/seq_relationship/output_weights"
    reader = CheckpointReader(write(arrays | {name: np.zeros([3, 32], np.float32)}))
    message = r"output_weights is \[3, 32\] there .*; its head has another number of classes"
    with pytest.raises(UserError, match=message):
        load(reader, model.trainable_variables, required=of_encoder)
    new = next(np.array(variable) for variable in model.trainable_variables if variable.path == name)
    report = load(reader, model.trainable_variables, required=of_encoder, makes_new_head=True)
    assert report.missing == [name] and report.unused == [] and new.any()
    np.testing.assert_array_equal(model.get_weights()[[v.path for v in model.weights].index(name)], new)
    (warning,) = caplog.messages
    assert warning.endswith(f"another size, so a new one is initialized: {name} is [3, 32] there and [2, 32] here")
    other = CheckpointReader(write(arrays | {"bert/pooler/dense/bias": np.zeros([31], np.float32)}))
    with pytest.raises(UserError, match="bert/pooler/dense/bias is"):
        load(other, model.trainable_variables, required=of_encoder, makes_new_head=True)


def test_restoring_sets_slots_and_step_too_and_needs_them(model, arrays, write):
    name = "bert/pooler/dense/kernel/adam_v"
    state = {"global_step": tf.Variable(0, dtype=tf.int64), name: tf.Variable(tf.zeros([32, 32]))}
    load(CheckpointReader(write(arrays)), model.trainable_variables, state)
    assert state["global_step"].numpy() == 12
    np.testing.assert_array_equal(state[name], arrays[name])
    np.testing.assert_array_equal(model.encoder.word_embeddings, arrays["bert/embeddings/word_embeddings"])
    del arrays["global_step"]
    with pytest.raises(UserError, match="lacks global_step: its training state was stripped; give it as init_checkp"):
        load(CheckpointReader(write(arrays)), model.trainable_variables, state)
