"""Corpora in all file formats, whole and in parts: the parts of a file contain each document exactly once."""

import itertools
import json
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from official_bert.data.corpus_files import CorpusReader, corpus_parts
from official_bert.support import files
from official_bert.support.errors import UserError, install_command
from tests.compressing import COMPRESS
from tests.conftest import run_program


def grouped(lines):
    """Return the documents of places and lines; blank lines are between them."""
    return [list(group) for is_text, group in itertools.groupby(lines, lambda line: line[1] != "") if is_text]


def documents(parts):
    return grouped(line for part in parts for line in CorpusReader(part))


def random_text(rng):
    """Return sentences and runs of blank lines, with several kinds of blanks, line ends and characters."""
    lines = []
    for _ in range(rng.randrange(12)):
        lines += [rng.choice(["", " ", "\t", "\u3000", "\x0c"]) for _ in range(rng.choice([0, 0, 1, 1, 2, 5]))]
        lines += [rng.choice(["a", "bcd e", " é", "中文 𝄞", "x\ry"]) for _ in range(rng.randrange(4))]
    text = "".join(line + rng.choice(["\n", "\n", "\r\n"]) for line in lines)
    return text.rstrip("\r\n") if rng.random() < 0.5 else text


def lines_of(text):
    """Return the place and the stripped text of each line."""
    lines = re.finditer(r"[^\n]*\n|[^\n]+", text)
    return [(len(text[: line.start()].encode()), line[0].replace("\r", "").strip("\ufeff").strip()) for line in lines]


def assert_each_once(path, expected, sizes, **options):
    """Assert that parts of any of the sizes have each document once, and no document is in two parts."""
    for part_bytes in (None, *sizes):
        parts = corpus_parts([str(path)], part_bytes=part_bytes, **options)
        by_part = [document for part in parts for document in documents([part])]
        assert documents(parts) == by_part == expected, (path.read_bytes(), part_bytes)
        assert sum(map(bytes_of, parts)) == files.size(str(path))


def bytes_of(part):
    reader = CorpusReader(part)
    seen = [reader.bytes_read for _ in reader]
    assert seen == sorted(seen)
    return reader.bytes_read


def random_rows(rng):
    """Return documents of all kinds: empty, with blank lines, with inner line ends."""
    kinds = ["", "a", "one\ntwo", " x \r\n\n\n y\n", "中文 𝄞\nmore", "\n\n", "a\u2028b"]
    return [rng.choice(kinds) * rng.choice([1, 1, 1, 9]) for _ in range(rng.randrange(9))]


def sentences(text):
    return [line.strip() for line in text.replace("\r", "").split("\n") if line.strip()]


