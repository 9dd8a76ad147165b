"""Indexes of precomputed vectors: their results, and when an existing index is reused."""

import numpy as np
import pytest

from official_bert.data.feature_files import TextId, VectorBlock, write_npy, write_tfrecord
from official_bert.inference.sentence_index import VectorIndex
from official_bert.metrics.retrieval import normalized
from official_bert.support.errors import UserError


@pytest.fixture
def parts(tmp_path):
    """Parts with seven vectors in total, one of them empty and one in another format."""
    vectors = np.random.default_rng(1).standard_normal((9, 6)).astype(np.float32)
    ids = [TextId("b.txt", 1), TextId("b.txt", 0), *(TextId("a.txt", number) for number in range(7))]
    paths = [str(tmp_path / name) for name in ("p-0.npy", "p-1.npy", "p-2.npy", "p-3.tfrecord")]
    blocks = [VectorBlock(ids[start:end], vectors[start:end]) for start, end in ((0, 2), (2, 6), (6, 9))]
    write_npy(paths[0], blocks[:1])
    write_npy(paths[1], [])
    write_npy(paths[2], blocks[1:2])
    write_tfrecord(paths[3], blocks[2:])
    return paths, ids, vectors


def test_search_returns_text_ids_and_an_index_is_reused(parts, tmp_path, monkeypatch):
    paths, ids, vectors = parts
    folder, queries = tmp_path / "index", 3 * vectors[[0, 7]]
    cosines = normalized(queries) @ normalized(vectors).T
    expected = [[ids[row] for row in np.argsort(-row_of)[:4]] for row_of in cosines]

    def time_of(index):
        found = index.nearest(queries, 4)
        assert [[text for text, _ in best] for best in found] == expected
        np.testing.assert_allclose(
            [[cosine for _, cosine in best] for best in found], -np.sort(-cosines)[:, :4], atol=1e-6
        )
        assert index.nearest(queries[:1], 99)[0][:4] == found[0]
        return (folder / "vectors.npy").stat().st_mtime_ns

    made = time_of(VectorIndex(str(folder), paths))
    assert time_of(VectorIndex(str(folder), paths)) == time_of(VectorIndex(str(folder))) == made
    ids_file = folder / "ids.npz"
    content = ids_file.read_bytes()
    ids_file.write_bytes(content.replace(b"numbers", b"numberz"))
    with pytest.raises(UserError, match="has no index with text ids; give the parts"):
        VectorIndex(str(folder))
    again = time_of(VectorIndex(str(folder), paths))
    assert again != made
    write_npy(paths[1], [VectorBlock([TextId("c.txt", 5)], -vectors[:1])])
    assert VectorIndex(str(folder), paths).nearest(-vectors[:1], 1)[0][0][0] == TextId("c.txt", 5)


def test_what_cannot_be_found(parts, tmp_path):
    index = VectorIndex(str(tmp_path / "index"), parts[0])
    width = index.vectors.shape[1]
    for queries, top_k in (
        *((np.ones((1, width)), top_k) for top_k in (0, -1)),
        *((queries, 1) for queries in (np.full((1, width), np.nan), np.ones(width), np.ones((1, width + 1)))),
    ):
        with pytest.raises(UserError, match=rf"give numbers \[Q, {width}\] and 1 or more"):
            index.nearest(queries, top_k)
    assert index.nearest(np.ones((0, width)), 1) == []
    with pytest.raises(UserError, match="parts: there is no file .*absent.npy"):
        VectorIndex(str(tmp_path / "other"), [str(tmp_path / "absent.npy")])
    with pytest.raises(UserError, match="the parts have no vectors"):
        VectorIndex(str(tmp_path / "other"), parts[0][1:2])
    assert not (tmp_path / "other" / "index.json").exists()


def test_an_index_with_a_graph(parts, tmp_path):
    pytest.importorskip("faiss")
    paths, _, vectors = parts
    folder = tmp_path / "index"
    found = VectorIndex(str(folder), paths, is_approximate=True).nearest(vectors[:3], 4)
    assert found == VectorIndex(str(folder)).nearest(vectors[:3], 4) and (folder / "graph.faiss").exists()
