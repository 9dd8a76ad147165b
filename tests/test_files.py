"""Opening, finding and replacing files."""

import gzip
import os

import pytest

from official_bert import files
from official_bert.errors import UserError


def test_lines_end_at_newline_alone_and_lose_carriage_returns(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("a\rb\r\nc\x0bd \t\n\n\r\ne\u2028f\x00g\r\r\nlast\r".encode())
    # What tf.gfile.GFile of TensorFlow 1.11 gives, line by line, its "\n" taken off.
    assert list(files.LineReader(str(path))) == ["ab", "c\x0bd \t", "", "", "e\u2028f\x00g", "last"]


def test_undecodable_bytes_are_reported_with_file_and_line(tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"good\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"latin1\.txt, line 2: byte 0xe9 at byte 4 .* not UTF-8"):
        list(files.LineReader(str(path)))


def test_missing_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        list(files.LineReader(str(tmp_path / "absent")))


def test_lines_of_an_open_file_are_not_waited_for(tmp_path):
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as source, os.fdopen(write_end, "wb", buffering=0) as sink:
        lines = iter(files.LineReader("standard input", source))
        sink.write(b"one\r\n")
        assert next(lines) == "one"
        sink.write(b"tw\xff\n")
        with pytest.raises(UserError, match="standard input, line 2: byte 0xff at byte 3"):
            next(lines)


def test_a_text_is_read_as_it_is_but_for_the_mark(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeffa\r\n\ufeffb\u2028\n\n".encode())
    assert files.read_text(str(path)) == "a\r\n\ufeffb\u2028\n\n"
    path.write_bytes(b"a\nb\xff")
    with pytest.raises(UserError, match="text.txt, line 2: byte 0xff at byte 2 of the line"):
        files.read_text(str(path))
    with pytest.raises(UserError, match=f"cannot read {tmp_path}: Is a directory"):
        files.read_text(str(tmp_path))


def test_find_keeps_the_order_of_the_list_and_sorts_each_glob(tmp_path):
    for name in ("z.txt", "b.txt", "a.txt", ".hidden.txt"):
        (tmp_path / name).write_text("x")
    found = files.find(f"{tmp_path}/z.txt,{tmp_path}/*.txt")
    assert [os.path.basename(path) for path in found] == ["z.txt", "a.txt", "b.txt", "z.txt"]


def test_find_names_the_pattern_that_matches_nothing(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UserError, match=r"no file matches '.*absent\*'"):
        files.find(f"{tmp_path}/a.txt,{tmp_path}/absent*")


def test_find_takes_a_name_with_brackets_literally(tmp_path):
    (tmp_path / "part[1].txt").write_text("x")
    assert files.find(f"{tmp_path}/part[1].txt") == [f"{tmp_path}/part[1].txt"]


def test_atomic_write_replaces_only_at_the_end(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    with files.atomic_write(str(path)) as sink:
        sink.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_atomic_write_leaves_the_old_file_after_an_error(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.atomic_write(str(path)) as sink:
        sink.write("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result"]


def test_output_folder_is_checked(tmp_path):
    with pytest.raises(UserError, match="--output_file.*does not exist"):
        files.check_writable_folder(str(tmp_path / "absent" / "x"), "output_file")
    with pytest.raises(UserError, match="is a folder"):
        files.check_writable_folder(str(tmp_path), "output_file")


def test_remote_paths_go_through_tensorflow():
    import tensorflow as tf

    with tf.io.gfile.GFile("ram://folder/b.txt", "w") as sink:
        sink.write("one\ntwo\n")
    assert files.exists("ram://folder/b.txt")
    assert files.size("ram://folder/b.txt") == 8
    assert list(files.LineReader("ram://folder/b.txt")) == ["one", "two"]
    with files.atomic_write("ram://folder/c.txt") as sink:
        sink.write("three")
    with files.open_file("ram://folder/c.txt") as source:
        assert source.read() == "three"
    assert files.find("ram://folder/*.txt") == ["ram://folder/b.txt", "ram://folder/c.txt"]
    files.remove("ram://folder/c.txt")
    assert not files.exists("ram://folder/c.txt")


def test_json_files_hold_objects(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(UserError, match=r"cannot read the index .*a\.json: No such file"):
        files.read_json(str(path), "index")
    for text, message in (("{", "is not JSON: .* line 1"), ("3", "holds a JSON int; the index must be an object")):
        path.write_text(text)
        with pytest.raises(UserError, match=rf"a\.json {message}"):
            files.read_json(str(path), "index")
    for text in ('{"a": [1]}', '\ufeff{"a": [1]}'):
        path.write_text(text)
        assert files.read_json(str(path), "index") == {"a": [1]}


def test_an_output_that_is_an_input_is_found_behind_links(tmp_path):
    source, link, other = tmp_path / "source", tmp_path / "link", tmp_path / "other"
    source.write_text("words")
    link.symlink_to(source)
    other.write_text("words")
    files.check_no_overwriting([str(other), str(tmp_path / "new")], [str(source)], flag="out")
    with pytest.raises(UserError, match=r"--out: .*link is also an input; it would be overwritten"):
        files.check_no_overwriting([str(other), str(link)], [str(source)], flag="out")
    with pytest.raises(UserError, match=r"--out names .*other twice"):
        files.check_no_overwriting([str(other), f"{tmp_path}/./other"], [], flag="out")


def test_what_is_no_text_is_named(tmp_path):
    for data, message in (
        (gzip.compress(b"words"), "is compressed; unpack it first"),
        (b"\xffa", "is not UTF-8"),
        (
            "words\n".encode("utf-16"),
            r"text is UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8 /.*text > NEW_FILE",
        ),
        (b"\xfe\xff" + "words".encode("utf-16-be"), "text is UTF-16; convert it"),
    ):
        (tmp_path / "text").write_bytes(data)
        with pytest.raises(UserError, match=message):
            list(files.LineReader(str(tmp_path / "text")))


def test_folders_and_files_in_the_place_of_each_other(tmp_path):
    with pytest.raises(UserError, match=r"is a folder; name the files in it, as in '.*\*'"):
        files.find(str(tmp_path))
    (tmp_path / "file").write_text("words")
    with pytest.raises(UserError, match="file is a file where a folder is wanted"):
        files.make_folders(str(tmp_path / "file"))


def test_a_folder_has_one_user(tmp_path):
    with (
        files.sole_user(str(tmp_path), "trains into"),
        pytest.raises(UserError, match="another process trains into"),
        files.sole_user(str(tmp_path), "trains into"),
    ):
        pass
    with files.sole_user(str(tmp_path), "trains into"):
        pass
