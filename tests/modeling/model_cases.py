"""Checks of Keras's contract for every model of `official_bert.modeling`, and encoders with random weights."""

import dataclasses
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
from official_bert.families.deberta import DebertaConfig
from official_bert.families.modernbert import ModernBertConfig
from official_bert.families.mpnet import MPNetConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, MultipleChoiceModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel, ReplacedTokenModel
from official_bert.modeling.sentence import SentenceModel
from official_bert.modeling.tagging import TaggingModel

# All sizes differ, so that swapped dimensions are noticed.
B, S, P, D, I, V = 2, 7, 3, 12, 20, 30  # noqa: E741
CONFIG = BertConfig(
    vocab_size=V, hidden_size=D, num_hidden_layers=2, num_attention_heads=4, intermediate_size=I,
    max_position_embeddings=9, type_vocab_size=2,
)  # fmt: skip
ALBERT = AlbertConfig(**{**CONFIG.to_dict(), "embedding_size": 5, "num_hidden_groups": 2, "inner_group_num": 2})
SMALL = {**CONFIG.to_dict(), "num_hidden_layers": 1}
ONE_LAYER = BertConfig(**SMALL)
ROBERTA = RobertaConfig(**SMALL)
MPNET = MPNetConfig(**{**SMALL, "type_vocab_size": 0})
MODERNBERT = ModernBertConfig(
    **{**CONFIG.to_dict(), "type_vocab_size": 0, "num_attention_heads": 3, "local_attention": 4}
)
DEBERTA = DebertaConfig(**{**SMALL, "type_vocab_size": 0, "position_buckets": 6})
MIXED_POLICIES = ("mixed_bfloat16", "mixed_float16")
NARROW_POLICY = "bfloat16"  # of models exported with --export_precision=bfloat16
NOT_STORED = {"layout", "recompute_layers", "lora"}  # speed and memory; Keras merges LoRA into the kernels it saves
UNTRAINED = "key/bias"  # it shifts all scores of a row equally, without effect on softmax
POOLER = "bert/pooler/"


class Case(NamedTuple):
    """A model and its inputs.

    Attributes:
      make: creates the model from only Keras's options.
      shapes: shapes of the inputs.
      float32_outputs: indices of the outputs that are float32 under every policy; None for all.
      unused: part of the paths of variables that do not affect the outputs.
    """

    make: Callable[..., keras.Model]
    shapes: tuple[tuple[int, ...], ...] = ((B, S),) * 3
    float32_outputs: tuple[int, ...] | None = None
    unused: str = "no such path"


def _on_encoder(model_class, num_layers=1, **options):
    config = dataclasses.replace(CONFIG, num_hidden_layers=num_layers)
    return lambda dtype=None: model_class(BertEncoder(config, dtype=dtype), dtype=dtype, **options)


def _encoder(config):
    return lambda **options: BertEncoder(config, **options)


CASES = {
    "BertEncoder": Case(_encoder(ONE_LAYER), float32_outputs=(0,)),
    "BertEncoder, ALBERT": Case(_encoder(ALBERT), float32_outputs=tuple(range(4))),
    "BertEncoder, RoBERTa": Case(_encoder(ROBERTA), float32_outputs=(0,)),
    "BertEncoder, MPNet": Case(_encoder(MPNET), float32_outputs=(0,)),
    "BertEncoder, DeBERTa": Case(_encoder(DEBERTA), float32_outputs=(0,)),
    "BertEncoder, ModernBERT": Case(_encoder(MODERNBERT), float32_outputs=(0, 1)),
    "ClassificationModel": Case(_on_encoder(ClassificationModel, num_outputs=3)),
    "ClassificationModel, windows": Case(
        _on_encoder(ClassificationModel, num_outputs=3, window_length=S), ((B, 2 * S),) * 3
    ),
    "ReplacedTokenModel": Case(_on_encoder(ReplacedTokenModel), unused=POOLER),
    "SpanModel": Case(_on_encoder(SpanModel), unused=POOLER),
    "TaggingModel, BiLSTM on a weighted sum": Case(
        _on_encoder(TaggingModel, 2, num_outputs=5, feature_layers="weighted_sum", head="bilstm", lstm_units=4),
        unused=POOLER,
    ),
    "SentenceModel": Case(
        _on_encoder(SentenceModel, poolings=["cls", "max"], layers_after=[(5, "tanh"), None]), unused=POOLER
    ),
    "SentenceModel, SPLADE": Case(_on_encoder(SentenceModel, poolings=["splade"]), unused=POOLER),
    "MultipleChoiceModel": Case(_on_encoder(MultipleChoiceModel)),
    "PretrainingModel": Case(_on_encoder(PretrainingModel), (*((B, S),) * 3, (B, P))),
}


