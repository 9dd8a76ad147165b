"""Sections of a tagger's report: scored entities by type, confused types, and marked sentences."""

import random

import pytest

from official_bert.metrics.tagging import find_entities, score_tags
from official_bert.tasks.tagging.data import TaggedSentence
from official_bert.tasks.tagging.job import NOTHING, OTHER_WORDS, report_sections
from official_bert.visualization.report_page import NUM_MISTAKES, report_page
from tests.reports import data_of

TAGS = ("O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-MISC")


def random_tags(count, tags=TAGS, seed=1):
    rng = random.Random(seed)
    gold = [[rng.choice(tags) for _ in range(rng.randint(1, 12))] for _ in range(count)]
    predicted = [[tag if rng.random() < 0.7 else rng.choice(tags) for tag in row] for row in gold]
    return gold, predicted


def sections(gold, predicted, *, marks_entities=True, words=None):
    sentences = [
        TaggedSentence(tuple(words or (f"word{i}" for i in range(len(tags)))), tuple(tags), 0, number + 1)
        for number, tags in enumerate(gold)
    ]
    made = report_sections(sentences, predicted, scores={"eval_f1": 1.0}, marks_entities=marks_entities)
    return {section["title"]: section for section in data_of(report_page("made", made))["sections"]}


def test_entities_are_scored_as_conlleval_does_and_each_is_one_count_in_its_row_and_in_its_column():
    gold, predicted = random_tags(100)
    found, counts = sections(gold, predicted), score_tags(gold, predicted).counts
    rows, matrix = found["By entity type"]["rows"], found["Confusion of entity types"]
    names = matrix["names"]
    assert [row[0] for row in rows] == list(counts) == names[:3]
    assert names == ["LOC", "MISC", "PER", OTHER_WORDS, NOTHING]
    for number, ((_, *numbers), of_type) in enumerate(zip(rows, counts.values(), strict=True)):
        expected = (of_type.num_gold, of_type.num_predicted, of_type.precision, of_type.recall, of_type.f1)
        assert [float(value) for value in numbers] == pytest.approx(expected, abs=6e-4)
        assert sum(matrix["counts"][number]) == of_type.num_gold
        assert sum(row[number] for row in matrix["counts"]) == of_type.num_predicted
        assert matrix["counts"][number][number] == of_type.num_correct
    missed = sum(
        not any(other != "O" for other in row[entity.start : entity.end])
        for tags, row in zip(gold, predicted, strict=True)
        for entity in find_entities(tags)
    )
    assert sum(row[names.index(NOTHING)] for row in matrix["counts"]) == missed


def test_entities_are_marked_as_right_or_wrong():
    gold = [["B-PER", "I-PER", "O", "B-LOC"]]
    predicted = [["B-PER", "O", "O", "B-LOC"]]
    words = ("Anna", "Moss", "leaves", "항구")
    ((facts, texts),) = sections(gold, predicted, words=words)["Worst sentences"]["mistakes"]
    assert facts == {"missed": "1", "predicted wrongly": "1", "line": "1"}
    assert texts == [
        ["gold", [["Anna Moss", "wrong", "PER"], [" leaves ", "", ""], ["항구", "right", "LOC"]]],
        ["predicted", [["Anna", "wrong", "PER"], [" Moss leaves ", "", ""], ["항구", "right", "LOC"]]],
    ]


def test_the_sentences_with_the_most_mistakes_come_first():
    gold, predicted = random_tags(100)
    found = sections(gold, predicted)["Worst sentences"]
    numbers = [len(set(find_entities(a)) ^ set(find_entities(b))) for a, b in zip(gold, predicted, strict=True)]
    order = sorted((row for row in range(100) if numbers[row]), key=lambda row: (-numbers[row], row))
    assert [int(facts["line"]) - 1 for facts, _ in found["mistakes"]] == order[:NUM_MISTAKES]
    assert found["note"] == f"{len(order)} of 100 sentences have a mistake. These are the 25 with the most."


def test_parts_of_speech_are_scored_word_by_word():
    gold, predicted = random_tags(60, tags=("NN", "VB", "DT"))
    found = sections(gold, predicted, marks_entities=False)
    assert found["Confusion of tags"]["names"] == ["DT", "NN", "VB"]
    pairs = [pair for a, b in zip(gold, predicted, strict=True) for pair in zip(a, b, strict=True)]
    expected = [[pairs.count((a, b)) for b in ("DT", "NN", "VB")] for a in ("DT", "NN", "VB")]
    assert found["Confusion of tags"]["counts"] == expected
    assert [row[0] for row in found["By tag"]["rows"]] == ["DT", "NN", "VB"]
    marks = {mark for _, texts in found["Worst sentences"]["mistakes"] for _, parts in texts for _, mark, _ in parts}
    assert marks == {"", "wrong"}
