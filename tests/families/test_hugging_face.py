"""A Hugging Face `config.json` as a `BertConfig`, and back; the registry of encoder families."""

import json

import pytest

from official_bert.config.bert_config import ACTIVATION_NAMES, BertConfig
from official_bert.families.bert import ElectraConfig
from official_bert.families.family import all_families
from official_bert.support.errors import UserError

HF = {
    "architectures": ["BertModel"], "model_type": "bert", "vocab_size": 100, "hidden_size": 12, "num_hidden_layers": 3,
    "num_attention_heads": 4, "intermediate_size": 20, "hidden_act": "gelu", "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.3, "max_position_embeddings": 64, "type_vocab_size": 1, "initializer_range": 0.05,
    "layer_norm_eps": 1e-12, "position_embedding_type": "absolute", "is_decoder": False, "use_cache": True,
    "transformers_version": "4.8.2",
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    def write_and_read(values):
        (tmp_path / "config.json").write_text(json.dumps(values))
        return BertConfig.from_json_file(str(tmp_path / "config.json"))

    return write_and_read


def test_the_architecture_is_taken_over(read):
    config = read(HF)
    left_out = ("architectures", "model_type", "layer_norm_eps", *[*HF][-4:])
    ours = {key: value for key, value in HF.items() if key not in left_out}
    assert config.to_dict() == {**ours, "hidden_act": "gelu_erf"}
    for theirs in ("gelu_new", "gelu_pytorch_tanh"):
        assert read({**HF, "hidden_act": theirs}).hidden_act == "gelu"
    assert read({**HF, "layer_norm_eps": 1e-5}).to_dict() == {**config.to_dict(), "layer_norm_eps": 1e-5}


def test_missing_keys_mean_what_they_mean_there(read, tmp_path, caplog):
    caplog.set_level("INFO", "absl")
    expected = BertConfig(vocab_size=30522, type_vocab_size=2, hidden_act="gelu_erf")
    assert read({}) == expected
    assert caplog.messages[-1].endswith("config.json has no model_type; reading it as a BERT")
    theirs = {"architectures": ["BertModel"], "vocab_size": 30522, "hidden_act": "gelu", "pad_token_id": 0}
    (tmp_path / "any.json").write_text(json.dumps(theirs))  # told by its keys
    assert BertConfig.from_json_file(str(tmp_path / "any.json")) == expected


def test_an_albert_is_taken_over_and_written(read):
    config = read({"model_type": "albert", "vocab_size": 50, "gap_size": 0, "classifier_dropout_prob": 0.1})
    assert (config.num_hidden_groups, config.embedding_size, config.hidden_size) == (1, 128, 4096)
    assert config.hidden_act == "gelu"  # theirs is gelu_new
    values = config.to_hugging_face("AlbertModel", None)
    assert values["model_type"] == "albert"
    assert read(values) == config
    assert read({**values, "hidden_act": "gelu"}).hidden_act == "gelu_erf"
    assert read({**HF, "embedding_size": 12, "num_hidden_groups": 1}) == read(HF)  # these keys mean nothing in a BERT


def test_the_keys_of_a_deberta_have_several_forms_and_one_meaning(read):
    values = {**HF, "model_type": "deberta-v2", "type_vocab_size": 0, "relative_attention": True, "position_buckets": 8}
    values |= {"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False}
    config = read({**values, "pos_att_type": "c2p|p2c", "max_relative_positions": 64})
    assert config == read({**values, "pos_att_type": ["p2c", "c2p"]}) == BertConfig.from_dict(config.to_dict())
    written = config.to_hugging_face("DebertaV2Model", None)
    assert read(written) == config and (written["pos_att_type"], written["position_buckets"]) == (["p2c", "c2p"], 8)
    others = {"conv_kernel_size": 3, "pos_att_type": "c2p", "share_att_key": False, "norm_rel_ebd": None}
    for key, value in others.items():
        with pytest.raises(UserError, match=f"{key} is {value!r}; only .* is supported"):
            read({**written, key: value})
    del written["position_biased_input"]
    with pytest.raises(UserError, match="position_biased_input is None; only False is supported"):
        read(written)
    with pytest.raises(UserError, match="position_buckets 8 is too large for max_position_embeddings 5"):
        read({**values, "pos_att_type": "c2p|p2c", "max_position_embeddings": 5})


def test_the_keys_of_a_modernbert_have_two_forms_and_one_meaning(read):
    values = {**HF, "model_type": "modernbert", "norm_eps": 1e-3, "num_attention_heads": 3}
    values |= {"num_hidden_layers": 4, "global_attn_every_n_layers": 2}
    config = read(values | {"global_rope_theta": 7e4, "local_rope_theta": 500, "classifier_pooling": "mean"})
    assert (config.layer_norm_eps, config.is_global(1), config.is_global(2)) == (1e-3, False, True)
    written = config.to_hugging_face("ModernBertModel", None)
    assert config == read(written) == BertConfig.from_dict(config.to_dict())
    older = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
    newer = {key: value for key, value in written.items() if key not in older}
    newer["layer_types"] = types = ["full_attention", "sliding_attention"] * 2
    newer["rope_parameters"] = {"full_attention": {"rope_theta": 7e4}, "sliding_attention": {"rope_theta": 500}}
    assert read(newer | {"position_embedding_type": "sans_pos"}) == config  # as in mmBERT's files; no class reads it
    for changes, message in (
        ({"layer_types": types[::-1]}, "layer_types is .*must be full_attention for"),
        ({"layer_types": 3}, "layer_types is 3"),
        ({"rope_parameters": [5]}, r"rope_parameters is \[5\]; only the rope_type 'default' is supported"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "'yarn'.*; only the rope_type 'default'"),
        ({"rope_parameters": {"full_attention": {"type": "linear"}}}, "'linear'.*; only the rope_type 'default'"),
        ({"embedding_dropout": 0.5}, "they must be equal"),
        ({"mlp_bias": True}, "mlp_bias is True; only False is supported"),
        ({"classifier_pooling": "max"}, "classifier_pooling is 'max'; it must be cls or mean"),
        ({"classifier_pooling": ["cls"]}, "classifier_pooling is .'cls'.; it must be cls or mean"),
        ({"local_rope_theta": 0}, "local_rope_theta is 0; it must be a number from 1"),
        ({"num_attention_heads": 4}, "rotary positions need an even one"),
    ):
        with pytest.raises(UserError, match=message):
            read(written | changes)


def test_there_and_back(read):
    for activation in ACTIVATION_NAMES:
        options = {"hidden_act": activation, "directionality": "bidi", "layer_norm_eps": 1e-5}
        config = BertConfig(vocab_size=50, hidden_size=24, **options)
        assert read(config.to_hugging_face("BertModel", None)) == config
    values = BertConfig(vocab_size=50).to_hugging_face("BertForSequenceClassification", 3)
    assert values["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    assert values["label2id"] == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}
    assert "id2label" not in config.to_hugging_face("BertModel", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_norm_eps": 0}, "layer_norm_eps is 0; it must be a number above 0"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"model_type": "electra", "summary_activation": "tanh"}, "summary_activation is 'tanh'; only 'gelu'"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'; only gelu, gelu_new, gelu_pytorch_tanh, relu, tanh, linear"),
        ({"hidden_act": "gelu_erf"}, "hidden_act is 'gelu_erf'"),  # our name, not theirs
        ({"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]; only gelu"),
    ],
)
def test_models_of_another_kind_are_refused(read, changes, message):
    with pytest.raises(UserError, match=rf"config\.json: {message}"):
        read({**HF, **changes})


def test_an_unknown_family_is_refused_with_those_that_are_known_and_another_one_is_another_model(tmp_path):
    known = ", ".join(map(repr, all_families()))
    for name, key in (("config.json", "model_type"), ("bert_config.json", "family")):
        path = tmp_path / name
        path.write_text(json.dumps({key: "gpt2", "vocab_size": 9}))
        with pytest.raises(UserError, match=f"{name}: {key} is 'gpt2', .* one of these: {known}$"):
            BertConfig.from_json_file(str(path))
    electra = ElectraConfig(vocab_size=9)
    shared = {key: value for key, value in electra.to_dict().items() if key not in ("family", "embedding_size")}
    as_bert = BertConfig(**shared)
    assert as_bert != electra
    assert electra.identity_values() == {**as_bert.identity_values(), "family": "electra", "embedding_size": 128}
