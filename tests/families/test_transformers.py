"""Each family, compared with results of `transformers` for small random models in `tests/golden/families`."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.checkpoints.safetensors import read_folder, read_model, to_hf
from official_bert.config.bert_config import BertConfig
from official_bert.families.family import canonical_name
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, MultipleChoiceModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel, ReplacedTokenModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.support.errors import UserError
from tests.conftest import endurance

pytestmark = pytest.mark.slow

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "families"
RATE = 0.02  # learning rate of gradient descent in `make.py`
CASES = sorted(path.parent.relative_to(GOLDEN) for path in GOLDEN.glob("*/*/expected.npz"))
HEADS = {
    "ForPreTraining": (PretrainingModel, {}),
    "ForMaskedLM": (PretrainingModel, {}),
    "ForSequenceClassification": (ClassificationModel, {"head_dropout": 0.0}),
    "ForMultipleChoice": (MultipleChoiceModel, {"head_dropout": 0.0}),
    "ForTokenClassification": (TaggingModel, {"head_dropout": 0.0}),
    "ForQuestionAnswering": (SpanModel, {}),
}


def load(folder, expected):
    model_class, options = HEADS.get(folder.name, (BertEncoder, {}))
    if (folder.parent.name, folder.name) == ("electra", "ForPreTraining"):
        model_class = ReplacedTokenModel
    if model_class in (ClassificationModel, TaggingModel):
        options = options | {"num_outputs": expected["logits"].shape[-1]}
    return model_class.from_checkpoint(str(folder), **options)


def inputs_of(expected):
    """Return the inputs of the encoder."""
    segments = expected.get("token_type_ids")
    given = {"input_ids": expected["input_ids"], "input_mask": expected["attention_mask"]}
    return given | ({} if segments is None else {"segment_ids": segments})


def scores(model, inputs, *, training=False):
    """Return the logits by their names in `transformers`."""
    if isinstance(model, PretrainingModel):
        positions = np.tile(np.arange(inputs["input_ids"].shape[1]), (len(inputs["input_ids"]), 1))
        found = model({**inputs, "masked_lm_positions": positions}, training=training)
        words, sentences = found["masked_lm_logits"], found["next_sentence_logits"]
        names = {"logits": words, "prediction_logits": words}
        return names | {"sop_logits": sentences, "seq_relationship_logits": sentences}
    outputs = model(inputs, training=training)
    return outputs if isinstance(outputs, dict) else {"logits": outputs}


def train_step(model, inputs, expected):
    """Take one step of gradient descent; return the loss before it."""
    with tf.GradientTape() as tape:
        losses = []
        for name, logits in scores(model, inputs, training=True).items():
            if name not in expected:
                continue
            labels = expected["labels" if name == "logits" else name.replace("logits", "positions")]
            loss = keras.losses.sparse_categorical_crossentropy(np.maximum(labels, 0), logits, from_logits=True)
            losses.append(tf.reduce_mean(loss[labels >= 0]))
        loss = tf.reduce_mean(losses)
    variables = model.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, [v.value for v in variables]), strict=True):
        if gradient is not None:
            variable.assign_sub(RATE * tf.convert_to_tensor(gradient))
    return loss.numpy()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_computes_what_transformers_computed_and_a_round_trip_gives_the_same_arrays(case):
    expected = dict(np.load(GOLDEN / case / "expected.npz"))
    model, inputs = load(GOLDEN / case, expected), inputs_of(expected)
    encoder = getattr(model, "encoder", model)
    assert encoder.count_params() == encoder.config.num_parameters
    check_round_trip(case, encoder.config)
    sequences = {name: array.reshape(-1, array.shape[-1]) for name, array in inputs.items()}
    is_compared = sequences["input_mask"] >= 0
    if case.parent.name in ("deberta-v2", "modernbert"):  # there, padding attends to nothing
        is_compared = sequences["input_mask"] == 1

    def assert_close(found, right):
        right = right[..., is_compared, :] if (is_whole := right.shape[-3:-1] == is_compared.shape) else right
        np.testing.assert_allclose(np.asarray(found)[..., is_compared, :] if is_whole else found, right, atol=1e-5)

    if model is not encoder:
        for name, logits in scores(model, inputs).items():
            if name in expected:
                assert_close(logits, expected[name])
        return
    encoded = encoder(sequences)
    assert_close(encoded["embedding_output"], expected.get("embedding_output", np.array(encoded["embedding_output"])))
    for found, right in zip(encoded["encoder_layers"], expected["hidden_states"], strict=True):
        assert_close(found, right)
    np.testing.assert_allclose(encoder.pool(sequences), encoded["pooled_output"], atol=1e-5)
    if "pooler_output" in expected:
        np.testing.assert_allclose(encoded["pooled_output"], expected["pooler_output"], atol=1e-5)


def check_round_trip(case, config):
    folder = str(GOLDEN / case)
    weights = to_hf(read_model(folder, config).arrays, config, "checkpoint")
    theirs = json.loads((GOLDEN / case / "config.json").read_text().replace("gelu_new", "gelu_pytorch_tanh"))  # equal
    ours = config.to_hugging_face(weights.architecture, weights.num_classes)
    both = {key for key in ours.keys() & theirs.keys() - {"id2label", "label2id"} if ours[key] is not None}
    assert {key: ours[key] for key in both} == {key: theirs[key] for key in both}
    prefix = config.family.hugging_face.prefix if case.name == "Model" else ""
    arrays = {prefix + name: array for name, array in weights.arrays.items()}
    expected = read_folder(folder, config)
    assert sorted(arrays) == sorted(expected)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])


FIRST = pathlib.Path("bert", "ForSequenceClassification")
OTHERS = [case for case in CASES if case.name in {*HEADS} - {"ForPreTraining"} and case != FIRST]


@pytest.mark.parametrize("case", [FIRST, *endurance(*OTHERS)], ids=str)
def test_it_learns_as_in_transformers(case):
    expected = dict(np.load(GOLDEN / case / "expected.npz"))
    model, inputs = load(GOLDEN / case, expected), inputs_of(expected)
    losses = [train_step(model, inputs, expected) for _ in expected["losses"]]
    np.testing.assert_allclose(losses, expected["losses"], rtol=1e-3)


def test_released_debertas_have_tensors_that_no_class_has(tmp_path):
    """They have a discriminator's head, and embeddings of positions that have no effect."""
    folder = shutil.copytree(GOLDEN / "deberta-v2" / "ForMaskedLM", tmp_path, dirs_exist_ok=True)
    config = BertConfig.from_json_file(str(folder / "config.json"))
    before, arrays = read_model(str(folder), config), safetensors.numpy.load_file(folder / "model.safetensors")
    rng = np.random.default_rng(1)
    shapes = {"LayerNorm.weight": [12], "LayerNorm.bias": [12], "dense.weight": [12, 12], "dense.bias": [12]}
    shapes |= {"classifier.weight": [1, 12], "classifier.bias": [1]}
    head = {f"mask_predictions.{name}": rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    more = head | {"deberta.embeddings.position_embeddings.weight": np.ones(12)}
    safetensors.numpy.save_file(arrays | more, folder / "model.safetensors")
    after = read_model(str(folder), config)
    assert after.parts == [*before.parts, "discriminator's head"] == ["encoder", "masked-LM head", after.parts[2]]
    written = to_hf(after.arrays, config, "checkpoint")
    assert written.architecture == "DebertaV2ForMaskedLM"
    assert written.arrays.keys() == read_folder(folder, config).keys()

    model, ids = ReplacedTokenModel.from_checkpoint(str(folder)), np.array([[5, 9, 3, 2], [8, 7, 6, 4]])
    x = np.array(model.encoder(ids)["sequence_output"])
    x += x[:, :1]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + config.layer_norm_eps)
    norm, norm_bias, dense, dense_bias, output, output_bias = head.values()
    x = np.array(keras.activations.gelu((x * norm + norm_bias) @ dense.T + dense_bias, approximate=False))
    np.testing.assert_allclose(model(ids), (x @ output.T + output_bias)[..., 0], atol=1e-5)


