"""The demo: its parts (the whole is `make demo`, about four minutes) and its data: texts, reviews, tagged sentences."""

import collections
import filecmp
import subprocess
import sys

import pytest

from official_bert.commands.demo import write_demo_data
from official_bert.metrics.tagging import find_entities, invalid_tags, scheme_of
from official_bert.support.files import KILL_AT_VARIABLE
from official_bert.tasks.tagging.data import read_tagged_file
from tests.conftest import ROOT, assert_fails, run_script

CORPUS, REVIEWS, TAGGED = (ROOT / "data" / name for name in ("demo", "demo_reviews", "demo_tagging"))
REVIEW_FILES = ("train.tsv", "dev.tsv", "test.tsv")


@pytest.mark.parametrize(
    ("program", "names"),
    [(CORPUS / "make_corpus.py", ("train.txt", "heldout.txt")), (REVIEWS / "make_reviews.py", REVIEW_FILES)],
    ids=["corpus", "reviews"],
)
def test_the_files_are_made_again_byte_for_byte(program, names, tmp_path):
    subprocess.run([sys.executable, program, f"--output_dir={tmp_path}"], check=True, capture_output=True)
    assert filecmp.cmpfiles(program.parent, tmp_path, names, shallow=False)[0] == list(names)


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("words")
    assert_fails(run_script("demo", output_dir=tmp_path), "thesis.txt exists already; give another folder")
    assert (tmp_path / "thesis.txt").read_text() == "words"


def test_the_data_of_the_package_is_that_of_the_repository(tmp_path):
    write_demo_data(str(tmp_path / "data"))
    copied = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent.name for path in copied} == {"demo", "demo_reviews", "demo_tagging"}
    for path in copied:
        assert not (tmp_path / path).is_symlink() and (tmp_path / path).read_bytes() == (ROOT / path).read_bytes()


@pytest.mark.slow
def test_a_failing_step_stops_the_demo_and_the_vocabulary_is_that_of_the_repository(tmp_path, monkeypatch):
    monkeypatch.setenv(KILL_AT_VARIABLE, "published vocab.txt:1")
    result = run_script("demo", output_dir=tmp_path / "new")
    assert_fails(result, "failed with exit code -9; its message is above")
    assert "== 2." not in result.output
    assert all(" INFO " in line for line in result.errors.splitlines()[:-1]), result  # no TensorFlow notes
    assert (tmp_path / "new" / "vocab.txt").read_bytes() == (ROOT / "vocab" / "demo_uncased.txt").read_bytes()


def test_no_held_out_document_is_trained_on():
    texts = ((CORPUS / name).read_text(encoding="ascii") for name in ("train.txt", "heldout.txt"))
    train, heldout = (text.removesuffix("\n").split("\n\n") for text in texts)
    assert (len(train), len(heldout)) == (288, 48)
    assert not set(train) & set(heldout)


def test_tagged_sentences_have_the_sizes_of_the_table_and_the_rules_of_their_scheme():
    table = (TAGGED / "README.md").read_text(encoding="utf-8")
    for split in ("train", "dev", "test"):
        found = read_tagged_file(str(TAGGED / f"{split}.txt")).sentences
        tags = [sentence.tags for sentence in found]
        types = collections.Counter(entity.type for row in tags for entity in find_entities(row))
        num_words = sum(len(sentence.words) for sentence in found)
        row = [
            found[-1].document + 1, len(found), f"{num_words:,}",
            *(types[kind] for kind in ("PER", "LOC", "ORG", "MISC")),
        ]  # fmt: skip
        assert f"| `{split}.txt` | {' | '.join(map(str, row))} |" in table
        assert scheme_of(tags) == "IOB2"
        assert [invalid_tags(row, "IOB2") for row in tags] == [[]] * len(tags)
    columns, lines = (read_tagged_file(str(TAGGED / name)) for name in ("dev.txt", "dev_sentences.tsv"))
    assert (columns.layout, lines.layout) == ("columns", "sentences")
    assert [sentence[:2] for sentence in lines.sentences] == [sentence[:2] for sentence in columns.sentences]
