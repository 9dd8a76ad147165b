"""Layer-wise learning rates, in both optimizers."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel
from official_bert.optimization import AdamWeightDecay, Lamb
from official_bert.optimization.optimizers import create_optimizer, rate_multipliers
from official_bert.support.errors import UserError
from tests.optimization.variables import variable

CONFIG = BertConfig(vocab_size=20, hidden_size=4, num_hidden_layers=11, num_attention_heads=1, intermediate_size=8)


def test_every_variable_has_the_rate_of_its_layer():
    model = ClassificationModel(BertEncoder(CONFIG), num_outputs=2)
    paths = [variable.path for variable in model.trainable_variables]
    powers = {"bert/embeddings": 12, **{f"bert/encoder/layer_{number}": 11 - number for number in range(11)}}
    expected = {path: 0.5 ** powers.get(re.sub(r"(embeddings|layer_\d+)/.*", r"\1", path), 0) for path in paths}
    assert dict(zip(paths, rate_multipliers(paths, 0.5), strict=True)) == expected
    assert expected["bert/encoder/layer_10/output/dense/kernel"] == 0.5 and expected["output_weights"] == 1
    assert set(rate_multipliers(paths, 1.0)) == {1.0}


@pytest.mark.parametrize("optimizer_class", [AdamWeightDecay, Lamb])
def test_a_variable_moves_with_the_rate_of_its_layer(optimizer_class):
    def moved(**options):
        places = (["encoder", "layer_0"], ["encoder", "layer_1"], ["pooler"])
        variables = [variable(np.ones(3), *place, name="kernel") for place in places]
        optimizer = optimizer_class(1e-3, no_decay=(), weight_decay_rate=0.0, **options)
        optimizer.apply([tf.constant([1.0, -2.0, 3.0])] * 3, variables)
        return np.array(variables) - 1

    assert np.abs(moved()).min() > 1e-4
    np.testing.assert_allclose(moved(layer_wise_lr_decay=0.5), moved() * [[0.25], [0.5], [1]], rtol=1e-3)


def test_a_model_without_layers_is_refused():
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    options = {"layer_wise_lr_decay": 0.9, "no_decay": ()}
    with pytest.raises(UserError, match="layer_wise_lr_decay=0.9: no trainable variable belongs to an encoder layer"):
        create_optimizer("adam", 0.1, model, options)
    create_optimizer("adam", 0.1, model, {**options, "layer_wise_lr_decay": 1.0})
    with pytest.raises(ValueError, match="must be above 0 and at most 1"):
        rate_multipliers(["a"], 1.5)


def test_layers_that_share_their_weights_are_refused():
    config = AlbertConfig(**{**CONFIG.to_dict(), "embedding_size": 4})
    model = ClassificationModel(BertEncoder(config), num_outputs=2)
    with pytest.raises(UserError, match="layer_wise_lr_decay=0.9: the layers of an ALBERT share their weights"):
        create_optimizer("adam", 0.1, model, {"layer_wise_lr_decay": 0.9})
