"""Reading and checking bert_config.json."""

import contextlib
import json

import pytest

from official_bert.config import bert_config
from official_bert.config.bert_config import BertConfig
from official_bert.families.bert import RobertaConfig
from official_bert.support.errors import UserError
from official_bert.tokenization.vocab import Vocabulary


def read(tmp_path, text):
    path = tmp_path / "bert_config.json"
    path.write_text(text)
    return BertConfig.from_json_file(str(path))


def test_a_config_survives_a_round_trip(tmp_path):
    published = {
        "attention_probs_dropout_prob": 0.1, "directionality": "bidi", "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12, "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
        "type_vocab_size": 2, "vocab_size": 21128,
    }  # fmt: skip
    config = read(tmp_path, json.dumps(published))
    assert json.loads(config.to_json_string()) == published
    for name in ("GELU", "Relu", "", None):
        config = read(tmp_path, json.dumps({"vocab_size": 9, "hidden_act": name}))
        assert config.hidden_act == (name or "linear").lower()


ALBERT = {
    "attention_probs_dropout_prob": 0, "hidden_act": "gelu", "hidden_dropout_prob": 0, "embedding_size": 128,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512,
    "num_attention_heads": 12, "num_hidden_layers": 12, "num_hidden_groups": 1, "net_structure_type": 0, "gap_size": 0,
    "num_memory_blocks": 0, "inner_group_num": 1, "down_scale_factor": 1, "type_vocab_size": 2, "vocab_size": 30000,
}  # fmt: skip


def test_an_albert_is_read_and_written_again(tmp_path):
    config = read(tmp_path, json.dumps({**ALBERT, "layers_to_keep": []}))
    assert config.family.name == "albert"
    constants = {"net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor"}
    assert json.loads(config.to_json_string()) == {key: ALBERT[key] for key in ALBERT if key not in constants}
    assert BertConfig.from_dict(config.to_dict()) == config


def test_missing_keys_mean_what_they_mean_to_the_reference_and_to_albert():
    config = BertConfig(vocab_size=100)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (768, 12, 12)
    assert (config.type_vocab_size, config.max_position_embeddings, config.hidden_act) == (16, 512, "gelu")
    config = BertConfig.from_dict({"vocab_size": 9, "num_hidden_groups": 1})
    sizes = (config.embedding_size, config.hidden_size, config.num_attention_heads, config.intermediate_size)
    assert sizes == (128, 4096, 64, 16384)
    assert (config.hidden_dropout_prob, config.type_vocab_size, config.inner_group_num) == (0, 2, 1)
    config = BertConfig.from_dict({**ALBERT, "inner_group_num": 2})
    config.check_layers([23, -24], "file")
    with pytest.raises(UserError, match="there is no layer 24 in a model of 24 layers"):
        config.check_layers([24], "file")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_groups": 5}, "num_hidden_layers 12 is not a multiple of num_hidden_groups 5"),
        ({"embedding_size": 0}, "embedding_size is 0; it must be a whole number from 1"),
        ({"inner_group_num": True}, "inner_group_num is True; it must be a whole number from 1 to 10000"),
        ({"layers_to_keep": [0]}, r"layers_to_keep is \[0\]; only \[\] is supported"),
    ],
)
def test_a_wrong_value_of_an_albert_is_named(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, json.dumps({**ALBERT, **changes}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"vocab_size": 9', r"bert_config\.json is not JSON: .* line 1 column"),
        ('{"hidden_size": 8}', "the key 'vocab_size' is missing"),
        ('{"vocab_size": 9, "intermediate": 3}', "unknown key 'intermediate'"),
        ('{"vocab_size": 9, "embedding_size": 2}', "embedding_size is a key of an ALBERT, whose config also needs"),
        ('{"class_name": "DebertaV3Backbone", "config": {}}', "a Keras DebertaV3Backbone; of .* only BertBackbone"),
        ('{"vocab_size": 9, "num_hidden_layers": 5000000}', "num_hidden_layers is 5000000; .* from 1 to 10000"),
        ('{"vocab_size": 9, "hidden_size": "768"}', "hidden_size is '768'"),
        ('{"vocab_size": 9, "hidden_size": 10, "num_attention_heads": 4}', "10 is not a multiple of .* 4"),
        ('{"vocab_size": 9, "hidden_dropout_prob": 1.0}', "hidden_dropout_prob is 1.0; .* of at least 0 and below 1"),
        ('{"vocab_size": 9, "hidden_act": []}', r"hidden_act is \[\]; it must be one of gelu, gelu_erf"),
        ('{"vocab_size": 9, "initializer_range": 0}', "initializer_range is 0; it must be a number above 0 and below"),
    ],
)
def test_bad_configs_are_refused_with_the_file_name(tmp_path, text, message):
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, text)
    assert "bert_config.json" in str(error.value)


