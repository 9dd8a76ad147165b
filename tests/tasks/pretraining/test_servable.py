"""Filling in masked words by the export and `fill_mask`, compared with plain Python."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from official_bert.checkpoints.bundle import CheckpointReader, write_checkpoint
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import BertConfig
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.serving import servable as servable_module
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining import servable as pretraining_servable
from official_bert.tasks.pretraining.servable import PretrainingServable
from official_bert.tasks.pretraining.task import load_model
from official_bert.tokenization import FullTokenizer
from tests.conftest import assert_refused, run_here
from tests.exports import TOLERANCE, graph_predictor

TEXTS = ["the [MASK] kept the town [MASK][MASK] .", "none here", "[MASK]", "Zoë’s [mask] [MASK", ""]


class PlainFiller:
    """A plain version of the rules."""

    def __init__(self, model, tokenizer):
        self._model, self._tokenizer = model, tokenizer

    def encode(self, text):
        wordpieces = ["[CLS]"]
        for number, part in enumerate(text.split("[MASK]")):
            wordpieces += ["[MASK]"] * (number > 0) + self._tokenizer.tokenize(part)
        return self._tokenizer.convert_tokens_to_ids([*wordpieces, "[SEP]"])

    def fill(self, text, top_k):
        ids = np.array([self.encode(text)])
        positions = np.flatnonzero(ids[0] == self._tokenizer.vocab["[MASK]"])
        if not positions.size:
            return []
        batch = {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "segment_ids": np.zeros_like(ids),
            "masked_lm_positions": positions[np.newaxis],
        }
        probabilities = np.asarray(ops.softmax(self._model(batch)["masked_lm_logits"]))[0]
        wordpieces = self._tokenizer.convert_ids_to_tokens(list(range(probabilities.shape[1])))
        return [[(wordpieces[index], row[index]) for index in np.argsort(-row)[:top_k]] for row in probabilities]


@pytest.fixture(scope="module")
def plain(one_layer_model):
    model = PretrainingModel(BertEncoder(BertConfig.from_json_file(one_layer_model["bert_config_file"])))
    load(CheckpointReader(one_layer_model["init_checkpoint"]), model.trainable_variables)
    return PlainFiller(model, FullTokenizer(one_layer_model["vocab_file"]))


@pytest.fixture
def servable_of(one_layer_model, tokenizer):
    """Return a function from options to a servable of the model."""
    bert_config = BertConfig.from_json_file(one_layer_model["bert_config_file"])
    model = load_model(bert_config, one_layer_model["init_checkpoint"])
    return lambda **options: PretrainingServable(model, bert_config, tokenizer, max_seq_length=64, **options)


@pytest.mark.slow
def test_all_pieces_are_candidates_and_the_likeliest_come_first(servable_of, plain):
    servable = servable_of(top_k=5000)
    encoded = [plain.encode(text) for text in TEXTS]
    ids = servable.tokenize(text=tf.constant(TEXTS))
    assert ids["input_ids"].numpy().tolist() == [row + [0] * (max(map(len, encoded)) - len(row)) for row in encoded]
    for text, masks in zip(TEXTS, graph_predictor(servable)(TEXTS), strict=True):
        expected = plain.fill(text, 20)
        assert [[candidate.word for candidate in mask[:20]] for mask in masks] == [
            [word for word, _ in mask] for mask in expected
        ]
        for candidates, wanted in zip(masks, expected, strict=True):
            probabilities = [candidate.probability for candidate in candidates]
            assert probabilities[:20] == pytest.approx([value for _, value in wanted], abs=TOLERANCE)
            assert len(candidates) == 1182 and sum(probabilities) == pytest.approx(1, abs=1e-4)


@pytest.mark.endurance
def test_the_output_folder_of_pretraining_tells_all(one_layer_model, records_file, tmp_path):
    vocab_file, records = one_layer_model["vocab_file"], tmp_path / "records"
    flags = {**one_layer_model, "vocab_file": None, "input_file": records_file, "output_dir": str(tmp_path / "out")}
    flags |= {"max_seq_length": 64, "max_predictions_per_seq": 10, "train_batch_size": 2}
    run_here("run_pretraining", **flags, do_train=True, num_train_steps=1)
    assert [len(words) for words in Predictor(tmp_path / "out", top_k=3)("a [MASK] [MASK]")] == [3, 3]
    assert Predictor(tmp_path / "out").embed("a text").ndim == 1
    exported = {**flags, "input_file": None, "export_dir": str(tmp_path / "serving"), "export_format": "tflite"}
    run_here("run_pretraining", **exported, do_export=True)  # with the folder's vocabulary
    assert len(Predictor(tmp_path / "serving")("a [MASK] [MASK]")) == 2

    shutil.copy(records_file, records)  # without the files that give its vocabulary
    tmp_path /= "without"
    flags |= {"input_file": str(records), "output_dir": str(tmp_path)}
    run_here("run_pretraining", **flags, do_train=True, num_train_steps=1)
    with pytest.raises(UserError, match="has no vocabulary, and its run does not record one; give vocab_file"):
        Predictor(tmp_path)
    text = {"do_lower_case": False, "basic_tokenize": False}
    (mask,) = Predictor(tmp_path, vocab_file=vocab_file, **text)("THE [MASK]")
    assert mask == Predictor(tmp_path, vocab_file=vocab_file, **text)("\u2603 [MASK]")[0]  # both are [UNK]


@pytest.mark.endurance
def test_words_are_computed_in_parts_and_limited_in_number(servable_of, tokenizer, monkeypatch):
    monkeypatch.setattr(servable_module, "MOST_POSITIONS", 60)  # two rows
    monkeypatch.setattr(pretraining_servable, "MOST_LOGITS", 4 * 1182)
    servable = servable_of(top_k=3)
    texts = [text.replace("[mask] [MASK", "[MASK]" * 15) for text in TEXTS]
    expected = servable.numbers(servable.tokenize(text=tf.constant(texts)))  # all at once
    found = servable.signature("text")(text=tf.constant(texts))
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=TOLERANCE)
    words = np.array([tokenizer.convert_ids_to_tokens(row) for row in expected["ids"].numpy().reshape(-1, 3).tolist()])
    is_real = found["words"].numpy() != b""
    assert is_real.sum() == 3 * 19
    assert found["words"].numpy()[is_real].astype(str).tolist() == words.reshape(is_real.shape)[is_real].tolist()
    monkeypatch.setattr(servable_module, "MOST_CELLS", 1)
    limited, most = servable_of(), 64 * 5
    num_texts = most // (5 * 62) + 1  # one text of the longest length has this many cells
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"limited to {most} cells .*{num_texts * 310}"):
        limited.answer(text=tf.constant(["[MASK]" * 62] * num_texts))


@pytest.mark.slow
def test_fill_mask_prints_what_the_model_says_of_a_text_that_just_fits(one_layer_model, plain, capsys):
    text = "The [MASK] woke " + "the " * 57 + "[MASK]."
    assert len(plain.encode(text)) == 64
    run_here("fill_mask", **one_layer_model, text=text, top_k=3)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == text
    assert lines[1::4] == ["[MASK] 1 of 2:", "[MASK] 2 of 2:"]
    rows = [line.split() for line in lines[1:] if not line.startswith("[MASK]")]
    expected = [candidate for mask in plain.fill(text, 3) for candidate in mask]
    assert [row[0] for row in rows] == [word for word, _ in expected]
    assert [float(row[1]) for row in rows] == pytest.approx([value for _, value in expected], abs=6e-5)


def test_texts_and_models_that_do_not_serve_are_refused(one_layer_model, tmp_path):
    reader = CheckpointReader(one_layer_model["init_checkpoint"])
    arrays = {name: reader.read(name) for name in reader.shapes if not name.startswith("cls/predictions")}
    write_checkpoint(str(tmp_path / "encoder.ckpt"), arrays)
    with open(one_layer_model["vocab_file"], encoding="utf-8") as source:
        (tmp_path / "larger.txt").write_text(source.read().rstrip("\n") + "\nmores\n")
    for changes, *messages in (
        ({"text": "the town"}, "the text has no [MASK]: 'the town'"),
        ({"text": "the " * 62 + "[MASK]"}, "has 65 wordpieces, but the model takes at most 64; shorten it"),
        ({"init_checkpoint": str(tmp_path / "encoder.ckpt")}, "encoder.ckpt lacks ", "cls/predictions/"),
        ({"vocab_file": tmp_path / "larger.txt"}, "has 1183 wordpieces", "a vocab_size of 1182"),
    ):
        assert_refused("fill_mask", {**one_layer_model, "text": "[MASK]", **changes}, *messages)
