"""Rankings and tables of `sentence_similarity`, from files to standard output."""

import json

import numpy as np
import pytest
import scipy.stats

from official_bert.commands import sentence_similarity
from official_bert.commands.sentence_similarity import POOLINGS
from tests.conftest import assert_refused, run_here, run_script

SENTENCES = [
    "The harbour woke before the town did.",
    "",
    "Marta counted the crates twice.",
    "The town woke.",
    "Marta counted the crates twice.",
    "before the harbour",
]
LINES = [number for number, sentence in enumerate(SENTENCES, start=1) if sentence]


@pytest.fixture
def flags(one_layer_model, tmp_path):
    (tmp_path / "candidates.txt").write_text("\n".join(SENTENCES) + "\n")
    return {**one_layer_model, "candidates_file": str(tmp_path / "candidates.txt"), "max_seq_length": 24}


@pytest.fixture
def rank(flags, capsys):
    """Return a function that runs the command and returns the printed JSON objects."""

    def run(**changes):
        capsys.readouterr()
        run_here("sentence_similarity", **{**flags, "output_format": "jsonl", **changes})
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def logged(monkeypatch):
    lines = []
    monkeypatch.setattr("absl.logging.info", lambda text, *values: lines.append(text % values))
    return lines


def extracted(files_of_model, tmp_path, sentences, **changes):
    """Return the vectors written by extract_features, [N, K, D]."""
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{sentence}\n" for sentence in sentences))
    output = str(tmp_path / "vectors.npy")
    settings = {"output_format": "npy", "max_seq_length": 24, **changes}
    run_here("extract_features", **files_of_model, input_file=texts, output_file=output, **settings)
    return np.load(output)


def cosine(first, second):
    return first @ second / np.linalg.norm(first) / np.linalg.norm(second)


@pytest.mark.slow
def test_ranks_are_those_of_the_vectors_of_extract_features(rank, files_of_model, tmp_path):
    query, how = "the crates woke", {"pooling": "max_no_special", "layers": "-1,-3"}
    vectors = extracted(files_of_model, tmp_path, [*SENTENCES, query], **how).mean(axis=1)
    (found,) = rank(query=query, **files_of_model, **how, top_k=9, index_dir=str(tmp_path / "index"))
    kept = np.load(tmp_path / "index" / "vectors.npy")
    assert kept.dtype == np.float32
    distinct = [line for line in LINES if SENTENCES.index(SENTENCES[line - 1]) == line - 1]
    for line, vector in zip(distinct, kept[:, 0], strict=True):
        np.testing.assert_allclose(vector, vectors[line - 1] / np.linalg.norm(vectors[line - 1]), atol=1e-6)
    cosines = {line: cosine(vectors[line - 1], vectors[-1]) for line in LINES}
    assert found["query"] == query
    expected = sorted(LINES, key=lambda line: (-round(cosines[line], 5), line))  # equal sentences by line
    assert [each["line"] for each in found["candidates"]] == expected
    for place, each in enumerate(found["candidates"], start=1):
        assert each["rank"] == place
        assert each["sentence"] == SENTENCES[each["line"] - 1]
        assert each["cosine"] == pytest.approx(cosines[each["line"]], abs=2e-6)


@pytest.mark.slow
def test_queries_of_a_file_a_pipe_and_repeated_flags_are_answered_one_by_one(rank, flags, tmp_path, monkeypatch):
    (tmp_path / "queries.txt").write_text("the town\n\nthe crates\nMarta\n")
    monkeypatch.setattr(sentence_similarity, "_QUERIES_AT_A_TIME", 2)
    found = rank(query_file=str(tmp_path / "queries.txt"))
    assert [each["query"] for each in found] == ["the town", "the crates", "Marta"]
    assert rank(query="the town\0the crates\0Marta") == found
    result = run_script("sentence_similarity", piped=b"the town\n\nthe crates\nMarta\n", **flags, query_file="-")
    header, *rows = [line.split("\t") for line in result.output.splitlines()]
    assert header == ["query", "rank", "cosine", "line", "sentence"]
    assert rows == [
        [answer["query"], str(each["rank"]), f"{each['cosine']:.6f}", str(each["line"]), each["sentence"]]
        for answer in found
        for each in answer["candidates"]
    ]


@pytest.mark.slow
def test_an_index_of_other_candidates_or_a_damaged_one_is_made_again(rank, logged, caplog, tmp_path):
    folder = tmp_path / "index"
    rank(query="the town", index_dir=str(folder))
    expected = None

    def made_again(reason):
        nonlocal expected
        logged.clear()
        found = rank(query="the town", index_dir=str(folder), pooling="bm25")
        assert any(reason in line and line.endswith("rebuilding it") for line in logged), logged
        assert expected in (None, found)
        expected = found

    made_again("was built with different pooling")
    with open(tmp_path / "candidates.txt", "a") as sink:
        sink.write("the town\n")
    expected = None
    made_again("was built with different candidates")
    assert expected[0]["candidates"][0]["line"] == 7
    vectors = (folder / "vectors.npy").read_bytes()
    (folder / "vectors.npy").write_bytes(vectors[:-8])
    made_again("is damaged: vectors.npy is missing or has another length")
    (folder / "vectors.npy").write_bytes(vectors[:-9] + bytes([vectors[-9] ^ 1]) + vectors[-8:])
    made_again("is damaged: vectors.npy does not match its checksum")
    (folder / "bm25.npz").unlink()
    made_again("is damaged: bm25.npz is missing")
    (folder / "index.json").write_text('{"provenance"')
    assert rank(query="the town", index_dir=str(folder), pooling="bm25") == expected
    assert "index.json is damaged" in caplog.text
    logged.clear()
    assert rank(query="the town", index_dir=str(folder), pooling="bm25") == expected
    assert any("reusing the vectors" in line for line in logged)


