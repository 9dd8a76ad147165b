"""Layer-wise learning rates, in both optimizers."""

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

CONFIG = BertConfig(vocab_size=20, hidden_size=4, num_hidden_layers=11, num_attention_heads=1, intermediate_size=8)


@pytest.fixture(scope="module")
def model():
    return ClassificationModel(BertEncoder(CONFIG), num_outputs=2)


def expected_multiplier(path, decay):
    parts = path.split("/")
    for part in parts:
        if part.startswith("layer_"):
            return decay ** (11 - int(part.removeprefix("layer_")))
    return decay**12 if "embeddings" in parts else 1


def test_every_variable_has_the_rate_of_its_layer(model):
    paths = [variable.path for variable in model.trainable_variables]
    multipliers = dict(zip(paths, rate_multipliers(paths, 0.5), strict=True))
    assert multipliers == {path: expected_multiplier(path, 0.5) for path in paths}
    assert multipliers["bert/embeddings/word_embeddings"] == 0.5**12
    assert multipliers["bert/encoder/layer_0/output/dense/kernel"] == 0.5**11
    assert multipliers["bert/encoder/layer_10/output/dense/kernel"] == 0.5
    assert multipliers["bert/pooler/dense/kernel"] == multipliers["output_weights"] == 1
    assert set(rate_multipliers(paths, 1.0)) == {1.0}


@pytest.mark.endurance
@pytest.mark.parametrize("optimizer_class", [AdamWeightDecay, Lamb])
def test_a_variable_moves_as_with_the_rate_of_its_layer(model, optimizer_class):
    rng = np.random.default_rng(2)
    variables = model.trainable_variables
    starts = [np.asarray(variable) for variable in variables]
    steps = [[rng.normal(size=start.shape).astype(np.float32) for start in starts] for _ in range(3)]

    def moved(**options):
        for variable, start in zip(variables, starts, strict=True):
            variable.assign(start)
        # Without weight decay, and at a rate so low that LAMB's ratio of norms is constant, updates are proportional to
        # it.
        optimizer = optimizer_class(1e-5, weight_decay_rate=0.0, **options)
        for gradients in steps:
            optimizer.apply([tf.constant(gradient) for gradient in gradients], variables)
        return [np.asarray(variable) - start for variable, start in zip(variables, starts, strict=True)]

    for variable, plain, decayed in zip(variables, moved(), moved(layer_wise_lr_decay=0.8), strict=True):
        multiplier = expected_multiplier(variable.path, 0.8)
        np.testing.assert_allclose(decayed, multiplier * plain, rtol=1e-3, atol=5e-7, err_msg=variable.path)
        assert np.abs(plain).max() > 1e-7


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
