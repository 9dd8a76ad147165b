"""Opening, finding and replacing files."""

import gzip
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import types

import pytest

from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError
from tests.conftest import script_environment
from tests.recording import recorded


def write(path):
    with writing.atomic_write(path):
        pass


# Ways to use a file or folder, all of which must name one that cannot be used.
USES = (
    text_files.read_text, lambda path: text_files.read_json(path, "model config"), files.find, writing.make_folders,
    lambda path: writing.check_writable_folder(path, "output_file"), write,
)  # fmt: skip


def test_lines_end_at_newline_alone_and_lose_carriage_returns(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("a\rb\r\nc\x0bd \t\n\n\r\ne\u2028f\x00g\r\r\nlast\r".encode())
    # Lines returned by tf.gfile.GFile of TensorFlow 1.11, without "\n".
    assert list(text_files.LineReader(str(path))) == ["ab", "c\x0bd \t", "", "", "e\u2028f\x00g", "last"]
    for data in (b"text\tlabel\rone\t1\r", b"\xef\xbb\xbfa\rb", b"1\r2\r3\r4\r5\r\nsix\n"):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"text, line 1: .* carriage returns; convert the file to Unix line end"):
            list(text_files.LineReader(str(path)))


def test_atomic_write_replaces_only_at_the_end_without_an_error(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    with pytest.raises(RuntimeError), writing.atomic_write(str(path)) as sink:
        sink.write("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result"]
    with writing.atomic_write(str(path)) as sink:
        sink.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_remote_paths_go_through_tensorflow():
    import tensorflow as tf

    with tf.io.gfile.GFile("ram://folder/b.txt", "w") as sink:
        sink.write("one\ntwo\n")
    assert files.exists("ram://folder/b.txt") and files.size("ram://folder/b.txt") == 8
    assert list(text_files.LineReader("ram://folder/b.txt")) == ["one", "two"]
    with writing.atomic_write("ram://folder/c.txt") as sink:
        sink.write("three")
    with files.open_file("ram://folder/c.txt") as source:
        assert source.read() == "three"
    assert files.find("ram://folder/*.txt") == ["ram://folder/b.txt", "ram://folder/c.txt"]
    writing.remove("ram://folder/c.txt")
    assert not files.exists("ram://folder/c.txt")


def test_json_files_hold_objects(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(UserError, match=r"cannot read the index .*a\.json: No such file"):
        text_files.read_json(str(path), "index")
    for text, message in (
        ("{", "is not JSON: .* line 1"),
        ("3", "contains a JSON int; the index must be an? (object|list)"),
        ("[" * 200_000 + "]" * 200_000, "is nested too deeply to be read as JSON"),
        ('{"a":' * 200_000 + "1" + "}" * 200_000, "is nested too deeply to be read as JSON"),
        ('{"a": NaN}', "is not JSON: NaN is not a finite number"),
        ('{"a": [-Infinity]}', "is not JSON: -Infinity is not a finite number"),
        ('{"a": 1e999}', "is not JSON: 1e999 is not a finite number"),
    ):
        path.write_text(text)
        for read in (text_files.read_json, text_files.read_json_list):
            with pytest.raises(UserError, match=rf"a\.json {message}"):
                read(str(path), "index")
    for text in ('{"a": [1]}', '\ufeff{"a": [1]}'):
        path.write_text(text)
        assert text_files.read_json(str(path), "index") == {"a": [1]}
    with pytest.raises(UserError, match=r"a\.json contains a JSON dict; the history must be a list"):
        text_files.read_json_list(str(path), "history")


def test_an_output_that_is_an_input_is_found_behind_links(tmp_path):
    source, link, other = tmp_path / "source", tmp_path / "link", tmp_path / "other"
    source.write_text("words")
    link.symlink_to(source)
    other.write_text("words")
    writing.check_outputs([str(other), str(tmp_path / "new")], [str(source)], name="out")
    with pytest.raises(UserError, match=r"out: .*link is also an input; it would be overwritten"):
        writing.check_outputs([str(other), str(link)], [str(source)], name="out")
    with pytest.raises(UserError, match=r"out lists .*other twice"):
        writing.check_outputs([str(other), f"{tmp_path}/./other"], [], name="out")


def test_files_that_are_not_text_are_named(tmp_path):
    for data, message in (
        (b"\xffa", r"text, line 1: byte 0xff .* not UTF-8; .*Excel.*: iconv -f ENCODING -t UTF-8 /.*text > NEW_FILE"),
        ("words\n".encode("utf-16"), r"text is UTF-16; save it as UTF-8 .* iconv -f UTF-16 -t UTF-8 /.*text > NEW_FI"),
        (b"\xfe\xff" + "words".encode("utf-16-be"), "text is UTF-16; save it"),
    ):
        (tmp_path / "text").write_bytes(data)
        for read in (text_files.read_text, lambda path: list(text_files.LineReader(path))):
            with pytest.raises(UserError, match=message):
                read(str(tmp_path / "text"))
    (tmp_path / "text").write_bytes("\ufeffa\r\n\ufeffb\u2028\n\n".encode())
    assert text_files.read_text(str(tmp_path / "text")) == "a\r\n\ufeffb\u2028\n\n"


def test_special_files_are_neither_replaced_nor_waited_for(tmp_path):
    special = [str(tmp_path / name) for name in ("device", "link", "pipe", "socket")]
    try:
        os.mknod(special[0], stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make a device")
    os.symlink("device", special[1])
    os.mkfifo(special[2])
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(special[3])
    kinds = [os.stat(path).st_mode for path in special]
    for path in special:
        message = "is a device, a pipe .* or a socket, not a regular file; give a"
        with pytest.raises(UserError, match=message), writing.atomic_write(path) as sink:
            sink.write("words")
        with pytest.raises(UserError, match=f"output_file={path} is a"):
            writing.check_writable_folder(path, "output_file")
        for read in (*USES[:3], lambda path: list(text_files.LineReader(path))):
            with pytest.raises(UserError, match=f"{path} is a .*, not a regular file"):
                read(path)
    assert [os.stat(path).st_mode for path in special] == kinds
    assert len(os.listdir(tmp_path)) == len(special)


def test_a_pipe_that_is_open_already_is_read(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\nword\n")
    reader = "from official_bert.support.text_files import LineReader"
    program = f"import sys; {reader}; print(list(LineReader(sys.argv[1])))"
    vocabulary = f"cat {tmp_path}/vocab.txt"
    for command in (f"{vocabulary} | $PYTHON -c '{program}' /dev/stdin", f"$PYTHON -c '{program}' <({vocabulary})"):
        environment = {**script_environment(), "PYTHON": sys.executable}
        process = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60)
        assert process.stdout == "['[UNK]', 'word']\n", process.stderr


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    target, link = tmp_path / "disk" / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("disk/target")
    with writing.atomic_write(str(link)) as sink:
        sink.write("new")
        assert [name for name in os.listdir(tmp_path / "disk") if "partial" in name]  # on the disk of the target
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    link.unlink()
    link.symlink_to("disk/absent")
    with writing.atomic_write(str(link)) as sink:
        sink.write("first")
    assert (tmp_path / "disk" / "absent").read_text() == "first"


def test_a_folder_has_one_user_and_its_lock_leaves_other_files_alone(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()

    def assert_refused(message):
        with pytest.raises(UserError, match=message), writing.exclusive_lock(str(folder), "trains into"):
            pass

    with writing.exclusive_lock(str(folder), "trains into"):
        assert_refused("another process trains into")
    precious, lock = tmp_path / "precious.txt", folder / ".lock"
    precious.write_text("the only copy")
    lock.unlink()
    lock.symlink_to(precious)
    assert_refused(r"cannot open the lock file .*/\.lock: Too many levels of symbolic links; delete it or use")
    assert precious.read_text() == "the only copy"
    lock.unlink()
    lock.mkdir()
    assert_refused(r"cannot open the lock file .*/\.lock: Is a directory")
    lock.rmdir()
    lock.write_text("not ours")
    with writing.exclusive_lock(str(folder), "trains into"):
        pass
    assert lock.read_text() == "not ours"


def test_bytes_are_on_the_disk_before_the_name_and_the_name_before_what_follows(tmp_path, monkeypatch):
    calls = recorded(monkeypatch, "fsync", "replace", "rename")
    with writing.atomic_write(str(tmp_path / "a.json")) as sink:
        sink.write("{}")
    assert calls == [("fsync", "a.json"), ("replace", "a.json"), ("fsync", tmp_path.name)]
    calls.clear()
    writing.make_folders(str(tmp_path / "x" / "y"))
    assert calls == [("fsync", "x"), ("fsync", tmp_path.name)]
    calls.clear()
    (tmp_path / "x" / "y" / "file").write_text("words")
    writing.rename_folder(str(tmp_path / "x"), str(tmp_path / "1"))
    assert calls[-2:] == [("rename", "1"), ("fsync", tmp_path.name)]
    assert sorted(calls[:-2]) == [("fsync", "file"), ("fsync", "x"), ("fsync", "y")]


def test_a_file_system_that_cannot_flush_is_no_mistake():
    descriptor = os.open("/proc", os.O_RDONLY)
    with pytest.raises(OSError, match="Invalid argument"):
        os.fsync(descriptor)
    os.close(descriptor)
    writing._flush("/proc")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\0b", r"a\\x00b': a file name cannot contain the character NUL"),
        ("caf\udce9", r"the file name '.*caf\\udce9' is not UTF-8; rename the file or, if the name is UTF-8, choose"),
        ("a" * 256, r"a{256}: File name too long: 256 bytes; the maximum is 255"),
    ],
)
def test_names_that_cannot_be(tmp_path, name, message):
    path = str(tmp_path / name)
    for use in USES:
        with pytest.raises(UserError, match=message):
            use(path)
    assert os.listdir(tmp_path) == []
    for longest in ("a" * 255, "\u00e9" * 127, "\u4e2d" * 85):
        write(str(tmp_path / longest))
    assert len(os.listdir(tmp_path)) == 3


def test_a_locale_without_the_letters_of_a_name_is_named(tmp_path):
    program = "import sys; from official_bert.support import text_files; text_files.read_text(sys.argv[1])"
    environment = {**script_environment(), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", program, str(tmp_path / "caf\u00e9")]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert "is not UTF-8; rename the file or, if the name is UTF-8, choose a UTF-8 locale" in process.stderr


def test_disk_errors_name_the_file(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("words")
    (tmp_path / "loop").symlink_to("loop")
    for use, path, message in (
        (writing.make_folders, "file", "file is a file, not a folder"),
        (lambda path: writing.check_writable_folder(path, "output_file"), "absent/x", "output_file.*does not exist"),
        (lambda path: writing.check_writable_folder(path, "output_file"), ".", "is a folder"),
        (lambda path: writing.check_writable_folder(path, "output_file"), "loop", "loop is a circular symbolic link"),
        (text_files.read_text, "folder", "cannot read .*folder: Is a directory"),
    ):
        with pytest.raises(UserError, match=message):
            use(str(tmp_path / path))
    for use, message in (
        (files.open_file(str(tmp_path / "folder")), "cannot read .*folder: Is a directory"),
        (files.open_file(str(tmp_path / "absent" / "x"), "w"), "cannot write .*absent/x: No such file"),
        (writing.atomic_write(str(tmp_path / "absent" / "x")), "cannot write .*absent/x: No such file"),
        (writing.atomic_write(str(tmp_path / "folder")), "cannot write .*folder: it is a folder"),
    ):
        with pytest.raises(UserError, match=message), use:
            pass
    with (
        pytest.raises(UserError, match=r"cannot write .*/full: No space left on device"),
        writing.atomic_write(str(tmp_path / "full")) as sink,
        open("/dev/full", "w") as full,
    ):
        os.dup2(full.fileno(), sink.fileno())
        sink.write("words")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "loop"]


def test_errors_of_remote_files_are_mistakes():
    for use in (*USES, files.is_folder, files.exists):
        for scheme in ("s3", "https"):
            with pytest.raises(UserError, match=rf"TensorFlow has no file system for {scheme}:// \(it has .*\); copy"):
                use(f"{scheme}://bucket/file")
    for use in (*USES[:2], files.size, files.list_folder):
        with pytest.raises(UserError, match="ram://nowhere/file"):
            use("ram://nowhere/file")


def test_a_remote_place_that_does_not_answer_is_not_waited_for_long(monkeypatch):
    monkeypatch.setattr(files, "_SECONDS_TO_ANSWER", 0.1)
    released = threading.Event()
    silent = types.SimpleNamespace(exists=lambda path: released.wait(60))  # in place of `tf.io.gfile`
    message = r"gs://silent/a: gs://silent did not answer within 0\.1 seconds; check the network and the credentials"
    for _ in range(2):  # the second time too
        with pytest.raises(UserError, match=message):
            files._wait_for_answer(silent, "gs://silent/a")
    released.set()
    files._wait_for_answer(silent, "gs://silent/a")


def test_a_settings_file_that_is_too_large_is_refused_before_it_is_parsed(tmp_path):
    path = tmp_path / "bert_config.json"
    with open(path, "wb") as file:
        file.truncate(text_files.MAX_SETTINGS_BYTES + 1)
    message = r"bert_config\.json is too large for a model config: 16\.0 MiB on the disk, the limit is 16 MiB"
    for read in (text_files.read_json, text_files.read_json_list):
        with pytest.raises(UserError, match=message):
            read(str(path), "model config")
    with pytest.raises(UserError, match="is not JSON"):
        text_files.read_json(str(path), "SQuAD file", max_bytes=None)
    with gzip.open(path, "wb", compresslevel=1) as file:  # small on the disk, large when it is unpacked
        file.write(bytes(text_files.MAX_SETTINGS_BYTES + 1))
    with pytest.raises(UserError, match=r"too large for a model config: 0\.1 MiB on the disk"):
        text_files.read_json(str(path), "model config")
    for part in (b"[],", b"\n"):  # a list takes 64 bytes of memory
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(b'{"a":[' + part * 9_000_000 + b"0]}")
        with pytest.raises(UserError, match="too large for a tokenizer: it has more than 8,388,608 lines or values"):
            text_files.read_json(str(path), "tokenizer", max_bytes=text_files.MAX_VOCAB_BYTES)


def test_a_file_or_link_that_somebody_planted_is_not_written_to(tmp_path, monkeypatch):
    precious = tmp_path / "precious"
    precious.write_text("the only copy")
    monkeypatch.setattr(writing.secrets, "token_hex", lambda num_bytes: "guessed")
    planted = tmp_path / ".out.partial-guessed"
    monkeypatch.setattr(writing, "remove_abandoned", lambda path: None)
    for plant in (lambda: planted.symlink_to(precious), lambda: planted.write_text("planted")):
        plant()
        with pytest.raises(UserError, match="cannot write .*out: File exists"):
            write(str(tmp_path / "out"))
        planted.unlink(missing_ok=True)
    assert precious.read_text() == "the only copy"


def test_partial_files_of_killed_but_not_of_living_processes_are_deleted(tmp_path):
    abandoned, other = tmp_path / ".out.partial-12", tmp_path / ".other.partial-12"
    for path in (abandoned, other):
        path.write_text("half")
    (tmp_path / ".out.partial-34").mkdir()
    with writing.atomic_write(str(tmp_path / "out")) as living:
        living.write("whole")
        with writing.atomic_write(str(tmp_path / "out")) as second:
            second.write("first")
        assert not abandoned.exists() and not (tmp_path / ".out.partial-34").exists()
    assert (tmp_path / "out").read_text() == "whole"
    assert sorted(os.listdir(tmp_path)) == [".other.partial-12", "out"]


def test_too_many_files_are_not_all_named(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    paths = [str(tmp_path / f"out-{number}") for number in range(200)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    try:
        message = r"^cannot write 200 files, \S+/out-0 to \S+/out-199: Too many .* ulimit -n"
        with pytest.raises(UserError, match=message), writing.atomic_writes(paths):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not os.listdir(tmp_path)
