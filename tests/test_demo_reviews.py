"""The sentences of the classification demo."""

import collections
import filecmp
import importlib.util
import subprocess
import sys

from tests.conftest import ROOT

FOLDER = ROOT / "data" / "demo_reviews"
FILES = ("train.tsv", "dev.tsv", "test.tsv")


def read(name):
    header, *rows = (line.split("\t") for line in (FOLDER / name).read_text(encoding="ascii").splitlines())
    assert header == (["sentence"] if name == "test.tsv" else ["sentence", "label"])
    return rows


def words_in(sentence):
    return {word.strip(".,;:!?").lower() for word in sentence.split()}


def words_of(name):
    return set().union(*(words_in(sentence) for sentence, *_ in read(name)))


def generator():
    spec = importlib.util.spec_from_file_location("make_reviews", FOLDER / "make_reviews.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_made_again_byte_for_byte(tmp_path):
    command = [sys.executable, str(FOLDER / "make_reviews.py"), f"--output_dir={tmp_path}"]
    subprocess.run(command, check=True, capture_output=True)
    same, _, _ = filecmp.cmpfiles(FOLDER, tmp_path, FILES, shallow=False)
    assert same == list(FILES)


def test_sizes_and_labels():
    assert [len(read(name)) for name in FILES] == [400, 100, 60]
    for name, half in (("train.tsv", 200), ("dev.tsv", 50)):
        assert collections.Counter(label for _, label in read(name)) == {"negative": half, "positive": half}
    sentences = [row[0] for name in FILES for row in read(name)]
    assert len(set(sentences)) == 560
    assert not any('"' in sentence for sentence in sentences)


def test_no_word_of_praise_or_blame_in_dev_or_test_is_trained_on():
    make_reviews = generator()
    new = {word for words in make_reviews.NEW_WORDS for word in words}
    old = {word for words in make_reviews.TRAIN_WORDS for word in words}
    for topic in make_reviews.TOPICS:
        new |= {word for words in topic.new_words for word in words} | set(topic.new_things)
        old |= {word for words in topic.words for word in words}
    assert not new & words_of("train.tsv")
    for name in ("dev.tsv", "test.tsv"):
        assert not old & words_of(name), name


def test_every_sentence_to_predict_holds_a_word_that_training_lacks():
    known = words_of("train.tsv")
    for name in ("dev.tsv", "test.tsv"):
        for sentence, *_ in read(name):
            assert words_in(sentence) - known, sentence


def test_a_pattern_says_nothing_by_itself():
    """The words of each pattern occur equally often with either label."""
    counts = collections.defaultdict(collections.Counter)
    for sentence, label in read("train.tsv"):
        for pattern in (
            "was not",
            "Nobody could",
            "anything but",
            "far from",
            "I expected",
            "Some say",
            "What a",
            "Once ",
        ):
            counts[pattern][label] += pattern in sentence
    for pattern, labels in counts.items():
        assert min(labels["negative"], labels["positive"]) >= 5, pattern
        assert labels["negative"] == labels["positive"], (pattern, labels)
