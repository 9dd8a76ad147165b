"""Converted models against `transformers` with PyTorch; runs where the `bench` extra is installed.

The models are created on the fly: small, with all weights random, including those initialized to 0 or 1.
"""

import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.commands import convert_hf_checkpoint
from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.support.errors import UserError
from official_bert.tokenization import FullTokenizer
from tests.commands.hf_models import (
    PIECES,
    TOLERANCE,
    assert_same_encoder,
    from_hf,
    make_batch,
    run_transformers,
    save,
    to_hf,
)
from tests.conftest import golden_arrays
from tests.tokenization.hard_texts import ACCENTED, CASED, SCRIPTS, UNCASED

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.bench

CLASSES = ("BertModel", "BertForPreTraining", "BertForSequenceClassification", "BertForQuestionAnswering")


def make_model(class_name, **options):
    torch.manual_seed(5)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=32,
        type_vocab_size=2,
        **options,
    )
    model = getattr(transformers, class_name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(mean=0.5 if parameter.ndim == 1 else 0.0, std=0.3)
    return model.eval()


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "tanh"])
def test_every_layer_and_the_pooled_output_are_equal(tmp_path, activation):
    model = make_model("BertModel", hidden_act=activation)
    save(model, tmp_path)
    checkpoint, config = from_hf(tmp_path, tmp_path / "ours")
    encoder = BertEncoder(config)
    load(CheckpointReader(checkpoint), encoder.trainable_variables)
    batch = make_batch(len(PIECES))
    outputs, encoded = run_transformers(model, batch), encoder(**batch)
    assert_same_encoder(outputs, encoded)
    np.testing.assert_allclose(encoded["pooled_output"], outputs.pooler_output.numpy(), atol=TOLERANCE)


