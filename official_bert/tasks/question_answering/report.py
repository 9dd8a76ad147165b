"""Evaluation report of question answering: see `visualization/report_page.py`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from official_bert.metrics.answer_scores import AnswerScores, Normalization, score_answer
from official_bert.tasks.question_answering.answers import QuestionAnswers
from official_bert.tasks.question_answering.examples import Question, SquadSet
from official_bert.visualization.report_page import (
    NUM_MISTAKES,
    Mistake,
    Mistakes,
    Part,
    Scores,
    Section,
    Span,
    Table,
    Text,
    marked,
)

QUESTION_WORDS = ("what", "who", "when", "where", "why", "how", "which")
_OTHER_FORMS = {"whom": "who", "whose": "who", "whats": "what", "whos": "who"}
_LENGTHS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))  # minimum and maximum number of words
_NO_ANSWER = "(no answer)"


class _Scored(NamedTuple):
    """A question with its prediction ("" for no answer), position if known, probability and scores."""

    question: Question
    predicted: str
    position: int | None
    probability: float
    scores: AnswerScores


def report_sections(
    squad: SquadSet,
    answers: Sequence[QuestionAnswers],
    predictions: Mapping[str, str],
    *,
    scores: Mapping[str, Any],
    normalization: Normalization,
    version_2: bool,
) -> list[Section]:
    """Compute the sections of a report.

    Args:
      squad: the questions, all labelled.
      answers: the result of `find_answers`.
      predictions: question id to predicted text, "" for no answer.
      scores: name to number, as in `eval_results.txt`.
      normalization: text normalization for comparison.
      version_2: whether questions may be unanswerable.
    """
    scored = []
    for question, found in zip(squad.questions, answers, strict=True):
        text, golds = predictions[question.id], [answer.text for answer in question.answers]
        chosen = next(answer for answer in found.ranked if answer.text == text)
        score = score_answer(text, golds, normalization=normalization, has_null=version_2)
        scored.append(_Scored(question, text, chosen.position, chosen.probability, score))
    sections = [
        Scores(title="Scores", values=scores, note="Percentages, as in SQuAD's own scripts."),
        _by_question_word(scored),
    ]
    if version_2:
        sections.append(_by_answerability(scored))
    return [*sections, _by_answer_length(scored), _worst(squad.contexts, scored)]


def question_word(question: str) -> str:
    """Return the question word of a question: one of `QUESTION_WORDS`, or "other".

    `"In what year did ..."` gives "what"; `"Whom did ..."` gives "who".
    """
    words = (_OTHER_FORMS.get(word, word) for word in re.findall(r"\w+", question.lower().replace("'", "")))
    return next((word for word in words if word in QUESTION_WORDS), "other")


def _by_question_word(scored: Sequence[_Scored]) -> Table:
    groups = {word: [] for word in (*QUESTION_WORDS, "other")}
    for entry in scored:
        groups[question_word(entry.question.text)].append(entry)
    title = "By question word"
    if len(groups["other"]) == len(scored):
        note = f"No question has one of the English words {', '.join(QUESTION_WORDS)}."
        return _table(title, "question word", {}, note)
    return _table(title, "question word", groups, "The first of these words in the question.")


def _by_answer_length(scored: Sequence[_Scored]) -> Table:
    groups = {f"{low}" if low == high else f"{low}–{high}" if high else f"{low}+": [] for low, high in _LENGTHS}
    for entry in scored:
        if entry.question.answers:
            length = max(1, len(entry.question.answers[0].text.split()))
            place = next(place for place, (_, high) in enumerate(_LENGTHS) if high is None or length <= high)
            list(groups.values())[place].append(entry)
    note = "Words of the first gold answer, between spaces; questions without an answer are left out."
    return _table("By answer length", "words", groups, note)


def _by_answerability(scored: Sequence[_Scored]) -> Table:
    groups = {
        f"{'has an answer' if has_answer else 'has none'}, {'answered' if is_answered else 'not answered'}": [
            entry
            for entry in scored
            if bool(entry.question.answers) == has_answer and bool(entry.predicted) == is_answered
        ]
        for has_answer in (True, False)
        for is_answered in (True, False)
    }
    return _table("With and without answer", "question", groups, "")


def _table(title: str, name: str, groups: Mapping[str, Sequence[_Scored]], note: str) -> Table:
    """Return a row per group that has questions."""
    rows = [
        (
            group,
            len(entries),
            _percent(entry.scores.exact for entry in entries),
            _percent(entry.scores.f1 for entry in entries),
        )
        for group, entries in groups.items()
        if entries
    ]
    return Table(title=title, columns=(name, "questions", "exact match", "F1"), rows=rows, decimals=2, note=note)


def _percent(scores: Iterable[float]) -> float:
    values = list(scores)
    return 100 * sum(values) / len(values)


def _worst(contexts: Sequence[str], scored: Sequence[_Scored]) -> Mistakes:
    wrong = [entry for entry in scored if not entry.scores.exact]
    worst = sorted(wrong, key=lambda entry: (entry.scores.f1, -entry.probability))[:NUM_MISTAKES]
    note = f"{len(wrong):,} of {len(scored):,} answers are not an exact match."
    if len(wrong) > len(worst):
        note += f" These are the {len(worst)} with the lowest F1, the most confident first."
    if any(entry.predicted and entry.position is None for entry in worst):
        note += " A predicted text that occurs several times in the context is marked at its first occurrence."
    note += (
        " Gold answers are shaded, predicted ones underlined; probabilities are among the best answers of a question."
    )
    mistakes = [_mistake(contexts[entry.question.context_index], entry) for entry in worst]
    return Mistakes(title="Worst mistakes", mistakes=mistakes, note=note)


def _mistake(context: str, entry: _Scored) -> Mistake:
    golds = dict.fromkeys(answer.text for answer in entry.question.answers)
    spans = [_span(context, answer.text, answer.start, "gold") for answer in entry.question.answers]
    spans.append(_span(context, entry.predicted, entry.position, "predicted"))
    facts = {
        "gold": " | ".join(golds) or _NO_ANSWER,
        "predicted": entry.predicted or _NO_ANSWER,
        "probability": f"{entry.probability:.4f}",
        "F1": f"{100 * entry.scores.f1:.1f}",
        "id": entry.question.id,
    }
    texts = [Text("question", [Part(entry.question.text)]), Text("context", marked(context, list(filter(None, spans))))]
    return Mistake(facts, texts)


def _span(context: str, text: str, position: int | None, mark: str) -> Span | None:
    """Return the position of a text in its context: the given one if it matches, else the first; None if not found.

    The reference's alignment joins words with single spaces, so spaces may differ in the context.
    """
    if not text.strip():
        return None
    if position is not None and position >= 0 and context.startswith(text, position):
        return Span(position, position + len(text), mark)
    found = re.search(r"\s+".join(map(re.escape, text.split())), context)
    return Span(*found.span(), mark) if found else None
