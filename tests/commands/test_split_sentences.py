"""`split_sentences`: converts every text format to pretraining input, with any number of processes."""

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from official_bert.data import corpus_files
from official_bert.data.corpus_files import CorpusReader, corpus_parts
from official_bert.support.errors import install_command
from tests.compressing import COMPRESS
from tests.conftest import ROOT, assert_refused, run_here, run_script, script_command, script_environment

pytestmark = pytest.mark.slow

# Documents, each a list of paragraphs, each a list of sentences.
_DOCUMENTS = [
    [["The snow came early.", "Nobody minded it, e.g. Dr. Wu."], ["Why?"]],
    [["Marta counted the crates twice.", '"Again," she said.', "They left."]],
    [["今天天气很好。", "明天会下雨吗？"], ["It rained."], ["The harbour woke."]],
    [["One line."]],
]
_EXPECTED = [[sentence for paragraph in document for sentence in paragraph] for document in _DOCUMENTS]


def joined(sentences):
    return "".join(sentences) if sentences[0][0] > "\u3000" else " ".join(sentences)


def as_lines(documents):
    """Format as one document per line."""
    return "".join(" ".join(map(joined, document)) + "\n" for document in documents)


def as_text(documents):
    """Format paragraphs wrapped into lines, with a blank line between documents."""
    return "\n\n".join(" ".join(map(joined, document)).replace(" ", "\n", 2) for document in documents) + "\n"


def as_book(documents):
    """Format with a blank line between paragraphs."""
    return "\n\n".join(joined(paragraph) for document in documents for paragraph in document) + "\n\n\n"


def as_jsonl(documents, key="text"):
    """Format one object per document, one line per paragraph."""
    return "".join(json.dumps({"id": 1, key: "\n".join(map(joined, document))}) + "\n" for document in documents)


def documents_of(path):
    """Return the documents that `create_pretraining_data.py` reads from a file."""
    lines = [line for _, line in CorpusReader(corpus_parts([str(path)])[0])]
    groups = [[*group] for is_text, group in itertools.groupby(lines, bool) if is_text]
    assert len(groups) == lines.count("") + 1, "blank lines beside those between documents"
    return groups


@pytest.fixture
def split(tmp_path):
    """Return a function that runs the tool in this process and returns the documents of its output."""

    def run(*inputs, name="out.txt", **flags):
        flags = {"num_processes": 1, **flags}
        output = str(tmp_path / name)
        run_here("split_sentences", input_file=",".join(map(str, inputs)), output_file=output, **flags)
        return documents_of(output)

    return run


