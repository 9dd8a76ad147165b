"""Exact match and F1 of extractive question answering, equal to the scripts of SQuAD, KorQuAD and KLUE.

They compare the text of a prediction, not its position, with the gold answers of the question. In SQuAD 1.1 and
KorQuAD 1.0 every question has an answer; in SQuAD 2.0 some have none, and the correct prediction is the empty text.
All scores are percentages.
"""

import dataclasses
import difflib
import functools
import math
import operator
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from official_bert.support.errors import UserError, format_names

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_KOREAN_SYMBOLS = "'\"《》<>〈〉()‘’"
_KOREAN_SYMBOLS_TO_SPACES = str.maketrans(_KOREAN_SYMBOLS, " " * len(_KOREAN_SYMBOLS))


def english_normalized(text: str) -> str:
    """Normalize a text as SQuAD does: `"The U.S.A., an ally"` and `"USA ally"` are the same answer.

    Punctuation is removed before articles, so "a." is an article and "a-b" is not; only ASCII punctuation is removed.
    """
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def korean_normalized(text: str) -> str:
    """Normalize a text as KorQuAD does: `"《홍길동전》(소설)"` and `"홍길동전 소설"` are the same answer.

    Quotes and brackets are replaced by spaces; other ASCII punctuation is removed.
    """
    # The order matters: "Σ" is lowercased to another letter before a space than before a quote.
    text = text.translate(_KOREAN_SYMBOLS_TO_SPACES).lower()
    return " ".join(text.translate(_NO_PUNCTUATION).split())


@dataclasses.dataclass(frozen=True)
class Normalization:
    """The rules of a data set for comparing texts."""

    normalize: Callable[[str], str]  # normalizes a text; exact match compares the results
    units: Callable[[str], Sequence[str]]  # splits a normalized text into the units that F1 counts, words or characters
    overlap: str = "f1"  # the score of inexact matches, in `_OVERLAPS`


NORMALIZATIONS = {
    "squad": Normalization(normalize=english_normalized, units=str.split),
    "korquad": Normalization(normalize=korean_normalized, units=lambda text: text.replace(" ", "")),
    "klue": Normalization(
        normalize=lambda text: " ".join(text.lower().translate(_NO_PUNCTUATION).split()), units=str, overlap="rouge_w"
    ),
}


class AnswerScores(NamedTuple):
    """The scores of one prediction, from 0 to 1."""

    exact: float
    f1: float  # or ROUGE-W, as the data set's normalization says


def score_answer(
    prediction: str, golds: Sequence[str], *, normalization: Normalization, has_null: bool = False
) -> AnswerScores:
    """Score a prediction against the gold answers of its question; each score is the maximum over the gold answers.

    With `has_null`, the empty text is a valid answer, as in SQuAD 2.0: gold answers that are empty after normalization
    are dropped, the empty text is correct if none is left, and F1 against the empty text is 1 or 0. Otherwise (SQuAD
    1.1) F1 is 0 if the texts have no unit in common, even if both are empty.
    """
    normalized = normalization.normalize(prediction)
    normalized_golds = [normalization.normalize(gold) for gold in golds]
    if has_null:
        normalized_golds = [gold for gold in normalized_golds if gold] or [""]
    units, overlap = normalization.units(normalized), _OVERLAPS[normalization.overlap]
    return AnswerScores(
        exact=float(normalized in normalized_golds),
        f1=max(overlap(units, normalization.units(gold), has_null) for gold in normalized_golds),
    )


def score_answers(
    golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str], *, normalization: Normalization
) -> dict[str, float]:
    """Score a data set in which every question has an answer: SQuAD 1.1 and KorQuAD 1.0.

    A question without a prediction scores 0; predictions for unknown questions are ignored. Source: SQuAD's
    evaluate-v1.1.py, KorQuAD's evaluate-v1.0.py; equal to the last digit.
    """
    for question, texts in golds.items():
        if not texts:
            raise UserError(
                f"question {question} has no answer; to score data with such questions as SQuAD 2.0, set "
                "version_2_with_negative"
            )
    scores = _score_all(golds, predictions, normalization, has_null=False)
    columns = zip(("exact_match", normalization.overlap), zip(*scores, strict=True), strict=True)
    return {name: _percent(column) for name, column in columns}


def score_answers_with_null(
    golds: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    *,
    normalization: Normalization,
    null_odds: Mapping[str, float] | None = None,
    null_threshold: float = 1.0,
) -> dict[str, float]:
    """Score a data set in which some questions have no answer: SQuAD 2.0.

    A prediction is empty for "no answer". A question without a prediction scores 0, whether or not it has an answer;
    predictions for unknown questions are ignored. Questions with higher `null_odds` than the threshold count as
    predicted to have no answer; none is above the default, that of SQuAD's script, which expects probabilities.

    The result has `exact` and `f1`, in percent, and `total`, the number of questions; the same with the prefix
    `HasAns_` for questions with an answer, and `NoAns_` for the others. A group without questions is left out. Source:
    SQuAD's evaluate-v2.0.py, which fails with a KeyError if a prediction is missing; equal to the last digit.
    """
    scores = dict(zip(golds, _score_all(golds, predictions, normalization, has_null=True), strict=True))
    if null_odds is not None:
        for question in _predicted(golds, predictions, null_odds):
            if null_odds[question] > null_threshold:
                # Not the score of the empty text, which would be correct if "the" were the only gold answer.
                score = 0.0 if golds[question] else 1.0
                scores[question] = AnswerScores(exact=score, f1=score)
    with_answer = [scores[question] for question, texts in golds.items() if texts]
    without_answer = [scores[question] for question, texts in golds.items() if not texts]
    results = {}
    for prefix, part in (("", scores.values()), ("HasAns_", with_answer), ("NoAns_", without_answer)):
        if part:
            results[f"{prefix}exact"] = _percent(score.exact for score in part)
            results[f"{prefix}{normalization.overlap}"] = _percent(score.f1 for score in part)
            results[f"{prefix}total"] = len(part)
    return results


