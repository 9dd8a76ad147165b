"""Loading models from every kind of folder, and saving them."""

import dataclasses
import json
import os
import shutil

import keras
import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.config import model_formats
from official_bert.config.bert_config import BertConfig
from official_bert.inference.finished_runs import export
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.support.errors import UserError
from official_bert.tokenization import load_tokenizer
from tests.conftest import GOLDEN, golden_arrays

KERNEL = "bert/encoder/layer_0/attention/self/query/kernel"


def copy_checkpoint(source, prefix):
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(f"{source}{suffix}", f"{prefix}{suffix}")


@pytest.fixture
def released(tmp_path, model_dir):
    """A folder like an unpacked archive of a released model: no `checkpoint` file."""
    folder = tmp_path / "released"
    folder.mkdir()
    shutil.copy(model_dir / "bert_config.json", folder)
    copy_checkpoint(model_dir / "bert_model.ckpt", folder / "bert_model.ckpt")
    return folder


def activations(encoder):
    golden = golden_arrays("pretraining_model/activations.npz")
    outputs = encoder([golden[f"in/{name}"] for name in BertEncoder.INPUTS])
    return outputs["sequence_output"], golden["out/sequence_output"]


def test_a_folder_and_what_is_in_it(released, model_dir, monkeypatch):
    for path in (released, released / "bert_model.ckpt.index"):
        np.testing.assert_allclose(*activations(BertEncoder.from_checkpoint(path)), atol=1e-5)
    (released / "best").mkdir()  # as in the folder of a run, with a best checkpoint in addition to the last
    for folder in (released, released / "best"):
        copy_checkpoint(model_dir / "trained_model.ckpt-12", folder / "model.ckpt-12")
        (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-12"\n')
    expected = CheckpointReader(str(released / "model.ckpt-12")).read("bert/embeddings/word_embeddings")
    monkeypatch.chdir(released)
    for path in (str(released), "best", "best/model.ckpt-12"):
        np.testing.assert_array_equal(BertEncoder.from_checkpoint(path).word_embeddings, expected)


def test_the_architecture_can_be_given(released, tmp_path):
    config_file = released / "bert_config.json"
    moved = config_file.rename(tmp_path / "elsewhere.json")
    with pytest.raises(UserError, match=r"no bert_config.json beside .*bert_model.ckpt; give its path: bert_config="):
        BertEncoder.from_checkpoint(released)
    np.testing.assert_allclose(*activations(BertEncoder.from_checkpoint(released, bert_config=moved)), atol=1e-5)
    config = BertConfig.from_json_file(str(moved))
    wrong = dataclasses.replace(config, vocab_size=7)
    with pytest.raises(UserError, match=r"word_embeddings is \[1182, 32\] there and \[7, 32\] here") as caught:
        BertEncoder.from_checkpoint(released, bert_config=wrong)
    assert "--" not in str(caught.value)


def test_errors_speak_of_the_path(tmp_path, model_dir, monkeypatch):
    tf_messages = {
        "absent": "path .*absent: no such checkpoint",
        "empty": "path .* is a folder without a readable `checkpoint` file and without a checkpoint",
        "model.keras": "not a checkpoint; load it with keras.models.load_model",
        "keras": "path .*keras/bert.h5 is not a checkpoint; .* weights of keras-bert and bert-for-tf2 can be converted",
        "half": "path .*half has a config.json, but neither weights .model.safetensors or .* download all its files",
        "flax": "path .*flax contains flax_model.msgpack and is a Hugging Face model only for Flax, .* give the",
        "trainer": r"has no model itself, but in 'checkpoint-500', 'checkpoint-1000'; give such a subfolder",
        "hub": "has no model itself, but in 'models--a--b/snapshots/1f'; give such a subfolder",
        "hub/models--a--b": "has no model itself, but in 'snapshots/1f'; give such a subfolder",
        "adapter": "is a LoRA adapter of bert-base; merge it into that model with official-bert convert_hf_checkpoint",
        "router": "router is a Router of sentence-transformers, which is not supported; a model is in '1_Transformer'",
        "static": "static is a StaticEmbedding of sentence-transformers, which is not supported$",
    }
    weights = ("trainer/checkpoint-500", "trainer/checkpoint-1000", "hub/models--a--b/snapshots/1f")
    weights += ("router/0_StaticEmbedding", "router/1_Transformer", "static")
    kinds = {"router": "Router", "static": "StaticEmbedding"}
    contents = {f"{folder}/model.safetensors": "" for folder in weights} | {
        f"{folder}/modules.json": json.dumps([{"type": f"sentence_transformers.models.{kind}", "path": ""}])
        for folder, kind in kinds.items()
    }
    contents |= {"adapter/adapter_config.json": '{"base_model_name_or_path": "bert-base"}'}
    contents |= dict.fromkeys(("half/config.json", "flax/flax_model.msgpack", "keras/bert.h5"), "")
    (tmp_path / "empty").mkdir()
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    for path, message in tf_messages.items():
        with pytest.raises(UserError, match=message) as caught:
            BertEncoder.from_checkpoint(tmp_path / path)
        assert path == "adapter" or "init_checkpoint" not in str(caught.value)
        if path in ("trainer", "hub", "adapter", "router", "static"):
            for read in (load_tokenizer, Predictor, lambda folder: export(folder, tmp_path / "none")):
                with pytest.raises(UserError, match=message):
                    read(tmp_path / path)
    with pytest.raises(UserError, match="bert-base-uncased: no such .* give the folder of a released model"):
        BertEncoder.from_checkpoint("bert-base-uncased")
    with pytest.raises(UserError, match="it contains 'bert_model.ckpt', 'trained_model.ckpt-12'; give a checkpoint"):
        BertEncoder.from_checkpoint(model_dir)
    monkeypatch.setattr(model_formats, "_MOST_FOLDERS", 2)  # the folder itself and one in it
    assert len(model_formats.models_inside(str(tmp_path / "trainer"))) == 1


@pytest.mark.slow
def test_models_load_the_heads_that_are_there_and_name_the_others(released, caplog):
    model = PretrainingModel.from_checkpoint(released)
    golden = golden_arrays("pretraining_model/activations.npz")
    outputs = model({name: golden[f"in/{name}"] for name in PretrainingModel.INPUTS})
    found = keras.ops.log_softmax(outputs["next_sentence_logits"])
    np.testing.assert_allclose(found, golden["out/next_sentence_log_probs"], atol=1e-5)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    classifier = ClassificationModel.from_checkpoint(released, num_outputs=3, dtype="mixed_bfloat16")
    assert "lacks output_weights, output_bias: newly initialized, to be trained before use" in caplog.text
    assert classifier.compute_dtype == classifier.encoder.compute_dtype == "bfloat16"
    caplog.clear()
    options = {"bert_config": released / "bert_config.json", "num_outputs": 3}
    trained = ClassificationModel.from_checkpoint(GOLDEN / "classifier" / "model.ckpt", **options)
    inputs = [golden[f"in/{name}"] for name in BertEncoder.INPUTS]
    np.testing.assert_allclose(trained(inputs), golden_arrays("classifier/activations.npz")["logits"], atol=1e-5)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["new/folder", "new/model.ckpt-3", "new/model.safetensors"])