def test_a_folder_that_names_no_class_has_a_sequence_classifier(tmp_path):
    for case, head in (("bert/ForTokenClassification", "classifier"), ("electra/ForMaskedLM", "masked-LM head")):
        path = shutil.copytree(GOLDEN / case, tmp_path / head) / "config.json"
        values = json.loads(path.read_text())
        del values["architectures"]
        path.write_text(json.dumps(values))
        weights = read_model(str(path.parent), BertConfig.from_json_file(str(path)))
        assert weights.parts[-2:].count(head) == 1


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("electra/Model", {"embedding_size": 12}, r"an ELECTRA with num_h.*: unknown: electra\.embeddings_project"),
        ("electra/ForPreTraining", {"embedding_size": 8}, r"missing: electra\.embeddings_project\.weight, .*; other"),
        ("distilbert/Model", {"n_layers": 2}, r"missing: distilbert\.transformer\.layer\.1\.[^;]*, distil[^;]*; is it"),
        ("distilbert/Model", {"dim": 15}, r"word_embed[^;]* is \[33, 12\] there and \[33, 15\] here, [^;]*layer\.0\."),
        ("distilbert/Model", {"model_type": "bert"}, "a BERT with num_h.*: missing: .*; unknown: .*transformer.lay"),
        ("distilbert/Model", {"activation": "silu"}, "activation is 'silu'; only gelu"),
        ("bert/Model", {"model_type": "electra"}, "an ELECTRA .*: missing: .*; unknown: .*pooler.dense.bias"),
    ],
)
def test_a_config_that_contradicts_the_weights_is_refused(tmp_path, case, changes, message):
    shutil.copytree(GOLDEN / case, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=message):
        read_model(str(tmp_path), BertConfig.from_json_file(str(path)))


