"""ALBERT: names and sharing of variables, and equality with a BERT of the same weights."""

import dataclasses

import numpy as np
import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import FlatLayout
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.transformer import TransformerStack

V, E, D, I = 50, 8, 24, 48  # noqa: E741
CONFIG = AlbertConfig(
    vocab_size=V, embedding_size=E, hidden_size=D, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2,
    num_attention_heads=3, intermediate_size=I, max_position_embeddings=20, type_vocab_size=2,
)  # fmt: skip
MASK = (np.arange(12) < np.array([[12], [5], [8]])).astype(np.int32)
IDS = np.random.default_rng(2).integers(0, V, MASK.shape)
SEGMENTS = np.random.default_rng(3).integers(0, 2, MASK.shape)
INPUTS = (IDS, MASK, SEGMENTS)


def randomized(model):
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0.1, 0.3, variable.shape))
    return model


def test_variables_have_the_names_and_shapes_of_the_released_checkpoints():
    """Listed by hand for one layer, as in the checkpoints of google-research/albert."""
    config = dataclasses.replace(CONFIG, num_hidden_groups=1, inner_group_num=1)
    layer = "bert/encoder/transformer/group_0/inner_group_0"
    expected = {
        "bert/embeddings/word_embeddings": (V, E),
        "bert/embeddings/position_embeddings": (20, E),
        "bert/embeddings/token_type_embeddings": (2, E),
        "bert/embeddings/LayerNorm/beta": (E,),
        "bert/embeddings/LayerNorm/gamma": (E,),
        "bert/encoder/embedding_hidden_mapping_in/kernel": (E, D),
        "bert/encoder/embedding_hidden_mapping_in/bias": (D,),
        f"{layer}/attention_1/self/query/kernel": (D, D),
        f"{layer}/attention_1/self/query/bias": (D,),
        f"{layer}/attention_1/self/key/kernel": (D, D),
        f"{layer}/attention_1/self/key/bias": (D,),
        f"{layer}/attention_1/self/value/kernel": (D, D),
        f"{layer}/attention_1/self/value/bias": (D,),
        f"{layer}/attention_1/output/dense/kernel": (D, D),
        f"{layer}/attention_1/output/dense/bias": (D,),
        f"{layer}/LayerNorm/beta": (D,),
        f"{layer}/LayerNorm/gamma": (D,),
        f"{layer}/ffn_1/intermediate/dense/kernel": (D, I),
        f"{layer}/ffn_1/intermediate/dense/bias": (I,),
        f"{layer}/ffn_1/intermediate/output/dense/kernel": (I, D),
        f"{layer}/ffn_1/intermediate/output/dense/bias": (D,),
        f"{layer}/LayerNorm_1/beta": (D,),
        f"{layer}/LayerNorm_1/gamma": (D,),
        "bert/pooler/dense/kernel": (D, D),
        "bert/pooler/dense/bias": (D,),
        "cls/predictions/transform/dense/kernel": (D, E),
        "cls/predictions/transform/dense/bias": (E,),
        "cls/predictions/transform/LayerNorm/beta": (E,),
        "cls/predictions/transform/LayerNorm/gamma": (E,),
        "cls/predictions/output_bias": (V,),
        "cls/seq_relationship/output_weights": (2, D),
        "cls/seq_relationship/output_bias": (2,),
    }
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
    shapes = {
        12: (768, 12, 3072, 12),
        18: (1024, 16, 4096, 24),
        60: (2048, 16, 8192, 24),
        235: (4096, 64, 16384, 12),
    }
    for millions, (width, heads, inner, layers) in shapes.items():
        sizes = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": inner}
        config = BertConfig.from_dict(large | sizes | {"num_hidden_layers": layers})
        assert abs(config.num_parameters / 1e6 - millions) < 0.055 * millions


@pytest.mark.parametrize(
    ("num_layers", "num_groups", "num_inner", "expected"),
    [
        pytest.param(4, 1, 1, [0, 0, 0, 0], marks=pytest.mark.slow),
        pytest.param(6, 3, 1, [0, 0, 1, 1, 2, 2], marks=pytest.mark.slow),
        pytest.param(4, 4, 1, [0, 1, 2, 3], marks=pytest.mark.slow),
        (4, 2, 2, [0, 1, 0, 1, 2, 3, 2, 3]),
    ],
)
def test_it_computes_what_a_bert_of_the_same_weights_does(num_layers, num_groups, num_inner, expected):
    """`expected`: index of the distinct layer for each layer."""
    config = dataclasses.replace(
        CONFIG, num_hidden_layers=num_layers, num_hidden_groups=num_groups, inner_group_num=num_inner
    )
    encoder = randomized(BertEncoder(config))
    weights = [variable.numpy() for variable in encoder.transformer.trainable_variables[:-2]]  # without the projection
    of_layer = np.array_split(np.arange(len(weights)), num_groups * num_inner)
    plain = BertConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=len(expected),
        num_attention_heads=3,
        intermediate_size=I,
    )
    stack = TransformerStack(plain)
    stack.build()
    for layer, number in zip(stack.layers, expected, strict=True):
        for variable, index in zip(layer.trainable_variables, of_layer[number], strict=True):
            variable.assign(weights[index])
    outputs = encoder(*INPUTS)
    assert config.num_layers == len(expected) == len(outputs["encoder_layers"])
    bias = (1.0 - MASK[:, None, None, :]) * -10000.0
    layout = FlatLayout.from_mask(MASK, config.num_attention_heads)
    for layer, found, probabilities in zip(
        stack(layout.pack(outputs["embedding_output"]), bias, layout=layout),
        outputs["encoder_layers"],
        outputs["attention_probabilities"],
        strict=True,
    ):
        np.testing.assert_allclose(found, layout.unpack(layer.context), atol=1e-5)
        np.testing.assert_allclose(probabilities, layer.probabilities, atol=1e-5)


def test_embeddings_are_normalized_before_they_are_projected():
    encoder = randomized(BertEncoder(CONFIG))
    values = {name: variable.numpy() for name, variable in encoder.checkpoint_variables().items()}
    start = "bert/embeddings/"
    embedded = values[f"{start}word_embeddings"][IDS] + values[f"{start}token_type_embeddings"][SEGMENTS]
    embedded = embedded + values[f"{start}position_embeddings"][: IDS.shape[1]]
    centered = embedded - embedded.mean(-1, keepdims=True)
    normalized = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
    normalized = normalized * values[f"{start}LayerNorm/gamma"] + values[f"{start}LayerNorm/beta"]
    projection = "bert/encoder/embedding_hidden_mapping_in"
    expected = normalized @ values[f"{projection}/kernel"] + values[f"{projection}/bias"]
    np.testing.assert_allclose(encoder(*INPUTS)["embedding_output"], expected, atol=1e-5)


def test_embeddings_as_wide_as_the_layers_are_not_projected():
    encoder = BertEncoder(dataclasses.replace(CONFIG, embedding_size=D))
    assert not any("embedding_hidden_mapping_in" in name for name in encoder.checkpoint_variables())
    assert encoder.count_params() == encoder.config.num_parameters
    assert encoder(*INPUTS)["embedding_output"].shape == (*IDS.shape, D)
