"""Checks of Keras's contract for every public layer and model of `official_bert.modeling`, on any backend."""

import inspect
import json
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.families.bert import RobertaConfig
from official_bert.modeling.blocks import LayerNorm, ResidualOutput
from official_bert.modeling.encoder import BertEncoder, Embeddings, Pooler
from official_bert.modeling.heads import ClassificationModel, OutputProjection, SpanModel
from official_bert.modeling.multiple_choice import MultipleChoiceModel
from official_bert.modeling.pretraining import MaskedLmHead, PretrainingModel
from official_bert.modeling.sentence import SentenceModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.modeling.transformer import (
    AttentionBlock,
    Intermediate,
    SelfAttention,
    TransformerLayer,
    TransformerStack,
)
from official_bert.modeling.variants import RobertaEmbeddings, SharedLayer, SharedStack

# All sizes differ, so that swapped dimensions are noticed.
B, S, P, D, I, V = 2, 7, 3, 12, 20, 30  # noqa: E741
CONFIG = BertConfig(
    vocab_size=V,
    hidden_size=D,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=I,
    max_position_embeddings=9,
    type_vocab_size=2,
)
ALBERT = AlbertConfig(**{**CONFIG.to_dict(), "embedding_size": 5, "num_hidden_groups": 2, "inner_group_num": 2})
ROBERTA = RobertaConfig(**CONFIG.to_dict())
MIXED_POLICIES = ("mixed_bfloat16", "mixed_float16")
NOT_STORED = {"layout", "recompute_layers", "lora"}  # speed and memory; Keras merges LoRA into the kernels it saves
UNTRAINED = "key/bias"  # it shifts all scores of a row equally, without effect on softmax


class Case(NamedTuple):
    """A layer and its inputs.

    Attributes:
      make: creates the layer from only Keras's options.
      shapes: shapes of the input tensors: "ids" and dimensions, or "vectors" and dimensions.
      float32_outputs: indices of the outputs that are float32 under every policy; None for all.
      has_policy: whether its policy can be chosen.
      unused: parts of the paths of variables that do not affect the outputs.
    """

    make: Callable[..., keras.layers.Layer]
    shapes: tuple[tuple, ...]
    float32_outputs: tuple[int, ...] | None = ()
    has_policy: bool = True
    unused: str = "no such path"


IDS, VECTORS = ("ids", B, S), ("vectors", B, S, D)
INPUTS = (IDS, ("mask", B, S), ("mask", B, S))


def _on_encoder(model_class, **options):
    return lambda dtype=None: model_class(BertEncoder(CONFIG, dtype=dtype), dtype=dtype, **options)


CASES = {
    "Embeddings": Case(lambda **o: Embeddings(CONFIG, **o), (IDS, ("mask", B, S))),
    "Embeddings, one-hot": Case(lambda **o: Embeddings(CONFIG, use_one_hot_embeddings=True, **o), (IDS, IDS)),
    "RobertaEmbeddings": Case(lambda **o: RobertaEmbeddings(ROBERTA, **o), (IDS, ("mask", B, S))),
    "LayerNorm": Case(lambda **o: LayerNorm(**o), (VECTORS,)),
    "SelfAttention": Case(lambda **o: SelfAttention(CONFIG, **o), (("vectors", B, 5, D), VECTORS), (1,)),
    "AttentionBlock": Case(lambda **o: AttentionBlock(CONFIG, **o), (VECTORS,), (1,)),
    "ResidualOutput": Case(
        lambda **o: ResidualOutput(I, D, initializer_range=0.02, dropout=0.1, **o), (("vectors", B, S, I), VECTORS)
    ),
    "OutputProjection": Case(lambda: OutputProjection(D, 3), (VECTORS,), None, has_policy=False),
    "Intermediate": Case(lambda **o: Intermediate(CONFIG, **o), (VECTORS,)),
    "TransformerLayer": Case(lambda **o: TransformerLayer(CONFIG, **o), (VECTORS,), (1,)),
    "TransformerStack": Case(lambda **o: TransformerStack(CONFIG, **o), (VECTORS,), (1, 3)),
    "SharedLayer": Case(lambda **o: SharedLayer(ALBERT, **o), (VECTORS,), (1,)),
    "SharedStack": Case(
        lambda **o: SharedStack(ALBERT, **o), (VECTORS,), (1, 3, 5, 7), unused="embedding_hidden_mapping_in/"
    ),
    "Pooler": Case(lambda **o: Pooler(CONFIG, **o), (("vectors", B, D),)),
    "MaskedLmHead": Case(lambda **o: MaskedLmHead(D, V, **o), (VECTORS, ("mask", B, P), ("vectors", V, D)), None),
    "BertEncoder": Case(lambda **o: BertEncoder(CONFIG, **o), INPUTS, (0, 1)),
    "BertEncoder, ALBERT": Case(lambda **o: BertEncoder(ALBERT, **o), INPUTS, tuple(range(4))),
    "ClassificationModel": Case(_on_encoder(ClassificationModel, num_outputs=3), INPUTS, None),
    "ClassificationModel, weighted sum": Case(
        _on_encoder(ClassificationModel, num_outputs=3, feature_layers="weighted_sum"),
        INPUTS,
        None,
        unused="bert/pooler/",
    ),
    "ClassificationModel, windows": Case(
        _on_encoder(ClassificationModel, num_outputs=3, window_length=S),
        tuple((kind, B, 2 * S) for kind, *_ in INPUTS),
        None,
    ),
    "ClassificationModel, BiLSTM": Case(
        _on_encoder(ClassificationModel, num_outputs=3, head="bilstm", lstm_units=4),
        INPUTS,
        None,
        unused="bert/pooler/",
    ),
    "SpanModel": Case(_on_encoder(SpanModel), INPUTS, None, unused="bert/pooler/"),
    "SpanModel, BiLSTM": Case(_on_encoder(SpanModel, head="bilstm"), INPUTS, None, unused="bert/pooler/"),
    "TaggingModel": Case(_on_encoder(TaggingModel, num_outputs=5), INPUTS, None, unused="bert/pooler/"),
    "TaggingModel, BiLSTM on a weighted sum": Case(
        _on_encoder(TaggingModel, num_outputs=5, feature_layers="weighted_sum", head="bilstm", lstm_units=4),
        INPUTS,
        None,
        unused="bert/pooler/",
    ),
    "SentenceModel": Case(
        _on_encoder(SentenceModel, poolings=["cls", "max"], layers_after=[(5, "tanh"), None]),
        INPUTS,
        None,
        unused="bert/pooler/",
    ),
    "MultipleChoiceModel": Case(_on_encoder(MultipleChoiceModel), INPUTS, None),
    "PretrainingModel": Case(_on_encoder(PretrainingModel), (*INPUTS, ("mask", B, P)), None),
}


