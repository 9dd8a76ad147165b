"""`AttentionReader`: attention of the encoder, words, and predictions, compared with plain Python."""

import numpy as np
import pytest
from keras import ops

from official_bert.checkpoints.bundle import CheckpointReader, write_checkpoint
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import BertConfig
from official_bert.inference.attention_reader import AttentionReader
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.support.errors import UserError
from official_bert.tokenization import FullTokenizer
from tests.exports import TOLERANCE

pytestmark = pytest.mark.slow

PAIR = ("Who woke  before the [MASK]?", "Zoë Lindqvist’s unbelievable crates…")


@pytest.fixture(scope="module")
def bert_config(files_of_model):
    return BertConfig.from_json_file(files_of_model["bert_config_file"])


@pytest.fixture(scope="module")
def read(files_of_model, bert_config, tokenizer):
    return AttentionReader(bert_config, tokenizer, files_of_model["init_checkpoint"], top_k=3)


@pytest.fixture(scope="module")
def view(read):
    return read(*PAIR)


@pytest.fixture(scope="module")
def model(files_of_model, bert_config):
    model = PretrainingModel(BertEncoder(bert_config))
    load(CheckpointReader(files_of_model["init_checkpoint"]), model.trainable_variables)
    return model


def inputs_of(view, tokenizer):
    ids = np.array([tokenizer.convert_tokens_to_ids(view.tokens)])
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.array([view.segment_ids])}


def test_attention_is_the_encoders_own(view, model, tokenizer):
    expected = model.encoder(**inputs_of(view, tokenizer))["attention_probabilities"]
    assert view.attention.dtype == np.float32
    np.testing.assert_array_equal(view.attention, np.stack([np.asarray(layer)[0] for layer in expected]))
    np.testing.assert_allclose(view.attention.sum(axis=-1), 1, atol=1e-5)


def test_wordpieces_and_words_are_those_of_the_texts(view, tokenizer):
    question = PAIR[0].split("[MASK]")
    first = [*tokenizer.tokenize(question[0]), "[MASK]", *tokenizer.tokenize(question[1])]
    second = tokenizer.tokenize(PAIR[1])
    assert view.tokens == ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    assert view.segment_ids == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    words = "[CLS] Who woke before the [MASK] ? [SEP] Zoë Lindqvist ’ s unbelievable crates … [SEP]"
    assert view.words == words.split()
    assert view.word_indices[0] == 0 and view.word_indices[-1] == len(view.words) - 1
    begins = [not token.startswith("##") for token in view.tokens]
    assert np.diff(view.word_indices).tolist() == [int(begin) for begin in begins[1:]]
    assert not all(begins)


def test_a_word_that_looks_like_a_continuation_is_a_word(files_of_model, bert_config):
    tokenizer = FullTokenizer(files_of_model["vocab_file"], do_lower_case=False, basic_tokenize=False)
    view = AttentionReader(bert_config, tokenizer, files_of_model["init_checkpoint"])("the ##s [MASK] town")
    assert view.tokens[1:5] == view.words[1:5] == ["the", "##s", "[MASK]", "town"]


def test_each_position_is_predicted_when_it_alone_is_masked(view, model, tokenizer):
    is_word = [token not in ("[CLS]", "[SEP]") for token in view.tokens]
    assert [guesses is not None for guesses in view.predictions] == is_word
    positions = np.flatnonzero(is_word)
    inputs = {name: np.tile(ids, (len(positions), 1)) for name, ids in inputs_of(view, tokenizer).items()}
    inputs["input_ids"][np.arange(len(positions)), positions] = tokenizer.mask_id
    logits = model({**inputs, "masked_lm_positions": positions[:, None]})["masked_lm_logits"]
    for position, probabilities in zip(positions, np.asarray(ops.softmax(logits))[:, 0], strict=True):
        best = np.argsort(-probabilities)[:3]
        assert [guess.word for guess in view.predictions[position]] == tokenizer.convert_ids_to_tokens(best.tolist())
        found = [guess.probability for guess in view.predictions[position]]
        assert found == pytest.approx(probabilities[best].tolist(), abs=TOLERANCE)


def test_long_texts_are_truncated_with_a_note(read, caplog):
    view = read("the " * 100, "the town " * 30, max_seq_length=128)
    assert len(view.tokens) == 64 == len(view.word_indices)
    assert sum(len(guesses or ()) for guesses in view.predictions) == 3 * 61  # more than a batch of masks
    assert view.tokens.index("[SEP]") == 32  # the longer text was truncated more
    (message,) = view.notes
    assert message.startswith("The text was truncated from 163 to 64 wordpieces, including [CLS] and [SEP]: max_seq_le")
    assert message in caplog.text
    assert len(read("the town woke", max_seq_length=4).tokens) == 4
    assert read("the " * 62).notes == []


def test_a_checkpoint_without_the_head_predicts_nothing(files_of_model, bert_config, tokenizer, view, tmp_path):
    reader = CheckpointReader(files_of_model["init_checkpoint"])
    arrays = {name: reader.read(name) for name in reader.shapes if name.startswith("bert/")}
    write_checkpoint(str(tmp_path / "encoder.ckpt"), arrays)
    found = AttentionReader(bert_config, tokenizer, str(tmp_path / "encoder.ckpt"))(*PAIR)
    assert found.predictions is None
    assert found.notes == ["The checkpoint has no masked-LM head, so no words are predicted."]
    np.testing.assert_array_equal(found.attention, view.attention)


def test_texts_without_wordpieces_are_refused(read):
    for texts, message in (
        (("\u0000 ",), "text='.*' has no wordpieces; give a text with words"),
        (("the town", " "), "text_b=' ' has no wordpieces"),
        (("the town", ""), "text_b='' has no wordpieces"),
    ):
        with pytest.raises(UserError, match=message):
            read(*texts)
    assert read("a \udcff town").words == ["[CLS]", "a", "town", "[SEP]"]  # an invalid UTF-8 byte
