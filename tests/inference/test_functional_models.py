"""Functional Keras models of users: from texts to their outputs, in Python, from a folder, and from an export."""

import json
import os
import pathlib
import shutil
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.data.pipeline import DatasetTokenizer
from official_bert.inference.finished_runs import export
from official_bert.inference.predictor import Predictor
from official_bert.inference.user_models import KERAS_FILE, save_model
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel
from official_bert.serving.versions import DESCRIPTION_FILE
from official_bert.support.errors import UserError
from official_bert.tokenization import FullTokenizer
from tests.conftest import endurance, run_here
from tests.export_fixtures import AWKWARD_TEXTS
from tests.exports import TOLERANCE

pytestmark = pytest.mark.slow

NAMES = ("input_ids", "input_mask", "segment_ids")
POOLED = "pooled_output"


@pytest.fixture(scope="module")
def encoder(one_layer_config_file):
    tf.keras.utils.set_random_seed(1)
    encoder = BertEncoder(BertConfig.from_json_file(one_layer_config_file))
    for variable in encoder.trainable_variables:
        variable.assign(variable + tf.random.normal(variable.shape, stddev=0.1))
    return encoder


@pytest.fixture(scope="module")
def tokenize(vocab_file):
    return DatasetTokenizer(FullTokenizer(vocab_file), max_seq_length=12)


def inputs_of(names=NAMES):
    return {name: keras.Input([None], dtype="int32", name=name) for name in names}


def two_heads(encoder):
    """A model with a dict of outputs; one depends on padding, so the length of the batch must be right."""
    inputs = inputs_of()
    outputs = encoder(inputs)
    average = keras.layers.GlobalAveragePooling1D()(outputs["sequence_output"])
    pooled = outputs["pooled_output"]
    return keras.Model(inputs, {"mood": keras.layers.Dense(3, activation="softmax")(average), "vector": pooled})


def one_score(encoder):
    """A model with a list of inputs, and without the segments, whose output has the name of its layer."""
    inputs = inputs_of(NAMES[:2])
    return keras.Model(list(inputs.values()), keras.layers.Dense(1, name="score")(encoder(inputs)["pooled_output"]))


@pytest.mark.parametrize(
    ("make", "text_names", "padding", "labels"),
    [
        (two_heads, ["text"], "longest", {"mood": ["sad", "bored", "glad"]}),
        *endurance((one_score, ["question", "context"], "max_length", {"score": ["points"]})),
    ],
)
def test_texts_get_the_outputs_of_the_model(make, text_names, padding, labels, encoder, vocab_file, tmp_path):
    model = make(encoder)
    model.compile("adam", loss="mse")
    tokenize = DatasetTokenizer(FullTokenizer(vocab_file), max_seq_length=12, padding=padding)
    columns = [AWKWARD_TEXTS, AWKWARD_TEXTS[::-1]][: len(text_names)]
    texts = list(zip(*columns, strict=True)) if len(columns) > 1 else AWKWARD_TEXTS
    ids = tokenize(*map(tf.constant, columns))
    expected = model({name: ids[name] for name in NAMES[: len(model.inputs)]})
    expected = expected if isinstance(expected, dict) else {"score": expected}
    folder = save_model(tmp_path / "own", model, tokenize, text_names=text_names, labels=labels)
    predict = Predictor(f"{folder}/model.keras")
    rows = predict(texts)
    assert set(rows[0]) == set(expected)
    for name, values in expected.items():
        of_rows = [[*row[name].values()] if name in labels else row[name] for row in rows]
        np.testing.assert_allclose(of_rows, values, atol=TOLERANCE)
    assert {name: [*rows[0][name]] for name in labels} == labels
    if len(columns) == 1:
        text_file, found = tmp_path / "texts.txt", tmp_path / "found.tsv"
        text_file.write_text("the town\n")
        run_here("predict", model_dir=folder, input_file=text_file, output_file=found)
        header, row = (line.split("\t") for line in found.read_text().splitlines())
        assert header == ["mood_sad", "mood_bored", "mood_glad", "vector"] and len(row) == 4
        np.testing.assert_allclose([*map(float, row[:3])], [*predict("the town")["mood"].values()], atol=1e-3)
    signatures = tf.saved_model.load(export(folder, tmp_path / "serving")).signatures
    of_text = signatures["text"](**dict(zip(text_names, map(tf.constant, columns), strict=True)))
    of_ids = signatures["serving_default"](**ids)
    for name, names in labels.items():
        assert [label.decode() for label in of_text[f"{name}_labels"].numpy()[0]] == names
    for name, values in expected.items():
        np.testing.assert_allclose(of_text[name], values, atol=TOLERANCE)
        np.testing.assert_allclose(of_ids[name], values, atol=TOLERANCE)


@pytest.fixture(scope="module")
def saved(encoder, tokenize, tmp_path_factory):
    """The folder of a saved model; tests that change it copy it."""
    return save_model(tmp_path_factory.mktemp("saved") / "own", one_score(encoder), tokenize, labels=["points"])


class Subclassed(keras.Model):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def call(self, inputs):
        return self.encoder(inputs)["pooled_output"]


