"""Output files of `extract_features.py`; for the vectors see tests/inference/test_text_encoder.py."""

import os

import numpy as np
import pytest
import tensorflow as tf

from official_bert.inference.text_encoder import TextEncoder
from tests.commands.conftest import json_lines
from tests.conftest import GOLDEN, assert_refused, run_here

GOLDEN_OUTPUT = GOLDEN / "extract_features" / "extract_features_output.jsonl"
INPUT = GOLDEN / "inputs" / "extract_features.txt"
TEXTS = INPUT.read_text().splitlines()
GOLDEN_FLAGS = {"input_file": str(INPUT), "layers": "-1,-2", "max_seq_length": 24, "batch_size": 2}


@pytest.fixture
def flags(files_of_model, tmp_path):
    """The command of the golden output."""
    return {**files_of_model, **GOLDEN_FLAGS, "output_file": str(tmp_path / "out.jsonl")}


@pytest.fixture
def extract(flags, tmp_path):
    """Return a function that runs the command with changed flags and returns the output path."""

    def run(**changes):
        given = {**flags, "output_file": str(tmp_path / f"out.{changes.get('output_format', 'jsonl')}"), **changes}
        run_here("extract_features", **given)
        return given["output_file"]

    return run


@pytest.fixture(scope="module")
def golden_lines(files_of_model, tmp_path_factory):
    """The output of that command."""
    path = str(tmp_path_factory.mktemp("lines") / "out.jsonl")
    run_here("extract_features", **files_of_model, **GOLDEN_FLAGS, output_file=path)
    return path


def token_vectors(line):
    """Return the vectors of a line of JSON, [S, K, D]."""
    return np.array([[layer["values"] for layer in token["layers"]] for token in line["features"]])


def test_json_lines_are_those_of_the_reference(golden_lines):
    written, expected = json_lines(golden_lines), json_lines(GOLDEN_OUTPUT)
    assert len(written) == len(expected) == 3
    for line, golden in zip(written, expected, strict=True):
        assert list(line) == list(golden) == ["linex_index", "features"]
        assert line["linex_index"] == golden["linex_index"]
        assert [list(token) for token in line["features"]] == [["token", "layers"]] * len(golden["features"])
        assert [token["token"] for token in line["features"]] == [token["token"] for token in golden["features"]]
        for token in line["features"]:
            assert [list(layer) for layer in token["layers"]] == [["index", "values"]] * 2
            assert [layer["index"] for layer in token["layers"]] == [-1, -2]
        # Both are rounded to six decimals.
        np.testing.assert_allclose(token_vectors(line), token_vectors(golden), rtol=0, atol=5e-6)
        values = token_vectors(line).ravel().tolist()
        assert values == [round(value, 6) for value in values]


@pytest.mark.slow
def test_all_formats_and_a_table_give_the_same_vectors(extract, golden_lines, tmp_path):
    expected = [token_vectors(line) for line in json_lines(golden_lines)]
    with np.load(extract(output_format="npz")) as arrays:
        assert arrays["layers"].tolist() == [-1, -2]
        assert arrays["linex_index"].tolist() == [0, 1, 2]
        assert arrays["vectors"].dtype == np.float32
        offsets = arrays["offsets"]
        for number, vectors in enumerate(expected):
            np.testing.assert_allclose(arrays["vectors"][offsets[number] : offsets[number + 1]], vectors, atol=1e-6)
        assert len(arrays["token_ids"]) == offsets[-1] == sum(map(len, expected))
    pairs = [(*text.split(" ||| "), "")[:2] for text in TEXTS]
    (tmp_path / "t.csv").write_text("".join(f'"{b}","{a}"\n' for a, b in pairs))
    table = {"input_file": tmp_path / "t.csv", "text_column": "1", "text_b_column": "0", "has_header": False}
    dataset = tf.data.TFRecordDataset(extract(output_format="tfrecord", **table))
    for number, record in enumerate(dataset.as_numpy_iterator()):
        feature = tf.train.Example.FromString(record).features.feature
        assert feature["linex_index"].int64_list.value == [number]
        vectors = np.reshape(feature["vectors"].float_list.value, feature["shape"].int64_list.value)
        np.testing.assert_allclose(vectors, expected[number], atol=1e-6)
        assert len(feature["token_ids"].int64_list.value) == len(vectors)
    assert number == 2


