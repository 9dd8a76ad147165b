"""Metrics of tagging: accuracy over words, and precision, recall and F1 of entities.

Entities are found and counted as in the CoNLL script conlleval (2004), so scores are comparable with published ones. A
tag is `O` or PREFIX-TYPE; the type may contain hyphens, and a prefix alone has the type "". The prefixes:

| prefix | the word |
|---|---|
| B | begins an entity |
| I, M | continues one |
| E, L | ends one |
| S, U, W, [, ] | is an entity by itself |

The script knows B, I, E and the brackets; any other prefix counts as I there. This module differs from it in two cases,
as do later versions of the script: each S, U or W is an entity, while the script merges neighbours of the same type;
and B always begins an entity, while the script merges it with a preceding E of its type.

Sequences that break the rules of their scheme are accepted: a word begins an entity if its prefix says so, if the
previous word is outside or ends an entity, or if the types differ. So `O I-PER I-LOC` is a person and a place.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.metrics.classification import macro_f1

_BEGINNING = frozenset("BSUW[]")
_ENDING = frozenset("ELSUW[]")
_CONTINUING = frozenset("IM")
PREFIXES = _BEGINNING | _ENDING | _CONTINUING
_OUTSIDE = frozenset("O.")  # the bracket notation writes "." for O

# Words outside and inside of entities, also in notations whose entities cannot be counted: PER_B, b-per, (PER* and *).
_OUTSIDE_OF_ANY = frozenset("Oo-_*0")
_INSIDE_OF_ANY = re.compile(r"[BIESLUMW]([-_:./|]\S+)?|\S+[-_:./|][BIESLUMW]|\(\S+\*|\*\)|\(\S+\)", re.IGNORECASE)


class Entity(NamedTuple):
    """A span of words that form an entity."""

    type: str  # as in the tags: "PER"
    start: int  # index of the first word
    end: int  # index after the last word


class _Tag(NamedTuple):
    """A parsed tag; the prefix of tags outside of entities is "O"."""

    prefix: str
    type: str


_NO_ENTITY = _Tag("O", "")


def _parse(tag: str) -> _Tag:
    prefix, hyphen, kind = tag.partition("-")
    if prefix in _OUTSIDE or not (hyphen or prefix in PREFIXES):
        return _NO_ENTITY
    return _Tag(prefix, kind)


def _begins(previous: _Tag, tag: _Tag) -> bool:
    """Return True if a word that is part of an entity begins it."""
    return tag.prefix in _BEGINNING or previous is _NO_ENTITY or previous.prefix in _ENDING or previous.type != tag.type


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of one sentence, from left to right: `B-PER I-PER O` gives `[Entity("PER", 0, 2)]`.

    A tag without a hyphen that is not a prefix, such as the part of speech `NN`, is outside of entities; an unknown
    prefix counts as I. Check with `has_entities` first if a tag set marks entities at all.
    """
    entities = []
    previous = _NO_ENTITY
    for index, text in enumerate(tags):
        tag = _parse(text)
        if tag is not _NO_ENTITY:
            if _begins(previous, tag):
                entities.append(Entity(tag.type, index, index + 1))
            else:
                entities[-1] = entities[-1]._replace(end=index + 1)
        previous = tag
    return entities


def has_entities(tags: Collection[str]) -> bool:
    """Return True if all tags of a set are `O` or begin with a known prefix, so that entities can be counted.

    For other tags, such as parts of speech, accuracy is the only score.
    """
    return bool(tags) and all(tag == "O" or tag.partition("-")[0] in PREFIXES for tag in tags)


def look_like_entities(tags: Collection[str]) -> bool:
    """Return True if tags, at least one inside and one outside of entities, mark entities in any notation."""
    inside = set(tags) - _OUTSIDE_OF_ANY
    return 0 < len(inside) < len(set(tags)) and all(map(_INSIDE_OF_ANY.fullmatch, inside))


