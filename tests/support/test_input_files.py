"""Resolution of names, globs, folders and file lists."""

import os

import pytest

from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.manifest import find_inputs, is_no_sidecar


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("b.txt", "a/z.txt", "a/c/d.txt", "a/c/.hidden", "a/.git/e.txt", "f,g.txt", "x [1].txt"):
        (tmp_path / "corpus" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "corpus" / name).write_text("words")
    os.mkfifo(tmp_path / "corpus" / "pipe")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, text):
    path.write_text(text)
    return f"@{path}"


ALL = ["corpus/a/c/d.txt", "corpus/a/z.txt", "corpus/b.txt", "corpus/f,g.txt", "corpus/x [1].txt"]


def test_a_folder_stands_for_the_files_below(folder):
    assert find_inputs("corpus") == find_inputs("corpus/") == ALL
    assert find_inputs("corpus/a, corpus/b.txt ,corpus/b*") == [*ALL[:2], "corpus/b.txt", "corpus/b.txt"]
    assert find_inputs("corpus/a/c/*") == ["corpus/a/c/d.txt"]
    assert find_inputs("./corpus/a/c") == ["./corpus/a/c/d.txt"]
    assert find_inputs(str(folder / "corpus")) == [str(folder / name) for name in ALL]
    (folder / "@odd").write_text("words")
    assert find_inputs("./@odd") == ["./@odd"]


def test_links_to_folders_are_followed_once(folder):
    (folder / "corpus" / "a" / "up").symlink_to(folder / "corpus")
    (folder / "other").mkdir()
    (folder / "other" / "o.txt").write_text("words")
    (folder / "corpus" / "other").symlink_to(folder / "other")
    found, expected = map(os.path.realpath, find_inputs("corpus")), [*ALL, "other/o.txt"]
    assert sorted(found) == sorted(str(folder / name) for name in expected)


def test_a_list_names_files_globs_and_folders_relative_to_the_current_folder(folder):
    given = write(folder / "list.txt", "\ufeffcorpus/b.txt\n\n  corpus/a \r\ncorpus/f,g.txt\ncorpus/x*")
    expected = ["corpus/b.txt", *ALL[:2], *ALL[3:]]
    assert find_inputs("@list.txt") == find_inputs(given) == expected
    assert find_inputs("corpus/b.txt,@list.txt,corpus/a/z.txt") == ["corpus/b.txt", *expected, "corpus/a/z.txt"]
    write(folder / "corpus" / "list", "corpus/b.txt")
    assert find_inputs("@corpus/list") == ["corpus/b.txt"]
    write(folder / "corpus" / "list", "b.txt")
    with pytest.raises(UserError, match=r"corpus/list, line 1: no file matches 'b\.txt'"):
        find_inputs("@corpus/list")


@pytest.mark.parametrize(
    ("patterns", "listed", "message"),
    [
        ("@list", "corpus/b.txt\n\nabsent.txt\n", r"list, line 3: no file matches 'absent\.txt'; check the path$"),
        ("@list", "corpus/b.txt\n@other\n", r"list, line 2: '@other' is a list within a list"),
        ("@list", "corpus/empty\n", r"list, line 1: there are no input files in the folder corpus/empty"),
        ("@list", "\n \n", r"the file list list is empty; write one path"),
        ("@list", "corpus/pipe\n", r"list, line 1: corpus/pipe is a device, a pipe"),
        ("@absent", "", "cannot read absent: No such file"),
        ("@", "", "'@' needs the name"),
        ("@corpus", "", "@corpus is a folder, not a list of files; leave out the @"),
        ("@corpus/pipe", "", "corpus/pipe is a device, a pipe"),
        ("corpus,", "", r"no file matches ''; check the path \(given: 'corpus,'\)"),
        ("corpus/b.txt,absent", "", "no file matches 'absent'"),
    ],
)
def test_mistakes_are_located(folder, patterns, listed, message):
    (folder / "corpus" / "empty" / ".git").mkdir(parents=True)
    (folder / "corpus" / "empty" / ".git" / "file").write_text("words")
    write(folder / "list", listed)
    with pytest.raises(UserError, match=message):
        find_inputs(patterns)


def test_sidecars_of_records_are_left_out_of_folders_alone(folder):
    (folder / "records").mkdir()
    sidecars = [f"train.tfrecord.{name}" for name in ("json", "spiece.model", "sentencepiece.bpe.model", "spm.model")]
    for name in ("train.tfrecord", *sidecars, ".train.partial-1"):
        (folder / "records" / name).write_text("records")
    assert find_inputs("records", is_input=is_no_sidecar) == ["records/train.tfrecord"]
    assert find_inputs("records/*.json", is_input=is_no_sidecar) == ["records/train.tfrecord.json"]


def test_remote_folders_and_lists():
    for name in ("c/b.txt", "a.txt", ".hidden", ".git/x"):
        writing.make_folders(os.path.dirname(f"ram://inputs/{name}"))
        with files.open_file(f"ram://inputs/{name}", "w") as sink:
            sink.write("words")
    with files.open_file("ram://list", "w") as sink:
        sink.write("ram://inputs\nram://inputs/*.txt\n")
    expected = ["ram://inputs/a.txt", "ram://inputs/c/b.txt"]
    assert find_inputs("ram://inputs") == find_inputs("ram://inputs/") == expected
    assert find_inputs("@ram://list") == [*expected, "ram://inputs/a.txt"]