class TestShards:
    """Output in several files, of which finished ones are kept."""

    @pytest.fixture
    def run(self, extract, tmp_path):
        """Return a function that writes shards of two texts and returns their vectors and how many were computed."""
        texts = tmp_path / "texts.txt"
        texts.write_text("".join(f"{text}\n" for text in [*TEXTS, "the town", "the crates", "a"]))

        def shards(**changes):
            computed = []
            original = TextEncoder._encoded

            def counting(self, text):
                computed.append(text.text_a)
                return original(self, text)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TextEncoder, "_encoded", counting)
                given = {"output_format": "npz", "pooling": "mean", "shard_size": 2, "input_file": str(texts)}
                extract(**{**given, **changes})
            names = sorted(name for name in os.listdir(tmp_path) if name.startswith("out-") and name.endswith(".npz"))
            return [dict(np.load(tmp_path / name)) for name in names], len(computed)

        return shards

    @pytest.mark.slow
    def test_they_are_the_single_file_and_finished_ones_are_kept(self, run, extract, tmp_path, caplog):
        first, num_computed = run()
        assert num_computed == 6
        assert [shard["linex_index"].tolist() for shard in first] == [[0, 1], [2, 3], [4, 5]]
        together = np.concatenate([shard["vectors"] for shard in first])
        single = json_lines(extract(pooling="mean", input_file=tmp_path / "texts.txt"))
        assert [list(line) for line in single] == [["linex_index", "layers"]] * 6
        values = [[layer["values"] for layer in line["layers"]] for line in single]
        np.testing.assert_allclose(together, values, atol=2e-6)
        assert run()[1] == 0
        (tmp_path / "out-00001.npz").write_bytes(b"cut off")
        (tmp_path / "out-00002.npz.json").unlink()
        whole = (tmp_path / "out-00000.npz").read_bytes()
        (tmp_path / "out-00000.npz").write_bytes(whole[:90] + bytes([whole[90] ^ 1]) + whole[91:])
        again, num_computed = run()
        assert num_computed == 6
        for shard, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(shard["vectors"], other["vectors"])
        texts = tmp_path / "texts.txt"
        texts.write_text("".join([*texts.read_text().splitlines(keepends=True)[:3], "the harbour\n"]))
        with caplog.at_level("WARNING", logger="absl"):
            assert run()[1] == 2  # those of the shard with another text
        assert "1 shards of an earlier run over more texts remain, from out-00002.npz on" in caplog.text
        assert run(pooling="max")[1] == run(pooling="max", do_lower_case=False)[1] == 4


class TestMistakes:
    """Errors, reported in one line, that leave the old output unchanged."""

    @pytest.mark.parametrize(
        ("changes", "parts"),
        [
            ({"layers": "last"}, ["--layers=last: give whole numbers"]),
            ({"output_format": "npy"}, ["--output_format=npy holds one vector per text"]),
            ({"output_file": "-", "output_format": "npz"}, ["standard output supports only a single jsonl file"]),
            ({"dtype": "float16"}, ["--dtype needs --output_format=npz or npy"]),
            ({"text_b_column": "b"}, ["--text_b_column needs --text_column"]),
            ({"input_file": str(GOLDEN / "README.md"), "text_column": "a"}, ["must end in one of .tsv"]),
            ({"num_replicas": 0, "master": "x"}, ["--master=x: TensorFlow 2 has no session masters"]),
        ],
    )
    def test_flags_and_files_that_do_not_serve(self, flags, changes, parts):
        assert_refused("extract_features", {**flags, **changes}, *parts)

    @pytest.mark.parametrize(
        ("content", "changes", "part"),
        [
            (b"", {}, "in.tsv is empty; give one text per line"),
            (b"fine\nna\xefve\n", {}, "in.tsv, line 2: byte 0xef"),
            (b"a\tb\n1\n", {"text_column": "b"}, "in.tsv, line 2: there is no column 1 (counted from 0), only 1"),
        ],
    )
    def test_input_that_cannot_be_read_leaves_the_old_output(self, flags, tmp_path, content, changes, part):
        (tmp_path / "in.tsv").write_bytes(content)
        for name, more in (("old.jsonl", {}), ("old.npz", {"output_format": "npz"})):
            (tmp_path / name).write_text("old")
            given = {**flags, "input_file": tmp_path / "in.tsv", "output_file": tmp_path / name, **changes, **more}
            assert_refused("extract_features", given, part)
            assert (tmp_path / name).read_text() == "old"
        assert sorted(os.listdir(tmp_path)) == ["in.tsv", "old.jsonl", "old.npz"]

    def test_the_input_is_not_overwritten(self, flags):
        assert_refused("extract_features", {**flags, "output_file": INPUT}, "is also an input; it would be overwritten")


@pytest.mark.endurance
def test_pooled_formats_hold_a_vector_a_text_and_layer(extract, golden_lines):
    expected = np.array([token_vectors(line).mean(axis=0) for line in json_lines(golden_lines)])  # [N, K, D]
    lines = json_lines(extract(pooling="mean"))
    assert list(lines[1]) == ["linex_index", "layers"]
    values = [[layer["values"] for layer in line["layers"]] for line in lines]
    np.testing.assert_allclose(values, expected, atol=2e-6)
    np.testing.assert_allclose(np.load(extract(pooling="mean", output_format="npy")), expected, atol=2e-6)
    with np.load(extract(pooling="mean", output_format="npz", dtype="float16")) as arrays:
        assert arrays["vectors"].dtype == np.float16
        assert sorted(arrays) == ["layers", "linex_index", "vectors"]
        np.testing.assert_allclose(arrays["vectors"], expected, atol=2e-3)