@pytest.mark.slow
def test_long_sentences_are_truncated_with_a_note(rank, logged, tmp_path):
    long = " ".join(["the town woke"] * 30)
    (tmp_path / "candidates.txt").write_text(f"{long} twice\n{long} harbour\nMarta\n")
    (found,) = rank(query=long, top_k=2, max_seq_length=64)
    assert {each["line"] for each in found["candidates"]} == {1, 2}
    assert [each["cosine"] for each in found["candidates"]] == [1.0, 1.0]
    assert "2 candidates have more than 64 wordpieces and were truncated" in logged
    assert "1 queries have more than 64 wordpieces and were truncated" in logged


@pytest.mark.slow
def test_the_table_of_layers_and_poolings_is_that_of_scipy(rank, files_of_model, tmp_path, logged):
    rng = np.random.default_rng(1)
    words = ["the", "town", "woke", "before", "harbour", "crates", "marta", "counted", "twice"]
    pairs = [[" ".join(rng.choice(words, size=rng.integers(1, 9))) for _ in "ab"] for _ in range(12)]
    scores = rng.integers(0, 4, size=12).tolist()
    lines = [f"{score}\t{first}\t{second}\n" for score, (first, second) in zip(scores, pairs, strict=True)]
    (tmp_path / "sts.tsv").write_text("\n".join(lines))
    rows = rank(**files_of_model, candidates_file=None, sts_file=str(tmp_path / "sts.tsv"))
    names = [(layer, pooling) for layer in ("embeddings", 0, 1, 2, "0,1,2") for pooling in POOLINGS]
    assert [(row["layer"], row["pooling"]) for row in rows] == names[1:]
    # As in the files of GLUE.
    lines = [f"x\t{first}\t{second}\t{score}\n" for score, (first, second) in zip(scores, pairs, strict=True)]
    (tmp_path / "dev.tsv").write_text("".join(["index\tsentence1\tsentence2\tscore\n", *lines]))
    assert rank(**files_of_model, candidates_file=None, sts_file=str(tmp_path / "dev.tsv")) == rows
    flat = [sentence for pair in pairs for sentence in pair]
    arrays = extracted(files_of_model, tmp_path, flat, pooling="none", layers="0,1,2", output_format="npz")
    of_texts = np.split(arrays["vectors"].astype(np.float64), arrays["offsets"][1:-1])  # each [S, 3, D]
    pool = {"cls": lambda rows: rows[0], "mean": lambda rows: rows.mean(0), "max": lambda rows: rows.max(0)}
    for pooling in POOLINGS[:-1]:
        name, _, only_words = pooling.partition("_")
        vectors = np.stack([pool[name](rows[1:-1] if only_words else rows) for rows in of_texts])
        for layer, of_layer in zip((0, 1, 2, "0,1,2"), [*vectors.swapaxes(0, 1), vectors.sum(axis=1)], strict=True):
            cosines = [cosine(*of_layer[number : number + 2]) for number in range(0, 24, 2)]
            (row,) = (row for row in rows if (row["layer"], row["pooling"]) == (layer, pooling))
            assert row["pearson"] == pytest.approx(scipy.stats.pearsonr(scores, cosines).statistic, abs=1e-4)
            assert row["spearman"] == pytest.approx(scipy.stats.spearmanr(scores, cosines).statistic, abs=1e-4)
    best = max(rows[len(POOLINGS) - 1 :], key=lambda row: row["spearman"])
    assert any(f"has --layers={best['layer']} --pooling={best['pooling']}" in line for line in logged)


def test_mistakes_are_one_message(flags, tmp_path):
    def refused(message, **changes):
        given = {name: value for name, value in {**flags, "query": "a town", **changes}.items() if value is not None}
        assert_refused("sentence_similarity", given, message)

    def file(text):
        (tmp_path / "file.txt").write_text(text)
        return str(tmp_path / "file.txt")

    refused("--candidates_file=" + file("\n \n"), candidates_file=str(tmp_path / "file.txt"))
    refused("--query is empty", query=" ")
    refused("contains no words", query="\u200b")
    refused("has only blank lines", query=None, query_file=file("\n\n"))
    refused("give either --query", query=None)
    refused("give either --candidates_file", candidates_file=None)
    refused("cannot both be standard input", candidates_file="-", query=None, query_file="-")
    sts = {"candidates_file": None, "query": None}
    refused("--pooling cannot be used with --sts_file", **sts, sts_file="a", pooling="cls")
    refused("line 1: the score 'score' is not a number", **sts, sts_file=file("score\ta\tb\n"))
    refused("line 2: 2 columns; give 4, as line 1", **sts, sts_file=file("score\tsentence2\tsentence1\tx\n1\ta\n"))
    refused("all 2 pairs have the same score", **sts, sts_file=file("1\ta\tb\n1\ta\tc\n\t\t\n"))