def write_parquet(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def json_lines(rng):
    content, expected = "", []
    for text in random_rows(rng):
        content += rng.choice(["", "", "\n", " \r\n"])
        expected.append([(len(content.encode()), sentence) for sentence in sentences(text)])
        content += json.dumps({"id": 1, "text": text}, ensure_ascii=rng.random() < 0.5) + rng.choice(["\n", "\r\n"])
    return content.removesuffix("\n") if rng.random() < 0.5 else content, expected


def single_lines(rng):
    content = rng.choice(["", "", "\ufeff"]) + random_text(rng)
    return content, [[line] for line in lines_of(content) if line[1]]


def wikiextractors_articles(rng):
    content, expected = rng.choice(["", "\ufeff"]), []
    for number in range(rng.randrange(1, 6)):
        content += f'<doc id="{number}" url="https://a.b/?curid={number}" title="A &amp; {number}">\nA & {number}\n\n'
        expected.append([])
        for line in rng.choices(["", " one", "A & 1 .", "中文 𝄞", "<doc", "a </doc>"], k=rng.randrange(5)):
            if line:
                expected[-1].append((len(content.encode()), line.strip()))
            content += f"{line}\n"
        content += "\n</doc>\n"
    return content, expected


@pytest.mark.parametrize(
    ("make", "file_format", "step"),
    [
        (lambda rng: (text := random_text(rng), grouped(lines_of(text))), "text", 1),
        (json_lines, "jsonl", 11), (single_lines, "lines", 3), (wikiextractors_articles, "wikiextractor", 11),
    ],
)  # fmt: skip
def test_parts_have_each_document_once(tmp_path, make, file_format, step):
    path, rng = tmp_path / "file", random.Random(1)
    for _ in range(4):
        content, expected = make(rng)
        path.write_bytes(content.encode())
        sizes = range(1, len(content.encode()) + 2, step)
        assert_each_once(path, [document for document in expected if document], sizes, file_format=file_format)


def test_parts_of_parquet_have_each_row_once(tmp_path):
    rng = random.Random(3)
    for row_group_size in (1, 2, 5, 100):
        rows = [*random_rows(rng), "the last\nrow"]
        path = write_parquet(tmp_path / "p", {"n": range(len(rows)), "text": rows}, row_group_size=row_group_size)
        expected = [[(number, sentence) for sentence in sentences(text)] for number, text in enumerate(rows)]
        assert_each_once(tmp_path / "p", [document for document in expected if document], (1, 100, 10**6))
        assert len(corpus_parts([path], part_bytes=1)) == -(-len(rows) // row_group_size)
        assert len(corpus_parts([path])) == 1


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_files_are_one_part_with_the_positions_of_their_text(tmp_path, ending):
    text = "a\n\nb\nc\n\n\nd"
    path = tmp_path / f"text{ending}"
    path.write_bytes(COMPRESS[ending](b"\n" * 1000 + b"a\n" + b"\n \n" * 1000 + b"b\n\n\n"))
    (part,) = corpus_parts([str(path)])  # repeated blank lines are given once
    assert list(CorpusReader(part)) == [(0, ""), (1000, "a"), (1002, ""), (4002, "b"), (4004, "")]
    path.write_bytes(COMPRESS[ending](text.encode()))
    (part,) = corpus_parts([str(path)], part_bytes=1)
    assert documents([part]) == grouped(lines_of(text))
    assert bytes_of(part) == files.size(str(path))
    dump = tmp_path / f"dump.jsonl{ending}"
    dump.write_bytes(COMPRESS[ending](b'{"text": "a\\nb"}\n{"text": "c"}'))
    assert documents(corpus_parts([str(dump)], part_bytes=1)) == [[(0, "a"), (0, "b")], [(17, "c")]]


def test_a_text_document_continues_in_the_next_file_but_not_in_a_table(tmp_path):
    (tmp_path / "a.txt").write_text("a\n\nb\n")
    (tmp_path / "b.txt").write_text("c\n\nd\n")
    (tmp_path / "c.jsonl").write_text('{"text": "e"}\n')
    (tmp_path / "d.txt").write_text("f\n")
    paths = [str(tmp_path / name) for name in ("a.txt", "b.txt", "c.jsonl", "d.txt")]
    parts = corpus_parts(paths)
    assert [[line for _, line in document] for document in documents(parts)] == [["a"], ["b", "c"], ["d"], ["e"], ["f"]]
    kinds = [(part.file_number, part.file_format, part.text_field) for part in parts[1:3]]
    assert kinds == [(1, "text", None), (2, "jsonl", "text")]


def test_formats_are_detected_by_name_and_parquet_by_content(tmp_path):
    parquet = write_parquet(tmp_path / "x", {"text": ["a"]})
    (tmp_path / "dump.JSON.gz").write_bytes(COMPRESS[".gz"](b'{"text": "a"}'))
    (tmp_path / "text").write_text("PAR1 is how some text begins")
    (tmp_path / "short").write_text("PAR1")
    names = (parquet, str(tmp_path / "dump.JSON.gz"), str(tmp_path / "text"))
    assert [part.file_format for part in corpus_parts(names)] == ["parquet", "jsonl", "text"]
    (part,) = corpus_parts([str(tmp_path / "dump.JSON.gz")], file_format="text")
    assert documents([part]) == [[(0, '{"text": "a"}')]]
    (tmp_path / "a.jsonl").write_text("{}")
    corpus_parts([str(tmp_path / "text"), str(tmp_path / "a.jsonl")], text_field="body")  # one of them may have it


def test_remote_files():
    with files.open_file("ram://corpus.jsonl", "w") as sink:
        sink.write('{"t": "a"}\n{"t": "b"}\n')
    assert documents(corpus_parts(["ram://corpus.jsonl"], text_field="t", part_bytes=1)) == [[(0, "a")], [(11, "b")]]
    table = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["a", "b"]}), table, row_group_size=1)
    with files.open_file("ram://corpus.parquet", "wb") as sink:
        sink.write(table.getvalue().to_pybytes())
    assert documents(corpus_parts(["ram://corpus.parquet"], part_bytes=1)) == [[(0, "a")], [(1, "b")]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a}', "not JSON: Unterminated string"),
        ('{"text": "\\ud800"}', "JSON that cannot be read: '\\ud800' is half of a surrogate pair"),
        ('{"text": "\udcff"}', "byte 0xff at byte 11 of the line is not UTF-8; save it as UTF-8"),
    ],
)
def test_bad_lines_of_json_are_located_in_every_part(tmp_path, line, message):
    path = tmp_path / "dump.jsonl"
    path.write_bytes(b'{"text": "a"}\n\n' + line.encode("utf-8", "surrogateescape") + b'\n{"text": "b"}\n')
    for part_bytes in (None, 3, 16):
        with pytest.raises(UserError, match=re.escape(f"dump.jsonl, line 3: {message}")):
            documents(corpus_parts([str(path)], part_bytes=part_bytes))


