"""Low-rank updates of the encoder's kernels: their names, their effect, and the files of PEFT."""

import json

import numpy as np
import pytest
from keras import ops

from official_bert.checkpoints import editing
from official_bert.checkpoints.bundle import CheckpointReader, write_checkpoint
from official_bert.checkpoints.editing import read_model
from official_bert.checkpoints.loading import load, open_checkpoint
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import LoraSettings
from official_bert.modeling.heads import ClassificationModel
from official_bert.support.errors import UserError
from official_bert.training.training_run import weights_by_name
from tests.conftest import GOLDEN, golden_arrays

pytestmark = pytest.mark.slow

ADAPTER = GOLDEN / "peft"
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def inputs():
    return {name: array for name, array in golden_arrays("peft/outputs.npz").items() if name != "logits"}


def classifier(config, **options):
    return ClassificationModel(BertEncoder(config, **options), num_outputs=3)


def test_updates_leave_the_model_and_its_names_as_they_are(config, files_of_model, inputs):
    reader = open_checkpoint(files_of_model["init_checkpoint"], "init_checkpoint")
    plain = BertEncoder.from_checkpoint(reader.prefix)
    encoder = BertEncoder.from_checkpoint(reader.prefix, lora=LoraSettings(2, 6.0, ("query", "dense")))
    paths = [weight.path for weight in encoder.weights]
    assert [path for path in paths if "lora" not in path] == [weight.path for weight in plain.weights]
    layers = [f"bert/encoder/layer_{number}" for number in range(config.num_layers)]
    places = ("attention/self/query", "attention/output/dense", "intermediate/dense", "output/dense")
    expected = {f"{layer}/{place}/lora_kernel_{factor}" for layer in layers for place in places for factor in "ab"}
    pooler = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    assert {weight.path for weight in encoder.trainable_weights} == expected | pooler
    np.testing.assert_array_equal(encoder(inputs)["sequence_output"], plain(inputs)["sequence_output"])


def test_an_adapter_of_peft_gives_its_outputs(config, files_of_model, inputs):
    arrays = read_model(CheckpointReader(files_of_model["init_checkpoint"]))
    merged = editing.with_adapter(arrays, editing.read_adapter(str(ADAPTER)), config, str(ADAPTER))
    model = classifier(config)
    for variable in model.weights:
        variable.assign(merged[variable.path])
    np.testing.assert_allclose(model(inputs), golden_arrays("peft/outputs.npz")["logits"], atol=TOLERANCE)


def test_a_checkpoint_is_read_merged_and_gives_an_adapter_that_merges_alike(config, files_of_model, inputs, tmp_path):
    """The adapter has the names, the shapes and the settings of one that PEFT wrote."""
    model = classifier(config, lora=LoraSettings(2, 6.0, ("query", "value")))
    load(CheckpointReader(files_of_model["init_checkpoint"]), model.weights, required=lambda name: False)
    rng = np.random.default_rng(1)
    for variable in model.trainable_weights:
        variable.assign(rng.normal(size=variable.shape, scale=0.3))
    slots = {f"{variable.path}/adam_m": variable.value for variable in model.trainable_weights}
    write_checkpoint(str(tmp_path / "run"), {**weights_by_name(model), **slots})

    reader = open_checkpoint(str(tmp_path / "run"), "checkpoint")
    merged = classifier(config)
    load(reader, merged.weights)
    assert not [name for name in reader.shapes if "lora" in name]
    np.testing.assert_allclose(merged(inputs), model(inputs), atol=TOLERANCE)
    assert ops.max(ops.abs(merged(inputs) - classifier(config)(inputs))) > 0.1

    adapter = editing.adapter_of(CheckpointReader(str(tmp_path / "run")), config)
    theirs = editing.read_adapter(str(ADAPTER))
    expected = {name: array.shape for name, array in theirs.arrays.items() if ".intermediate." not in name}
    pooler = "base_model.model.bert.pooler.dense"
    expected |= {f"{pooler}.weight": (32, 32), f"{pooler}.bias": (32,)}
    assert {name: array.shape for name, array in adapter.arrays.items()} == expected
    for key in ("peft_type", "task_type", "r", "lora_alpha", "bias"):
        assert adapter.values[key] == theirs.values[key], key
    assert adapter.values["target_modules"] == ["attention.self.query", "attention.self.value"]
    base = read_model(CheckpointReader(files_of_model["init_checkpoint"]))
    again = editing.with_adapter(base, adapter, config, "adapter")
    for variable in merged.weights:
        np.testing.assert_allclose(again[variable.path], variable, atol=1e-6, err_msg=variable.path)
    with pytest.raises(UserError, match="has no low-rank updates"):
        editing.adapter_of(CheckpointReader(files_of_model["init_checkpoint"]), config)