def scheme_of(sentences: Iterable[Sequence[str]]) -> str:
    """Return the tagging scheme of sentences.

    It is "IOB1" (B only between adjacent entities of the same type), "IOB2" (every entity begins with B), "IOBES" (ends
    and one-word entities are marked; includes BILOU and BMES), or "none" if the tags do not mark entities. If tags
    break the rules of both IOB1 and IOB2, it is the one with fewer violations.
    """
    sentences = [list(tags) for tags in sentences]
    tags = set().union(*sentences)
    prefixes = {_parse(tag).prefix for tag in tags} - {"O"}
    if not prefixes or not has_entities(tags):
        return "none"
    if prefixes - {"B", "I"}:
        return "IOBES"
    num_breaks = {scheme: sum(len(invalid_tags(tags, scheme)) for tags in sentences) for scheme in ("IOB2", "IOB1")}
    return min(num_breaks, key=num_breaks.__getitem__)


def invalid_tags(tags: Sequence[str], scheme: str) -> list[int]:
    """Return the words of a sentence whose tags break the rules of its scheme.

    In IOB2, an I that does not continue an entity of its type; in IOB1, a B that does not follow an entity of its type;
    in IOBES, an I or E that does not continue an entity, or a B or I that the next word does not continue: `B-PER O` is
    invalid at word 0.
    """
    if scheme == "none":
        return []
    parsed = [_parse(tag) for tag in tags]
    neighbours = zip([_NO_ENTITY, *parsed[:-1]], parsed, [*parsed[1:], _NO_ENTITY], strict=True) if parsed else ()
    return [
        index
        for index, (before, tag, after) in enumerate(neighbours)
        if not has_entities([tags[index]]) or (tag is not _NO_ENTITY and _RULES[scheme](before, tag, after))
    ]


def _breaks_iob1(before: _Tag, tag: _Tag, after: _Tag) -> bool:
    if tag.prefix == "B":
        return before is _NO_ENTITY or before.type != tag.type
    return tag.prefix != "I"


def _breaks_iob2(before: _Tag, tag: _Tag, after: _Tag) -> bool:
    if tag.prefix == "I":
        return _begins(before, tag)
    return tag.prefix != "B"


def _breaks_iobes(before: _Tag, tag: _Tag, after: _Tag) -> bool:
    is_unbegun = tag.prefix not in _BEGINNING and _begins(before, tag)
    is_unended = tag.prefix not in _ENDING and (after is _NO_ENTITY or _begins(tag, after))
    return is_unbegun or is_unended


_RULES = {"IOB1": _breaks_iob1, "IOB2": _breaks_iob2, "IOBES": _breaks_iobes}


def allowed_pairs(tags: Sequence[str]) -> list[list[bool]]:
    """Return the pairs of neighbouring tags that follow the rules of IOB2 or, with other prefixes than B and I, IOBES.

    They are a table of C + 1 rows and columns: whether the tag of a column may follow that of a row. The last row and
    column stand for the beginning and the end of a sentence.
    """
    parsed = [*map(_parse, tags), _NO_ENTITY]
    rule = _RULES["IOBES" if {tag.prefix for tag in parsed} - set("OBI") else "IOB2"]

    def allowed(before: _Tag, tag: _Tag) -> bool:
        # Each of the two with another neighbour that breaks no rule.
        is_begun = tag is _NO_ENTITY or not rule(before, tag, _Tag("E", tag.type))
        return is_begun and (before is _NO_ENTITY or not rule(_Tag("B", before.type), before, tag))

    return [[allowed(before, tag) for tag in parsed] for before in parsed]


class TypeCounts(NamedTuple):
    """Counts of entities of one type or of all types; scores are from 0 to 1, and 0 instead of a division by 0."""

    num_correct: int  # number of predicted entities whose type, start and end match a gold entity
    num_predicted: int  # number of predicted entities
    num_gold: int  # number of gold entities

    @property
    def precision(self) -> float:
        """Fraction of the predicted entities that are correct."""
        return self.scaled(1)[0]

    @property
    def recall(self) -> float:
        """Fraction of the gold entities that were predicted."""
        return self.scaled(1)[1]

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return self.scaled(1)[2]

    def scaled(self, whole: int) -> tuple[float, float, float]:
        """Return precision, recall and F1 times `whole`: 100 gives percentages, rounded as in the script."""
        precision = whole * self.num_correct / self.num_predicted if self.num_predicted else 0.0
        recall = whole * self.num_correct / self.num_gold if self.num_gold else 0.0
        total = precision + recall
        return precision, recall, 2 * precision * recall / total if total else 0.0


