"""Collections in the BEIR layout, and every kind of invalid file."""

import itertools
import json

import pytest

from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.data import Passage, read_beir

CORPUS = [{"_id": "d1", "title": "Tides", "text": "The sea rises.", "metadata": {}}]
CORPUS += [{"_id": "d2", "text": "No title."}, {"_id": "d3", "title": "", "text": ""}]
QUERIES = [{"_id": "q1", "text": "the sea"}, {"_id": "q2", "text": "a title"}, {"_id": "not judged", "text": "x"}]
QRELS = "query-id\tcorpus-id\tscore\nq2\td2\t1\n\nq2\td1\t0\nq1\td1\t2\n"


@pytest.fixture
def collection(tmp_path):
    """Return a function that writes a collection, with some files replaced, and returns its folder."""

    def write(**contents):
        (tmp_path / "qrels").mkdir()
        files = {"corpus": CORPUS, "queries": QUERIES, "qrels": QRELS, **contents}
        for name in ("corpus", "queries"):
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in files[name]))
        (tmp_path / "qrels" / "test.tsv").write_text(files["qrels"])
        return str(tmp_path)

    return write


def test_a_judged_document_that_is_missing_is_a_warning(collection, caplog):
    _, corpus, qrels = read_beir(collection(qrels=QRELS + "q1\td4\t1\n"), "test")
    assert (len(list(corpus)), qrels["q1"]) == (3, {"d1": 2.0, "d4": 1.0})  # so that recall counts it
    assert "corpus.jsonl has no document with the _id 'd4' (" in caplog.text
    assert "test.tsv, line 6), and lacks 1 of 3 judged documents; they count as not found" in caplog.text


def test_the_corpus_is_read_lazily_and_queries_without_a_relevant_document_are_counted(collection, caplog):
    folder = collection(corpus=[*CORPUS, {"text": "no id"}], qrels=QRELS + "not judged\td1\t0\n")
    assert len(list(itertools.islice(read_beir(folder, "test")[1], 3))) == 3
    assert "test.tsv: 1 of 3 queries have no relevant text; metrics leave them out" in caplog.text


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"qrels": QRELS + "q3\td1\t1\n"}, r"test\.tsv, line 6: \S+queries\.jsonl has no query with the _id 'q3'"),
        ({"qrels": QRELS + "q1\td2\thigh\n"}, r"test\.tsv, line 6: the score 'high' is not a number"),
        ({"qrels": QRELS + "q1\t0\td1\t1\n"}, r"test\.tsv, line 6: found 4 columns; the header has 3"),
        ({"qrels": QRELS + "q1\td1\t1\n"}, r"line 6: query 'q1' and document 'd1' have a different score above"),
        ({"qrels": "q1\td1\t1\n"}, r"test\.tsv, line 1: no column 'query-id'"),
        ({"qrels": ""}, r"test\.tsv is empty; .*'query-id', 'corpus-id', 'score'"),
        ({"qrels": "query-id\tcorpus-id\tscore\n"}, r"test\.tsv has no judgments"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\td1\t0\n"}, r"test\.tsv: none of the 1 queries has a relevant"),
        ({"corpus": [*CORPUS, {"text": "x"}]}, r"corpus\.jsonl, line 4: no key '_id'; the keys are 'text'"),
        ({"corpus": [*CORPUS, CORPUS[0]]}, r"corpus\.jsonl, line 4: an earlier document also has the _id 'd1'"),
        ({"queries": [*QUERIES, {"_id": "q1", "text": "y"}]}, r"line 4: an earlier query also has the _id 'q1'"),
    ],
)
def test_a_bad_line_is_named(collection, contents, message):
    with pytest.raises(UserError, match=message):
        list(read_beir(collection(**contents), "test")[1])


def test_judged_queries_all_documents_and_judgments_are_read(collection, tmp_path):
    folder = collection()
    queries, corpus, qrels = read_beir(folder, "test")
    assert list(queries.items()) == [("q2", "a title"), ("q1", "the sea")]
    assert qrels == {"q2": {"d2": 1.0, "d1": 0.0}, "q1": {"d1": 2.0}}
    assert list(corpus) == [Passage("d1", "Tides The sea rises."), Passage("d2", "No title."), Passage("d3", "")]
    with pytest.raises(UserError, match=r"/qrels/dev\.tsv does not exist; the BEIR layout"):
        read_beir(folder, "dev")
    (tmp_path / "corpus.jsonl").unlink()
    with pytest.raises(UserError, match=r"corpus\.jsonl"):
        list(read_beir(folder, "test")[1])
