"""Graphs for approximate search: their results, and when an existing graph is reused."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from official_bert.inference import sentence_index
from official_bert.inference.sentence_index import NeighbourGraph, neighbour_graph
from official_bert.metrics.retrieval import nearest, normalized
from official_bert.support.errors import UserError
from tests.conftest import assert_refused, run_here


def test_a_missing_package_or_folder_is_reported(one_layer_model, corpus_file, tmp_path, monkeypatch):
    flags = {**one_layer_model, "candidates_file": corpus_file, "query": "a town", "approximate": True}
    assert_refused("sentence_similarity", flags, "--approximate needs --index_dir")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"faiss is not installed; run: pip install .*\[search\]"):
        neighbour_graph(str(tmp_path), np.eye(3, dtype=np.float32), {}, print)


@pytest.fixture
def vectors():
    pytest.importorskip("faiss")
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((3000, 16))
    vectors[7:9] = vectors[6]
    vectors[5] = 0  # the vector of an empty text
    return normalized(vectors).astype(np.float32)


def test_nearly_all_of_the_nearest_are_found_and_their_similarities_are_exact(vectors, tmp_path):
    done = []
    graph = neighbour_graph(str(tmp_path), vectors, {}, done.append)
    assert done[-1] == 3000
    queries = vectors[6:1000:10]
    rows, cosines = graph.nearest(queries, 10)
    exact_rows, exact_cosines = nearest(vectors, queries, 10)
    assert np.mean([len({*some} & {*best}) for some, best in zip(rows, exact_rows, strict=True)]) > 9.8
    same = (rows == exact_rows).all(axis=1)
    np.testing.assert_array_equal(cosines[same], exact_cosines[same])
    assert same.mean() > 0.8 and rows[0][:3].tolist() == [6, 7, 8] and len(set(cosines[0][:3])) == 1
    one = graph.nearest(queries[:1], 10)
    np.testing.assert_array_equal(one[0][0], rows[0])
    (tmp_path / "few").mkdir()
    few = neighbour_graph(str(tmp_path / "few"), vectors[:4], {}, done.append).nearest(queries[:2], 10)
    np.testing.assert_array_equal(few[0], nearest(vectors[:4], queries[:2], 10)[0])
    lost = SimpleNamespace(search=lambda queries, number, params: (None, np.full((len(queries), number), -1)))
    rows = NeighbourGraph(vectors, lost).nearest(queries, 10)[0]  # a graph whose search finds no candidates
    np.testing.assert_array_equal(rows, exact_rows)


@pytest.mark.slow
def test_a_graph_is_reused_unless_damaged_or_built_from_other_vectors(vectors, tmp_path, monkeypatch):
    reasons, path = [], tmp_path / "graph.faiss"
    monkeypatch.setattr("absl.logging.info", lambda text, *values: reasons.append(text % values))

    def is_made(provenance):
        done = []
        rows, _ = neighbour_graph(str(tmp_path), vectors, provenance, done.append).nearest(vectors[20:21], 1)
        assert rows.tolist() == [[20]]
        return bool(done)

    assert [is_made({"a": 1}), is_made({"a": 1}), is_made({"a": 2}), is_made({"a": 2})] == [True, False, True, False]
    assert reasons == [f"the graph {path} was built with different a; rebuilding it"]
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert is_made({"a": 2}) and "graph.faiss is missing or has" in reasons[-1]
    path.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])
    assert is_made({"a": 2}) and "is damaged: graph.faiss does not match its checksum" in reasons[-1]
    monkeypatch.setattr(sentence_index, "_EXPANSION", 40)
    assert is_made({"a": 2}) and "was built with different graph" in reasons[-1]
    assert not is_made({"a": 2})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["graph.faiss", "graph.json"]


@pytest.mark.slow
def test_commands_give_the_same_results_with_a_graph(vectors, one_layer_model, tmp_path, capsys):
    corpus, pairs, mined = (tmp_path / name for name in ("texts.txt", "pairs.tsv", "mined.tsv"))
    corpus.write_text("the harbour woke\nthe town\nMarta counted the crates\nthe town\n")
    pairs.write_text("anchor\tpositive\nthe crates\tthe town\n")
    mining = {"pairs_file": pairs, "corpus_file": corpus, "output_file": mined, "num_negatives": 2}
    found = []
    for approximate in (False, True):
        flags = {**one_layer_model, "max_seq_length": 8, "index_dir": tmp_path / "index", "approximate": approximate}
        run_here("sentence_similarity", **flags, candidates_file=corpus, query="a town", output_format="jsonl")
        run_here("mine_hard_negatives", **flags, **mining)
        found.append((json.loads(capsys.readouterr().out), mined.read_text()))
    assert found[0] == found[1] and (tmp_path / "index" / "graph.faiss").exists()
