"""Entities and their scores: manual cases, output of conlleval, and entities counted as sets."""

import itertools
import random

import pytest

from official_bert.metrics.tagging import (
    Entity,
    TypeCounts,
    allowed_pairs,
    character_scores,
    conlleval_report,
    find_entities,
    has_entities,
    invalid_tags,
    scheme_of,
    score_tags,
)

SCHEMES = ("IOB1", "IOB2", "IOBES")


def random_entities(rng, num_words, types=("PER", "LOC", "ORG")):
    """Return entities of a sentence from left to right, some of them adjacent."""
    entities, start = [], rng.randrange(3)
    while start < num_words:
        end = min(start + rng.choice([1, 1, 2, 3]), num_words)
        entities.append(Entity(rng.choice(types), start, end))
        start = end + rng.choice([0, 0, 1, 4])
    return entities


def write_tags(entities, num_words, scheme):
    tags = ["O"] * num_words
    for entity in entities:
        words = range(entity.start, entity.end)
        touches = any(other.end == entity.start and other.type == entity.type for other in entities)
        for index in words:
            is_first, is_last = index == words[0], index == words[-1]
            if scheme == "IOBES":
                prefix = "S" if is_first and is_last else "B" if is_first else "E" if is_last else "I"
            else:
                prefix = "B" if is_first and (scheme == "IOB2" or touches) else "I"
            tags[index] = f"{prefix}-{entity.type}"
    return tags


def random_sentences(seed, count=200):
    rng = random.Random(seed)
    for _ in range(count):
        num_words = rng.randrange(1, 15)
        yield random_entities(rng, num_words), num_words


# Text of tags to entities as TYPE:start-end. Where tags break the rules, an entity begins after O or after a finished
# entity, or where the type differs from that of the previous word.
HAND_WORKED = [
    ("O O", ""), ("B-PER I-PER O", "PER:0-2"), ("I-LOC I-PER", "LOC:0-1 PER:1-2"),
    ("B-LOC I-PER I-PER", "LOC:0-1 PER:1-3"), ("I-PER B-PER I-PER", "PER:0-1 PER:1-3"), ("O E-PER O", "PER:1-2"),
    ("E-PER E-PER", "PER:0-1 PER:1-2"), ("E-PER I-PER", "PER:0-1 PER:1-2"),
    ("S-PER S-PER I-PER", "PER:0-1 PER:1-2 PER:2-3"), ("B-PER I-PER L-PER U-PER", "PER:0-3 PER:3-4"),
    ("B-PER M-PER E-PER W-PER", "PER:0-3 PER:3-4"), ("[-PER ]-PER . ]-LOC", "PER:0-1 PER:1-2 LOC:3-4"),
    ("B-work-of-art I-work-of-art", "work-of-art:0-2"), ("O B I I O B", ":1-4 :5-6"), ("NN VB .", ""),
    ("B-PER NN I-PER", "PER:0-1 PER:2-3"), ("O-PER B-PER", "PER:1-2"),
]  # fmt: skip


@pytest.mark.parametrize(("tags", "expected"), HAND_WORKED)
def test_entities_of_tags(tags, expected):
    found = [f"{kind}:{start}-{end}" for kind, start, end in find_entities(tags.split())]
    assert found == expected.split()


def test_entities_are_those_that_tags_were_made_from():
    for entities, num_words in random_sentences(1):
        for scheme in SCHEMES:
            tags = write_tags(entities, num_words, scheme)
            assert find_entities(tags) == entities, (scheme, tags)
            assert invalid_tags(tags, scheme) == [], (scheme, tags)


def test_scores_counted_by_hand():
    gold = ["B-PER I-PER O O B-LOC O", "B-ORG I-ORG O O", "B-PER O B-PER"]
    # First sentence right. Second: a wrong place, and an organization that begins one word late; two of four tags are
    # wrong. Third: the last person is missed.
    predicted = ["B-PER I-PER O O B-LOC O", "B-LOC B-ORG O O", "B-PER O O"]
    scores = score_tags([tags.split() for tags in gold], [tags.split() for tags in predicted])
    assert (scores.num_tokens, scores.num_correct_tokens) == (6 + 4 + 3, 6 + 2 + 2)
    assert scores.accuracy == 10 / 13
    assert scores.counts == {"LOC": TypeCounts(1, 2, 1), "ORG": TypeCounts(0, 1, 1), "PER": TypeCounts(2, 2, 3)}
    assert scores.total == TypeCounts(3, 5, 5)
    assert conlleval_report(scores).splitlines() == [
        "processed 13 tokens with 5 phrases; found: 5 phrases; correct: 3.",
        "accuracy:  76.92%; precision:  60.00%; recall:  60.00%; FB1:  60.00",
        "              LOC: precision:  50.00%; recall: 100.00%; FB1:  66.67  2",
        "              ORG: precision:   0.00%; recall:   0.00%; FB1:   0.00  1",
        "              PER: precision: 100.00%; recall:  66.67%; FB1:  80.00  2",
    ]