def make_inputs(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    make = {
        "ids": lambda *shape: rng.integers(0, 2, shape, np.int32),
        "mask": lambda *shape: np.ones(shape, np.int32),
        "vectors": lambda *shape: rng.normal(size=shape).astype(np.float32),
    }
    return [make[kind](*shape) for kind, *shape in case.shapes]


def check_config(case: Case) -> None:
    """Check that the config is JSON of all arguments, and restores an equal layer without custom objects."""
    layer = case.make()
    config = json.loads(json.dumps(layer.get_config()))
    parameters = inspect.signature(type(layer).__init__).parameters.values()
    arguments = {parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD}
    assert arguments - {"self", *NOT_STORED} <= set(config)
    again = type(layer).from_config(config)
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()
    stored = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    assert stored["registered_name"].startswith("official_bert>")
    assert keras.saving.deserialize_keras_object(stored).get_config() == layer.get_config()


def check_outputs(case: Case, policy: str | None = None) -> None:
    """Check that symbolic outputs have the shapes and dtypes of real ones, and variables are always float32."""
    inputs = make_inputs(case)
    layer = _make(case, policy)
    found = keras.tree.flatten(layer(*inputs))
    compute_dtype = keras.DTypePolicy(policy or "float32").compute_dtype
    for place, output in enumerate(found):
        is_float32 = case.float32_outputs is None or place in case.float32_outputs
        assert keras.backend.standardize_dtype(output.dtype) == ("float32" if is_float32 else compute_dtype), place
        assert np.isfinite(keras.ops.convert_to_numpy(keras.ops.cast(output, "float32"))).all()
    assert {variable.dtype for variable in layer.weights} == {"float32"}
    for known in (True, False) if policy is None else (False,):
        symbolic = [keras.KerasTensor(_shape(array, known), array.dtype) for array in inputs]
        expected = keras.tree.flatten(layer(*symbolic))
        for output, spec in zip(found, expected, strict=True):
            assert keras.backend.standardize_dtype(output.dtype) == spec.dtype
            assert len(output.shape) == len(spec.shape)
            assert all(size in (None, actual) for size, actual in zip(spec.shape, output.shape, strict=True))
            assert not known or None not in spec.shape


def _make(case: Case, policy: str | None) -> keras.layers.Layer:
    """Create the layer with a policy, given as an argument or, if the layer has none, as the global policy."""
    if policy is None or case.has_policy:
        return case.make(dtype=policy) if policy else case.make()
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return case.make()
    finally:
        keras.config.set_dtype_policy(before)


def check_training_and_saving(case: Case, folder: pathlib.Path) -> None:
    """Check that a training step in a functional model changes every variable, and a saved model computes the same."""
    inputs = make_inputs(case)
    arguments = [keras.Input(batch_shape=array.shape, dtype=array.dtype) for array in inputs]
    layer = case.make()
    outputs = keras.tree.flatten(layer(*arguments))
    model = keras.Model(arguments, outputs)
    before = {variable.path: np.array(variable) for variable in layer.trainable_variables}
    assert before
    is_jax = keras.backend.backend() == "jax"  # JAX compiles; TensorFlow takes longer to trace a graph than to run it
    losses = ["mse"] * len(outputs)
    model.compile(keras.optimizers.SGD(10.0), losses, jit_compile=is_jax, run_eagerly=not is_jax)
    model.train_on_batch(inputs, [np.ones(output.shape) for output in outputs])
    after = {variable.path: np.array(variable) for variable in layer.trainable_variables}
    unchanged = [path for path in before if np.array_equal(before[path], after[path])]
    assert [path for path in unchanged if not path.endswith(UNTRAINED) and case.unused not in path] == []
    path = folder / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in model.weights]
    for output, again in zip(_values(model, inputs), _values(loaded, inputs), strict=True):
        np.testing.assert_allclose(again, output, atol=1e-6)


def _values(model, inputs):
    return [keras.ops.convert_to_numpy(output) for output in keras.tree.flatten(model(inputs))]


def _shape(array: np.ndarray, known: bool) -> tuple[int | None, ...]:
    """Return the shape of an array; with `known` False, only the width of vectors is set."""
    if known or array.shape[-1] == array.shape[0]:
        return array.shape
    num_open = array.ndim - (array.dtype == np.float32)
    return (None,) * num_open + array.shape[num_open:]


def check(case: Case, folder: pathlib.Path) -> None:
    """Run all checks."""
    check_config(case)
    check_outputs(case)
    for policy in MIXED_POLICIES:
        check_outputs(case, policy)
    check_training_and_saving(case, folder)
