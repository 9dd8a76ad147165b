"""Texts from lines, as in the reference's feature extraction, and from table columns."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from official_bert.data.text_inputs import TextSource
from official_bert.support.errors import UserError
from tests.compressing import COMPRESS


def source(path, content, **arguments):
    path.write_bytes(content.encode())
    return TextSource(str(path), **arguments)


def test_lines_are_texts_or_pairs_and_json_in_lines_is_warned_of(tmp_path, caplog):
    content = " one text \n\na ||| b\nc ||| d ||| e\nf |||\n||| g\nh|||i\n\u2028j\x0ck\r\nno line end"
    assert list(source(tmp_path / "t.csv", content)) == [
        ("one text", None),
        ("", None),  # a blank line is a text, so that text numbers are line numbers
        ("a", "b"), ("c ||| d", "e"), ("f |||", None), ("||| g", None), ("h|||i", None), ("j\x0ck", None),
        ("no line end", None),
    ]  # fmt: skip
    assert list(source(tmp_path / "t.txt", "\ufeffa\nb")) == [("a", None), ("b", None)]
    assert not caplog.text
    assert list(source(tmp_path / "t.txt", '{"text": "a"}\n')) == [('{"text": "a"}', None)]
    assert "t.txt, line 1 looks like JSON, but is read as a text" in caplog.text


def test_cells_are_texts_and_what_is_blank_at_the_end_is_left_out(tmp_path):
    content = 'id,text\n1,"a, b\nc"\n\n2, d ||| e \n\n\n'
    found = list(source(tmp_path / "t.csv", content, text_columns=["text"]))
    assert found == [("a, b\nc", None), ("", None), ("d ||| e", None)]


def test_the_count_is_that_of_lines(tmp_path):
    texts = source(tmp_path / "t.txt", "a\n\nb")
    assert texts.count() == 3
    assert list(texts) == list(texts) == [("a", None), ("", None), ("b", None)]  # it is read anew each time
    assert source(tmp_path / "t.txt", "a\n\nb\n").count() == 3
    assert source(tmp_path / "t.tsv", "a\n\nb\n", text_columns=["a"]).count() == 2
    assert source(tmp_path / "t.jsonl", '{"a": "b"}\n', text_columns=["a"]).count() == 1
    assert TextSource("-").count() is TextSource("/dev/fd/3").count() is None


def test_parquet_and_compressed_files_and_columns_that_are_not_there(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": [1, 2], "a": ["one", " two "], "b": ["c", "d"]}), path)
    texts = TextSource(str(path), text_columns=["b", "a"])
    texts.check()
    assert (list(texts), texts.count()) == ([("c", "one"), ("d", "two")], 2)
    with pytest.raises(UserError, match=r"t\.parquet: no column 'z'; the columns are 'n', 'a', 'b'"):
        TextSource(str(path), text_columns=["z"]).check()
    with pytest.raises(UserError, match="Parquet cannot be read from a pipe"):
        TextSource("-", text_columns=["a"], table_format="parquet").check()
    for ending, compress in COMPRESS.items():
        csv, columns = 'x,"y"\na,b\n\nc,', ["x", "y"]
        rows = ("t", "a ||| b\n\nc", None), ("t.csv", csv, columns), ("t.jsonl", '{"x": "a", "y": "b"}', columns)
        for name, content, columns in rows:
            expected = list(source(tmp_path / name, content, text_columns=columns))
            (tmp_path / f"{name}{ending}").write_bytes(compress(content.encode()))
            texts = TextSource(str(tmp_path / f"{name}{ending}"), text_columns=columns)
            texts.check()
            assert (list(texts), texts.count()) == (expected, None)
    with pytest.raises(UserError, match=r"line 1: no column 'a'; the columns are 'a;b'; are they separated by semicol"):
        list(source(tmp_path / "t.csv", "a;b\n1;2\n", text_columns=["a"]))
    with pytest.raises(UserError, match="column 'b': without a header, give its number"):
        list(source(tmp_path / "t.tsv", "a\tb\n", text_columns=["b"], has_header=False))
