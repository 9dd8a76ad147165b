"""Keras's other backends: models, losses, optimizers, `fit` and saving give what they give with TensorFlow."""

import functools
import importlib.util
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import official_bert
from official_bert.support.errors import UserError
from tests.conftest import endurance, script_environment

PROGRAM = """
import sys
import keras
import numpy as np
import official_bert

folder, vocab_file, config_file = sys.argv[1:]
keras.initializers.TruncatedNormal = lambda **_: keras.initializers.Zeros()  # all is assigned; JAX compiles each shape
results, backend = {}, keras.backend.backend()
tokenizer = official_bert.FullTokenizer(vocab_file)
config = {**official_bert.BertConfig.from_json_file(config_file).to_dict(), "num_hidden_layers": 1}
config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
texts = ["the town slept", "the harbour woke .", "a baker", "he read it to the end", "the", "two lamps"]
batch = tokenizer(texts, max_seq_length=32)

def encoder():
    return official_bert.BertEncoder(official_bert.BertConfig.from_dict(config))

def assign(model):  # weights that do not depend on the backend
    rng = np.random.default_rng(1)
    for variable in sorted(model.trainable_variables, key=lambda each: each.path):
        variable.assign(variable.path.endswith("gamma") + rng.normal(0, 0.05, variable.shape))
    return model

def note(name, outputs):
    for number, array in enumerate(keras.tree.flatten(outputs)):
        results[f"{name} {number}"] = keras.ops.convert_to_numpy(array)

def outputs(batch, choices, masked):
    found = [shared(batch), [model(batch) for model in heads], of_choices(choices), pretraining(masked)]
    return keras.tree.flatten(found)

def fitted(optimizer):
    model = assign(official_bert.ClassificationModel(encoder(), num_outputs=2, head_dropout=0.0))
    schedule = official_bert.LinearWarmupThenDecay(1e-3, num_train_steps=9, num_warmup_steps=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(getattr(official_bert, optimizer)(schedule), loss)
    model.fit(batch, np.array([0, 1] * 3), batch_size=2, epochs=2, shuffle=False, verbose=0)
    return model

shared = encoder()
heads = [official_bert.TaggingModel(shared, num_outputs=3), official_bert.SpanModel(shared)]
heads = [assign(head) for head in [*heads, official_bert.SentenceModel(shared)]]
choices = {name: np.stack([ids, ids[::-1]], axis=1) for name, ids in batch.items()}
of_choices = assign(official_bert.MultipleChoiceModel(encoder()))
masked = {**batch, "masked_lm_positions": np.ones([6, 2], np.int32)}
pretraining = assign(official_bert.PretrainingModel(encoder()))
if backend == "jax":  # compiles all in less time than each operation
    import jax
    note("outputs", jax.jit(outputs)(batch, choices, masked))
else:
    note("outputs", outputs(batch, choices, masked))
model = fitted("AdamWeightDecay")
note("AdamWeightDecay", model.predict(batch, verbose=0))
from tests.tasks.losses_by_backend import computed
assert backend == "tensorflow" or "tensorflow" not in sys.modules
for name, value in computed().items() if backend != "torch" else ():
    note(name, value)

model.save(f"{folder}/{backend}.keras")
loaded = keras.models.load_model(f"{folder}/{backend}.keras")
np.testing.assert_allclose(loaded(batch), results["AdamWeightDecay 0"], atol=1e-6)
run = official_bert.save_model(f"{folder}/{backend}", model, tokenizer, labels=["no", "yes"], max_seq_length=32)
loaded = official_bert.ClassificationModel.from_checkpoint(run, num_outputs=2)
np.testing.assert_allclose(loaded(batch), results["AdamWeightDecay 0"], atol=1e-6)

if backend == "jax":
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    assert len(keras.distribution.list_devices()) == 2
note("Lamb", fitted("Lamb").predict(batch, batch_size=6, verbose=0))
np.savez(f"{folder}/{backend}.npz", **results)
"""


@pytest.fixture(scope="module")
def run(vocab_file, model_dir, tmp_path_factory):
    """Return a function that runs the program with a backend and returns its folder and results."""
    folder = tmp_path_factory.mktemp("backends")

    @functools.cache
    def run(backend):
        variables = {"KERAS_BACKEND": backend, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        environment = script_environment() | variables | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        command = [sys.executable, "-c", PROGRAM, str(folder), vocab_file, str(model_dir / "bert_config.json")]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert process.returncode == 0, process.stderr
        with np.load(folder / f"{backend}.npz") as results:
            return str(folder / backend), dict(results)

    return run


@pytest.mark.endurance
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_another_backend_gives_the_same(backend, run):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    (folder, found), (_, expected) = run(backend), run("tensorflow")
    assert found.keys() == {name for name in expected if backend == "jax" or not name.startswith("loss: ")}
    for name, array in found.items():
        tolerance = 1e-6 * max(1.0, abs(array).max()) if name.startswith("loss: ") else 1.1e-5
        np.testing.assert_allclose(array, expected[name], atol=tolerance, err_msg=name)
    probability = official_bert.Predictor(folder)("the town slept").probabilities["yes"]
    assert probability == pytest.approx(tf.nn.softmax(expected["AdamWeightDecay 0"][0])[1].numpy(), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("models", ["bert", *endurance("families")])
def test_fused_attention_gives_the_same(models):
    environment = {**script_environment(), "KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-m", "tests.training.attention_runs", models]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("name", "backend", "arguments"),
    [
        ("Predictor", "torch", ["tests"]),
        ("export", "jax", ["absent", "serving"]),
        ("AttentionReader", "jax", [None, None, "absent"]),
        ("Trainer", "jax", [None, None]),
    ],
)
def test_what_needs_tensorflow_says_so(name, backend, arguments, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    message = f"{name} needs Keras's TensorFlow backend, and this process uses {backend}; set .* KERAS_BACKEND="
    with pytest.raises(UserError, match=message):
        getattr(official_bert, name)(*arguments, **({"seed": 1} if name == "Trainer" else {}))


@pytest.mark.parametrize(
    ("backend", "message"),
    [("torch", "backend='torch': choose one of tensorflow, jax"), ("jax", "KERAS_BACKEND=jax before Python starts$")],
)
def test_the_trainer_refuses_another_backend_than_keras_has(backend, message):
    with pytest.raises(UserError, match=message):
        official_bert.Trainer(None, seed=1, backend=backend)
