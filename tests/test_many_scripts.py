"""The questions in data/many_scripts, and the benchmark that counts exactly extracted answers."""

import json

from official_bert.tokenization import BasicTokenizer
from tests.conftest import ROOT, run_script

FILE = ROOT / "data" / "many_scripts" / "questions.json"


def articles():
    return json.loads(FILE.read_text())["data"]


def test_every_answer_stands_where_the_file_says():
    identities = []
    for article in articles():
        (paragraph,) = article["paragraphs"]
        assert len(paragraph["qas"]) == 4
        for question in paragraph["qas"]:
            (answer,) = question["answers"]
            assert paragraph["context"].startswith(answer["text"], answer["answer_start"])
            identities.append(question["id"])
    assert len(set(identities)) == 4 * len(articles()) == 32


def write_letters(path, is_uncased):
    """Write a vocabulary of the single letters of all contexts."""
    contexts = [article["paragraphs"][0]["context"] for article in articles()]
    letters = sorted(set("".join(BasicTokenizer(is_uncased).tokenize(" ".join(contexts)))))
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{one}" for one in letters)]))


def test_offsets_return_every_answer_if_each_letter_is_a_piece(tmp_path):
    arguments = []
    for casing in ("cased", "uncased"):
        settings = FILE, tmp_path / f"{casing}.txt", casing
        write_letters(settings[1], casing == "uncased")
        arguments += ["--articles", *settings, "squad", "--set", "all", *settings, "korquad"]
    result = run_script("benchmarks/answer_alignment.py", *map(str, arguments))
    assert result.code == 0, result
    lines = [line.strip("| ").split(" | ") for line in result.output.splitlines()[2:]]
    expected = [[article["title"], "4"] for article in articles()] + [["all", "32"]]
    assert [line[:2] for line in lines] == expected * 2
    for line in lines:
        _, _, _, reference, offsets, normalized_reference, normalized_offsets = line
        assert (offsets, normalized_offsets) == ("100.00", "100.00")
        assert float(reference) <= float(normalized_reference)
    assert all(0 < float(line[3]) < 100 for line in lines if line[0] == "all")  # the reference's way loses some