@pytest.fixture
def inputs(tmp_path):
    """Files with the documents in every format, each with its flags."""
    contents = {
        "text.txt": as_text(_DOCUMENTS), "lines.txt": as_lines(_DOCUMENTS).replace("\n", "\r\n\n"),
        "body.jsonl": as_jsonl(_DOCUMENTS, "body"),
        "wiki_00": "".join(f'<doc id="1" title="X">\nX\n\n{as_lines([one])}\n</doc>\n' for one in _DOCUMENTS),
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    for ending, compress in COMPRESS.items():
        (tmp_path / f"dump.jsonl{ending}").write_bytes(compress(as_jsonl(_DOCUMENTS).encode()))
    rows = ["\n\n".join(map(joined, one)) for one in _DOCUMENTS]
    for key in ("text", "body"):
        pq.write_table(pa.table({key: rows}), tmp_path / f"{key}.parquet", row_group_size=2)
    flags = {
        "lines.txt": {"input_format": "lines"}, "wiki_00": {"input_format": "wikiextractor"},
        "body.jsonl": {"text_field": "body"}, "body.parquet": {"text_field": "body"},
    }  # fmt: skip
    return [(path, flags.get(path.name, {})) for path in sorted(tmp_path.iterdir())]


@pytest.mark.parametrize("part_bytes", [1 << 22, 20, 1])
def test_every_format_gives_the_same(split, inputs, part_bytes, monkeypatch):
    monkeypatch.setattr(corpus_files, "PART_BYTES", part_bytes)
    for path, flags in inputs:
        assert split(path, **flags) == _EXPECTED, path


def test_the_number_of_processes_changes_nothing(split, inputs, monkeypatch, tmp_path):
    monkeypatch.setattr(corpus_files, "PART_BYTES", 20)
    paths = [path for path, flags in inputs if not flags]
    assert split(*paths, name="one") == _EXPECTED * len(paths)
    split(*paths, name="three", num_processes=3)
    assert (tmp_path / "three").read_bytes() == (tmp_path / "one").read_bytes()


def test_one_document_per_file(split, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="absl")
    for number, document in enumerate(_DOCUMENTS):
        (tmp_path / f"{number}.txt").write_text("\n\n" * number + as_book([document]))
    (tmp_path / "2.txt").rename(tmp_path / "2.txt.gz")
    (tmp_path / "2.txt.gz").write_bytes(gzip.compress((tmp_path / "2.txt.gz").read_bytes()))
    (tmp_path / "blank.txt").write_text("\n\n \n")
    (tmp_path / "z.jsonl").write_text(as_jsonl(_DOCUMENTS))
    paths = sorted(tmp_path.iterdir())
    for part_bytes in (1 << 22, 30, 1):
        monkeypatch.setattr(corpus_files, "PART_BYTES", part_bytes)
        for num_processes in (1, 2) if part_bytes == 30 else (1,):
            found = split(*paths, one_document_per_file=True, num_processes=num_processes)
            assert found == _EXPECTED * 2, part_bytes  # each JSON object is always a document
            assert caplog.messages[-1].split(", ")[0].endswith(f" sentences in {2 * len(_EXPECTED)} documents")
    text = as_book(_DOCUMENTS)
    (tmp_path / "all.txt").write_text(text)
    assert split(tmp_path / "all.txt", one_document_per_file=True) == [[*itertools.chain(*_EXPECTED)]]
    assert split(tmp_path / "all.txt") == [paragraph for document in _DOCUMENTS for paragraph in document]


def test_a_document_ends_with_its_file(split, tmp_path):
    (tmp_path / "a.txt").write_text("It rained. Why?")
    (tmp_path / "b.txt").write_text("\ufeff They left.")
    assert split(tmp_path / "a.txt", tmp_path / "b.txt") == [["It rained.", "Why?"], ["They left."]]


def test_output_that_ends_in_gz_is_compressed(split, tmp_path):
    (tmp_path / "in.txt").write_text(as_text(_DOCUMENTS))
    assert split(tmp_path / "in.txt", name="out.txt.gz") == split(tmp_path / "in.txt") == _EXPECTED
    first = (tmp_path / "out.txt.gz").read_bytes()
    assert gzip.decompress(first) == (tmp_path / "out.txt").read_bytes()
    split(tmp_path / "in.txt", name="out.txt.gz")
    assert (tmp_path / "out.txt.gz").read_bytes() == first


def test_a_script_makes_what_pretraining_reads(tmp_path, vocab_file):
    text = as_jsonl([[["The harbour woke before the town.", "Nobody saw it."], ["It rained."]]] * 5)
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    corpus = tmp_path / "corpus.txt.gz"
    result = run_script("split_sentences", input_file=tmp_path / "in.jsonl.gz", output_file=corpus)
    assert result.code == 0, result
    assert f"wrote {corpus}: 15 sentences in 5 documents, " in result.last_error_line
    flags = {"input_file": corpus, "output_file": tmp_path / "out", "vocab_file": vocab_file, "max_seq_length": 32}
    result = run_script("create_pretraining_data.py", **flags)
    assert result.code == 0, result
    assert "5 documents gave" in result.errors


@pytest.mark.parametrize(
    ("text", "name", "flags", "message"),
    [
        ("\n \n\n", "in.txt", {}, "no text in "),
        ('{"text": "A."}', "in.jsonl", {"one_document_per_file": True}, "--one_document_per_file cannot be used with"),
    ],
)
def test_mistakes(text, name, flags, message, tmp_path):
    (tmp_path / name).write_text(text)
    flags = {"input_file": tmp_path / name, "output_file": tmp_path / "out", "num_processes": 1, **flags}
    assert_refused("split_sentences", flags, message)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(("is_compressed", "num_processes"), [(False, 2), (True, 1)])
def test_bytes_that_are_not_utf8_are_located(is_compressed, num_processes, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_files, "PART_BYTES", 10)
    text = b"It rained.\n\n" * 20 + b"The caf\xe9.\n" + b"\nIt rained." * 20
    path = tmp_path / "in.txt"
    path.write_bytes(gzip.compress(text) if is_compressed else text)
    flags = {"input_file": path, "output_file": tmp_path / "out", "num_processes": num_processes}
    message = "in.txt, line 41: byte 0xe9 at byte 8 of the line is not UTF-8"
    assert_refused("split_sentences", flags, message, "; or give --invalid_text=replace or skip")
    assert os.listdir(tmp_path) == ["in.txt"]


def test_a_missing_package_is_reported_immediately(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "blingfire", None)
    flags = {"input_file": ROOT / "README.md", "output_file": tmp_path / "out"}
    assert_refused("split_sentences", flags, install_command("sentences"))


@pytest.mark.endurance
def test_memory_depends_on_no_compressed_file(tmp_path):
    """A file of 40 MB in one part must not be held in memory by any process."""
    text = b"The snow came early. Nobody minded it. The harbour woke before the town did. Why?\n\n" * 50_000
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(text, 1) * 10)
    program = (
        "import re, sys\n"
        "from official_bert.commands.split_sentences import SplitSentencesConfig\n"
        "from official_bert.commands import split_sentences\n"
        "config = SplitSentencesConfig(input_file=sys.argv[1], output_file=sys.argv[2], num_processes=1)\n"
        "split_sentences.run(config, split_sentences.prepare(config))\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    command = [sys.executable, "-c", program, tmp_path / "in.txt.gz", tmp_path / "out.txt"]
    process = subprocess.run(command, capture_output=True, text=True, env=script_environment(), check=True)
    assert int(process.stdout) / 1024 < 120


@pytest.mark.endurance
def test_an_interrupted_run_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "out.txt").write_text("good")
    text = "The snow came early. Nobody minded it.\n\n" * 100_000
    (tmp_path / "in.txt").write_text(text)
    flags = {"input_file": ",".join([str(tmp_path / "in.txt")] * 50), "output_file": folder / "out.txt"}
    command = script_command("split_sentences", {**flags, "num_processes": 2})
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=script_environment(), cwd=ROOT, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000 and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130, errors
    assert errors.endswith("error: interrupted\n")
    assert "Traceback" not in errors
    assert os.listdir(folder) == ["out.txt"]
    assert (folder / "out.txt").read_text() == "good"
