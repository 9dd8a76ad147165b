"""ALBERT checkpoints, and Hugging Face weights made by `transformers`; PyTorch is not needed."""

import dataclasses

import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.checkpoints.safetensors import from_hf, to_hf
from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.support.errors import UserError

PLAIN = BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=9, type_vocab_size=2,
)  # fmt: skip
ALBERT = AlbertConfig(**{**PLAIN.to_dict(), "embedding_size": 4})


def test_a_projection_between_equal_widths_cannot_be_converted():
    equal = dataclasses.replace(ALBERT, embedding_size=8)
    ours = {name: variable.numpy() for name, variable in BertEncoder(ALBERT).checkpoint_variables().items()}
    theirs = to_hf(ours, ALBERT, "checkpoint").arrays
    with pytest.raises(UserError, match="unknown: .*embedding_hidden_mapping_in.bias"):
        from_hf({f"albert.{name}": array for name, array in theirs.items()}, equal, "folder")
    with pytest.raises(UserError, match="embedding_size equals hidden_size"):
        equal.to_hugging_face("AlbertModel", None)


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        (ALBERT, PLAIN, "has ALBERT's shared layers, but the config is a BERT's; give the albert_config.json"),
        (PLAIN, ALBERT, "has the layers of a BERT, .* is an ALBERT's .num_hidden_groups.; give the bert_config.json"),
    ],
    ids=["ALBERT's checkpoint", "BERT's checkpoint"],
)
def test_the_error_names_the_config_of_the_other_family(tmp_path, given, wanted, message):
    prefix = BertEncoder(given).save_checkpoint(tmp_path / "given")
    variables = BertEncoder(wanted).trainable_variables
    with pytest.raises(UserError, match=message):
        load(CheckpointReader(prefix), variables)
    with pytest.raises(UserError, match=message):
        BertEncoder.from_checkpoint(tmp_path / "given", bert_config=wanted)
    reader = CheckpointReader(prefix)
    with pytest.raises(UserError, match=message):
        to_hf({name: reader.read(name) for name in reader.shapes}, wanted, prefix)