@dataclasses.dataclass(frozen=True)
class TaggingScores:
    """Tagging scores over a whole evaluation set, from 0 to 1."""

    num_tokens: int  # number of words
    num_correct_tokens: int  # number of words whose tag is correct
    # entity counts of each gold or predicted type, sorted by type; `counts["PER"].f1` is the F1 of PER
    counts: Mapping[str, TypeCounts]

    @property
    def accuracy(self) -> float:
        """Fraction of words whose tag is correct."""
        return self.num_correct_tokens / self.num_tokens if self.num_tokens else 0.0

    @property
    def total(self) -> TypeCounts:
        """Entity counts over all types."""
        return TypeCounts(*(sum(column) for column in zip((0, 0, 0), *self.counts.values(), strict=True)))


def score_tags(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> TaggingScores:
    """Compare predicted tags with gold tags; entities never cross sentence boundaries."""
    num_tokens = num_correct_tokens = 0
    num_correct, num_predicted, num_gold = Counter(), Counter(), Counter()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        if len(gold_tags) != len(predicted_tags):
            raise ValueError(f"a sentence has {len(gold_tags)} gold tags and {len(predicted_tags)} predicted ones")
        num_tokens += len(gold_tags)
        num_correct_tokens += sum(map(str.__eq__, gold_tags, predicted_tags))
        gold_entities, predicted_entities = set(find_entities(gold_tags)), set(find_entities(predicted_tags))
        num_gold.update(entity.type for entity in gold_entities)
        num_predicted.update(entity.type for entity in predicted_entities)
        num_correct.update(entity.type for entity in gold_entities & predicted_entities)
    types = sorted(num_gold.keys() | num_predicted.keys())
    counts = {kind: TypeCounts(num_correct[kind], num_predicted[kind], num_gold[kind]) for kind in types}
    return TaggingScores(num_tokens, num_correct_tokens, counts)


def character_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], characters: Sequence[Sequence[str]]
) -> tuple[float, float]:
    """Return the mean F1 of the entity types, and of the tags of characters, as KLUE's baseline computes them.

    An I that continues no entity of its type is outside. Spaces do not count, but O is a tag, also of [CLS] and [SEP].
    """
    gold, predicted = (
        [
            [tag for tag, character in zip(*row, strict=True) if character != " "]
            for row in zip(tags, characters, strict=True)
        ]
        for tags in (gold, predicted)
    )
    of_types = score_tags(map(_strict_iob2, gold), map(_strict_iob2, predicted)).counts.values()
    columns = [[tag for part in tags for tag in ("O", *part, "O")] for tags in (gold, predicted)]
    _, numbers = np.unique(np.array(columns), return_inverse=True)
    return sum(counts.f1 for counts in of_types) / max(len(of_types), 1), macro_f1(*numbers.reshape(2, -1))


def _strict_iob2(tags: Sequence[str]) -> list[str]:
    strict, previous = [], "O"
    for tag in tags:
        previous = "O" if tag.startswith("I") and tag[1:] != previous[1:] else tag
        strict.append(previous)
    return strict


def conlleval_report(scores: TaggingScores) -> str:
    r"""Return the scores in the format of the script conlleval, in percent, with a line for each type.

    The last number of such a line is the number of predicted entities of the type.
    """
    total = scores.total
    lines = [
        f"processed {scores.num_tokens} tokens with {total.num_gold} phrases; "
        f"found: {total.num_predicted} phrases; correct: {total.num_correct}.\n"
    ]
    if scores.num_tokens:
        accuracy = 100 * scores.num_correct_tokens / scores.num_tokens
        lines.append(f"accuracy: {accuracy:6.2f}%; {_columns(total)}\n")
    lines += [f"{kind:>17s}: {_columns(counts)}  {counts.num_predicted}\n" for kind, counts in scores.counts.items()]
    return "".join(lines)


def _columns(counts: TypeCounts) -> str:
    precision, recall, f1 = counts.scaled(100)
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"
