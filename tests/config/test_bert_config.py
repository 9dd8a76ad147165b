"""Reading and checking bert_config.json."""

import json

import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.errors import UserError


def read(tmp_path, text):
    path = tmp_path / "bert_config.json"
    path.write_text(text)
    return BertConfig.from_json_file(str(path))


def test_what_is_read_is_written_again(tmp_path):
    published = {
        "attention_probs_dropout_prob": 0.1,
        "directionality": "bidi",
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
        "type_vocab_size": 2,
        "vocab_size": 21128,
    }
    config = read(tmp_path, json.dumps(published))
    assert json.loads(config.to_json_string()) == published


def test_defaults_are_those_of_the_reference():
    config = BertConfig(vocab_size=100)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (768, 12, 12)
    assert (config.type_vocab_size, config.max_position_embeddings, config.hidden_act) == (16, 512, "gelu")


@pytest.mark.parametrize("name", ["GELU", "Relu", "", None])
def test_activation_names_are_read_as_the_reference_reads_them(tmp_path, name):
    config = read(tmp_path, json.dumps({"vocab_size": 9, "hidden_act": name}))
    assert config.hidden_act == (name or "linear").lower()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"vocab_size": 9', r"bert_config\.json is not JSON: .* line 1 column"),
        ("[1]", "holds a JSON list"),
        ('{"hidden_size": 8}', "the key 'vocab_size' is missing"),
        ('{"vocab_size": 9, "architectures": []}', "unknown key 'architectures'"),
        ('{"vocab_size": 0}', "vocab_size is 0; it must be a whole number above 0"),
        ('{"vocab_size": 9, "hidden_size": "768"}', "hidden_size is '768'"),
        ('{"vocab_size": 9, "num_hidden_layers": true}', "num_hidden_layers is True"),
        ('{"vocab_size": 9, "hidden_size": 10, "num_attention_heads": 4}', "10 is not a multiple of .* 4"),
        ('{"vocab_size": 9, "hidden_dropout_prob": 1.0}', "hidden_dropout_prob is 1.0"),
        ('{"vocab_size": 9, "hidden_act": "swish"}', "hidden_act is 'swish'; it must be one of gelu, gelu_erf"),
        ('{"vocab_size": 9, "initializer_range": 0}', "initializer_range is 0"),
    ],
)
def test_bad_configs_are_refused_with_the_file_name(tmp_path, text, message):
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, text)
    assert "bert_config.json" in str(error.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the model config .*absent\.json: No such file"):
        BertConfig.from_json_file(str(tmp_path / "absent.json"))


def test_a_vocabulary_must_fit_and_should_not_be_far_too_small(caplog):
    config = BertConfig(vocab_size=1000)
    with pytest.raises(UserError, match="vocab.txt has 1001 wordpieces, c.json a vocab_size of 1000; use the two that"):
        config.check_vocab_size(1001, "vocab.txt", "c.json")
    for size in (1000, 500):
        config.check_vocab_size(size, "vocab.txt", "c.json")
    assert not caplog.text
    config.check_vocab_size(499, "vocab.txt", "c.json")
    assert "vocab.txt has only 499 wordpieces, c.json a vocab_size of 1000; is this the vocabulary of" in caplog.text


def test_a_length_beyond_the_position_table_names_both_numbers():
    config = BertConfig(vocab_size=9, max_position_embeddings=64)
    config.check_length(64, "c.json")
    with pytest.raises(UserError, match="--max_seq_length=65 exceeds max_position_embeddings=64 of c.json"):
        config.check_length(65, "c.json")
