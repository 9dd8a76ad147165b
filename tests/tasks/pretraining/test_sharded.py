"""Records made by several processes in bounded memory: independent of their number, as good as one stream's."""

import itertools
import random
import re

import numpy as np
import pytest

from official_bert.data.record_files import read_records as read_raw
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining import sharded
from official_bert.tasks.pretraining.sharded import Resources, count_groups, document_keys, group_numbers
from tests.conftest import run_here
from tests.record_files import read_records

WORDS = ("the", "harbour", "woke", "before", "town", "did", "gulls", "argued", "over", "boats", "and", "slept", "again")


def make_corpus(path, num_documents, seed=1):
    rng = random.Random(seed)
    sentences = lambda count: [" ".join(rng.choices(WORDS, k=rng.randint(3, 14))) + " ." for _ in range(count)]  # noqa: E731
    path.write_text("\n\n".join("\n".join(sentences(rng.randint(1, 9))) for _ in range(num_documents)) + "\n")
    return path


@pytest.fixture
def corpus(tmp_path):
    return ",".join(str(make_corpus(tmp_path / f"{seed}.txt", 60, seed)) for seed in range(3))


@pytest.fixture
def many_parts(monkeypatch):
    """Make parts, groups and slices small, so that a small corpus has many."""
    monkeypatch.setattr(sharded, "PART_BYTES", 700)
    monkeypatch.setattr(sharded, "GROUP_IDS", 1000)


@pytest.fixture
def make(tmp_path, vocab_file):
    def make(input_file, name="out", **flags):
        options = {"max_seq_length": 48, "max_predictions_per_seq": 7, "dupe_factor": 3, "sampling": "sharded"}
        options |= {"input_file": input_file, "output_file": str(tmp_path / name), "vocab_file": vocab_file, **flags}
        run_here("create_pretraining_data", **options)
        return options["output_file"]

    return make


@pytest.mark.slow
def test_records_do_not_depend_on_processes_memory_and_files(make, corpus, many_parts, tmp_path, monkeypatch):
    whole = list(read_raw(make(corpus, "whole", num_processes=1)))
    assert list(read_raw(make(corpus, "other", num_processes=1, random_seed=1))) != whole
    monkeypatch.setattr(Resources, "slice_bytes", 2000)
    make(corpus, "shards", num_processes=2, max_memory_gb=0.4, num_shards=3, compression="gzip")
    names = [tmp_path / f"shards-0000{number}-of-00003" for number in range(3)]
    shards = [list(read_raw(str(name))) for name in names]
    assert [*itertools.chain(*shards)] == whole  # the keys order them over all files
    assert min(map(len, shards)) > 0.8 * len(whole) / 3
    assert not list(tmp_path.glob("*.work"))


@pytest.mark.endurance
def test_statistics_are_those_of_one_stream(make, corpus, many_parts):
    flags = {"dupe_factor": 20, "max_seq_length": 40}
    of_serial = read_records(make(corpus, "serial", sampling="serial", **flags))
    records = read_records(make(corpus, "sharded", num_processes=1, **flags))
    num_serial, num_sharded = len(of_serial["input_ids"]), len(records["input_ids"])
    assert num_serial > 4000
    assert num_sharded == pytest.approx(num_serial, rel=0.02)
    statistics = {
        "length": lambda made: made["input_mask"].sum(axis=1),
        "first part": lambda made: (made["input_mask"] - made["segment_ids"]).sum(axis=1),
        "random next": lambda made: made["next_sentence_labels"].ravel(),
        "masked": lambda made: made["masked_lm_weights"].sum(axis=1),
        "[MASK]": lambda made: (made["input_ids"] == 4).sum(axis=1),
    }
    for name, statistic in statistics.items():
        ours, theirs = statistic(records), statistic(of_serial)
        error = np.sqrt(ours.var() / num_sharded + theirs.var() / num_serial)
        assert abs(ours.mean() - theirs.mean()) < 4 * error, name
    rows = np.concatenate([records[name] for name in sorted(records)], axis=1)
    assert len(np.unique(rows, axis=0)) > 0.99 * num_sharded  # every copy has its own pairs and masks


@pytest.mark.slow
def test_random_next_sentences_come_from_all_files(make, tmp_path, vocab_file, many_parts):
    """Each file has a unique word; a random second part has that of any other document."""
    words = [line for line in open(vocab_file).read().split() if re.fullmatch("[a-z]{4,}", line)][:3]
    for word in words:
        (tmp_path / f"{word}.txt").write_text("\n\n".join("\n".join([f"{word} " * 6] * 3) for _ in range(100)))
    inputs = ",".join(str(tmp_path / f"{word}.txt") for word in words)
    records = read_records(make(inputs, masking="none", max_predictions_per_seq=20, dupe_factor=4, num_processes=1))
    same = records["input_ids"][:, 1] == records["input_ids"][records["segment_ids"].astype(bool).cumsum(axis=1) == 1]
    is_random = records["next_sentence_labels"].ravel().astype(bool)
    assert same[~is_random].all()
    num_random = is_random.sum()
    assert num_random > 1000
    share = same[is_random].mean()
    expected = 99 / 299  # fraction of the other documents that are in the same file
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / num_random)


