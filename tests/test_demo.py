"""The demo: its parts (the whole is `make demo`, about four minutes) and its data: texts, reviews, tagged sentences."""

import collections
import filecmp
import importlib.util
import re
import subprocess
import sys

import pytest

from official_bert.commands.demo import write_demo_data
from official_bert.metrics.tagging import find_entities, invalid_tags, scheme_of, score_tags
from official_bert.tasks.tagging.data import read_tagged_file
from tests.conftest import ROOT, assert_fails, run_cold, run_script

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


def test_the_vocabulary_is_made_again_byte_for_byte(tmp_path):
    flags = {"input_file": CORPUS / "train.txt", "vocab_file": tmp_path / "vocab.txt", "vocab_size": 1200}
    result = run_cold("build_vocab", **flags)
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
    (tmp_path / "vocab.txt").mkdir()  # a folder in place of the first file
    result = run_script("demo", output_dir=tmp_path)
    assert_fails(result, "failed with exit code 1; its message is above")
    assert "== 2." not in result.output


def test_no_held_out_document_is_trained_on():
    texts = ((CORPUS / name).read_text(encoding="ascii") for name in ("train.txt", "heldout.txt"))
    train, heldout = (text.removesuffix("\n").split("\n\n") for text in texts)
    assert (len(train), len(heldout)) == (288, 48)
    assert not set(train) & set(heldout)


def reviews(name):
    header, *rows = (line.split("\t") for line in (REVIEWS / name).read_text(encoding="ascii").splitlines())
    assert header == (["sentence"] if name == "test.tsv" else ["sentence", "label"])
    return rows


def words_in(sentence):
    return {word.strip(".,;:!?").lower() for word in sentence.split()}


def words_of(name):
    return set().union(*(words_in(sentence) for sentence, *_ in reviews(name)))


def test_sizes_and_labels_of_reviews():
    assert [len(reviews(name)) for name in REVIEW_FILES] == [400, 100, 60]
    for name, half in (("train.tsv", 200), ("dev.tsv", 50)):
        assert collections.Counter(label for _, label in reviews(name)) == {"negative": half, "positive": half}
    sentences = [row[0] for name in REVIEW_FILES for row in reviews(name)]
    assert len(set(sentences)) == 560
    assert not any('"' in sentence for sentence in sentences)


def test_each_review_to_predict_needs_words_that_training_lacks():
    spec = importlib.util.spec_from_file_location("make_reviews", REVIEWS / "make_reviews.py")
    make_reviews = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_reviews)
    new = {word for words in make_reviews.NEW_WORDS for word in words}
    old = {word for words in make_reviews.TRAIN_WORDS for word in words}
    for topic in make_reviews.TOPICS:
        new |= {word for words in topic.new_words for word in words} | set(topic.new_things)
        old |= {word for words in topic.words for word in words}
    known = words_of("train.tsv")
    assert not new & known
    for name in ("dev.tsv", "test.tsv"):
        assert not old & words_of(name), name
        for sentence, *_ in reviews(name):
            assert words_in(sentence) - known, sentence


def test_a_pattern_of_reviews_says_nothing_by_itself():
    """The words of each pattern occur equally often with either label."""
    patterns = ("was not", "Nobody could", "anything but", "far from", "I expected", "Some say", "What a", "Once ")
    for pattern in patterns:
        labels = collections.Counter(label for sentence, label in reviews("train.tsv") if pattern in sentence)
        assert labels["negative"] == labels["positive"] >= 5, (pattern, labels)


SPLITS = ("train", "dev", "test")
TYPES = ("PER", "LOC", "ORG", "MISC")


def tagged(split):
    return read_tagged_file(str(TAGGED / f"{split}.txt")).sentences


def entities(split):
    """Return type and words of each entity of a split, in order."""
    return [
        (entity.type, sentence.words[entity.start : entity.end])
        for sentence in tagged(split)
        for entity in find_entities(sentence.tags)
    ]


def tags_of_words(split):
    """Count the tags of each word of a split, in lower case."""
    kinds = collections.defaultdict(collections.Counter)
    for sentence in tagged(split):
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            kinds[word.lower()][tag] += 1
    return kinds


def test_tagged_sentences_have_the_sizes_of_the_table_and_the_rules_of_their_scheme():
    table = (TAGGED / "README.md").read_text(encoding="utf-8")
    for split in SPLITS:
        found = tagged(split)
        types = collections.Counter(kind for kind, _ in entities(split))
        num_words = sum(len(sentence.words) for sentence in found)
        row = [found[-1].document + 1, len(found), f"{num_words:,}", *(types[kind] for kind in TYPES)]
        assert f"| `{split}.txt` | {' | '.join(map(str, row))} |" in table
        assert set(types) == set(TYPES)
        tags = [sentence.tags for sentence in found]
        assert scheme_of(tags) == "IOB2"
        assert [invalid_tags(row, "IOB2") for row in tags] == [[]] * len(tags)
    words = [sentence.words for split in SPLITS for sentence in tagged(split)]
    assert len(set(words)) == len(words) == 420
    columns, lines = (read_tagged_file(str(TAGGED / name)) for name in ("dev.txt", "dev_sentences.tsv"))
    assert (columns.layout, lines.layout) == ("columns", "sentences")
    assert [sentence[:2] for sentence in lines.sentences] == [sentence[:2] for sentence in columns.sentences]


def test_most_names_to_find_are_not_in_training():
    text = (TAGGED / "README.md").read_text(encoding="utf-8")
    dev, test = re.search(r"(\d+)% of the names in\s+dev and (\d+)% of those in test", text).groups()
    known = set(entities("train"))
    for split, percent in (("dev", dev), ("test", test)):
        found = entities(split)
        assert round(100 * sum(entity not in known for entity in found) / len(found)) == int(percent)


def test_words_alone_do_not_tell_the_entities():
    """A word's most frequent tag in training finds few of them; many words are names and common words."""
    kinds = tags_of_words("train")
    for split, percent in (("dev", 30), ("test", 26)):
        found = tagged(split)
        guesses = [
            [kinds[word.lower()].most_common(1)[0][0] if word.lower() in kinds else "O" for word in sentence.words]
            for sentence in found
        ]
        assert round(100 * score_tags([sentence.tags for sentence in found], guesses).f1) == percent
    types = collections.defaultdict(set)
    for split in SPLITS:
        for word, tags in tags_of_words(split).items():
            types[word] |= {tag.partition("-")[2] or tag for tag in tags}
    assert sum({"O", "PER"} <= kind for kind in types.values()) >= 10
    assert sum({"LOC", "PER"} <= kind for kind in types.values()) >= 5
    assert types["linden"] == {"O", "PER", "LOC", "ORG"}


def test_most_common_words_are_those_of_the_demo_corpus():
    known = set(re.findall(r"\w+", (CORPUS / "train.txt").read_text(encoding="utf-8").lower()))
    tags = [(word, tag) for split in SPLITS for word, tags in tags_of_words(split).items() for tag in tags.elements()]
    common = [word for word, tag in tags if tag == "O" and word.isalpha()]
    assert sum(word in known for word in common) / len(common) > 0.85
