"""`transformers` with PyTorch reads what `convert_hf_checkpoint` writes; runs where the `bench` extra is installed.

What their models compute is compared in `tests/families/test_transformers.py`, by their recorded outputs.
"""

import numpy as np
import pytest

from tests.conftest import golden_arrays, run_here

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.bench

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
BERT = {"type_vocab_size": 2}
ALBERT = {"embedding_size": 10, "num_hidden_groups": 2, "inner_group_num": 2}
CLASSES = {
    "BertModel": BERT,
    "BertForPreTraining": BERT,
    "BertForSequenceClassification": BERT,
    "BertForQuestionAnswering": BERT,
    "AlbertModel": ALBERT,
    "AlbertForPreTraining": ALBERT,
    "AlbertForSequenceClassification": ALBERT,
    "AlbertForMaskedLM": ALBERT,
}


def make_model(class_name):
    """Return a small model with all weights random, including those initialized to 0 or 1."""
    torch.manual_seed(5)
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(
        vocab_size=len(PIECES), hidden_size=24, num_hidden_layers=4, num_attention_heads=4, intermediate_size=40,
        max_position_embeddings=32, **CLASSES[class_name],
    )  # fmt: skip
    model = model_class(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(mean=0.5 if parameter.ndim == 1 else 0.0, std=0.3)
    return model.eval()


def convert(**flags):
    run_here("convert_hf_checkpoint", **flags)


@pytest.mark.parametrize("class_name", CLASSES)
def test_there_and_back_every_tensor_is_the_same(tmp_path, class_name):
    model, ours, back = make_model(class_name), tmp_path / "ours", tmp_path / "back"
    model.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    convert(hf_dir=str(tmp_path / "theirs"), output_dir=str(ours))
    files = {"init_checkpoint": "bert_model.ckpt", "bert_config_file": "bert_config.json", "vocab_file": "vocab.txt"}
    convert(to_hf=True, output_dir=str(back), **{flag: str(ours / name) for flag, name in files.items()})
    again, report = type(model).from_pretrained(back, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert all("pooler" in name for name in report["unexpected_keys"])  # newly initialized here
    before, after = model.state_dict(), again.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert again.config.num_labels == model.config.num_labels


def to_hf(model_dir, vocab_file, output_dir, **settings):
    files = {"init_checkpoint": "bert_model.ckpt", "bert_config_file": "bert_config.json"}
    flags = {flag: str(model_dir / name) for flag, name in files.items()}
    convert(to_hf=True, vocab_file=vocab_file, output_dir=str(output_dir), **flags, **settings)


def test_a_checkpoint_of_the_reference_gives_its_activations_in_transformers(tmp_path, model_dir, vocab_file):
    to_hf(model_dir, vocab_file, tmp_path)
    model = transformers.AutoModelForPreTraining.from_pretrained(tmp_path).eval()
    golden = golden_arrays("pretraining_model/activations.npz")
    names = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    inputs = {theirs: torch.tensor(golden[f"in/{ours}"]).long() for theirs, ours in names.items()}
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    layers = np.stack([layer.numpy() for layer in outputs.hidden_states])
    np.testing.assert_allclose(layers[0], golden["out/embedding_output"], atol=1e-5)
    np.testing.assert_allclose(layers[1:], golden["out/all_encoder_layers"], atol=1e-5)
    log_probabilities = torch.log_softmax(outputs.seq_relationship_logits, dim=-1).numpy()
    np.testing.assert_allclose(log_probabilities, golden["out/next_sentence_log_probs"], atol=1e-5)
