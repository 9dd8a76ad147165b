"""`beam_predict`: the same results as `Predictor`, on one process, several, and a cluster that loses one."""

import json
import os
import sys

import numpy as np
import pytest

pytest.importorskip("apache_beam")

from official_bert.commands.beam_predict import shard_paths
from official_bert.data.feature_files import TextId, read_parts
from official_bert.inference import beam_prediction
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError, install_command
from tests.conftest import assert_refused, run_here
from tests.exports import TOLERANCE, assert_same, predicted_pairs

pytestmark = [pytest.mark.beam, pytest.mark.slow]


def lines_of(*paths):
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def in_order(rows, names):
    return sorted(rows, key=lambda row: (names.index(row["file"]), row["number"]))


@pytest.fixture
def texts(reviews, tmp_path):
    """Two tables of pairs: file names, and all pairs in order."""
    pairs = [tuple(pair) for pair in predicted_pairs(reviews)]
    tables = {tmp_path / "long.tsv": pairs * 20, tmp_path / "short.tsv": pairs[::-1]}
    for path, rows in tables.items():
        path.write_text("".join(f"{a}\t{b}\n" for a, b in [("text", "other"), *rows]))
    return [str(path) for path in tables], [pair for rows in tables.values() for pair in rows]


def flags_for(names, tmp_path, **changes):
    return {
        "input_file": ",".join(names), "text_column": "text", "text_b_column": "other",
        "output_file": str(tmp_path / "found.jsonl"), **changes,
    }  # fmt: skip


