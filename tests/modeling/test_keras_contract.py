"""Layers and models keep Keras's contract: one harness for all, and tests of whole models."""

import dataclasses
import functools
import importlib
import pkgutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert import modeling
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel, ReplacedTokenPretrainingModel
from official_bert.modeling.sentence import SentenceGroupModel, StaticEncoder
from official_bert.modeling.token_model import named_inputs
from official_bert.support.errors import UserError
from tests.conftest import endurance, run_script
from tests.modeling import model_cases
from tests.modeling.model_cases import CASES, CONFIG, ONE_LAYER

NUM_EXAMPLES, LENGTH, CLASSES = 6, 8, 3
LOGITS_LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BertEncoder", *endurance(*sorted(CASES.keys() - {"BertEncoder"}))])
def test_a_model_keeps_the_contract_of_keras(name, tmp_path):
    model_cases.check(CASES[name], tmp_path)


@pytest.mark.slow
def test_no_public_model_is_left_out():
    found = set()
    for module in pkgutil.iter_modules(modeling.__path__):
        members = vars(importlib.import_module(f"{modeling.__name__}.{module.name}")).values()
        models = {member for member in members if isinstance(member, type) and issubclass(member, keras.Model)}
        found |= {model for model in models if not model.__subclasses__()}
    of_tasks = {ReplacedTokenPretrainingModel, SentenceGroupModel, StaticEncoder}  # made only for training or exports
    assert found == {type(case.make()) for case in CASES.values()} | of_tasks


@pytest.mark.slow
def test_models_are_float32_whatever_the_default_of_keras_is(caplog):
    batch = {"input_ids": np.arange(1, 1 + NUM_EXAMPLES * LENGTH, dtype=np.int32).reshape(NUM_EXAMPLES, LENGTH) % 7}

    def fitted():
        keras.utils.set_random_seed(1)
        model = ClassificationModel(BertEncoder(ONE_LAYER), num_outputs=2)
        model.compile("sgd", LOGITS_LOSS, run_eagerly=True)
        model.fit(batch, np.arange(NUM_EXAMPLES) % 2, shuffle=False, verbose=0)
        return model.predict(batch, verbose=0)

    expected = fitted()
    policy = keras.config.dtype_policy()
    try:
        keras.config.set_floatx("float16")
        keras.config.set_dtype_policy("float16")  # as Keras derives it from keras.json
        found = fitted()
        assert (keras.config.floatx(), keras.config.dtype_policy().name) == ("float32", "float32")
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy(policy)
    assert "instead of the floatx=float16 of keras.json" in caplog.text
    np.testing.assert_array_equal(found, expected)


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(1)
    shape = NUM_EXAMPLES, LENGTH
    lengths = rng.integers(2, LENGTH, [NUM_EXAMPLES, 1])
    return {
        "input_ids": rng.integers(0, CONFIG.vocab_size, shape, np.int32),
        "input_mask": (np.arange(LENGTH) < lengths).astype(np.int32),
        "segment_ids": rng.integers(0, 2, shape, np.int32),
    }


@pytest.fixture(scope="module")
def labels():
    return np.arange(NUM_EXAMPLES) % CLASSES


@pytest.fixture
def model():
    model = ClassificationModel(BertEncoder(ONE_LAYER), num_outputs=CLASSES)
    # Tracing takes seconds; the default rate of 0.001 moves the loss less than dropout does.
    model.compile(keras.optimizers.Adam(0.01), LOGITS_LOSS, run_eagerly=True)
    return model


def summary_of(model, **options):
    lines = []
    model.summary(print_fn=lines.append, line_length=120, **options)
    return "\n".join(lines)


def first(outputs):
    return np.asarray(keras.tree.flatten(outputs)[0])


