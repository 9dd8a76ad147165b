"""`word_vectors`: output and plots; for principal components see tests/metrics/test_similarity.py."""

import importlib.util

import numpy as np
import pytest

from official_bert.modeling.encoder import BertEncoder
from official_bert.support.errors import install_command
from official_bert.tokenization import FullTokenizer
from tests.conftest import assert_refused, run_here

SENTENCES = ["The town woke.", "Marta left.", "the harbour before the town, the Town", "townish"]


@pytest.fixture
def flags(files_of_model, tmp_path):
    (tmp_path / "sentences.txt").write_text("\n".join(SENTENCES) + "\n")
    return {**files_of_model, "input_file": str(tmp_path / "sentences.txt"), "word": "town", "max_seq_length": 24}


def test_the_table_has_the_cosines_of_all_occurrences(flags, model_dir, vocab_file, capsys):
    run_here("word_vectors", **flags, layers="0,-1")
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert header == ["number", "line", "1", "2", "3", "sentence"]
    assert [row[:2] + row[5:] for row in rows] == [
        [str(number), str(line), SENTENCES[line - 1]] for number, line in ((1, 1), (2, 3), (3, 3))
    ]
    encoder, tokenizer = BertEncoder.from_checkpoint(model_dir / "bert_model.ckpt"), FullTokenizer(vocab_file)
    (town,) = tokenizer.encode("town")
    vectors = []
    for sentence in (SENTENCES[0], SENTENCES[2]):
        batch = tokenizer([sentence], max_seq_length=24)
        layers = encoder(batch)["encoder_layers"]
        mean = (np.array(layers[0])[0] + np.array(layers[-1])[0]) / 2
        vectors += [mean[place] for place in np.flatnonzero(batch["input_ids"][0] == town)]
    vectors = np.stack(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose([[float(cell) for cell in row[2:5]] for row in rows], vectors @ vectors.T, atol=1e-4)


def test_words_of_several_wordpieces_and_parts_of_words(flags, vocab_file, capsys, tmp_path):
    wordpieces = FullTokenizer(vocab_file).tokenize("townish")
    assert len(wordpieces) > 1
    (tmp_path / "sentences.txt").write_text("townish\nthe townish town\nthe town\n")
    for word, lines in (("townish", ["1", "2"]), ("town", ["2", "3"]), ("the town", None)):
        if lines is None:
            assert_refused("word_vectors", {**flags, "word": word}, "occurs 1 times")
        else:
            run_here("word_vectors", **{**flags, "word": word})
            assert [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()[1:]] == lines


def test_mistakes_are_one_message(flags):
    for changes, message in (
        ({"word": " "}, "--word is empty"),
        ({"word": "\u200b"}, "contains no letters or digits"),
    ):
        assert_refused("word_vectors", {**flags, **changes}, message)


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="matplotlib is installed")
def test_without_matplotlib_the_picture_is_refused(flags, tmp_path):
    flags["image_file"] = str(tmp_path / "town.png")
    assert_refused("word_vectors", flags, install_command("plots"))


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs the plots extra")
def test_the_picture_is_a_png_file(flags, tmp_path):
    run_here("word_vectors", **flags, image_file=str(tmp_path / "town.png"))
    assert (tmp_path / "town.png").read_bytes().startswith(b"\x89PNG")