def test_both_pretraining_heads_are_equal(tmp_path):
    model = make_model("BertForPreTraining")
    save(model, tmp_path)
    checkpoint, config = from_hf(tmp_path, tmp_path / "ours")
    ours = PretrainingModel(BertEncoder(config))
    load(CheckpointReader(checkpoint), ours.trainable_variables)
    batch = make_batch(len(PIECES))
    outputs = run_transformers(model, batch)
    logits = ours({**batch, "masked_lm_positions": np.tile(np.arange(11, dtype=np.int32), [10, 1])})
    np.testing.assert_allclose(logits["masked_lm_logits"], outputs.prediction_logits.numpy(), atol=5 * TOLERANCE)
    np.testing.assert_allclose(logits["next_sentence_logits"], outputs.seq_relationship_logits.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize(
    ("class_name", "folder", "pooled"),
    [("BertForSequenceClassification", "", True), ("BertForQuestionAnswering", "cls/squad/", False)],
)
def test_heads_of_fine_tuned_models_are_equal(tmp_path, class_name, folder, pooled):
    model = make_model(class_name, **({"num_labels": 3} if pooled else {}))
    save(model, tmp_path)
    checkpoint, config = from_hf(tmp_path, tmp_path / "ours")
    encoder = BertEncoder(config)
    load(CheckpointReader(checkpoint), encoder.trainable_variables)
    batch = make_batch(len(PIECES))
    encoded, outputs = encoder(**batch), run_transformers(model, batch)
    assert_same_encoder(outputs, encoded)
    hidden = encoded["pooled_output" if pooled else "sequence_output"]
    reader = CheckpointReader(checkpoint)
    # The formula of the reference's heads, with weights of shape [classes, width].
    logits = np.asarray(hidden) @ reader.read(f"{folder}output_weights").T + reader.read(f"{folder}output_bias")
    expected = outputs.logits if pooled else torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)
    np.testing.assert_allclose(logits, expected.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("class_name", CLASSES)
def test_there_and_back_every_tensor_is_the_same(tmp_path, class_name):
    model = make_model(class_name)
    save(model, tmp_path)
    from_hf(tmp_path, tmp_path / "ours")
    to_hf(tmp_path / "ours", tmp_path / "back")
    again, report = getattr(transformers, class_name).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    made_up = (
        {"bert.pooler.dense.weight", "bert.pooler.dense.bias"} if class_name == "BertForQuestionAnswering" else set()
    )
    assert set(report["unexpected_keys"]) == made_up
    before, after = model.state_dict(), again.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert again.config.hidden_act == model.config.hidden_act
    assert again.config.num_labels == model.config.num_labels


def test_a_checkpoint_of_the_reference_gives_its_activations_in_transformers(tmp_path, model_dir, vocab_file):
    config = HfConversionConfig(
        to_hf=True,
        init_checkpoint=str(model_dir / "bert_model.ckpt"),
        bert_config_file=str(model_dir / "bert_config.json"),
        vocab_file=vocab_file,
        output_dir=str(tmp_path),
    )
    convert_hf_checkpoint.run(config)
    model = transformers.AutoModelForPreTraining.from_pretrained(tmp_path).eval()
    golden = golden_arrays("pretraining_model/activations.npz")
    outputs = run_transformers(
        model, {name: golden[f"in/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}
    )
    layers = np.stack([layer.numpy() for layer in outputs.hidden_states])
    np.testing.assert_allclose(layers[0], golden["out/embedding_output"], atol=TOLERANCE)
    np.testing.assert_allclose(layers[1:], golden["out/all_encoder_layers"], atol=TOLERANCE)
    log_probabilities = torch.log_softmax(outputs.seq_relationship_logits, dim=-1).numpy()
    np.testing.assert_allclose(log_probabilities, golden["out/next_sentence_log_probs"], atol=TOLERANCE)


@pytest.mark.parametrize("settings", [UNCASED, CASED, ACCENTED], ids=str)
def test_the_tokenizer_is_loaded_with_its_settings(tmp_path, model_dir, vocab_file, settings):
    config = HfConversionConfig(
        to_hf=True,
        init_checkpoint=str(model_dir / "bert_model.ckpt"),
        bert_config_file=str(model_dir / "bert_config.json"),
        vocab_file=vocab_file,
        **settings._asdict(),
        output_dir=str(tmp_path),
    )
    convert_hf_checkpoint.run(config)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = FullTokenizer(vocab_file, **settings._asdict())
    for text in ("The cat, Émile's, sat unbelievably near THE town.", *SCRIPTS[:5]):  # no final sigma, unsupported
        assert theirs(text)["input_ids"][1:-1] == ours.encode(text)
    # Folders written by transformers have no vocab.txt.
    theirs.save_pretrained(tmp_path / "theirs")
    make_model("BertModel").save_pretrained(tmp_path / "theirs")
    with pytest.raises(UserError, match=r"theirs has 1182 wordpieces, .*config.json a vocab_size of 40"):
        from_hf(tmp_path / "theirs", tmp_path / "out")


def test_the_documented_behaviour_of_pickles(tmp_path):
    model = make_model("BertForPreTraining")
    save(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="To convert it to model.safetensors") as error:
        from_hf(tmp_path, tmp_path / "out")
    program = re.search(r'python -c "(.*)"$', str(error.value))[1]
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    checkpoint, _ = from_hf(tmp_path, tmp_path / "out")
    bias = model.state_dict()["cls.predictions.bias"].numpy()
    np.testing.assert_array_equal(CheckpointReader(checkpoint).read("cls/predictions/output_bias"), bias)


def test_the_comparison_would_see_the_wrong_gelu(tmp_path):
    model = make_model("BertModel", hidden_act="gelu")
    save(model, tmp_path)
    checkpoint, config = from_hf(tmp_path, tmp_path / "ours")
    wrong = BertEncoder(BertConfig(**{**config.to_dict(), "hidden_act": "gelu"}))
    load(CheckpointReader(checkpoint), wrong.trainable_variables)
    batch = make_batch(len(PIECES))
    difference = keras.ops.max(
        abs(wrong(**batch)["pooled_output"] - run_transformers(model, batch).pooler_output.numpy())
    )
    assert difference > TOLERANCE