def test_a_checkpoint_of_the_electra_repository_gives_its_discriminator(tmp_path, caplog):
    """Its variables have the names of google-research/electra and include a generator's."""
    config = BertConfig.from_json_file(str(GOLDEN / "electra" / "Model" / "config.json"))
    arrays = read_model(str(GOLDEN / "electra" / "Model"), config).arrays
    folder = GOLDEN / "electra" / "ForPreTraining"
    trained = read_model(str(folder), BertConfig.from_json_file(str(folder / "config.json"))).arrays
    arrays |= {name: array for name, array in trained.items() if name.startswith("discriminator_predictions/")}
    renamed = (("bert/encoder/embedding_hidden_mapping_in", "electra/embeddings_project"), ("bert/", "electra/"))
    released = {name: array for name, array in arrays.items() if "pooler" not in name}
    for ours, theirs in renamed:
        released = {name.replace(ours, theirs): array for name, array in released.items()}
    assert "discriminator_predictions/dense_1/kernel" in released
    generator = {"generator/encoder/layer_0/output/dense/bias": np.ones(4, np.float32)}
    generator["generator_predictions/output_bias"] = np.ones(33, np.float32)
    write_checkpoint(str(tmp_path / "bert_model.ckpt"), released | generator)
    values = config.to_dict()
    assert values.pop("hidden_act") == "gelu_erf"  # transformers has no other, so a missing key means this one
    (tmp_path / "bert_config.json").write_text(json.dumps(values))
    assert BertConfig.from_json_file(str(tmp_path / "bert_config.json")) == config
    loaded = BertEncoder.from_checkpoint(str(tmp_path)).checkpoint_variables()
    assert len(released) - 4 == len(loaded) - 2  # the discriminator's head, and the pooler
    assert "lacks bert/pooler/dense/kernel, bert/pooler/dense/bias: newly initialized" in caplog.text
    loaded |= ReplacedTokenModel.from_checkpoint(str(tmp_path)).checkpoint_variables()
    assert len(loaded) == len(arrays)
    for name, variable in loaded.items():
        if "pooler" not in name:
            np.testing.assert_array_equal(variable.numpy(), arrays[name])
    canonical = {canonical_name(name): array for name, array in (released | generator).items()}
    written = to_hf(canonical, config, "checkpoint")
    assert (written.architecture, len(written.arrays)) == ("ElectraForPreTraining", len(released))
