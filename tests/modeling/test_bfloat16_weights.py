"""Models with bfloat16 weights, as exported with `--export_precision=bfloat16`, compared with float32."""

import keras
import numpy as np
import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.modeling.heads import BILSTM, ClassificationModel, SpanModel
from official_bert.modeling.pooling import WEIGHTED_SUM
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.tagging import TaggingModel

CONFIG = BertConfig(
    vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=16, type_vocab_size=2, initializer_range=0.2,
)  # fmt: skip
MODELS = {
    "pretraining": PretrainingModel,
    "classification": lambda encoder: ClassificationModel(encoder, num_outputs=3),
    "classification of a sum": lambda encoder: ClassificationModel(encoder, num_outputs=3, feature_layers=WEIGHTED_SUM),
    "span": SpanModel,
    "tagging": lambda encoder: TaggingModel(encoder, num_outputs=3),
    "tagging with LSTM": lambda encoder: TaggingModel(encoder, num_outputs=3, head=BILSTM),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "classification of a sum")) for name in MODELS]
)
def test_outputs_are_float32_and_near_those_of_float32_weights(name):
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    batch = {
        "input_ids": rng.integers(1, 60, [3, 12]),
        "input_mask": (np.arange(12) < [[12], [7], [9]]).astype(np.int32),
        "segment_ids": rng.integers(0, 2, [3, 12]),
    }
    if name == "pretraining":
        batch["masked_lm_positions"] = np.array([[1, 2], [3, 4], [5, 6]])
    one, two = (
        MODELS[name](BertEncoder(CONFIG, layout=UnpaddedLayout, dtype=dtype)) for dtype in ("float32", "bfloat16")
    )
    for wide, narrow in zip(one.weights, two.weights, strict=True):
        narrow.assign(wide)
    assert sum(weight.dtype == "bfloat16" for weight in two.weights) > 0.9 * len(two.encoder.weights)
    expected, found = (keras.tree.map_structure(np.asarray, model(batch)) for model in (one, two))
    real = batch["input_mask"].astype(bool)
    for path, values in keras.tree.flatten_with_path(expected):
        narrow = dict(keras.tree.flatten_with_path(found))[path]
        assert narrow.dtype == np.float32
        if values.shape[:2] == real.shape:
            values, narrow = values[real], narrow[real]
        assert np.abs(values).max() > 0.01
        difference = np.abs(narrow - values).max() / np.abs(values).max()
        assert 0 < difference < 0.1, (path, difference)
