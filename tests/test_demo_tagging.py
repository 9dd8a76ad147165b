"""The tagged sentences of the tagging demo."""

import collections
import re

from official_bert.metrics.tagging import find_entities, invalid_tags, scheme_of, score_tags
from official_bert.tasks.tagging.data import read_tagged_file
from tests.conftest import ROOT

FOLDER = ROOT / "data" / "demo_tagging"
SPLITS = ("train", "dev", "test")
TYPES = ("PER", "LOC", "ORG", "MISC")


def sentences(name):
    return read_tagged_file(str(FOLDER / name)).sentences


def entities(split):
    """Return type and words of each entity of a split, in order."""
    return [
        (entity.type, sentence.words[entity.start : entity.end])
        for sentence in sentences(f"{split}.txt")
        for entity in find_entities(sentence.tags)
    ]


def kinds_of_word(split):
    """Return the lowercase types, or "O", of each word of a split."""
    kinds = collections.defaultdict(collections.Counter)
    for sentence in sentences(f"{split}.txt"):
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            kinds[word.lower()][tag] += 1
    return kinds


def test_sizes_are_those_of_the_table():
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    for split in SPLITS:
        found = sentences(f"{split}.txt")
        types = collections.Counter(kind for kind, _ in entities(split))
        num_words = sum(len(sentence.words) for sentence in found)
        row = [found[-1].document + 1, len(found), f"{num_words:,}", *(types[kind] for kind in TYPES)]
        assert f"| `{split}.txt` | {' | '.join(map(str, row))} |" in table
        assert set(types) == set(TYPES)


def test_the_tags_keep_the_rules_of_their_scheme():
    for split in SPLITS:
        tags = [sentence.tags for sentence in sentences(f"{split}.txt")]
        assert scheme_of(tags) == "IOB2"
        assert [invalid_tags(row, "IOB2") for row in tags] == [[]] * len(tags)


def test_both_layouts_hold_the_same_sentences():
    columns, lines = (read_tagged_file(str(FOLDER / name)) for name in ("dev.txt", "dev_sentences.tsv"))
    assert (columns.layout, lines.layout) == ("columns", "sentences")
    assert [sentence[:2] for sentence in lines.sentences] == [sentence[:2] for sentence in columns.sentences]


def test_no_sentence_occurs_twice():
    words = [sentence.words for split in SPLITS for sentence in sentences(f"{split}.txt")]
    assert len(set(words)) == len(words) == 420


def test_most_names_to_find_are_not_in_training():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    dev, test = re.search(r"(\d+)% of the names in\s+dev and (\d+)% of those in test", text).groups()
    known = set(entities("train"))
    for split, percent in (("dev", dev), ("test", test)):
        found = entities(split)
        assert round(100 * sum(entity not in known for entity in found) / len(found)) == int(percent)


def test_words_alone_do_not_tell_the_entities():
    """A word's most frequent tag in training finds few of them."""
    kinds = kinds_of_word("train")
    for split, percent in (("dev", 30), ("test", 26)):
        found = sentences(f"{split}.txt")
        guesses = [
            [kinds[word.lower()].most_common(1)[0][0] if word.lower() in kinds else "O" for word in sentence.words]
            for sentence in found
        ]
        assert round(100 * score_tags([sentence.tags for sentence in found], guesses).f1) == percent


def test_many_words_are_names_and_common_words():
    kinds = collections.defaultdict(set)
    for split in SPLITS:
        for word, tags in kinds_of_word(split).items():
            kinds[word] |= {tag.partition("-")[2] or tag for tag in tags}
    assert sum({"O", "PER"} <= kind for kind in kinds.values()) >= 10
    assert sum({"LOC", "PER"} <= kind for kind in kinds.values()) >= 5
    assert kinds["linden"] == {"O", "PER", "LOC", "ORG"}


def test_most_common_words_are_those_of_the_demo_corpus():
    known = set(re.findall(r"\w+", (ROOT / "data" / "demo" / "train.txt").read_text(encoding="utf-8").lower()))
    common = [
        word.lower()
        for split in SPLITS
        for sentence in sentences(f"{split}.txt")
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
        if tag == "O" and word.isalpha()
    ]
    assert sum(word in known for word in common) / len(common) > 0.85