def test_settings_that_only_training_uses_are_accepted(tmp_path):
    """Newer versions of PEFT write a key for every setting, used or not."""
    values = json.loads((ADAPTER / "adapter_config.json").read_text())
    of_training = {
        "arrow_config": None, "auto_mapping": {"base_model_class": "BertModel"}, "eva_config": {"rho": 2.0},
        "ensure_weight_tying": False, "layers_to_transform": [0], "loftq_config": {}, "lora_dropout": 0.1,
        "megatron_core": "megatron.core", "peft_version": "0.21.2", "qalora_group_size": 16, "rank_pattern": {},
    }  # fmt: skip
    (tmp_path / "adapter_model.safetensors").write_bytes((ADAPTER / "adapter_model.safetensors").read_bytes())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**values, **of_training}))
    assert editing.read_adapter(str(tmp_path)).arrays.keys() == editing.read_adapter(str(ADAPTER)).arrays.keys()


def test_adapters_that_do_not_fit_are_refused(config, files_of_model, tmp_path):
    values = json.loads((ADAPTER / "adapter_config.json").read_text())
    for changes, message in (
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; it must be \"LORA\""),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'; it must be true or false or"),
        ({"r": 0}, "r is 0; it must be above 0"),
        ({"r": True}, "r is True; it must be a whole number"),
        ({"alpha_pattern": {"query": 4}}, "alpha_pattern is .*, which is not supported"),
        ({"use_dora": True}, "use_dora is .*, which is not supported"),
        ({"setting_of_the_future": 1}, "setting_of_the_future is .*, which is not supported"),
    ):
        (tmp_path / "adapter_config.json").write_text(json.dumps({**values, **changes}))
        with pytest.raises(UserError, match=message):
            editing.read_adapter(str(tmp_path))
    arrays = read_model(CheckpointReader(files_of_model["init_checkpoint"]))
    adapter = editing.read_adapter(str(ADAPTER))
    name = next(name for name in adapter.arrays if "layer.0." in name and name.endswith(".lora_A.weight"))
    factor = adapter.arrays[name.replace("_A", "_B")]
    short_name = name.removeprefix("base_model.model.")
    layer_9 = name.replace("layer.0", "layer.9")
    weight, bias = (f"base_model.model.classifier.{part}" for part in ("weight", "bias"))
    for changed, broken, message in (
        ({"lora_alpha": 1e308}, {}, "adapter: bert/.* contains NaN or infinity, or numbers beyond float32"),
        ({}, {short_name: np.ones([2, 32]), short_name.replace("_A", "_B"): factor}, "twice, also as bert"),
        (
            {},
            {layer_9: np.ones([2, 32]), name: np.ones([2, 31]), weight: np.ones([3, 17])},
            r"unknown: .*layer.9.*; other shapes: .*query.* the shape \[31, 32\], .* the shape \[3, 17\]; "
            "give the adapter's own base model",
        ),
        ({}, {name: None}, "without its other factor: .*query.lora_B.weight;"),
        ({"r": 4}, {}, r"query.weight are \[2, 32\] and \[32, 2\], but r=4"),
        ({}, {bias: None}, "adapter lacks 'output_bias' of the classifier"),
        ({"task_type": None}, {}, "has a classifier, but no task_type"),
    ):
        given = {key: array for key, array in {**adapter.arrays, **broken}.items() if array is not None}
        with pytest.raises(UserError, match=message):
            editing.with_adapter(arrays, editing.Adapter({**adapter.values, **changed}, given), config, "adapter")
