"""Evaluation report of a tagger: see `visualization/report_page.py`.

If the tags do not mark entities (parts of speech, for example), each word counts as an entity of its tag's type.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from official_bert.metrics.tagging import Entity, find_entities
from official_bert.tasks.tagging.examples import TaggedSentence
from official_bert.visualization.report_page import (
    NUM_MISTAKES,
    Matrix,
    Mistake,
    Mistakes,
    Part,
    Scores,
    Section,
    Table,
    Text,
    confusion_section,
    scores_by_name,
)

OTHER_WORDS, NOTHING = "(other words)", "(nothing)"

_Pairs = Sequence[tuple[Sequence[Entity], Sequence[Entity]]]  # gold and predicted entities of each sentence


def report_sections(
    sentences: Sequence[TaggedSentence],
    predicted: Sequence[Sequence[str]],
    *,
    scores: Mapping[str, Any],
    marks_entities: bool,
) -> list[Section]:
    """Compute the sections of a report.

    Args:
      sentences: the sentences, with their tags.
      predicted: the predicted tags of each sentence.
      scores: name to number, as in `eval_results.txt`.
      marks_entities: whether the tags mark entities.
    """
    find = find_entities if marks_entities else _words_as_entities
    pairs = [(find(sentence.tags), find(tags)) for sentence, tags in zip(sentences, predicted, strict=True)]
    kind = "entity type" if marks_entities else "tag"
    return [
        Scores(title="Scores", values=scores),
        _by_type(pairs, kind),
        _confusion(pairs, kind),
        _worst(sentences, pairs, shows_right=marks_entities),
    ]


def _words_as_entities(tags: Sequence[str]) -> list[Entity]:
    return [Entity(tag, index, index + 1) for index, tag in enumerate(tags)]


def _by_type(pairs: _Pairs, kind: str) -> Table:
    correct, predicted, gold = Counter(), Counter(), Counter()
    for gold_entities, predicted_entities in pairs:
        gold.update(_types(gold_entities))
        predicted.update(_types(predicted_entities))
        correct.update(_types(set(gold_entities) & set(predicted_entities)))
    names = sorted(gold | predicted)
    counts = ([counter[name] for name in names] for counter in (gold, predicted, correct))
    return scores_by_name(f"By {kind}", kind, names, *counts)


def _types(entities: Iterable[Entity]) -> Iterable[str]:
    return (entity.type for entity in entities)


def _confusion(pairs: _Pairs, kind: str) -> Matrix:
    """Count gold entities by row and predicted ones by column; entities with the same words share a cell."""
    cells = []
    for gold, predicted in pairs:
        predicted_at = {(entity.start, entity.end): entity.type for entity in predicted}
        gold_at = {(entity.start, entity.end): entity.type for entity in gold}
        for place, name in gold_at.items():
            other = predicted_at[place] if place in predicted_at else _instead(place, predicted)
            cells.append((name, other))
        cells += [(_instead(place, gold), name) for place, name in predicted_at.items() if place not in gold_at]
    present = {name for cell in cells for name in cell}
    names = [*sorted(present - {OTHER_WORDS, NOTHING}), *(name for name in (OTHER_WORDS, NOTHING) if name in present)]
    numbers = {name: number for number, name in enumerate(names)}
    note = ""
    if present & {OTHER_WORDS, NOTHING}:
        note = (
            f"The column {NOTHING} counts missed gold entities, the row {NOTHING} spurious predictions; "
            f"{OTHER_WORDS}: an entity of any type with other words overlaps."
        )
    gold_numbers, predicted_numbers = ([numbers[cell[side]] for cell in cells] for side in (0, 1))
    return confusion_section(f"Confusion of {kind}s", names, gold_numbers, predicted_numbers, note=note)


def _instead(place: tuple[int, int], others: Sequence[Entity]) -> str:
    """Classify an entity without an exact counterpart on the other side."""
    start, end = place
    return OTHER_WORDS if any(other.start < end and start < other.end for other in others) else NOTHING


def _worst(sentences: Sequence[TaggedSentence], pairs: _Pairs, *, shows_right: bool) -> Mistakes:
    num_wrong = [len(set(gold) ^ set(predicted)) for gold, predicted in pairs]
    rows = sorted((row for row, count in enumerate(num_wrong) if count), key=lambda row: -num_wrong[row])
    mistakes = []
    for row in rows[:NUM_MISTAKES]:
        words, (gold, predicted) = sentences[row].words, pairs[row]
        right = set(gold) & set(predicted)
        facts = {
            "missed": str(len(gold) - len(right)),
            "predicted wrongly": str(len(predicted) - len(right)),
            "line": str(sentences[row].line),
        }
        texts = [
            Text(name, _marked_words(words, entities, right, shows_right=shows_right))
            for name, entities in (("gold", gold), ("predicted", predicted))
        ]
        mistakes.append(Mistake(facts, texts))
    note = f"{len(rows):,} of {len(sentences):,} sentences have a mistake."
    if len(rows) > len(mistakes):
        note += f" These are the {len(mistakes)} with the most."
    return Mistakes(title="Worst sentences", mistakes=mistakes, note=note)


def _marked_words(
    words: Sequence[str], entities: Sequence[Entity], right: set[Entity], *, shows_right: bool
) -> list[Part]:
    """Return the words of a sentence with its entities marked; correct ones only on request."""
    starts = [0, *itertools.accumulate(len(word) + 1 for word in words)]  # one per word, plus one
    text, parts, end = " ".join(words), [], 0
    for entity in entities:
        if shows_right or entity not in right:
            start, stop = starts[entity.start], starts[entity.end] - 1
            mark = "right" if entity in right else "wrong"
            parts += [Part(text[end:start]), Part(text[start:stop], mark, entity.type)]
            end = stop
    return [part for part in [*parts, Part(text[end:])] if part.text]
