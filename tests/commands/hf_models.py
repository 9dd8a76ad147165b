"""Saves, converts and runs models of `transformers`."""

import numpy as np

from official_bert.commands import convert_hf_checkpoint
from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
from official_bert.config.bert_config import BertConfig

TOLERANCE = 1e-5  # a stack of layers; float32 on both sides
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{x}" for x in "abcdefghi")]


def save(model, folder):
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")


def from_hf(hf_dir, output_dir):
    convert_hf_checkpoint.run(HfConversionConfig(hf_dir=str(hf_dir), output_dir=str(output_dir)))
    return str(output_dir / "bert_model.ckpt"), BertConfig.from_json_file(str(output_dir / "bert_config.json"))


def to_hf(folder, output_dir):
    config = HfConversionConfig(
        to_hf=True,
        init_checkpoint=str(folder / "bert_model.ckpt"),
        bert_config_file=str(folder / "bert_config.json"),
        vocab_file=str(folder / "vocab.txt"),
        output_dir=str(output_dir),
    )
    convert_hf_checkpoint.run(config)


def make_batch(vocab_size):
    """Return sequences of 2 to 11 pieces in 11 positions, most with a second segment."""
    rng = np.random.default_rng(3)
    lengths = np.arange(2, 12)[:, None]
    position = np.arange(11)[None]
    input_mask = (position < lengths).astype(np.int32)
    return {
        "input_ids": rng.integers(0, vocab_size, [10, 11]).astype(np.int32) * input_mask,
        "input_mask": input_mask,
        "segment_ids": (position >= lengths // 2).astype(np.int32) * input_mask,
    }


def run_transformers(model, batch):
    import torch  # from the `bench` extra

    names = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    with torch.no_grad():
        return model(
            **{theirs: torch.tensor(batch[ours]).long() for theirs, ours in names.items()}, output_hidden_states=True
        )


def assert_same_encoder(outputs, encoded, tolerance=TOLERANCE):
    """Compare all positions, including padding, which also attends only to real positions."""
    ours = [encoded["embedding_output"], *encoded["encoder_layers"]]
    assert len(ours) == len(outputs.hidden_states)
    for layer, expected in zip(ours, outputs.hidden_states, strict=True):
        np.testing.assert_allclose(layer, expected.numpy(), atol=tolerance)
