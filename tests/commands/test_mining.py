"""`mine_hard_negatives`, from input files to output files, with a tiny encoder."""

import json

import pytest

from tests.conftest import assert_refused, run_here

PASSAGES = ["The harbour woke.", "Marta counted the crates", "the town", "The town", "the harbour  before the town"]


@pytest.fixture
def corpus(tmp_path):
    lines = [json.dumps({"_id": str(number), "text": text}) + "\n" for number, text in enumerate(PASSAGES)]
    (tmp_path / "corpus.jsonl").write_text("".join([*lines, "\n", lines[0]]))
    return {"corpus_file": str(tmp_path / "corpus.jsonl"), "corpus_column": "text", "max_seq_length": 24}


@pytest.fixture
def mined(one_layer_model, corpus, tmp_path):
    """Return a function that runs the command on the corpus and returns its output."""

    def mine(**flags):
        target = tmp_path / "mined"
        run_here("mine_hard_negatives", **one_layer_model, **corpus, output_file=target, **flags)
        return target.read_text()

    return mine


@pytest.fixture
def cosines(one_layer_model, tmp_path, capsys):
    """Return a function that maps a query to the cosine similarities that `sentence_similarity` prints."""

    def of(query):
        (tmp_path / "passages.txt").write_text("\n".join(PASSAGES))
        flags = {"candidates_file": str(tmp_path / "passages.txt"), "output_format": "jsonl", "top_k": 9}
        capsys.readouterr()
        run_here("sentence_similarity", **one_layer_model, **flags, query=query, max_seq_length=24)
        (found,) = map(json.loads, capsys.readouterr().out.splitlines())
        return {PASSAGES[row["line"] - 1]: row["cosine"] for row in found["candidates"]}

    return of


@pytest.mark.slow
def test_pairs_get_the_negatives_that_sentence_similarity_ranks_first(mined, cosines, tmp_path):
    pairs = [("the crates", "The Town"), ("before", "Marta counted the crates"), ("the crates", "the harbour woke.")]
    (tmp_path / "pairs.csv").write_text("query,passage\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    columns = {"anchor_column": "query", "positive_column": "passage", "pairs_file": str(tmp_path / "pairs.csv")}
    flags = {**columns, "num_negatives": 2, "output_format": "jsonl", "index_dir": str(tmp_path / "index")}
    found = [json.loads(line) for line in mined(**flags).splitlines()]
    of_crates, of_before = cosines("the crates"), cosines("before")
    # No duplicates of the anchor's two positives, and no passages that differ in case.
    first = [text for text in of_crates if text in (PASSAGES[1], PASSAGES[4])]
    assert found[0] == dict(zip(("anchor", "positive", "negative_1", "negative_2"), (*pairs[0], *first), strict=True))
    assert [row["positive"] for row in found] == [positive for _, positive in pairs]
    nearest = [text for text in of_before if text != PASSAGES[1]]
    assert found[1]["negative_1"].casefold() == nearest[0].casefold()
    # With too few negatives a pair is omitted; white space within texts of a table becomes a space.
    table = mined(**columns, num_negatives=4).splitlines()
    header = ["anchor", "positive", *(f"negative_{number}" for number in range(1, 5))]
    assert table[0].split("\t") == header and [row.split("\t")[0] for row in table[1:]] == ["before"]
    assert "the harbour before the town" in table[1].split("\t")


def test_mistakes_are_one_message_and_leave_no_file(one_layer_model, corpus, tmp_path):
    def refused(message, pairs=None, **changes):
        given = {**one_layer_model, **corpus, "output_file": str(tmp_path / "out.tsv"), **changes}
        if pairs is not None:
            (tmp_path / "pairs.tsv").write_text("anchor\tpositive\n" + pairs)
            given["pairs_file"] = str(tmp_path / "pairs.tsv")
        assert_refused("mine_hard_negatives", given, message)
        assert not (tmp_path / "out.tsv").exists()

    refused("pair 2 has no text in column 'positive'", "a\tb\nc\t \n")
    refused("pairs.tsv is empty", "\t\n")
    refused("output_format=csv contradicts the name of output_file=", "a\tb\n", output_format="csv")
    refused("leave 3 passages for --num_negatives=4", "a\tb\n", num_negatives=4, range_max=3)
    refused("--corpus_column needs --corpus_file", "a\tb\n", corpus_file=None)
    refused("is also an input", "a\tb\n", output_file=str(tmp_path / "pairs.tsv"))
    nothing = {"corpus_file": None, "corpus_column": None}
    few = "enough negatives among 1 passages; add passages with --corpus_file"
    refused(few, "a\tb\na\tb\n", **nothing)
    refused("--pairs_file (Table of pairs: .tsv, .csv, .jsonl or .parquet, possibly compressed) is missing")
