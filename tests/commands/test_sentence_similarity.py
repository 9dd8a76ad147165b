"""Rankings and tables of `sentence_similarity`, from files to standard output."""

import json

import numpy as np
import pytest
import scipy.stats

from official_bert.commands import extract_features, sentence_similarity
from official_bert.commands.extract_features import FeatureConfig
from official_bert.commands.sentence_similarity import POOLINGS
from tests.conftest import assert_refused, run_config, run_here, run_script

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
def flags(files_of_model, tmp_path):
    (tmp_path / "candidates.txt").write_text("\n".join(SENTENCES) + "\n")
    return {**files_of_model, "candidates_file": str(tmp_path / "candidates.txt"), "max_seq_length": 24}


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
    (tmp_path / "texts.txt").write_text("".join(f"{sentence}\n" for sentence in sentences))
    output = str(tmp_path / "vectors.npy")
    settings = {"output_format": "npy", "max_seq_length": 24, **changes}
    config = FeatureConfig(**files_of_model, input_file=str(tmp_path / "texts.txt"), output_file=output, **settings)
    run_config(extract_features, config)
    return np.load(output)


def cosine(first, second):
    return first @ second / np.linalg.norm(first) / np.linalg.norm(second)


@pytest.mark.endurance
@pytest.mark.parametrize(("pooling", "layers"), [("mean", "-1"), ("max_no_special", "-1,-3")])
def test_ranks_are_those_of_the_vectors_of_extract_features(rank, files_of_model, tmp_path, pooling, layers):
    query = "the crates woke"
    vectors = extracted(files_of_model, tmp_path, [*SENTENCES, query], pooling=pooling, layers=layers).mean(axis=1)
    (found,) = rank(query=query, pooling=pooling, layers=layers, top_k=9, index_dir=str(tmp_path / "index"))
    kept = np.load(tmp_path / "index" / "vectors.npy")
    assert kept.dtype == np.float32
    distinct = [line for line in LINES if SENTENCES.index(SENTENCES[line - 1]) == line - 1]
    for line, vector in zip(distinct, kept[:, 0], strict=True):
        np.testing.assert_allclose(vector, vectors[line - 1] / np.linalg.norm(vectors[line - 1]), atol=1e-6)
    cosines = {line: cosine(vectors[line - 1], vectors[-1]) for line in LINES}
    assert found["query"] == query
    assert [each["line"] for each in found["candidates"]] == sorted(
        LINES, key=lambda line: (-round(cosines[line], 5), line)
    )
    for rank_found, each in enumerate(found["candidates"], start=1):
        assert each["rank"] == rank_found
        assert each["sentence"] == SENTENCES[each["line"] - 1]
        assert each["cosine"] == pytest.approx(cosines[each["line"]], abs=2e-6)


@pytest.mark.endurance
def test_equal_sentences_are_ordered_by_line(rank):
    for top_k, lines in ((2, [3, 5]), (1, [3])):
        (found,) = rank(query="Marta counted the crates twice.", top_k=top_k)
        assert [each["line"] for each in found["candidates"]] == lines
        assert found["candidates"][0]["cosine"] == found["candidates"][-1]["cosine"] == pytest.approx(1, abs=1e-6)


@pytest.mark.endurance
def test_columns_have_a_header_and_the_same_numbers(rank, flags, capsys):
    (found,) = rank(query="a\u00a0town", top_k=2)
    run_here("sentence_similarity", **flags, query="a\u00a0town", top_k=2)
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert header == ["query", "rank", "cosine", "line", "sentence"]
    assert rows == [
        ["a town", str(each["rank"]), f"{each['cosine']:.6f}", str(each["line"]), each["sentence"]]
        for each in found["candidates"]
    ]


@pytest.mark.slow
def test_a_file_of_queries_is_answered_line_by_line(rank, tmp_path, monkeypatch):
    (tmp_path / "queries.txt").write_text("the town\n\nthe crates\nMarta\n")
    monkeypatch.setattr(sentence_similarity, "_QUERIES_AT_A_TIME", 2)
    found = rank(query_file=str(tmp_path / "queries.txt"))
    assert [each["query"] for each in found] == ["the town", "the crates", "Marta"]
    for answer in found[1:]:  # the last of a group and the first of another
        (alone,) = rank(query=answer["query"])
        assert [each["line"] for each in answer["candidates"]] == [each["line"] for each in alone["candidates"]]


@pytest.mark.endurance
def test_queries_come_through_a_pipe_or_from_repeated_flags(flags):
    result = run_script("sentence_similarity", piped=b"the town\nthe crates\n", **flags, query_file="-")
    assert result.code == 0, result
    repeated = run_script("sentence_similarity", "--query=the town", "--query", "the crates", **flags)
    assert repeated.output == result.output
    assert [line.split("\t")[:2] for line in result.output.splitlines()[1::5]] == [
        ["the town", "1"],
        ["the crates", "1"],
    ]


@pytest.mark.endurance
def test_an_index_is_used_again_with_the_same_settings_alone(rank, logged, tmp_path):
    folder = str(tmp_path / "index")
    first = rank(query="the town", index_dir=folder)
    assert rank(query="the town", index_dir=folder) == first == rank(query="the town")
    assert f"{folder}: reusing the vectors of 4 candidates" in logged
    for changes, names in (
        ({"layers": "0"}, "layers"),
        ({"layers": "0", "basic_tokenize": False, "do_lower_case": False}, "do_lower_case, basic_tokenize"),
    ):
        assert rank(query="the town", index_dir=folder, **changes) == rank(query="the town", **changes)
        assert f"the index in {folder} was built with different {names}; rebuilding it" in logged


@pytest.mark.slow
def test_an_index_of_other_candidates_or_a_damaged_one_is_made_again(rank, logged, caplog, tmp_path):
    folder = tmp_path / "index"
    rank(query="the town", index_dir=str(folder), pooling="bm25")
    expected = None

    def made_again(reason):
        nonlocal expected
        logged.clear()
        found = rank(query="the town", index_dir=str(folder), pooling="bm25")
        assert any(reason in line and line.endswith("rebuilding it") for line in logged), logged
        assert expected in (None, found)
        expected = found

    with open(tmp_path / "candidates.txt", "a") as sink:
        sink.write("the town\n")
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
    rows = rank(candidates_file=None, sts_file=str(tmp_path / "sts.tsv"))
    names = [(layer, pooling) for layer in ("embeddings", 0, 1, 2, "0,1,2") for pooling in POOLINGS]
    assert [(row["layer"], row["pooling"]) for row in rows] == names[1:]
    # As in the files of GLUE.
    lines = [f"x\t{first}\t{second}\t{score}\n" for score, (first, second) in zip(scores, pairs, strict=True)]
    (tmp_path / "dev.tsv").write_text("".join(["index\tsentence1\tsentence2\tscore\n", *lines]))
    assert rank(candidates_file=None, sts_file=str(tmp_path / "dev.tsv")) == rows
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
