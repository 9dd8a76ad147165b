"""Predictions are written like the input file, with one more column."""

import pytest

from official_bert.tasks.tagging.data import read_tagged_file
from official_bert.tasks.tagging.records import write_predictions


def predictions(tmp_path, content, tags, **arguments):
    """Return the file written for a file's content and predicted tags, one string per sentence."""
    (tmp_path / "words.txt").write_bytes(content.encode())
    tagged_file = read_tagged_file(str(tmp_path / "words.txt"), **arguments)
    target = tmp_path / "predictions.conll"
    write_predictions(str(target), tagged_file, [sentence.split() for sentence in tags])
    return target.read_bytes().decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("New York\tB-LOC\nis\tO\n", "New York\tB-LOC\tB-LOC\nis\tO\tO\n"),
        ("\ufeffAnna  B-PER \r\n is  O\r\n \t\r\n", "Anna B-PER B-LOC\nis O O\n\n"),
        ("Anna B-PER\nis O", "Anna B-PER B-LOC\nis O O\n"),
        ("-DOCSTART-\nAnna X B-PER\nis X O\n", "-DOCSTART- O O O\nAnna X B-PER B-LOC\nis X O O\n"),
        ("-DOCSTART- -X- -X- O O\nAnna O\nis O\n", "-DOCSTART- -X- -X- O O O\nAnna O B-LOC\nis O O\n"),
        ("-DOCSTART-\t-X-\na b\tO\nc\tO\n", "-DOCSTART-\t-X-\tO\na b\tO\tB-LOC\nc\tO\tO\n"),
        ("\u200b O\n\x1c\u00a0 O\n", "\u200b O B-LOC\n\x1c\u00a0 O O\n"),
        ("# newdoc\n# text = Anna is\nAnna  O\nis O\n", "# newdoc\n# text = Anna is\nAnna O B-LOC\nis O O\n"),
        ("1-2 A _\n1 Anna O\n2 is O\n", "1-2 A _\n1 Anna O B-LOC\n2 is O O\n"),
        ("Anna is\tB-PER O\n", "Anna is\tB-PER O\tB-LOC O\n"),
        ("-DOCSTART-\n\nAnna is\tB-PER O\n", "-DOCSTART-\tO\tO\n\nAnna is\tB-PER O\tB-LOC O\n"),
    ],
)
def test_forms_of_files_are_kept(tmp_path, text, expected):
    assert predictions(tmp_path, text, ["B-LOC O"]) == expected


def test_a_sentence_each_gets_its_tags_and_text_without_tags_too(tmp_path):
    text = "-DOCSTART- -X- O\n\nAnna NNP B-PER\nrows VBZ O\n\n\nRain NN O\n"
    assert predictions(tmp_path, text, ["B-LOC O", "B-PER"]) == (
        "-DOCSTART- -X- O O\n\nAnna NNP B-PER B-LOC\nrows VBZ O O\n\n\nRain NN O B-PER\n"
    )
    found = predictions(tmp_path, "Anna\nis\n\nhere\n", ["B-PER O", "O"], is_tagged=False)
    assert found == "Anna B-PER\nis O\n\nhere O\n"
    lines = {"is_tagged": False, "file_layout": "sentences"}
    assert predictions(tmp_path, "Anna  is\nhere\n", ["B-PER O", "O"], **lines) == "Anna  is\tB-PER O\nhere\tO\n"


@pytest.mark.parametrize("tags", [["B-LOC"], ["B-LOC O O"], ["B-LOC O", "O"], []])
def test_one_tag_for_each_word_is_required(tmp_path, tags):
    with pytest.raises(ValueError, match="not one for each word"):
        predictions(tmp_path, "Anna B-PER\nis O\n", tags)
    assert not (tmp_path / "predictions.conll").exists()