def test_saved_models_load_again(released, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    config = BertConfig.from_json_file(str(released / "bert_config.json"))
    config = dataclasses.replace(config, num_hidden_layers=1)
    encoder = BertEncoder(config)
    with pytest.raises(UserError, match=r"bert_config.json describes a different model; save this one in another"):
        encoder.save_checkpoint(released / "third.ckpt")
    assert not list(released.glob("third*"))
    with pytest.raises(UserError, match=r"new/a\.safetensors: name it model\.safetensors, under which"):
        encoder.save_checkpoint("new/a.safetensors")
    models = (encoder, ClassificationModel(encoder, num_outputs=2), SpanModel(encoder))
    for model in models[:1] if "ckpt" in place else models:
        shutil.rmtree("new", ignore_errors=True)
        prefix = model.save_checkpoint(place)
        assert prefix == (f"{place}/bert_model.ckpt" if place.endswith("folder") else place)
        if place.endswith(".safetensors"):
            with pytest.raises(UserError, match=r"new/config.json describes a different model; save"):
                PretrainingModel(encoder).save_checkpoint(place)
        else:
            assert set(CheckpointReader(prefix).shapes) == {weight.path for weight in model.weights}
        options = {"num_outputs": 2} if isinstance(model, ClassificationModel) else {}
        loaded = type(model).from_checkpoint(os.path.dirname(prefix), **options)
        assert loaded.encoder.config == config if hasattr(loaded, "encoder") else loaded.config == config
        for weight, other in zip(model.weights, loaded.weights, strict=True):
            assert weight.path == other.path
            np.testing.assert_array_equal(weight, other)


class Siamese(keras.Model):
    """A custom model whose encoder is created under the model's name scope."""

    def __init__(self, config):
        super().__init__(name="siamese")
        self._config = config

    def build(self, input_shape):
        self.encoder = BertEncoder(self._config)

    def call(self, inputs):
        return keras.ops.sum(self.encoder(inputs[0])["pooled_output"] * self.encoder(inputs[1])["pooled_output"], -1)


@pytest.mark.slow
def test_an_encoder_keeps_its_names_in_a_model_of_the_users(released, tmp_path):
    encoder = BertEncoder.from_checkpoint(released)
    ids = keras.Input((None,), dtype="int32")
    functional = keras.Model(ids, keras.layers.Dense(1)(encoder(ids)["pooled_output"]))
    assert functional.weights[0].path == "bert/embeddings/word_embeddings"
    functional.compile("sgd", "mse", run_eagerly=True)
    functional.fit(np.full([2, 5], 9), np.ones([2, 1]), verbose=0)
    encoder.save_checkpoint(tmp_path / "tuned" / "bert_model.ckpt")
    tuned = BertEncoder.from_checkpoint(tmp_path / "tuned")
    np.testing.assert_array_equal(tuned.word_embeddings, functional.weights[0])
    before = CheckpointReader(str(released / "bert_model.ckpt")).read("bert/embeddings/word_embeddings")
    assert np.abs(np.asarray(tuned.word_embeddings) - before).max() > 0

    siamese = Siamese(encoder.config)
    siamese([np.full([2, 5], 9), np.full([2, 5], 8)])
    assert siamese.encoder.weights[0].path == "siamese/bert/embeddings/word_embeddings"
    siamese.encoder.save_checkpoint(tmp_path / "siamese" / "bert_model.ckpt")
    assert KERNEL in CheckpointReader(str(tmp_path / "siamese")).shapes
    loaded = BertEncoder.from_checkpoint(tmp_path / "siamese", name="questions")
    assert loaded.weights[0].path == "questions/embeddings/word_embeddings"
    for weight, other in zip(siamese.encoder.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(weight, other)
