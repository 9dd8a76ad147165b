"""Lines of text from plain and compressed files, remote ones and pipes."""

import functools
import json
import lzma
import os
import random
import re
import sys
from typing import Any, Literal, TypedDict

import pytest
from backports import zstd

from official_bert.support import files, text_files
from official_bert.support.errors import UserError, blocked_imports, install_command
from tests.compressing import COMPRESS
from tests.conftest import run_program

LINES = [f"line {number} é {'x' * (number % 70)}" for number in range(5000)]
TEXT = "\n".join(LINES) + "\n"


def read(path):
    return list(text_files.LineReader(str(path)))


@functools.cache
def noise(ending):
    """Return lines that barely compress, so that their files have many blocks, and such a file."""
    rng = random.Random(5)
    data = "".join(f"{rng.getrandbits(256):x}\n" for _ in range(18_000)).encode()
    return data, COMPRESS[ending](data)


@pytest.mark.parametrize("ending", COMPRESS)
class TestCompressed:
    def test_compression_is_detected_by_content_not_by_name(self, tmp_path, ending):
        path, compress = tmp_path / "text.txt", COMPRESS[ending]
        for text in (TEXT, "", "é", "a\r\n\nb"):
            path.write_bytes(compress(text.encode()))
            assert read(path) == [line.replace("\r", "") for line in text.removesuffix("\n").split("\n") if text]
            assert text_files.read_text(str(path)) == text
            assert text_files.is_compressed(str(path))
        path.write_bytes(compress(b'{"a": 1}'))
        assert text_files.read_json(str(path), "config") == {"a": 1}
        path.write_bytes(b"".join(compress(part) for part in (b"a\nb", b"", b"c\n", TEXT.encode(), b"d")))
        assert read(path) == ["a", "bc", *LINES, "d"]
        reading, writing = os.pipe()
        with open(reading, "rb") as source:
            os.write(writing, compress(b"a\nb\n"))
            os.close(writing)
            assert list(text_files.LineReader("pipe", source)) == ["a", "b"]

    def test_progress_ends_at_the_size_of_the_file_also_of_a_remote_one(self, tmp_path, ending):
        data, compressed = noise(ending)
        for path in (str(tmp_path / "text"), f"ram://compressed{ending}"):
            with files.open_file(path, "wb") as sink:
                sink.write(compressed)
            reader, seen, lines = text_files.LineReader(path), set(), []
            for line in reader:
                lines.append(line)
                seen.add(reader.bytes_read)
            assert lines == data.decode().splitlines()
            assert reader.bytes_read == max(seen) == files.size(path) < len(data) == reader.position
            assert len(seen) > 1  # bzip2 unpacks 900 kB at once

    def test_a_file_cut_anywhere_or_damaged_is_refused(self, tmp_path, ending):
        path = tmp_path / "text"
        first = COMPRESS[ending](b"one\ntwo\n")
        whole = first + COMPRESS[ending](b"three\n")
        cut = [whole[:length] for length in [*range(10, len(first)), *range(len(first) + 1, len(whole))]]
        for damaged in (*cut, whole + b"no member", whole + b"\xff", first + b"\xff" + whole[len(first) + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(UserError, match=r"text: the \w+ file is damaged or incomplete after line [0-3] of its"):
                read(path)
        _, whole = noise(ending)
        for damaged in (whole[:-50_000], whole[:400_000] + b"\0" * 100 + whole[400_100:]):
            path.write_bytes(damaged)
            num_lines = 0
            with pytest.raises(UserError, match="is damaged or incomplete") as error:
                for _ in text_files.LineReader(str(path)):
                    num_lines += 1
            assert f"after line {num_lines} of" in str(error.value)
        path.write_bytes(COMPRESS[ending](b"a\nb\xff\n"))
        with pytest.raises(UserError, match="text, line 2: byte 0xff at byte 2 of the line"):
            read(path)


def test_a_line_from_a_pipe_is_given_out_when_it_is_there():
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", buffering=0) as sink:
        lines = iter(text_files.LineReader("pipe", source))
        sink.write(b"a\n")
        assert next(lines) == "a"
        sink.write(b"b\n")
        assert next(lines) == "b"


def test_padding_of_gzip_and_xz_and_frames_to_skip_and_long_windows_of_zstd(tmp_path):
    for ending in (".gz", ".xz"):
        (tmp_path / "text").write_bytes(COMPRESS[ending](b"a\n") + b"\0" * 512 + COMPRESS[ending](b"b") + b"\0" * 4)
        assert read(tmp_path / "text") == ["a", "b"]
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0skip"
    (tmp_path / "text").write_bytes(skipped + COMPRESS[".zst"](b"a\nb"))
    assert read(tmp_path / "text") == ["a", "b"]
    options = {zstd.CompressionParameter.window_log: 31, zstd.CompressionParameter.enable_long_distance_matching: 1}
    compressor = zstd.ZstdCompressor(options=options)  # streamed: the frame does not record its size
    (tmp_path / "text").write_bytes(compressor.compress(TEXT.encode()) + compressor.flush())
    assert read(tmp_path / "text") == LINES


def test_plain_text_that_begins_like_a_compressed_file(tmp_path):
    for text in ("BZh91 is a name", "(µ/", "\x1f\n", "P*M"):
        (tmp_path / "text").write_text(text)
        assert "\n".join(read(tmp_path / "text")) == text.removesuffix("\n")
        assert not text_files.is_compressed(str(tmp_path / "text"))


def test_a_missing_package_is_named(tmp_path):
    path = tmp_path / "text.zst"
    path.write_bytes(COMPRESS[".zst"](b"a"))
    program = (
        "import sys; sys.modules['backports.zstd'] = sys.modules['_lzma'] = None\n"
        "from official_bert.support.text_files import LineReader\n"
        f"try: list(LineReader({str(path)!r}))\n"
        "except ValueError as error: print(error)"
    )
    assert run_program(program).strip().endswith(f"install it: {install_command('zstd')}")
    path.write_bytes(lzma.compress(b"a"))
    assert "needs the Python module lzma" in run_program(program)


def test_a_package_is_left_out_of_the_imports_of_a_block(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "peer_of_keras.py").touch()
    with pytest.raises(ImportError), blocked_imports("peer_of_keras", "json"):
        import json  # noqa: F401  # is imported already, and stays

        import peer_of_keras
    import peer_of_keras  # noqa: F401

    del sys.modules["peer_of_keras"]


def test_lines_from_some_byte_on(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("aé\r\n\nb\nc".encode())
    expected = {0: ["aé", "", "b", "c"], 5: ["", "b", "c"], 6: ["b", "c"], 8: ["c"], 9: []}
    for start in range(10):
        reader = text_files.LineReader(str(path), start=start)
        first = min(key for key in expected if key >= start)
        starts = [(reader.line_start, line) for line in reader]
        assert starts == list(zip([key for key in (0, 5, 6, 8) if key >= first], expected[first], strict=True))
        assert (reader.position, reader.bytes_read) == (9, 9 - start)
    path.write_bytes(b"a\nb\nc\nd\xff\n" + b"e\n\xe9\n" * 12)  # errors have the line number of the file
    others = re.escape("is not UTF-8, and 12 lines after it (6, 8, 10, 12, 14, 16, 18, 20, 22, 24, ...)")
    with pytest.raises(UserError, match=f"text, line 4: byte 0xff at byte 2 of the line {others}"):
        list(text_files.LineReader(str(path), start=3))


def test_endings_before_those_of_compression():
    names = ["a.jsonl", "a.JSONL.gz", "a.b/c.txt.zst", "a.gz", "gz", "a.csv.bz2", "a.tsv.xz", "a.gz.txt"]
    assert list(map(text_files.text_extension, names)) == [".jsonl", ".jsonl", ".txt", "", "", ".csv", ".tsv", ".txt"]


class _Token(TypedDict, total=False):
    id: int
    content: str


class _Tokenizer(TypedDict):
    kind: Literal["a", "b"]
    merges: list[str | list[str]]
    tokens: list[_Token] | None
    scores: dict[str, float]
    rest: Any


_GOOD = {"kind": "a", "merges": ["x y", ["x", "y"]], "tokens": [{"id": 1}], "scores": {"x": 1}, "rest": [5], "more": 1}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", "c", r'kind is .c.; it must be "a" or "b"'),
        ("kind", ["a"], r'kind is \[.a.\]; it must be "a" or "b"'),
        ("merges", 5, "merges is 5; it must be a list"),
        ("merges", ["x y", 5], r"merges\[1\] is 5; it must be text or a list"),
        ("merges", [["x", 5]], r"merges\[0\]\[1\] is 5; it must be text"),
        ("tokens", [5], r"tokens\[0\] is 5; it must be an object"),
        ("tokens", "x", "tokens is .x.; it must be a list or null"),
        ("tokens", [{"id": True}], r"tokens\[0\].id is True; it must be a whole number"),
        ("scores", {"x": True}, r"scores\[.x.\] is True; it must be a number"),
    ],
)
def test_json_of_others_is_checked_against_a_schema(tmp_path, key, value, message):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(_GOOD))
    assert text_files.read_json_as(str(path), "tokenizer", _Tokenizer) == _GOOD
    path.write_text(json.dumps({**_GOOD, "tokens": None}))
    assert text_files.read_json_as(str(path), "tokenizer", _Tokenizer)["tokens"] is None
    path.write_text(json.dumps({**_GOOD, key: value}))
    with pytest.raises(UserError, match=f"t.json: {message}$"):
        text_files.read_json_as(str(path), "tokenizer", _Tokenizer)
    path.write_text(json.dumps({name: value for name, value in _GOOD.items() if name != key}))
    with pytest.raises(UserError, match=f"t.json has no {key}$"):
        text_files.read_json_as(str(path), "tokenizer", _Tokenizer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1%s}' % ("0" * 400), "out of range"),
        ('{"a": 9%s}' % ("9" * 5000), "5,001 digits. is out of range"),
        ('{"a": 9223372036854775808}', "out of range"),
        (r'{"a": ["\ud800"]}', r"contains .ud800, which is half of a character"),
        (r'{"\udfff": 1}', r"contains .udfff"),
    ],
)
def test_numbers_and_characters_that_no_program_can_hold_are_refused(tmp_path, text, message):
    path = tmp_path / "t.json"
    path.write_text(text)
    for finite in (True, False):
        with pytest.raises(UserError, match=message):
            text_files.read_json(str(path), "tokenizer", finite=finite)
    path.write_text(r'{"a": -9223372036854775808, "\ud83d\ude00": 1000000000000000019884624838656}')
    found = text_files.read_json(str(path), "tokenizer")
    assert found == {"a": -(2**63), "😀": 1e30}  # which transformers writes for no limit
