"""ALBERT: names, shapes and sharing of variables; `tests/families` compares what it computes with transformers."""

import dataclasses

import numpy as np

from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel

V, E, D, I = 50, 8, 24, 48  # noqa: E741
CONFIG = AlbertConfig(
    vocab_size=V, embedding_size=E, hidden_size=D, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2,
    num_attention_heads=3, intermediate_size=I, max_position_embeddings=20, type_vocab_size=2,
)  # fmt: skip


def test_variables_have_the_names_and_shapes_of_the_released_checkpoints():
    """Listed by hand for one layer, as in the checkpoints of google-research/albert."""
    config = dataclasses.replace(CONFIG, num_hidden_groups=1, inner_group_num=1)
    layer = "bert/encoder/transformer/group_0/inner_group_0"
    expected = {
        "bert/embeddings/word_embeddings": (V, E),
        "bert/embeddings/position_embeddings": (20, E),
        "bert/embeddings/token_type_embeddings": (2, E),
        "cls/predictions/output_bias": (V,),
        "cls/seq_relationship/output_weights": (2, D),
        "cls/seq_relationship/output_bias": (2,),
    }
    for name, shape in {
        "bert/encoder/embedding_hidden_mapping_in": (E, D),
        f"{layer}/attention_1/self/query": (D, D),
        f"{layer}/attention_1/self/key": (D, D),
        f"{layer}/attention_1/self/value": (D, D),
        f"{layer}/attention_1/output/dense": (D, D),
        f"{layer}/ffn_1/intermediate/dense": (D, I),
        f"{layer}/ffn_1/intermediate/output/dense": (I, D),
        "bert/pooler/dense": (D, D),
        "cls/predictions/transform/dense": (D, E),
    }.items():
        expected |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
    for name, size in (("bert/embeddings", E), (layer, D), ("cls/predictions/transform", E)):
        expected |= {f"{name}/LayerNorm/beta": (size,), f"{name}/LayerNorm/gamma": (size,)}
    expected |= {f"{layer}/LayerNorm_1/beta": (D,), f"{layer}/LayerNorm_1/gamma": (D,)}
    model = PretrainingModel(BertEncoder(config))
    assert {variable.path: tuple(variable.shape) for variable in model.trainable_variables} == expected


def test_each_group_and_each_layer_in_it_has_variables_of_its_own():
    encoder = BertEncoder(CONFIG)
    kernels = [path for path in encoder.checkpoint_variables() if path.endswith("/query/kernel")]
    start = "bert/encoder/transformer"
    assert kernels == [
        f"{start}/group_{group}/inner_group_{inner}/attention_1/self/query/kernel"
        for group in (0, 1)
        for inner in (0, 1)
    ]
    assert encoder.count_params() == CONFIG.num_parameters


def test_the_number_of_parameters_is_that_of_the_paper():
    """Table 1: 12M for base, 18M for large, 60M for xlarge, 235M for xxlarge."""
    large = {"num_hidden_groups": 1, "vocab_size": 30000, "num_hidden_layers": 24}
    shapes = {12: (768, 12, 12), 18: (1024, 16, 24), 60: (2048, 16, 24), 235: (4096, 64, 12)}
    for millions, (width, heads, layers) in shapes.items():
        sizes = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": 4 * width}
        config = BertConfig.from_dict(large | sizes | {"num_hidden_layers": layers})
        assert abs(config.num_parameters / 1e6 - millions) < 0.055 * millions


def test_embeddings_as_wide_as_the_layers_are_not_projected():
    encoder = BertEncoder(dataclasses.replace(CONFIG, embedding_size=D))
    assert not any("embedding_hidden_mapping_in" in name for name in encoder.checkpoint_variables())
    assert encoder.count_params() == encoder.config.num_parameters
    assert encoder(np.ones([2, 5], int))["embedding_output"].shape == (2, 5, D)
