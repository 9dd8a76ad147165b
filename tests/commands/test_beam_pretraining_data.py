"""`beam_pretraining_data` writes the same bytes as `create_pretraining_data.py --sampling=sharded`."""

import gzip
import json
import pathlib
import random

import pytest

pytest.importorskip("apache_beam")

from official_bert.data.record_files import read_records
from official_bert.tasks.pretraining import sharded
from tests.beam.cluster import (
    TWO_PROCESSES,
    assert_failed_for_a_lost_worker,
    cluster,
    kill_a_busy_worker,
    started,
    wait_until,
)
from tests.conftest import ROOT, assert_fails, assert_refused, run_here, run_script

pytestmark = [pytest.mark.beam, pytest.mark.slow]

SCRIPT = "beam_pretraining_data"
CORPUS = ROOT / "data" / "demo" / "train.txt"
VOCAB = ROOT / "vocab" / "demo_uncased.txt"


@pytest.fixture
def flags(tmp_path):
    return {
        "input_file": str(CORPUS), "vocab_file": str(VOCAB), "output_file": str(tmp_path / "beam"), "num_shards": 3,
        "max_seq_length": 48, "max_predictions_per_seq": 7, "dupe_factor": 2, "random_seed": 7,
    }  # fmt: skip


@pytest.fixture
def small_groups(monkeypatch):
    """Make parts and groups small, so that a small corpus has many."""
    monkeypatch.setattr(sharded, "GROUP_IDS", 4000)
    monkeypatch.setattr(sharded, "PART_BYTES", 9000)


def made_locally(flags, tmp_path):
    """The files that the local script writes with the same flags."""
    known = {name: value for name, value in flags.items() if name != "beam_args"}
    local = {**known, "output_file": str(tmp_path / "local"), "sampling": "sharded", "num_processes": 1}
    run_here("create_pretraining_data", **local)
    return contents(tmp_path / "local")


def contents(name):
    return [path.read_bytes() for path in sorted(name.parent.glob(f"{name.name}-*-of-*"))]


def test_the_files_are_those_of_sharded_sampling(small_groups, flags, tmp_path):
    flags |= {"do_whole_word_mask": True, "max_ngram_length": 3}
    flags["beam_args"] = "--direct_running_mode=multi_threading --direct_num_workers=3"
    expected = made_locally(flags, tmp_path)
    run_here("beam_pretraining_data", **flags)
    found = contents(tmp_path / "beam")
    assert len(found) == flags["num_shards"] and found == expected
    notes = [json.loads((tmp_path / f"{name}.tokenizer.json").read_text()) for name in ("local", "beam")]
    sizes = [list(note.pop("num_bytes").values()) for note in notes]
    assert sizes == [[len(file) for file in found]] * 2
    assert notes[0] == notes[1]
    assert not list(tmp_path.glob(".*partial*"))


def test_several_files_of_several_formats_compressed(small_groups, flags, tmp_path):
    text = CORPUS.read_text()
    half = text.index("\n\n", len(text) // 2)
    (tmp_path / "first.txt").write_text(text[:half])
    (tmp_path / "second.txt.gz").write_bytes(gzip.compress(text[half:].encode()))
    flags.update(input_file=f"{tmp_path}/first.txt,{tmp_path}/second.txt.gz", compression="gzip")
    made_locally(flags, tmp_path)
    run_here("beam_pretraining_data", **flags)
    files = [sorted(tmp_path.glob(f"{name}-*")) for name in ("local", "beam")]
    for local, ours in zip(*files, strict=True):
        assert ours.read_bytes().startswith(b"\x1f\x8b")
        assert list(read_records(str(ours))) == list(read_records(str(local)))


def test_mistakes_are_told_in_one_line(flags, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"one\n\ntwo \xff\n")
    (tmp_path / "blank.txt").write_text("\n \n")
    for changes, *parts in (
        ({"input_file": f"{CORPUS},{tmp_path}/bad.txt"}, "bad.txt, line 3", "not UTF-8"),
        ({"input_file": f"{tmp_path}/blank.txt"}, "no text in", "blank.txt"),
        ({"beam_args": "--sampling=serial"}, "--beam_args: unknown option '--sampling'"),
    ):
        assert_refused("beam_pretraining_data", {**flags, **changes}, *parts)
    assert_fails(run_script(SCRIPT, **flags, work_dir=tmp_path), "there is no flag --work_dir")


@pytest.fixture
def much_text(flags, tmp_path):
    """Flags for a corpus that takes far longer than startup."""
    documents = CORPUS.read_text().strip().split("\n\n")
    rng = random.Random(1)
    path = tmp_path / "much.txt"
    path.write_text("\n\n".join("\n\n".join(rng.sample(documents, len(documents))) for _ in range(60)) + "\n")
    return {**flags, "input_file": str(path), "dupe_factor": 10}


def less(flags):
    """Return the same flags with less text."""
    path = pathlib.Path(flags["input_file"])
    path.write_text(CORPUS.read_text())
    return flags


@pytest.mark.endurance
def test_a_killed_process_of_two_ends_the_job(much_text, tmp_path):
    flags = {**much_text, "beam_args": TWO_PROCESSES}
    with started(SCRIPT, tmp_path, **flags) as job:
        kill_a_busy_worker(job)
        assert_failed_for_a_lost_worker(job, tmp_path.glob("beam-*"))
        wait_until(lambda: not job.children(), seconds=10)
    result = run_script(SCRIPT, **less(flags))
    assert result.code == 0, result
    assert contents(tmp_path / "beam") == made_locally(flags, tmp_path)


@pytest.mark.endurance
@pytest.mark.multi_process
def test_a_cluster_of_two_pools_loses_one(much_text, tmp_path):
    with cluster(tmp_path) as running, started(SCRIPT, tmp_path, **much_text, beam_args=running.beam_args) as job:
        running.kill_a_busy_pool()
        assert_failed_for_a_lost_worker(job, tmp_path.glob("beam-*"))
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"one\n\ntwo \xff\n")
    with cluster(tmp_path) as running:
        refused = run_script(SCRIPT, **{**much_text, "input_file": bad}, beam_args=running.beam_args)
        assert_fails(refused, "bad.txt, line 3", "not UTF-8")
        assert refused.errors.count(": error: ") == 1
        result = run_script(SCRIPT, **less(much_text), beam_args=running.beam_args)
    assert result.code == 0, result
    assert contents(tmp_path / "beam") == made_locally(much_text, tmp_path)