def random_encoder(config: BertConfig, **options) -> BertEncoder:
    """Return an encoder with weights that depend on their places alone."""
    encoder, rng = BertEncoder(config, **options), np.random.default_rng(1)
    for variable in encoder.trainable_variables:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    return encoder


def make_inputs(case: Case) -> list[np.ndarray]:
    """Return ids, a mask and segments of ones, and other positions."""
    ids = np.random.default_rng(1).integers(0, 2, case.shapes[0], np.int32)
    return [ids, *(np.ones(shape, np.int32) for shape in case.shapes[1:])]


def check_config(case: Case) -> None:
    """Check that the config is JSON of all arguments, and restores an equal model without custom objects."""
    layer = case.make(dtype=MIXED_POLICIES[0])  # the policy is stored, too
    config = json.loads(json.dumps(layer.get_config()))
    parameters = inspect.signature(type(layer).__init__).parameters.values()
    arguments = {parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD}
    assert arguments - {"self", *NOT_STORED} <= set(config)
    again = type(layer).from_config(config)
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()
    assert again.compute_dtype == "bfloat16"
    stored = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    assert stored["registered_name"].startswith("official_bert>")
    assert keras.saving.deserialize_keras_object(stored).get_config() == layer.get_config()


def check_outputs(case: Case, policy: str | None = None) -> None:
    """Check that symbolic outputs have the shapes and dtypes of real ones, and variables are float32 if they can be."""
    inputs = make_inputs(case)
    layer = case.make(dtype=policy) if policy else case.make()
    found = keras.tree.flatten(layer(*inputs))
    compute_dtype = keras.DTypePolicy(policy or "float32").compute_dtype
    for place, output in enumerate(found):
        is_float32 = case.float32_outputs is None or place in case.float32_outputs
        assert keras.backend.standardize_dtype(output.dtype) == ("float32" if is_float32 else compute_dtype), place
        assert np.isfinite(keras.ops.cast(output, "float32")).all()
    assert {variable.dtype for variable in layer.weights} - {"float32"} == {NARROW_POLICY}.intersection([policy])
    for known in (True, False) if policy is None else (False,):
        symbolic = [keras.KerasTensor(array.shape if known else (None, None), array.dtype) for array in inputs]
        expected = keras.tree.flatten(layer(*symbolic))
        for output, spec in zip(found, expected, strict=True):
            assert keras.backend.standardize_dtype(output.dtype) == spec.dtype
            assert len(output.shape) == len(spec.shape)
            assert all(size in (None, actual) for size, actual in zip(spec.shape, output.shape, strict=True))
            assert not known or None not in spec.shape


def check_training_and_saving(case: Case, folder: pathlib.Path) -> None:
    """Check that a training step in a functional model changes every variable, and a saved model computes the same."""
    inputs = make_inputs(case)
    arguments = [keras.Input(batch_shape=array.shape, dtype=array.dtype) for array in inputs]
    layer = case.make()
    outputs = keras.tree.flatten(layer(*arguments))
    model = keras.Model(arguments, outputs)
    before = {variable.path: np.array(variable) for variable in layer.trainable_variables}
    assert before
    model.compile(keras.optimizers.SGD(10.0), ["mse"] * len(outputs), run_eagerly=True)  # tracing takes longer
    model.train_on_batch(inputs, [np.ones(output.shape) for output in outputs])
    after = {variable.path: np.array(variable) for variable in layer.trainable_variables}
    unchanged = [path for path in before if np.array_equal(before[path], after[path])]
    assert [path for path in unchanged if not path.endswith(UNTRAINED) and case.unused not in path] == []
    path = folder / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in model.weights]
    for output, again in zip(*(keras.tree.flatten(each(inputs)) for each in (model, loaded)), strict=True):
        np.testing.assert_allclose(again, output, atol=1e-6)


def check(case: Case, folder: pathlib.Path) -> None:
    """Run all checks."""
    check_config(case)
    check_outputs(case)
    for policy in ("mixed_float16", NARROW_POLICY):
        check_outputs(case, policy)
    check_training_and_saving(case, folder)
