"""Filling in masked words."""

import numpy as np
import pytest
from keras import ops

from official_bert.checkpoints.loading import load_initial
from official_bert.config.bert_config import BertConfig
from official_bert.errors import UserError
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.tasks.mask_filling import MaskFiller
from official_bert.tokenization import FullTokenizer


@pytest.fixture(scope="module")
def filler(model_dir, vocab_file):
    model = PretrainingModel(BertConfig.from_json_file(str(model_dir / "bert_config.json")))
    load_initial(str(model_dir / "trained_model.ckpt-12"), model.trainable_variables, required=lambda name: True)
    return MaskFiller(model, FullTokenizer(vocab_file))


def test_masks_become_one_piece_each(filler, vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    expected = ["[CLS]", "the", "[MASK]", "woke", "[MASK]", "[MASK]", ".", "[SEP]"]
    assert tokenizer.convert_ids_to_tokens(filler.encode("The [MASK] woke[MASK] [MASK].")) == expected


def test_candidates_are_the_likeliest_pieces_at_each_mask(filler):
    text = "the [MASK] woke before the [MASK] did ."
    first, second = filler.fill(text, 5)
    assert first != second
    for candidates in (first, second):
        probabilities = [candidate.probability for candidate in candidates]
        assert len(candidates) == 5
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < probabilities[0] < 1
    everything = filler.fill(text, 5000)[0]
    assert len(everything) == 1182
    assert sum(candidate.probability for candidate in everything) == pytest.approx(1, abs=1e-4)


def test_candidates_are_what_the_model_says(filler):
    ids = filler.encode("the [MASK] woke")
    batch = {
        "input_ids": np.array([ids]),
        "input_mask": np.ones([1, len(ids)], int),
        "segment_ids": np.zeros([1, len(ids)], int),
        "masked_lm_positions": np.array([[2]]),
    }
    logits = np.asarray(ops.softmax(filler._model(batch)["masked_lm_logits"]))[0, 0]
    best = filler.fill("the [MASK] woke", 1)[0][0]
    assert best.probability == pytest.approx(logits.max(), rel=1e-5)
    assert filler._tokenizer.vocab[best.piece] == logits.argmax()


def test_texts_that_cannot_be_filled_are_refused(filler):
    with pytest.raises(UserError, match=r"the text has no \[MASK\]: 'the town'"):
        filler.fill("the town", 5)
    with pytest.raises(UserError, match="the text has 83 wordpieces, the model takes 64"):
        filler.fill("the " * 80 + "[MASK]", 5)


def test_a_vocabulary_larger_than_the_model_is_refused(model_dir, vocab_file, tmp_path):
    model = PretrainingModel(BertConfig.from_json_file(str(model_dir / "bert_config.json")))
    larger = tmp_path / "vocab.txt"
    with open(vocab_file, encoding="utf-8") as source:
        larger.write_text(source.read().rstrip("\n") + "\nmore\n")
    with pytest.raises(UserError, match="has 1183 pieces, the model only 1182"):
        MaskFiller(model, FullTokenizer(str(larger)))
