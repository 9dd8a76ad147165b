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
from official_bert.tasks.pretraining.reader import FilledMask
from official_bert.tasks.pretraining.servable import PretrainingServable
from official_bert.tasks.pretraining.task import load_model
from official_bert.tokenization import FullTokenizer
from tests.ask_export import answers_of
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


def assert_filled(found, expected):
    assert [[candidate.word for candidate in mask] for mask in found] == [
        [word for word, _ in mask] for mask in expected
    ]
    for candidates, wanted in zip(found, expected, strict=True):
        assert [found.probability for found in candidates] == pytest.approx([p for _, p in wanted], abs=TOLERANCE)


@pytest.mark.endurance
def test_the_export_fills_in_the_likeliest_pieces(one_layer_model, plain, tmp_path):
    flags = {
        **one_layer_model, "output_dir": str(tmp_path / "out"), "max_seq_length": 64,
        "max_predictions_per_seq": 10, "export_dir": str(tmp_path / "serving"),
    }  # fmt: skip
    run_here("run_pretraining", **flags, do_export=True, export_top_k=4)
    folder = str(tmp_path / "serving" / "1")
    encoded = [plain.encode(text) for text in TEXTS]
    padded = [row + [0] * (max(map(len, encoded)) - len(row)) for row in encoded]
    own = {"input_ids": padded, "input_mask": np.sign(padded).tolist(), "segment_ids": np.zeros_like(padded).tolist()}
    requests = [["text", {"text": TEXTS}], ["tokenize", {"text": TEXTS}], ["serving_default", own]]
    answer, ids, again = answers_of(folder, requests)
    assert again["words"] == answer["words"] and ids == own
    np.testing.assert_allclose(again["probabilities"], answer["probabilities"], atol=TOLERANCE)
    filled = Predictor(str(tmp_path / "serving"))(TEXTS)
    for row, text in enumerate(TEXTS):
        assert_filled(filled[row], plain.fill(text, 4))
        masks = zip(answer["words"][row], answer["probabilities"][row], strict=True)
        found = [[FilledMask(*candidate) for candidate in zip(*mask, strict=True)] for mask in masks]
        assert_filled(found[: len(filled[row])], plain.fill(text, 4))
        assert all(candidate == ("", 0) for mask in found[len(filled[row]) :] for candidate in mask)


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


@pytest.mark.slow
def test_probabilities_are_over_the_whole_vocabulary(one_layer_model, tokenizer):
    bert_config = BertConfig.from_json_file(one_layer_model["bert_config_file"])
    model = load_model(bert_config, one_layer_model["init_checkpoint"])
    servable = PretrainingServable(model, bert_config, tokenizer, max_seq_length=64, top_k=5000)
    fill = graph_predictor(servable)
    first, second = fill("the [MASK] woke before the [MASK] did .")
    assert first != second
    for candidates in (first, second):
        probabilities = [candidate.probability for candidate in candidates]
        assert len(candidates) == 1182
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1, abs=1e-4)


@pytest.mark.endurance
def test_words_are_computed_in_parts_and_limited_in_number(one_layer_model, tokenizer, monkeypatch):
    bert_config = BertConfig.from_json_file(one_layer_model["bert_config_file"])
    model = load_model(bert_config, one_layer_model["init_checkpoint"])
    monkeypatch.setattr(servable_module, "MOST_POSITIONS", 60)  # two rows
    monkeypatch.setattr(pretraining_servable, "MOST_LOGITS", 4 * bert_config.vocab_size)
    servable = PretrainingServable(model, bert_config, tokenizer, max_seq_length=64, top_k=3)
    texts = [text.replace("[mask] [MASK", "[MASK]" * 15) for text in TEXTS]
    expected = servable.numbers(servable.tokenize(text=tf.constant(texts)))  # all at once
    found = servable.signature("text")(text=tf.constant(texts))
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=TOLERANCE)
    words = np.array([tokenizer.convert_ids_to_tokens(row) for row in expected["ids"].numpy().reshape(-1, 3).tolist()])
    is_real = found["words"].numpy() != b""
    assert is_real.sum() == 3 * 19
    assert found["words"].numpy()[is_real].astype(str).tolist() == words.reshape(is_real.shape)[is_real].tolist()
    monkeypatch.setattr(servable_module, "MOST_CELLS", 1)
    limited, most = PretrainingServable(model, bert_config, tokenizer, max_seq_length=64), bert_config.max_length * 5
    num_texts = most // (5 * 62) + 1  # one text of the longest length has this many cells
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"limited to {most} cells .*{num_texts * 310}"):
        limited.answer(text=tf.constant(["[MASK]" * 62] * num_texts))


@pytest.fixture
def flags(one_layer_model):
    return {**one_layer_model, "top_k": 3}


@pytest.mark.slow
def test_fill_mask_prints_what_the_model_says(flags, plain, capsys):
    run_here("fill_mask", **flags, text="The [MASK] woke [MASK].")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "The [MASK] woke [MASK]."
    assert lines[1::4] == ["[MASK] 1 of 2:", "[MASK] 2 of 2:"]
    rows = [line.split() for line in lines[1:] if not line.startswith("[MASK]")]
    expected = [candidate for mask in plain.fill(lines[0], 3) for candidate in mask]
    assert [row[0] for row in rows] == [word for word, _ in expected]
    assert [float(row[1]) for row in rows] == pytest.approx([value for _, value in expected], abs=6e-5)


@pytest.mark.slow
def test_a_text_that_just_fits_is_not_cut(flags, plain, capsys):
    text = "the " * 60 + "[MASK] ."
    assert len(plain.encode(text)) == 64
    run_here("fill_mask", **flags, text=text)
    assert capsys.readouterr().out.split()[62] == plain.fill(text, 1)[0][0][0]


def test_texts_and_models_that_do_not_serve_are_refused(flags, tmp_path):
    reader = CheckpointReader(flags["init_checkpoint"])
    arrays = {name: reader.read(name) for name in reader.shapes if not name.startswith("cls/predictions")}
    write_checkpoint(str(tmp_path / "encoder.ckpt"), arrays)
    with open(flags["vocab_file"], encoding="utf-8") as source:
        (tmp_path / "larger.txt").write_text(source.read().rstrip("\n") + "\nmores\n")
    for changes, *messages in (
        ({"text": "the town"}, "the text has no [MASK]: 'the town'"),
        ({"text": "the " * 62 + "[MASK]"}, "has 65 wordpieces, but the model takes at most 64; shorten it"),
        ({"init_checkpoint": str(tmp_path / "encoder.ckpt")}, "encoder.ckpt lacks ", "cls/predictions/"),
        ({"vocab_file": tmp_path / "larger.txt"}, "has 1183 wordpieces", "a vocab_size of 1182"),
    ):
        assert_refused("fill_mask", {**flags, "text": "[MASK]", **changes}, *messages)