def test_the_results_are_those_of_predictor_in_any_number_of_shards(reviews, version, texts, tmp_path):
    names, pairs = texts
    predict = Predictor(version)
    files = (pairs[: -len(pairs) // 21], pairs[-len(pairs) // 21 :])
    expected = [beam_prediction.as_json(result) for file in files for result in predict(file)]
    flags = flags_for(names, tmp_path, model_dir=reviews["export_dir"])
    run_here("beam_predict", **flags)
    rows = lines_of(tmp_path / "found.jsonl")
    assert [(row["file"], row["number"]) for row in rows] == [
        (name, number) for name, file in zip(names, files, strict=True) for number in range(len(file))
    ]
    assert_same([row["prediction"] for row in rows], expected)

    run_here("beam_predict", **flags, num_shards=3)
    shards = sorted(tmp_path.glob("found-*"))
    assert [path.name for path in shards] == [f"found-0000{number}-of-00003.jsonl" for number in range(3)]
    assert all(in_order(lines_of(shard), names) == lines_of(shard) != [] for shard in shards)
    assert in_order(lines_of(*shards), names) == rows

    run_here("beam_predict", **{**flags, "input_file": names[1]}, num_shards=9)  # more shards than blocks
    assert sorted(len(lines_of(path)) for path in tmp_path.glob("found-*-of-00009.jsonl")) == [0] * 8 + [len(files[1])]
    assert not list(tmp_path.glob(".*partial*"))


@pytest.mark.endurance
def test_records_give_what_their_texts_give(reviews, tmp_path):
    records = os.path.join(reviews["output_dir"], "predict.tf_record")
    flags = {"model_dir": reviews["export_dir"], "input_file": records, "input_format": "tfrecord"}
    for model_dir in (reviews["export_dir"], reviews["output_dir"]):
        run_here("beam_predict", **{**flags, "model_dir": model_dir}, output_file=str(tmp_path / "found.jsonl"))
        found = [row["prediction"] for row in lines_of(tmp_path / "found.jsonl")]
        expected = Predictor(model_dir)([tuple(pair) for pair in predicted_pairs(reviews)])
        assert [row["label"] for row in found] == [result.label for result in expected]
        for row, result in zip(found, expected, strict=True):
            assert row["probabilities"] == pytest.approx(result.probabilities, abs=TOLERANCE)

    whole = open(records, "rb").read()
    (tmp_path / "cut.tfrecord").write_bytes(whole[:-3])
    (tmp_path / "other.tfrecord").write_bytes(whole.replace(b"input_ids", b"imput_ids", 1))
    for name, part in (("cut", rf"cut.tfrecord: record {len(found) - 1} \(counted from 0\)"), ("other", "other")):
        output = tmp_path / f"{name}.jsonl"
        damaged = {**flags, "input_file": str(tmp_path / f"{name}.tfrecord"), "output_file": str(output)}
        with pytest.raises(UserError, match=part):
            run_here("beam_predict", **damaged)
        assert not output.exists()


@pytest.mark.endurance
def test_vectors_of_a_sentence_encoder_in_any_number_of_parts(one_layer_config_file, vocab_file, tmp_path):
    from tests.serving.tiny_exports import write_tiny_export

    files = {"bert_config_file": one_layer_config_file, "vocab_file": vocab_file}
    model_dir = write_tiny_export(tmp_path / "serving", "sentence_encoder", **files)
    texts = ["a bright town", "", "the town of the baker " * 30, "one"] * 40
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    expected = Predictor(model_dir).embed([text.strip() for text in texts])
    flags = {"input_file": str(tmp_path / "texts.txt"), "model_dir": str(tmp_path / "serving")}
    threads = "--direct_running_mode=multi_threading --direct_num_workers=3"
    found = {}
    for output_format, num_shards, beam_args in (("npy", 1, ""), ("tfrecord", 2, threads)):
        output = str(tmp_path / f"found.{output_format}")
        changes = {"output_format": output_format, "num_shards": num_shards, "beam_args": beam_args}
        run_here("beam_predict", **flags, output_file=output, **changes)
        blocks = list(read_parts(shard_paths(output, num_shards)))
        rows = {text: vector for block in blocks for text, vector in zip(block.ids, block.vectors, strict=True)}
        assert set(rows) == {TextId(flags["input_file"], number) for number in range(len(texts))}
        found[output_format, num_shards] = np.array([rows[text] for text in sorted(rows)])
        np.testing.assert_allclose(found[output_format, num_shards], expected, atol=1e-5)
    np.testing.assert_array_equal(found["npy", 1], found["tfrecord", 2])
    run_here("beam_predict", **flags, output_file=str(tmp_path / "found.jsonl"))
    found = [row["vector"] for row in lines_of(tmp_path / "found.jsonl")]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_mistakes_are_told_in_one_line(reviews, texts, tmp_path, monkeypatch):
    names, _ = texts
    flags = flags_for(names, tmp_path, model_dir=reviews["export_dir"])
    (tmp_path / "bad.tsv").write_bytes(b"text\tother\na\tb\nc\xff\td\n")
    (tmp_path / "single.txt").write_text("a\n")
    lines = {"text_column": None, "text_b_column": None}
    for changes, *parts in (
        (
            {**lines, "input_file": str(tmp_path / "single.txt")},
            "single.txt: text 0",
            "but this model reads text_a and text_b",
        ),
        ({"input_file": f"{names[0]},{tmp_path / 'bad.tsv'}"}, "bad.tsv, line 3", "not UTF-8"),
        ({"text_column": "nothing"}, "no column 'nothing'"),
        ({"beam_args": "--direct_num_worker=2"}, "--beam_args: unknown option '--direct_num_worker'"),
        ({"beam_args": "'"}, "--beam_args=': No closing quotation"),
        ({"beam_args": "--runner=NoRunner"}, "--beam_args", "NoRunner"),
        ({"beam_args": "--runner=PortableRunner --job_endpoint=localhost:1 --job_server_timeout=1"}, "localhost:1"),
        ({"output_file": names[0]}, "--output_file", "is also an input"),
        ({"input_format": "tfrecord"}, "--text_column cannot be used with --input_format=tfrecord"),
        ({**lines, "input_format": "csv"}, "--input_format needs --text_column"),
        ({"output_format": "npy"}, "--output_format=npy: the name of --output_file=", "must end in .npy"),
        ({"output_format": "tfrecord"}, "--output_format=tfrecord is for vectors; give --pooling=mean"),
        ({"num_shards": 2, "input_file": f"{names[0]},{tmp_path / 'bad.tsv'}"}, "bad.tsv, line 3"),
    ):
        if changes.get("num_shards"):  # from an earlier run; would be mistaken for a shard of this one
            (tmp_path / "found-00000-of-00002.jsonl").write_text("{}\n")
        assert_refused("beam_predict", {**flags, **changes}, *parts)
        assert not list(tmp_path.glob("found*"))
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert_refused("beam_predict", flags, install_command("beam"))
