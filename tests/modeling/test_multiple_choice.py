"""The multiple-choice model: equal scores for every form of input, and no score for missing choices."""

import numpy as np
import pytest

from official_bert.config.bert_config import ENCODER_INPUTS, FEATURES, TEXT_LENGTHS
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.modeling.heads import NO_CHOICE, MultipleChoiceModel
from tests.modeling.model_cases import ONE_LAYER

LENGTHS = np.array([[3, 5, 4], [2, 6, 0]], np.int32)  # positions of each sequence; the second example has two choices


@pytest.fixture(scope="module")
def model():
    return MultipleChoiceModel(BertEncoder(ONE_LAYER))


@pytest.fixture(scope="module")
def sequences():
    """Inputs of shape [B, N, S], with padding."""
    rng, mask = np.random.default_rng(1), np.arange(8) < LENGTHS[..., None]
    ids, segments = rng.integers(1, 30, mask.shape, np.int32), rng.integers(0, 2, mask.shape, np.int32)
    return {"input_ids": ids * mask, "input_mask": mask.astype(np.int32), "segment_ids": segments * mask}


def joined(sequences):
    """The same as fields of records: one sequence after another."""
    fields = {name: np.zeros((2, 24), np.int32) for name in ENCODER_INPUTS}
    for name, rows in fields.items():
        for row, tensor, lengths in zip(rows, sequences[name], LENGTHS, strict=True):
            values = np.concatenate([text[:length] for text, length in zip(tensor, lengths, strict=True)])
            row[: len(values)] = values
    return {**fields, TEXT_LENGTHS: LENGTHS}


def test_every_form_of_input_gives_the_same_scores(model, sequences):
    scores = np.array(model(sequences))
    assert scores.shape == LENGTHS.shape
    assert (scores[LENGTHS == 0] == NO_CHOICE).all()
    assert (np.abs(scores[LENGTHS > 0]) < 10).all()
    one_by_one = {name: tensor.reshape(-1, 8) for name, tensor in sequences.items()}
    np.testing.assert_allclose(np.array(model(one_by_one)).reshape(2, 3), scores, atol=1e-6)
    records = joined(sequences)
    np.testing.assert_allclose(model(records), scores, atol=1e-6)
    empty = {name: np.zeros_like(values) for name, values in records.items()}
    assert (np.array(model(empty)) == NO_CHOICE).all()
    features = np.array(model.features(records)).reshape(2, -1)
    np.testing.assert_allclose(model({FEATURES: features, TEXT_LENGTHS: LENGTHS}), scores, atol=1e-6)
    unpadded = MultipleChoiceModel(BertEncoder(ONE_LAYER, layout=UnpaddedLayout), max_seq_length=9)
    for mine, others in zip(unpadded.weights, model.weights, strict=True):
        mine.assign(others)
    np.testing.assert_allclose(unpadded(records), scores, atol=1e-6)


def test_dropout_is_in_the_head_and_a_frozen_encoder_has_none(sequences):
    encoder = BertEncoder(ONE_LAYER)
    encoder.trainable = False
    model = MultipleChoiceModel(encoder, head_dropout=0.5)
    assert [variable.path for variable in model.trainable_variables] == [
        "multiple_choice/output_weights",
        "multiple_choice/output_bias",
    ]
    np.testing.assert_array_equal(model.features(sequences, training=True), model.features(sequences))
    assert not np.allclose(model(sequences, training=True), model(sequences))