@pytest.mark.slow
def test_inputs_come_as_a_dict_a_list_or_arguments(batch):
    model, arrays = ClassificationModel(BertEncoder(ONE_LAYER), num_outputs=3), list(batch.values())
    expected = first(model(**batch))
    transformers = dict(zip(("input_ids", "attention_mask", "token_type_ids"), arrays, strict=True))
    keras_hub = dict(zip(("token_ids", "padding_mask", "segment_ids"), arrays, strict=True))
    for outputs in (
        model(batch),
        model(arrays),
        model(tuple(arrays)),
        model(*arrays),
        model({**batch, "label_ids": arrays[0]}),
        model(transformers, output_hidden_states=True),
        model(**transformers),
        model(keras_hub),
        model(**keras_hub),
    ):
        np.testing.assert_array_equal(first(outputs), expected)
    float_ids = [array.astype(np.float32) for array in arrays]
    np.testing.assert_array_equal(first(model(float_ids)), expected)  # keras.Input defaults to float32
    ids, mask, _ = arrays
    assert np.abs(first(model(ids)) - first(model(ids, mask))).max() > 1e-6
    full = first(model(ids, np.ones_like(ids), np.zeros_like(ids)))
    for outputs in (model(ids), model([ids]), model({"input_ids": ids}), model(input_ids=ids.tolist())):
        np.testing.assert_array_equal(first(outputs), full)
    without_segments = first(model(ids, mask, np.zeros_like(ids)))
    for outputs in (model([ids, mask]), model(input_ids=ids, input_mask=mask)):
        np.testing.assert_array_equal(first(outputs), without_segments)


@pytest.mark.parametrize("policy", model_cases.MIXED_POLICIES)
def test_ids_that_come_as_floats_are_not_rounded(policy):
    config = dataclasses.replace(ONE_LAYER, vocab_size=5000)
    ids = np.array([[4095, 2049, 257]])  # each off by one from what a narrow float can represent
    for model in (BertEncoder(config, dtype=policy), SpanModel(BertEncoder(config, dtype=policy), dtype=policy)):
        np.testing.assert_array_equal(first(model(ids.astype(np.float32))), first(model(ids)))


def test_wrong_inputs_are_named(batch):
    encoder, ids = BertEncoder(CONFIG), batch["input_ids"]
    wrong = {
        "input_mask is given twice, also as attention_mask": lambda: encoder({**batch, "attention_mask": ids}),
        "no input 'input_masks'; is it 'input_mask'": lambda: encoder({"input_ids": ids, "input_masks": ids}),
        r"\['a text'\] is a text, but the model reads ids": lambda: encoder.predict(["a text"]),
        "^config='out' is no BertConfig; for a trained": lambda: BertEncoder("out"),
        "^encoder='out' is no BertEncoder; use SpanModel.from_c": lambda: SpanModel("out"),
        "^segment_ids contains 2, but the model has type_vocab_size=2: ids": lambda: encoder(ids, ids, 0 * ids + 2),
        "called without input_ids; it was given input_mask": lambda: encoder({"input_mask": ids}),
        "given 4 inputs; it has input_ids, input_mask, segment_ids": lambda: encoder([ids] * 4),
        "200 positions, but the model has max_position_embeddings=9; trunc": lambda: encoder(np.ones([2, 200], int)),
        "input_ids has 200 positions, but": lambda: encoder(keras.Input([200], dtype="int32")),
        "input_mask is given beside a dict": lambda: encoder(batch, input_mask=ids),
        r"input_ids has the shape \(8,\); it must be \[batch, positions\]": lambda: encoder(ids[0]),
        "called without masked_lm_positions": lambda: PretrainingModel(encoder)(batch),
    }
    for message, call in wrong.items():
        with pytest.raises(UserError, match=message) as caught:
            call()
        assert "Arguments received" not in str(caught.value)  # of Keras


@pytest.mark.endurance
def test_wrong_ids_are_named_by_the_methods_of_keras(labels):
    model = ClassificationModel(BertEncoder(CONFIG), num_outputs=CLASSES)
    model.compile("sgd", LOGITS_LOSS)
    ids = np.full([NUM_EXAMPLES, LENGTH], CONFIG.vocab_size)
    fit = functools.partial(model.fit, y=labels, verbose=0)
    for method in (model, fit, functools.partial(model.predict, verbose=0)):
        with pytest.raises(UserError, match=rf"^input_ids contains {CONFIG.vocab_size}, but the model has vocab_size="):
            method(ids)
    for length in (LENGTH - 1, LENGTH):  # from here on, the graph is for any length
        model.predict(np.ones([2, length], int), verbose=0)
    with pytest.raises(UserError, match="^input_ids has 10 positions, but the model has max_position_embeddings=9;"):
        model.predict(np.ones([2, 10], int), verbose=0)