@pytest.mark.parametrize("invalid_text", ["replace", "skip"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_lines_that_are_not_utf8_are_replaced_or_left_out_in_every_part(tmp_path, caplog, invalid_text, name):
    rng, path, is_text = random.Random(7), tmp_path / name, name == "a.txt"
    for _ in range(12):
        texts = [rng.choice([b"", b"a", b"b\xffc\xe9", b"\xe9", "é中".encode()]) for _ in range(rng.randrange(9))]
        path.write_bytes(b"".join(text + b"\n" if is_text else b'{"text": "%b"}\n' % text for text in texts))
        kept = [text for text in texts if invalid_text == "replace" or text not in (b"b\xffc\xe9", b"\xe9")]
        decoded = [text.decode(errors="replace") for text in kept]
        groups = [list(group) for is_line, group in itertools.groupby(decoded, bool) if is_line]
        expected = groups if is_text else [[text] for text in decoded if text]
        for part_bytes in (None, 1, 4, 16):
            parts = corpus_parts([str(path)], part_bytes=part_bytes, invalid_text=invalid_text)
            for found in (documents(parts), [document for part in parts for document in documents([part])]):
                assert [[line for _, line in document] for document in found] == expected
    assert f"{path}: from byte 0 on, " in caplog.text and " are not UTF-8; the" in caplog.text


def test_bad_columns_of_parquet(tmp_path):
    columns = {"text": ["a", None], "n": [1, 2], "more": ["a", "b"], "kind": pa.array(["x", "x"]).dictionary_encode()}
    path = write_parquet(tmp_path / "p.parquet", columns)
    for name, message in (
        ("body", r"p\.parquet: no column 'body'; the columns are 'text', 'n', 'more', 'kind'"),
        ("n", r"p\.parquet: the column 'n' holds int64; a text must be a string"),
        ("text", r"p\.parquet, row 1: 'text' is null; a text must be a string"),
    ):
        with pytest.raises(UserError, match=message):
            documents(corpus_parts([path], text_field=name))
    assert documents(corpus_parts([path], text_field="kind")) == [[(0, "x")], [(1, "x")]]
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, path)
    with pytest.raises(UserError, match="2 columns are named 'text'"):
        corpus_parts([path])
    offsets = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff")])
    write_parquet(path, {"text": broken})
    with pytest.raises(UserError, match=r"p\.parquet is not Parquet, or damaged at or after row 0: 'utf-8' codec"):
        documents(corpus_parts([path]))


def test_damaged_and_invalid_parquet_files(tmp_path):
    path, rows = tmp_path / "p.parquet", [f"text {number}" * 9 for number in range(5000)]
    write_parquet(path, {"text": rows}, row_group_size=2500, use_dictionary=False)
    data = path.read_bytes()
    for content, message in (
        (b"", "p.parquet is not Parquet, or damaged"),
        (b"PAR1" + b"x" * 50 + b"PAR1", "p.parquet is not Parquet, or damaged"),
        (data[:1000] + b"\xff" * 2000 + data[3000:], r"p.parquet is not Parquet, or damaged at or after row \d+: "),
        (COMPRESS[".gz"](data), "p.parquet is a compressed Parquet file; unpack it"),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            documents(corpus_parts([str(path)]))


def test_one_large_row_group_is_read_in_little_memory(tmp_path):
    """A group of 80 MB must be read without holding it in memory."""
    text = "words of a text " * 200
    schema = pa.schema([("text", pa.string()), ("other", pa.string())])
    with pq.ParquetWriter(tmp_path / "p.parquet", schema, use_dictionary=False, compression="none") as writer:
        texts = [f"{number} {text}" for number in range(12_000)]
        writer.write_table(pa.table({"text": texts, "other": texts}, schema=schema), row_group_size=12_000)
    program = (
        "import re, sys, pyarrow.parquet\n"
        "from official_bert.data.corpus_files import CorpusReader, corpus_parts\n"
        # Not ru_maxrss, which after a fork counts the memory of the parent.
        "def peak():\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) // 1024\n"
        "before = peak()\n"
        "(part,) = corpus_parts(sys.argv[1:])\n"
        "lines = sum(bool(line) for _, line in CorpusReader(part))\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print(lines, peak() - before)"
    )
    num_lines, megabytes = map(int, run_program(program, tmp_path / "p.parquet").split())
    assert num_lines == 12_000
    assert megabytes < 40, megabytes


def test_without_pyarrow_the_extra_is_named(tmp_path):
    path = write_parquet(tmp_path / "p.parquet", {"text": ["a"]})
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from official_bert.data.corpus_files import corpus_parts\n"
        f"try: corpus_parts([{path!r}])\n"
        "except ValueError as error: print(error)"
    )
    assert run_program(program).strip().endswith(f"install it: {install_command('parquet')}")