def test_groups_are_samples_of_the_corpus():
    files, positions = np.repeat([0, 1], 5000), np.tile(np.arange(5000) * 37, 2)
    keys = document_keys(12345, 0, files, positions)
    assert len(set(keys.tolist())) == 10_000
    counts = np.histogram2d(group_numbers(keys, 10), files, bins=(10, 2))[0]
    assert ((counts - 500) ** 2 / 500).sum() < 45  # chi-square with 19 degrees of freedom: one in a thousand
    assert count_groups(10, 100) == 1
    assert count_groups(10**6, 5 * sharded.GROUP_IDS) == 5
    assert count_groups(100, 50 * sharded.GROUP_IDS) == 3  # long documents: a group still has several
    again = document_keys(12345, 1, files, positions)
    together = group_numbers(keys, 10) == group_numbers(again, 10)
    assert abs(together.mean() - 0.1) < 0.015
    assert document_keys(7, 0, files, positions)[0] != keys[0]
    one = document_keys(12345, 0, np.array([1]), np.array([37]))  # as computed by a cluster's worker
    assert one[0] == keys[5001]


def test_memory_decides_how_much_is_done_at_a_time(caplog):
    assert Resources.divide(4, 0).process_bytes == 500_000_000
    assert Resources.divide(4, 1) == (4, 250_000_000)
    assert Resources.divide(64, 1).num_processes == 6
    assert "max_memory_gb=1 is enough for 6 of 64 processes" in caplog.text
    with pytest.raises(UserError, match=r"max_memory_gb=0.1 is too little; a single process needs 0.15"):
        Resources.divide(1, 0.1)
    small, large = Resources(2, 200_000_000), Resources(2, 2_000_000_000)
    assert small.max_cached_words < large.max_cached_words <= 1 << 20
    assert small.slice_bytes < large.slice_bytes
    assert [large.num_group_processes(size) for size in (10**6, 10**8, 10**10)] == [2, 2, 1]


@pytest.mark.slow
def test_the_first_mistake_in_the_text_is_located_in_its_file(make, corpus, many_parts):
    path = corpus.split(",")[1]
    lines = open(path, "rb").read().split(b"\n")
    for number in (150, 170, 200):
        lines[number] = b"caf\xe9"
    open(path, "wb").write(b"\n".join(lines))
    with pytest.raises(UserError, match=rf"{path}, line 151: byte 0xe9 at byte 4"):
        make(corpus, num_processes=3)


def test_a_file_without_records_is_a_mistake(make, tmp_path):
    (tmp_path / "small").write_text("the town\n\nthe sea\n")
    with pytest.raises(UserError, match=r"out-000\d\d-of-00040 would have no records; write fewer files"):
        make(tmp_path / "small", num_shards=40, num_processes=1)
    assert {path.name for path in tmp_path.iterdir()} == {"small", "out.work"}


def test_the_folder_of_work_is_cleared_if_its_note_is_damaged_and_left_alone_if_it_is_of_others(
    make, corpus, caplog, tmp_path
):
    (tmp_path / "out.work").mkdir()
    (tmp_path / "out.work" / "provenance.json").write_bytes(b'{"provenance\xff": 1}')
    (tmp_path / "out.work" / "documents-00000").write_bytes(b"old")
    make(corpus, num_processes=1)
    assert re.search(r"provenance.json is damaged \(.*\); rebuilding the files that it describes", caplog.text)
    assert "documents-00000" not in caplog.text
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match=r"work_dir=.*/mine contains other files"):
        make(corpus, work_dir=str(tmp_path / "mine"), num_processes=1)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


@pytest.mark.slow
def test_damaged_intermediate_files_are_made_again(make, corpus, many_parts, tmp_path, monkeypatch, caplog):
    expected = open(make(corpus, "whole", num_processes=1), "rb").read()
    merge_runs = sharded.merge_runs
    monkeypatch.setattr(sharded, "merge_runs", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(corpus, "out", num_processes=1)
    monkeypatch.setattr(sharded, "merge_runs", merge_runs)
    kept = sorted((tmp_path / "out.work").glob("*-*"))
    rng = random.Random(5)
    documents, records = ([path for path in kept if path.name.startswith(kind)] for kind in ("documents", "records"))
    damaged = [*rng.sample(documents, 4), *rng.sample(records, 4)]
    for number, path in enumerate(damaged):
        content = bytearray(path.read_bytes())
        if number % 4 == 0:
            del content[-1]
        else:
            content[rng.randrange(60, len(content) // 2)] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
    with caplog.at_level("INFO"):
        assert open(make(corpus, "out", num_processes=1), "rb").read() == expected
    assert {str(path) for path in damaged} == {
        record.getMessage().removesuffix(" is damaged; rebuilding it")
        for record in caplog.records
        if record.getMessage().endswith("rebuilding it")
    }
    assert f"{len(documents) - 4} of {len(documents)} parts of the text were tokenized already" in caplog.text


@pytest.mark.parametrize("sampling", ["serial", "sharded"])
def test_an_input_that_grows_while_it_is_read_is_a_mistake(make, tmp_path, sampling, monkeypatch):
    text = make_corpus(tmp_path / "text.txt", 40)
    (tmp_path / "out").write_text("good")
    target = sharded if sampling == "serial" else sharded.ShardedRun
    name = "read_corpus" if sampling == "serial" else "_tokenize"
    read = getattr(target, name)

    def read_while_another_writes(*given):
        result = read(*given)
        with text.open("a") as sink:
            sink.write("one more .\n")
        return result

    monkeypatch.setattr(target, name, read_while_another_writes)
    with pytest.raises(UserError, match=r"text.txt changed while it was read: [\d,]+ bytes at first, [\d,]+ at"):
        make(text, sampling=sampling, num_processes=1 if sampling == "sharded" else 0)
    assert (tmp_path / "out").read_text() == "good"