def test_results_and_attributes_have_the_names_of_transformers(batch):
    encoder = BertEncoder(CONFIG)
    outputs = encoder(batch)
    assert outputs.last_hidden_state is outputs["last_hidden_state"] is outputs["sequence_output"]
    assert outputs.pooler_output is outputs["pooled_output"]
    with pytest.raises(AttributeError, match="'hidden_states'; the results are sequence_output, pooled_output, enc"):
        _ = outputs.hidden_states
    as_dict = keras.tree.flatten(dict(outputs))
    assert all(leaf is other for leaf, other in zip(keras.tree.flatten(outputs), as_dict, strict=True))
    model = SpanModel(encoder)
    assert model.config.hidden_size == CONFIG.hidden_size
    for name, hint in (("bert", "; use encoder"), ("others", "")):
        with pytest.raises(AttributeError, match=f"'SpanModel' object has no attribute '{name}'{hint}$"):
            getattr(model, name)


@pytest.mark.endurance
def test_a_model_is_trained_saved_loaded_and_exported_as_any_of_keras(model, batch, labels, tmp_path):
    arrays = list(batch.values())
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras")
    loss_before = model.evaluate(arrays, labels, verbose=0)
    validated = {"callbacks": [checkpoint], "validation_data": (arrays, labels)}
    history = model.fit(arrays, labels, epochs=2, verbose=0, **validated).history
    loss = model.evaluate(arrays, labels, verbose=0)
    assert history["val_loss"][-1] == pytest.approx(loss)
    assert loss < loss_before  # without dropout's noise
    expected = model.predict(batch, verbose=0)
    paths = [weight.path for weight in model.weights]
    assert {"bert/embeddings/word_embeddings", "output_weights", "output_bias"} <= set(paths)

    loaded = keras.models.load_model(tmp_path / "2.keras")
    assert [weight.path for weight in loaded.weights] == paths
    np.testing.assert_allclose(loaded.predict(arrays, verbose=0), expected, atol=1e-6)
    loaded.fit(batch, labels, verbose=0)  # still compiled

    clone = keras.models.clone_model(model)
    assert [weight.path for weight in clone.weights] == paths
    assert np.abs(clone.predict(arrays, verbose=0) - expected).max() > 1e-3  # newly initialized
    model.save_weights(tmp_path / "some.weights.h5")
    clone.load_weights(tmp_path / "some.weights.h5")
    np.testing.assert_allclose(clone.predict(arrays, verbose=0), expected, atol=1e-6)

    model.export(tmp_path / "export", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "export"))
    np.testing.assert_allclose(served.serve(batch), expected, atol=1e-5)
    _, inputs = served.signatures["serving_default"].structured_input_signature
    specs = {name: (spec.shape.as_list(), spec.dtype) for name, spec in inputs.items()}
    assert specs == dict.fromkeys(batch, ([None, None], tf.int32))


def test_a_frozen_encoder_stays_frozen_when_it_is_stored():
    model = ClassificationModel(BertEncoder(CONFIG, trainable=False), num_outputs=CLASSES)
    for again in (model, ClassificationModel.from_config(model.get_config())):
        assert [variable.path for variable in again.trainable_variables] == ["output_weights", "output_bias"]


@pytest.mark.slow
def test_a_summary_shows_shapes_and_the_output_layer(model):
    text = summary_of(model, expand_nested=True)
    assert "?" not in text
    for line in ("bert (BertEncoder)", "layer_0 (TransformerLayer)", "classifier (OutputProjection)"):
        assert line in text
    assert "(None, 3)" in text and f"(None, None, {CONFIG.hidden_size})" in text
    encoder = BertEncoder(ONE_LAYER)
    for other in (encoder, SpanModel(encoder), PretrainingModel(encoder)):
        assert "?" not in summary_of(other)


def test_inputs_are_completed_once(batch, monkeypatch):
    completed = []
    monkeypatch.setattr(
        "official_bert.modeling.token_model.named_inputs", lambda *a: completed.append(a) or named_inputs(*a)
    )
    ClassificationModel(BertEncoder(CONFIG), num_outputs=3)({"input_ids": batch["input_ids"]})
    assert len(completed) == 1  # only by the model, not again by its encoder


@pytest.mark.slow
def test_the_folder_of_a_model_needs_no_custom_objects(model, tmp_path):
    """In a new process, importing the package is enough for loading."""
    model.save(tmp_path / "model.keras")
    (tmp_path / "load.py").write_text(
        """
import sys, keras

keras.saving.get_custom_objects().clear()
for name in [*sys.modules]:
    if name.startswith("official_bert"):
        del sys.modules[name]
import official_bert

print(type(keras.models.load_model(sys.argv[1])).__module__)
"""
    )
    result = run_script(tmp_path / "load.py", str(tmp_path / "model.keras"))
    assert result.output == "official_bert.modeling.heads\n", result
