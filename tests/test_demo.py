"""Parts of the demo; the whole demo is `make demo`, which takes about four minutes."""

import filecmp
import subprocess
import sys

import pytest

from official_bert.commands.demo import write_demo_data
from tests.conftest import ROOT, assert_fails, run_cold, run_script

CORPUS = ROOT / "data" / "demo"


def test_the_corpus_is_made_again_byte_for_byte(tmp_path):
    command = [sys.executable, str(CORPUS / "make_corpus.py"), f"--output_dir={tmp_path}"]
    subprocess.run(command, check=True, capture_output=True)
    same, _, _ = filecmp.cmpfiles(CORPUS, tmp_path, ("train.txt", "heldout.txt"), shallow=False)
    assert same == ["train.txt", "heldout.txt"]


def test_no_held_out_document_is_trained_on():
    train, heldout = (read_text(name) for name in ("train.txt", "heldout.txt"))
    assert (len(train), len(heldout)) == (288, 48)
    assert not set(train) & set(heldout)


def read_text(name):
    return (CORPUS / name).read_text(encoding="ascii").removesuffix("\n").split("\n\n")


def test_the_vocabulary_is_made_again_byte_for_byte(tmp_path):
    result = run_cold(
        "build_vocab", input_file=CORPUS / "train.txt", vocab_file=tmp_path / "vocab.txt", vocab_size=1200
    )
    assert result.code == 0, result
    assert all(" INFO " in line for line in result.errors.splitlines()), result  # no TensorFlow notes
    assert (tmp_path / "vocab.txt").read_bytes() == (ROOT / "vocab" / "demo_uncased.txt").read_bytes()


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (["thesis.txt"], "give a new folder"),
        (["made_by_a_demo", "pretraining/thesis.txt"], "move it away or give another --output_dir"),
    ],
)
def test_a_folder_with_files_of_others_is_left_alone(tmp_path, names, advice):
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("words")
    assert_fails(run_script("demo", output_dir=tmp_path), str(tmp_path), advice)
    assert all((tmp_path / name).read_text() == "words" for name in names)


def test_the_data_of_the_package_is_that_of_the_repository(tmp_path):
    write_demo_data(str(tmp_path / "data"))
    copied = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent.name for path in copied} == {"demo", "demo_reviews", "demo_tagging"}
    for path in copied:
        assert not (tmp_path / path).is_symlink() and (tmp_path / path).read_bytes() == (ROOT / path).read_bytes()


def test_a_failing_step_stops_the_demo(tmp_path):
    # A folder in place of the first file.
    (tmp_path / "vocab.txt").mkdir()
    result = run_script("demo", output_dir=tmp_path)
    assert_fails(result, "failed with exit code 1; its message is above")
    assert "== 2." not in result.output