def vocabulary(size, pad_id=None):
    pad = {} if pad_id is None else {"[PAD]": pad_id}
    return Vocabulary({"last": size - 1, **pad}, "vocab.txt")


def test_a_vocabulary_must_fit_and_should_not_be_far_too_small(caplog):
    roberta = RobertaConfig(vocab_size=10)
    with pytest.raises(UserError, match=r"vocab.txt gives padding the id 0, but a RoBERTa needs 1 \(c.json\); use a"):
        roberta.check_vocabulary(vocabulary(10, 0), "c.json")
    for config, pad_id in ((roberta, 1), (BertConfig(vocab_size=10), 0), (BertConfig(vocab_size=10), 3)):
        config.check_vocabulary(vocabulary(10, pad_id), "c.json")
    config = BertConfig(vocab_size=1000)
    with pytest.raises(UserError, match="has 1001 wordpieces, c.json a vocab_size of 1000; use a vocabulary and"):
        config.check_vocabulary(vocabulary(1001), "c.json")
    with pytest.raises(UserError, match="vocab.txt has 0 wordpieces, c.json a vocab_size of 1000"):
        config.check_vocabulary(vocabulary(0), "c.json")
    for size in (1000, 500):
        config.check_vocabulary(vocabulary(size), "c.json")
    assert not caplog.text
    config.check_vocabulary(vocabulary(499), "c.json")
    assert "vocab.txt has 499 wordpieces, c.json a vocab_size of 1000: 501 ids have no wordpiece; is" in caplog.text
    BertConfig(vocab_size=30522).check_vocabulary(vocabulary(20000), "c.json")  # half a download
    assert "10522 ids have no wordpiece" in caplog.text
    for size, num_tokens in ((1000, 499), (30522, 29497)):  # the latter would be 28996 for a cased vocabulary
        config = BertConfig(vocab_size=size)
        with pytest.raises(UserError, match=rf"has {num_tokens} wordpieces, .* \(if these do, put the vocabulary"):
            config.check_vocabulary(vocabulary(num_tokens), "c.json", is_of_model=False)
        config.check_vocabulary(vocabulary(num_tokens + 1), "c.json", is_of_model=False)


def test_a_model_is_refused_only_where_it_cannot_fit(monkeypatch):
    config = BertConfig(vocab_size=30522, type_vocab_size=2)  # BERT-base, 0.44 GB
    assert config.num_parameters == 109_482_240
    for memory, for_training, is_refused in (
        (437_928_959, False, True), (437_928_960, False, False), (437_928_960, True, True),
        (3 * 437_928_960, True, False), (None, True, False),
    ):  # fmt: skip
        monkeypatch.setattr(bert_config, "_memory_and_swap", lambda memory=memory: memory)
        with pytest.raises(UserError, match="0.4 GB, swap included") if is_refused else contextlib.nullcontext():
            bert_config.check_memory(config, "c.json", for_training=for_training)
    monkeypatch.undo()
    huge = BertConfig(vocab_size=2**31 - 1)
    message = "c.json: vocab_size is 2147483647; the model has 1,649,[0-9,]+ parameters and needs 6,597.+ GB of memory"
    with pytest.raises(UserError, match=message):
        bert_config.check_memory(huge, "c.json", for_training=False)
    monkeypatch.delattr("os.sysconf")  # as on Windows
    bert_config.check_memory(huge, "c.json", for_training=True)
    sizes = ((128, 0), (512, 0), (8192, 0), (128, 1 << 20), (9, 1 << 30))  # lengths, and numbers of outputs
    assert [BertConfig(vocab_size=9).most_sequences(*each) for each in sizes] == [170, 21, 1, 64, 1]


def test_the_attention_direction_is_written_only_where_it_is_not_the_usual(tmp_path):
    usual = BertConfig(vocab_size=5)
    assert "attention_direction" not in usual.to_dict()
    assert BertConfig.from_dict({"vocab_size": 5, "attention_direction": "bidirectional"}) == usual
    path = tmp_path / "bert_config.json"
    path.write_text(usual.to_json_string())
    other = BertConfig.from_json_file(str(path), attention_direction="left_to_right")
    assert other.is_left_to_right and not usual.is_left_to_right
    path.write_text(other.to_json_string())
    assert BertConfig.from_json_file(str(path)) == other
    assert BertConfig.from_json_file(str(path), attention_direction="bidirectional") == usual
    with pytest.raises(UserError, match="attention_direction is 'backwards'; it must be one of bidirectional, left"):
        BertConfig(vocab_size=5, attention_direction="backwards")