def best_null_thresholds(
    golds: Mapping[str, Sequence[str]],
    answers: Mapping[str, str],
    null_odds: Mapping[str, float],
    *,
    normalization: Normalization,
) -> dict[str, float]:
    """Find, by the official rules, the thresholds of the odds for "no answer" that give the best scores.

    These rules differ from scoring (compare `best_f1_threshold`): questions with equal odds may fall on both sides of
    the threshold, in the order of `null_odds`; on a question without an answer every text but "" is wrong, even "the";
    and if never answering is best, the threshold is 0, which is below all probabilities but not below all odds.

    Source: SQuAD's evaluate-v2.0.py; equal to the last digit. The script fails with a KeyError if an answer is missing.
    """
    _require_questions(golds)
    questions = _predicted(golds, answers, null_odds)
    score = functools.partial(score_answer, normalization=normalization, has_null=True)
    scores = {question: score(answers[question], golds[question]) for question in questions}
    results = {}
    for column, name in enumerate(("exact", normalization.overlap)):
        best = total = sum(not golds[question] for question in questions)  # score of never answering
        threshold = 0.0
        for question in questions:
            if golds[question]:
                total += scores[question][column]
            elif answers[question]:
                total -= 1
            if total > best:
                best, threshold = total, float(null_odds[question])
        results[f"best_{name}"] = 100.0 * best / len(golds)
        results[f"best_{name}_thresh"] = threshold
    return results


def best_f1_threshold(
    golds: Mapping[str, Sequence[str]],
    answers: Mapping[str, str],
    null_odds: Mapping[str, float],
    *,
    normalization: Normalization,
) -> float:
    """Find the threshold with the best F1 if "no answer" is predicted for questions whose odds are above it."""
    _require_questions(golds)
    questions = _predicted(golds, answers, null_odds)
    if not questions:
        return 0.0
    score = functools.partial(score_answer, normalization=normalization, has_null=True)
    gains = [score(answers[question], golds[question]).f1 - score("", golds[question]).f1 for question in questions]
    odds = np.array([null_odds[question] for question in questions], np.float64)  # [Q], the lowest first
    thresholds = np.concatenate([[odds[0] - abs(odds[0]) - 1], odds])  # [Q + 1]; at i the first i are answered
    # Only the last of equal odds is a valid threshold: at the others, more questions are answered than counted.
    is_possible = np.append(thresholds[1:] > thresholds[:-1], True)
    totals = np.concatenate([[0.0], np.cumsum(gains)])  # [Q + 1], over the total of never answering
    return float(thresholds[np.argmax(np.where(is_possible, totals, -np.inf))])


def _predicted(
    golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> list[str]:
    """Return the questions with a prediction, sorted by ascending odds; ties in the order of `null_odds`."""
    missing = [question for question in golds if question in predictions and question not in null_odds]
    if missing:
        raise UserError(f"{len(missing)} of the predicted questions have no null odds: {format_names(missing)}")
    questions = [question for question in null_odds if question in golds and question in predictions]
    for question in questions:
        if not math.isfinite(null_odds[question]):
            raise UserError(
                f"the null odds of question {question} are {null_odds[question]}; did the training diverge?"
            )
    return sorted(questions, key=null_odds.__getitem__)


def _f1(units: Sequence[str], gold_units: Sequence[str], has_null: bool) -> float:
    if has_null and not (units and gold_units):
        return float(len(units) == len(gold_units))
    num_common = (Counter(units) & Counter(gold_units)).total()
    if not num_common:
        return 0.0
    precision, recall = num_common / len(units), num_common / len(gold_units)
    return 2 * precision * recall / (precision + recall)


def _rouge_w(text: str, gold: str, has_null: bool) -> float:
    """Return the F1 of the longest run of characters in both texts, which KLUE's baseline calls ROUGE-W."""
    del has_null
    if not gold:
        return float(not text)
    size = difflib.SequenceMatcher(None, text, gold).find_longest_match().size
    return 2 * size / (len(text) + len(gold))


_OVERLAPS = {"f1": _f1, "rouge_w": _rouge_w}


def _score_all(
    golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str], normalization: Normalization, *, has_null: bool
) -> list[AnswerScores]:
    _require_questions(golds)
    missing = [question for question in golds if question not in predictions]
    if missing:
        message = "%d of %d questions have no prediction and score 0: %s"
        logging.warning(message, len(missing), len(golds), format_names(missing))
    return [
        score_answer(predictions[question], texts, normalization=normalization, has_null=has_null)
        if question in predictions
        else AnswerScores(0.0, 0.0)
        for question, texts in golds.items()
    ]


def _require_questions(golds: Mapping[str, Sequence[str]]) -> None:
    if not golds:
        raise UserError("there are no questions to score")


def _percent(scores: Iterable[float]) -> float:
    """Return the mean in percent, with plain addition; NumPy's `sum` and Python's since 3.12 round differently."""
    scores = list(scores)
    return 100.0 * functools.reduce(operator.add, scores, 0.0) / len(scores)