# Tags that break the rules of every scheme, and the script's output for them (version 2004-01-26).
ODD_GOLD = ["I-A I-A B-A O I-B", "O B-B I-A E-A I-A O", "E-A E-A O I-B E-B I-B"]
ODD_PREDICTED = ["B-A I-A I-A O I-B", "O I-B I-A I-A I-A O", "I-A E-A I-A I-B E-B E-B"]
ODD_REPORT = """\
processed 17 tokens with 10 phrases; found: 8 phrases; correct: 4.
accuracy:  58.82%; precision:  50.00%; recall:  40.00%; FB1:  44.44
                A: precision:   0.00%; recall:   0.00%; FB1:   0.00  4
                B: precision: 100.00%; recall: 100.00%; FB1: 100.00  4
"""


def test_report_of_odd_sequences_is_that_of_the_script():
    scores = score_tags(map(str.split, ODD_GOLD), map(str.split, ODD_PREDICTED))
    assert conlleval_report(scores) == ODD_REPORT


@pytest.mark.parametrize(
    ("text", "gold", "predicted", "entities", "characters"),
    [
        ("한강은 깊다", "B-LC I-LC O O O O", "B-LC I-LC O I-PS I-PS I-PS", 1, 0.6875),
        ("한강은 깊다", "B-LC I-LC O O O O", "B-LC I-LC I-LC O O O", 0, 0.8518518518518517),
        ("김씨는", "B-PS O O", "B-PS I-LC O", 1, 0.6190476190476191),
        ("가 나다", "B-DT I-DT I-DT O", "B-DT I-DT B-DT I-DT", 0, 0.48888888888888893),
    ],
)
def test_characters_are_scored_as_by_klue(text, gold, predicted, entities, characters):
    """The expected numbers are those of seqeval (strict IOB2, macro) and scikit-learn, which KLUE's baseline calls."""
    found = character_scores([gold.split()], [predicted.split()], [text])
    assert found == pytest.approx((entities, characters))


def test_nothing_to_divide_by_scores_zero_and_unequal_numbers_are_refused():
    nothing = score_tags([], [])
    assert (nothing.accuracy, nothing.total.precision, nothing.total.recall, nothing.total.f1) == (0, 0, 0, 0)
    assert conlleval_report(nothing) == "processed 0 tokens with 0 phrases; found: 0 phrases; correct: 0.\n"
    missed = conlleval_report(score_tags([["B-PER"]], [["O"]]))
    assert missed.endswith("              PER: precision:   0.00%; recall:   0.00%; FB1:   0.00  0\n")
    with pytest.raises(ValueError, match="2 gold tags and 1 predicted"):
        score_tags([["O", "O"]], [["O"]])
    with pytest.raises(ValueError, match="shorter"):
        score_tags([["O"], ["O"]], [["O"]])


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER", True), ("O S-PER L-LOC U-LOC M-LOC W-LOC", True), ("O B I", True), ("O", True), ("", False),
        ("NN VB O", False), ("O .", False), ("B-PER NN", False), ("PER-B PER-I O", False), ("-LRB-", False),
    ],
)  # fmt: skip
def test_which_tag_sets_mark_entities(tags, expected):
    assert has_entities(set(tags.split())) == expected


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["O I-PER", "I-LOC B-LOC O"], "IOB1"), (["O B-PER", "B-LOC I-LOC"], "IOB2"), (["I-PER O I-LOC"], "IOB1"),
        (["O S-PER", "B-LOC E-LOC"], "IOBES"), (["B-LOC L-LOC U-PER"], "IOBES"),
        (["B-PER O", "B-LOC I-LOC", "O I-LOC"], "IOB2"),  # breaks IOB2 once, IOB1 twice
        (["I-PER O", "I-LOC I-LOC", "O B-LOC"], "IOB1"), (["O O"], "none"), (["NN VB"], "none"), ([], "none"),
    ],
)  # fmt: skip
def test_schemes(sentences, scheme):
    assert scheme_of(tags.split() for tags in sentences) == scheme


@pytest.mark.parametrize(
    ("tags", "scheme", "expected"),
    [
        ("I-PER I-PER O I-LOC", "IOB2", [0, 3]), ("B-PER I-LOC I-LOC", "IOB2", [1]),
        ("B-PER E-PER NN", "IOB2", [1, 2]), ("B-PER I-PER B-PER", "IOB1", [0]), ("O B I", "IOB1", [1]),
        ("I-PER B-LOC", "IOB1", [1]), ("O I-PER E-PER", "IOBES", [1]), ("B-PER O", "IOBES", [0]),
        ("B-PER I-PER", "IOBES", [1]), ("S-PER E-PER", "IOBES", [1]), ("B-PER I-LOC E-LOC", "IOBES", [0, 1]),
        ("B-PER B-PER E-PER", "IOBES", [0]), ("NN I-PER", "none", []), ("", "IOBES", []),
    ],
)  # fmt: skip
def test_words_that_break_a_scheme(tags, scheme, expected):
    assert invalid_tags(tags.split(), scheme) == expected


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["O", "B-A", "I-A", "B-B", "I-B"], "IOB2"),
        (["O", "B-A", "I-A", "E-A", "S-A", "S-B", "E-B"], "IOBES"),
        (["B", "I", "L", "U"], "IOBES"),
    ],
)
def test_sequences_of_allowed_pairs_are_those_that_follow_the_rules(tags, scheme):
    table = allowed_pairs(tags)
    for length in (1, 2, 3):
        for numbers in itertools.product(range(len(tags)), repeat=length):
            is_allowed = all(table[before][after] for before, after in itertools.pairwise((-1, *numbers, -1)))
            assert is_allowed == (invalid_tags([tags[number] for number in numbers], scheme) == [])