def around(encoder, output, names=NAMES, also=None):
    inputs = inputs_of(names)
    outputs = encoder(list(inputs.values()))
    return keras.Model(inputs, [outputs[output], also(outputs)] if also else outputs[output])


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (Subclassed, {}, "the model is a Subclassed, not a functional model: .*keras.Model"),
        (lambda encoder: ClassificationModel(encoder, num_outputs=2), {}, "give the folder of save_model"),
        (lambda encoder: around(encoder, POOLED, ["ids", "mask"]), {}, "inputs are 'ids', 'mask'; they must be those"),
        (lambda _: around(lambda ids: {POOLED: ids[0]}, POOLED), {}, "the model has no BertEncoder among its layers"),
        (
            lambda encoder: around(encoder, POOLED, also=lambda x: x["sequence_output"]), {},
            "the model's outputs are 'bert', 'bert'; give a dict with a name for each",
        ),
        (lambda encoder: around(encoder, POOLED, also=lambda x: keras.ops.sum(x[POOLED])), {}, r"has the shape \[\];"),
        (two_heads, {"tokenizer": None}, "tokenizer is None; give the DatasetTokenizer that makes the model's inputs"),
        (two_heads, {"text_names": "text"}, "text_names='text'; give one name"),
        (two_heads, {"text_names": ["a", "a"]}, "or two for pairs of texts"),
        (two_heads, {"export_format": "onnx"}, "a functional model is exported as saved_model"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_named(make, changes, message, encoder, tokenize, tmp_path):
    with pytest.raises(UserError, match=message):
        export(make(encoder), tmp_path / "out", **{"tokenizer": tokenize, **changes})
    assert not (tmp_path / "out").exists()


def of_config(old, new):
    return lambda members, _: {**members, "config.json": members["config.json"].replace(old, new)}


def of_weights(**options):
    def change(members, folder):
        (path := folder / "weights.h5").write_bytes(members["model.weights.h5"])
        with h5py.File(path, "r+") as file:
            file.create_dataset("more", (1,), **options)
        return {**members, "model.weights.h5": path.read_bytes()}

    return change


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (of_config(b'"units": 1,', b'"units": 1000000000,'), {}, "declares arrays of 132,000,198,464 bytes, but has"),
        (of_config(b'"Dense"', b'"Dance"'), {}, r"cannot be loaded \(Could not deserialize 'keras.layers.Dance'"),
        (of_config(b"{", b"["), {}, r"cannot be loaded \(Expecting"),
        (lambda members, _: {**members, "metadata.json": b" " * 2**25}, {}, "has a configuration that is too large"),
        (lambda members, _: members, {"compression": zipfile.ZIP_DEFLATED}, "metadata.json is compressed or does not"),
        (lambda members, _: {}, {}, r"cannot be loaded \(.*config.json"),
        (of_weights(dtype=h5py.string_dtype()), {}, "model.keras: more has elements of variable length"),
        (of_weights(dtype="f4", chunks=True), {}, "the data of more is compressed or not in this file"),
    ],
)  # fmt: skip
def test_hostile_files_are_one_line_before_anything_is_allocated(change, options, message, saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "own")
    path = os.path.join(folder, KERAS_FILE)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in change(members, tmp_path).items():
            archive.writestr(name, content)
    with pytest.raises(UserError, match=message) as caught:
        Predictor(folder)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_saved_or_read_is_named(encoder, tokenize, vocab_file, tmp_path):
    model = one_score(encoder)
    for changes, message in (
        ({"labels": ["a", "b"]}, r"labels=\['a', 'b'\]: the output .* has the shape .*; give a distinct name for each"),
        ({"labels": {"mood": ["a"]}}, "labels: the model has no output 'mood', only"),
        ({"tokenizer": FullTokenizer(vocab_file)}, "give the DatasetTokenizer"),
        ({"model": Subclassed(encoder)}, "and functional models, not Subclassed"),
    ):
        with pytest.raises(UserError, match=message):
            save_model(**{"folder": tmp_path / "own", "model": model, "tokenizer": tokenize, **changes})
    shouting = keras.layers.Lambda(lambda x: 2 * x)(model.output)
    with pytest.raises(UserError, match=r"own/model.keras cannot be loaded \(.*Lambda.*\); import the modules"):
        save_model(tmp_path / "own", keras.Model(model.input, shouting), tokenize)
    assert not (tmp_path / "own").exists()
    model.save(tmp_path / "alone.keras")
    with pytest.raises(UserError, match="alone.keras: a .keras file has no vocabulary; save the model with"):
        Predictor(tmp_path / "alone.keras")
    folder = save_model(tmp_path / "own", model, tokenize)
    with pytest.raises(UserError, match="own is a functional model, which has all its files; leave out 'vocab_file'"):
        Predictor(folder, vocab_file=vocab_file)
    with pytest.raises(UserError, match="has its own tokenizer and labels; leave out tok"):
        export(folder, tmp_path / "out", tokenizer=tokenize)
    description = pathlib.Path(folder, DESCRIPTION_FILE)
    description.write_text(json.dumps(json.loads(description.read_text()) | {"do_lower_case": "no"}))
    with pytest.raises(UserError, match=f"{DESCRIPTION_FILE}: do_lower_case is 'no'; it must be true or false"):
        Predictor(folder)
