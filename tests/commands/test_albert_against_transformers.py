"""ALBERT compared with `transformers` with PyTorch; needs the `bench` extra."""

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel
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

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.bench

CONFIGS = {
    "one group": {},
    "two groups": {"num_hidden_groups": 2, "hidden_act": "gelu"},
    "inner layers": {"inner_group_num": 2, "hidden_act": "relu"},
    "groups and inner layers": {"num_hidden_groups": 2, "inner_group_num": 2, "embedding_size": 30},
}
POSITIONS = np.tile(np.arange(11, dtype=np.int32), [10, 1])


def make_model(class_name, **options):
    torch.manual_seed(5)
    sizes = {
        "vocab_size": len(PIECES),
        "embedding_size": 10,
        "hidden_size": 24,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 32,
    }
    model = getattr(transformers, class_name)(transformers.AlbertConfig(**sizes | options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(mean=0.5 if parameter.ndim == 1 else 0.0, std=0.3)
    return model.eval()


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
def test_every_layer_and_both_pretraining_heads_are_equal(tmp_path, options):
    model = make_model("AlbertForPreTraining", **options)
    save(model, tmp_path)
    checkpoint, config = from_hf(tmp_path, tmp_path / "ours")
    ours = PretrainingModel(BertEncoder(config))
    load(CheckpointReader(checkpoint), ours.trainable_variables)
    batch = make_batch(len(PIECES))
    outputs, encoded = run_transformers(model, batch), ours.encoder(**batch)
    assert_same_encoder(outputs, encoded)
    logits = ours({**batch, "masked_lm_positions": POSITIONS})
    np.testing.assert_allclose(logits["masked_lm_logits"], outputs.prediction_logits.numpy(), atol=TOLERANCE)
    np.testing.assert_allclose(logits["next_sentence_logits"], outputs.sop_logits.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "tanh"])
def test_an_encoder_alone_is_equal(tmp_path, activation):
    model = make_model("AlbertModel", hidden_act=activation)
    save(model, tmp_path)
    encoder = BertEncoder.from_checkpoint(tmp_path)
    batch = make_batch(len(PIECES))
    outputs, encoded = run_transformers(model, batch), encoder(**batch)
    assert_same_encoder(outputs, encoded)
    np.testing.assert_allclose(encoded["pooled_output"], outputs.pooler_output.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize(
    ("class_name", "options"),
    [("AlbertForSequenceClassification", {"num_labels": 3}), ("AlbertForQuestionAnswering", {})],
)
def test_heads_of_fine_tuned_models_are_equal(tmp_path, class_name, options):
    model = make_model(class_name, **options)
    save(model, tmp_path)
    checkpoint, config = from_hf(tmp_path, tmp_path / "ours")
    encoder = BertEncoder(config)
    ours = ClassificationModel(encoder, num_outputs=3) if options else SpanModel(encoder)
    load(CheckpointReader(checkpoint), ours.trainable_variables)
    batch = make_batch(len(PIECES))
    found, expected = ours(batch), run_transformers(model, batch)
    if options:
        np.testing.assert_allclose(found, expected.logits.numpy(), atol=TOLERANCE)
    else:
        for name in ("start_logits", "end_logits"):
            np.testing.assert_allclose(found[name], getattr(expected, name).numpy(), atol=TOLERANCE)


@pytest.mark.parametrize(
    "class_name", ["AlbertModel", "AlbertForPreTraining", "AlbertForSequenceClassification", "AlbertForMaskedLM"]
)
def test_there_and_back_every_tensor_is_the_same(tmp_path, class_name):
    model = make_model(class_name, num_hidden_groups=2, inner_group_num=2)
    save(model, tmp_path)
    from_hf(tmp_path, tmp_path / "ours")
    to_hf(tmp_path / "ours", tmp_path / "back")
    again, report = getattr(transformers, class_name).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    made_up = {"albert.pooler.weight", "albert.pooler.bias"} if class_name == "AlbertForMaskedLM" else set()
    assert set(report["unexpected_keys"]) == made_up
    before, after = model.state_dict(), again.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (model.config.hidden_act, again.config.hidden_act) == ("gelu_new", "gelu_pytorch_tanh")  # one function


def test_embeddings_as_wide_as_the_layers_get_a_projection_that_changes_nothing(tmp_path):
    model = make_model("AlbertModel", embedding_size=24)
    with torch.no_grad():
        projection = model.encoder.embedding_hidden_mapping_in
        projection.weight.copy_(torch.eye(24))
        projection.bias.zero_()
    save(model, tmp_path)
    from_hf(tmp_path, tmp_path / "ours")
    to_hf(tmp_path / "ours", tmp_path / "back")
    again = transformers.AlbertModel.from_pretrained(tmp_path / "back").eval()
    encoder, batch = BertEncoder.from_checkpoint(tmp_path / "ours"), make_batch(len(PIECES))
    assert_same_encoder(run_transformers(again, batch), encoder(**batch))
