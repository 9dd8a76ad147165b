"""Examples of sentence encoders: table layouts and invalid rows."""

import json

import pytest

from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.data import ExampleReader, paired_by_class
from official_bert.tasks.sentence_encoder.options import LAYOUTS, Layout

TRIPLETS = Layout(("a", "b", "c"))


def read(folder, text, layout, name="train.tsv", **options):
    (folder / name).write_text(text)
    return ExampleReader(layout).read(str(folder / name), **options)


def test_equal_texts_have_equal_numbers_and_a_missing_negative_has_none(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    first, second = read(tmp_path, "a\tb\tc\nq\tp\tn\nn\t p \t\n", TRIPLETS)
    assert first.texts == ("q", "p", "n")
    assert second.texts == ("n", "p", "")
    assert second.numbers == (first.numbers[2], first.numbers[1], 0)
    assert "train.tsv: 1 of 2 examples have an empty text, left out" in caplog.text


def test_prefixes_are_part_of_the_texts(tmp_path):
    (tmp_path / "a.csv").write_text("q,p\np,q\n")
    reader = ExampleReader(Layout(("0", "1"), has_header=False), query_prefix="query: ", passage_prefix="passage: ")
    first, second = reader.read(str(tmp_path / "a.csv"))
    assert first.texts == ("query: q", "passage: p")
    assert second.numbers == (first.numbers[1], first.numbers[0])  # equal texts share a number with any prefix


def test_several_scores_in_json_lines(tmp_path):
    line = json.dumps({"a": "q", "b": "p", "c": "n", "x": 5, "y": 2.5})
    layout = Layout(("a", "b", "c"), ("x", "y"), max_score=5)
    (example,) = read(tmp_path, line, layout, "train.jsonl")
    assert example.scores == (1.0, 0.5)
    (example,) = read(tmp_path, "a\tb\tc\tx\ty\nq\tp\t\t5\t\n", layout)  # without a second candidate
    assert (example.texts[2], example.scores) == ("", (1.0, 0.0))


def test_published_layouts(tmp_path):
    header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    row = "0\tmain\tMSRvid\t2012\t1\tnone\tnone\tA plane.\tA jet.\t4.000\n"
    (example,) = read(tmp_path, header + row, LAYOUTS["sts-b"])
    assert (example.texts, example.scores) == (("A plane.", "A jet."), (0.8,))
    rows = "index\tquestion\tsentence\tlabel\n0\tWhy?\tSo.\tnot_entailment\n1\tWho?\tHe.\tentailment\n"
    (example,) = read(tmp_path, rows, LAYOUTS["qnli"])
    assert example.texts == ("Who?", "He.")


def test_texts_of_a_class_are_paired_and_never_negatives(tmp_path):
    layout = Layout(("text",), label="class")
    rows = "text\tclass\n" + "".join(f"{name}{number}\t{name}\n" for name in "xyz" for number in range(4))
    pairs = paired_by_class(read(tmp_path, rows, layout, is_training=True), seed=1)
    assert len(pairs) == 12
    for first, second in (pair.texts for pair in pairs):
        assert first[0] == second[0]
        assert first != second
    assert {pair.numbers for pair in pairs} == {(1, 1), (2, 2), (3, 3)}
    assert sorted(pair.texts[0] for pair in pairs) == sorted(pair.texts[1] for pair in pairs)


SCORED, CLASSES = Layout(("a", "b"), ("s",)), Layout(("a",), label="s")


@pytest.mark.parametrize(
    ("rows", "layout", "message"),
    [
        ("a\tb\ts\nx\t\t1\n", SCORED, "line 2: the text in column 'b' is empty"),
        ("a\tb\ts\nx\ty\n", SCORED, "line 2: there is no column 's'; it has 'a', 'b'"),
        ("a\tb\ts\nx\ty\thigh\n", SCORED, "line 2: the score 'high' is not a number"),
        ("a\tb\ts\nx\ty\t\n", SCORED, "line 2: the score '' is not a number"),
        ("a\tb\ts\nx\ty\tnan\n", SCORED, "line 2: the score 'nan' is not finite"),
        ("a\tb\ts\nx\ty\t1.5\n", SCORED, "line 2: the score '1.5' is above max_score=1; give the highest"),
        ("a\tb\n", SCORED, "no column 's'; the columns are"),
        ("a\tb\ts\n", SCORED, "has no examples"),
        ("a\ts\nx\t1\ny\t1\n", CLASSES, "all examples have the class '1'"),
        ("question\tsentence\tlabel\nx\ty\tno\n", LAYOUTS["qnli"], "no rows of class 'entailment'"),
    ],
)
def test_mistakes_are_named_with_their_line(rows, layout, message, tmp_path):
    with pytest.raises(UserError, match=message):
        read(tmp_path, rows, layout, is_training=True)


def test_a_class_of_a_single_text_is_refused(tmp_path):
    examples = read(tmp_path, "a\ts\nx\t1\ny\t1\nz\t2\n", CLASSES, is_training=True)
    with pytest.raises(UserError, match="'z' is the only text of its class"):
        paired_by_class(examples, seed=1)
