"""A new encoder family needs one module (this one) and one row (added by the fixture)."""

import dataclasses
import json
from typing import ClassVar

import keras
import numpy as np
import pytest

from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.checkpoints.safetensors import read_folder
from official_bert.commands import convert_hf_checkpoint
from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
from official_bert.config.bert_config import BertConfig
from official_bert.families import bert, family
from official_bert.families.family import Family
from official_bert.modeling.blocks import EncoderLayer
from official_bert.modeling.encoder import BertEncoder
from official_bert.support.errors import UserError

BERT = bert.BERT_FAMILY.hugging_face


@dataclasses.dataclass(frozen=True)
class ToyConfig(BertConfig):
    """A BERT with one additional key."""

    family_name: ClassVar[str] = "toy"
    toys: int = 3


class FirstVector(EncoderLayer):
    """A pooler without variables."""

    def call(self, first):
        """Return the vectors unchanged."""
        return first


FAMILY = Family(
    name="toy",
    title="a toy",
    config_class=ToyConfig,
    config_file="toy_config.json",
    released_names={"toy/": "bert/"},
    parts={"pooler": f"{__name__}.FirstVector"},
    hugging_face=dataclasses.replace(
        BERT,
        tokenizer_class="ToyTokenizer",
        keys={"hidden_size": "dim", "hidden_act": "activation"},
        defaults={"activation": "gelu"},
        prefix="toy.",
        parts={
            "encoder": [
                rule._replace(target=rule.target.replace("bert.encoder.layer", "toy.block").replace("bert.", "toy."))
                for rule in BERT.parts["encoder"]
            ],
            "masked-LM head": BERT.parts["masked-LM head"],
        },
        tied={},
        architectures={(): "ToyModel", ("masked-LM head",): "ToyForMaskedLM"},
    ),
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "harbour", "slept", "woke"]
CONFIG = ToyConfig(
    vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=9, type_vocab_size=2, toys=5,
)  # fmt: skip
IDS = np.array([[2, 5, 6, 3]])


@pytest.fixture(autouse=True)
def row(monkeypatch):
    monkeypatch.setitem(family.FAMILIES, "toy", f"{__name__}.FAMILY")


def assert_same(encoder, loaded):
    assert loaded.config == CONFIG
    outputs = encoder(IDS)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    np.testing.assert_allclose(loaded(IDS)["pooled_output"], outputs["pooled_output"], atol=1e-6)


def test_a_new_family_is_made_saved_loaded_and_converted(tmp_path):
    encoder, ours, theirs, back = BertEncoder(CONFIG), *(tmp_path / name for name in ("ours", "theirs", "back"))
    prefix = encoder.save_checkpoint(ours)
    assert json.loads((ours / "bert_config.json").read_text())["family"] == "toy"
    (ours / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    assert_same(encoder, BertEncoder.from_checkpoint(ours))
    encoder.save(tmp_path / "toy.keras")
    assert_same(encoder, keras.models.load_model(tmp_path / "toy.keras"))

    flags = {"bert_config_file": str(ours / "bert_config.json"), "vocab_file": str(ours / "vocab.txt")}
    there = HfConversionConfig(to_hf=True, init_checkpoint=prefix, output_dir=str(theirs), **flags)
    again = HfConversionConfig(hf_dir=str(theirs), output_dir=str(back))
    for flags in (there, again):
        convert_hf_checkpoint.check(flags)
        convert_hf_checkpoint.run(flags)
    values = json.loads((theirs / "config.json").read_text())
    assert [values[key] for key in ("model_type", "architectures", "dim", "toys")] == ["toy", ["ToyModel"], 8, 5]
    assert "hidden_size" not in values and "family" not in values
    assert json.loads((theirs / "tokenizer_config.json").read_text())["tokenizer_class"] == "ToyTokenizer"
    names = set(read_folder(str(theirs), CONFIG))
    assert {"toy.embeddings.LayerNorm.weight", "toy.block.1.output.dense.bias"} <= names
    for folder in (theirs, back):
        assert_same(encoder, BertEncoder.from_checkpoint(folder))

    released = tmp_path / "released"
    arrays = {
        name.replace("bert/", "toy/"): variable.numpy() for name, variable in encoder.checkpoint_variables().items()
    }
    write_checkpoint(str(released / "toy.ckpt"), arrays)
    (ours / "bert_config.json").rename(released / FAMILY.config_file)
    assert_same(encoder, BertEncoder.from_checkpoint(released))


def test_an_unknown_family_is_refused_with_those_that_are_known(tmp_path):
    for name, key in (("config.json", "model_type"), ("bert_config.json", "family")):
        path = tmp_path / name
        path.write_text(json.dumps({key: "gpt2", "vocab_size": 9}))
        with pytest.raises(UserError, match=f"{name}: {key} is 'gpt2', .* one of these: 'bert', 'albert', .*'toy'$"):
            BertConfig.from_json_file(str(path))


def test_another_family_is_another_model():
    as_bert = BertConfig(**{name: value for name, value in CONFIG.to_dict().items() if name not in ("family", "toys")})
    assert as_bert != CONFIG
    ours, theirs = CONFIG.identity_values(), as_bert.identity_values()
    assert ours == {**theirs, "family": "toy", "toys": 5}
