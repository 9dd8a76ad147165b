"""The best answers of questions, found in the logits of their windows."""

import functools
import itertools
import json
import math
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.support import writing
from official_bert.support.console import Progress
from official_bert.tasks.question_answering.data import TokenizedSquad, Window, split_words
from official_bert.tokenization import BasicTokenizer

LOGITS = ("start_logits", "end_logits")
MASKED_LOGIT = np.finfo(np.float32).min  # logit of positions beyond the padded batch length
PREDICTIONS_FILE = "predictions.json"

_NO_SPAN = "empty"  # reference value: the version 1.1 answer if no span is allowed, with logits of 0


class RankedAnswer(NamedTuple):
    """One of a question's best answers."""

    text: str  # the answer; "" for no answer
    probability: float  # its probability among the best answers to the question
    start_logit: float  # start logit of its first wordpiece
    end_logit: float  # end logit of its last wordpiece
    position: int | None  # offset of its first character in the context; None unless found with "offsets"


class QuestionAnswers(NamedTuple):
    """The prediction for a question."""

    id: str  # id of the question
    ranked: list[RankedAnswer]  # its best answers, the best first
    # score of no answer minus that of `best_text`, or the score of no answer if there is no text; None in version
    # 1.1
    null_odds: float | None
    best_text: str  # text of the best answer that is not ""; "" if there is none


class _Span(NamedTuple):
    """A candidate: wordpieces `first` to `last` of the context; both are -1 for no answer."""

    first: int
    last: int
    start_logit: float
    end_logit: float


def find_answers(
    tokenized: TokenizedSquad,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    *,
    n_best_size: int,
    max_answer_length: int,
    version_2: bool,
    verbose_logging: bool = False,
    finds_any: bool = False,
) -> list[QuestionAnswers]:
    """Find the best answers of every question from the logits of the windows, float32 [N, S].

    Only the best starts and ends are combined. If all of them lie in the question, wordpieces are the answers where
    `finds_any`; the reference answers "empty".

    As in the reference, positions after a window's end are candidates, so logits that were not computed must be low.
    """
    text_of, windows = text_finder(tokenized, verbose=verbose_logging), tokenized.windows
    num_questions, found = len(tokenized.squad.questions), []
    groups = itertools.groupby(range(len(windows)), key=lambda number: windows[number].question_index)
    with Progress("answering", num_questions, "questions") as progress:
        for question_index, numbers in groups:
            rows = list(numbers)
            question, of_windows = tokenized.squad.questions[question_index], (start_logits[rows], end_logits[rows])
            of_question = [windows[row] for row in rows]
            spans = _spans(tokenized, of_question, *of_windows, n_best_size, max_answer_length)
            if finds_any and not spans:
                spans = _wordpieces(tokenized, of_question, *of_windows)
            null = _null_span(*of_windows) if version_2 else None
            text = functools.partial(text_of, question.context_index)
            found.append(_question_answers(question.id, spans, null, text, n_best_size))
            progress.update(len(found))
    return found


def _spans(
    tokenized: TokenizedSquad,
    windows: Sequence[Window],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    n_best_size: int,
    max_answer_length: int,
) -> list[_Span]:
    """Return all candidate spans of a question's K windows, ordered by window, start logit and end logit."""
    offsets, firsts, sizes = (
        np.array([getattr(window, name) for window in windows]) for name in ("offset", "first", "num_wordpieces")
    )
    may_start = _have_max_context(tokenized, windows, start_logits.shape)
    best_starts, best_ends = _best_positions(start_logits, n_best_size), _best_positions(end_logits, n_best_size)
    are_starts = np.take_along_axis(may_start, best_starts, axis=1)  # [K, n]
    are_ends = (best_ends >= offsets[:, None]) & (best_ends < (offsets + sizes)[:, None])
    lengths = best_ends[:, None, :] - best_starts[:, :, None] + 1  # [K, n, n]
    are_spans = are_starts[:, :, None] & are_ends[:, None, :] & (lengths >= 1) & (lengths <= max_answer_length)
    window, start_rank, end_rank = np.nonzero(are_spans)
    starts, ends = best_starts[window, start_rank], best_ends[window, end_rank]
    shifts = (firsts - offsets)[window]
    columns = (starts + shifts, ends + shifts, start_logits[window, starts], end_logits[window, ends])
    return [_Span(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def _have_max_context(tokenized: TokenizedSquad, windows: Sequence[Window], shape: tuple[int, ...]) -> np.ndarray:
    """Mark positions whose wordpiece has its maximum context in their window, bool [K, S]."""
    found = np.zeros(shape, bool)
    for row, window in zip(found, windows, strict=True):
        row[window.offset : window.offset + window.num_wordpieces] = tokenized.has_max_context(window)
    return found


def _wordpieces(
    tokenized: TokenizedSquad, windows: Sequence[Window], start_logits: np.ndarray, end_logits: np.ndarray
) -> list[_Span]:
    """Return each wordpiece of the context as a candidate."""
    found = []
    for row, position in zip(*np.nonzero(_have_max_context(tokenized, windows, start_logits.shape)), strict=True):
        piece = int(position) - windows[row].offset + windows[row].first
        found.append(_Span(piece, piece, float(start_logits[row, position]), float(end_logits[row, position])))
    return found


def _best_positions(logits: np.ndarray, count: int) -> np.ndarray:
    """Return the positions of the highest logits of each row, in descending order, ties by position; int [K, n]."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


def _null_span(start_logits: np.ndarray, end_logits: np.ndarray) -> _Span:
    """Return the no-answer candidate of the window with the lowest no-answer score."""
    starts, ends = start_logits[:, 0].astype(np.float64), end_logits[:, 0].astype(np.float64)
    window = int(np.argmin(starts + ends))
    return _Span(-1, -1, float(starts[window]), float(ends[window]))


def _question_answers(
    question_id: str,
    spans: list[_Span],
    null: _Span | None,
    text_of: Callable[[int, int], tuple[str, int | None]],
    n_best_size: int,
) -> QuestionAnswers:
    """Rank the candidates of a question; duplicate texts keep the highest score."""
    best: dict[str, tuple[_Span, int | None]] = {}  # the span and position of each text
    for span in sorted([*spans, null] if null else spans, key=_score, reverse=True):  # stable: ties keep their order
        if len(best) >= n_best_size:
            break
        text, position = ("", None) if span is null else text_of(span.first, span.last)
        best.setdefault(text, (span, position))
    if null:
        best.setdefault("", (null, None))
    best = best or {_NO_SPAN: (_Span(-1, -1, 0.0, 0.0), None)}

    probabilities = _softmax([_score(span) for span, _ in best.values()])
    ranked = [
        RankedAnswer(text, probability, span.start_logit, span.end_logit, position)
        for (text, (span, position)), probability in zip(best.items(), probabilities, strict=True)
    ]
    first = next((answer for answer in ranked if answer.text), None)
    null_odds = _score(null) if null else None
    if null and first:
        null_odds = null_odds - first.start_logit - first.end_logit
    return QuestionAnswers(question_id, ranked, null_odds, first.text if first else "")


def _score(span: _Span) -> float:
    return span.start_logit + span.end_logit


def _softmax(scores: Sequence[float]) -> list[float]:
    """Compute the softmax in Python floats, from left to right, so that the last digit matches the reference."""
    highest = max(scores)
    shares = [math.exp(score - highest) for score in scores]
    total = functools.reduce(operator.add, shares)  # since Python 3.12 `sum` compensates for rounding
    return [share / total for share in shares]


def text_finder(
    tokenized: TokenizedSquad, *, verbose: bool = False
) -> Callable[[int, int, int], tuple[str, int | None]]:
    """Return a function that maps a context index and a wordpiece range to the text and its position."""
    if tokenized.options.answer_alignment == "offsets":

        def exact_text(context_index: int, first: int, last: int) -> tuple[str, int]:
            context = tokenized.contexts[context_index]
            start = int(context.starts[first])
            return tokenized.squad.contexts[context_index][start : context.ends[last]], start

        return exact_text

    basic_tokenizer, pieces_of = tokenized.tokenizer.basic_tokenizer, tokenized.tokenizer.convert_ids_to_tokens
    words_of = functools.lru_cache(maxsize=1)(
        lambda context_index: split_words(tokenized.squad.contexts[context_index])
    )

    def normalized_text(context_index: int, first: int, last: int) -> tuple[str, None]:
        context = tokenized.contexts[context_index]
        predicted = _rejoined(pieces_of(context.ids[first : last + 1].tolist()))
        original = words_of(context_index).joined(context.word_of_piece[first], context.word_of_piece[last])
        return final_text(predicted, original, basic_tokenizer, verbose=verbose), None

    return normalized_text


def _rejoined(wordpieces: Sequence[str]) -> str:
    """Join wordpieces into words: `["em", "##bed", "it"]` becomes `"embed it"`."""
    return " ".join(" ".join(wordpieces).replace(" ##", "").replace("##", "").split())


def final_text(predicted: str, original: str, tokenizer: BasicTokenizer, *, verbose: bool = False) -> str:
    """Find the predicted part of the original words, by the reference's rule.

    The original is tokenized again; if this changes only spaces and replaces characters one for one, the prediction is
    located there and mapped back. Otherwise (a combining accent, a deleted character, a space that the reference does
    not count as one, an unknown token) the whole original is returned.
    """
    tokenized, places = _tokenized_words(tokenizer, original)
    start = tokenized.find(predicted)
    end = start + len(predicted) - 1
    if start < 0:
        reason = "it is not in the tokenized original"
    elif len(places) != len(tokenized) - tokenized.count(" "):
        reason = "tokenization adds or deletes characters"
    elif not predicted:
        reason = "it is empty"
    else:
        first, last = (places[position - tokenized.count(" ", 0, position)] for position in (start, end))
        return original[first : last + 1]
    if verbose:
        logging.info("cannot find %r in %r, which is returned as a whole: %s", predicted, original, reason)
    return original


@functools.lru_cache(maxsize=32)  # thousands of candidates may lie in one word, such as a text without spaces
def _tokenized_words(tokenizer: BasicTokenizer, original: str) -> tuple[str, np.ndarray]:
    """Return the tokenized words, and the positions of the characters of the original that are no spaces."""
    places = [place for place, character in enumerate(original) if character != " "]
    return " ".join(tokenizer.tokenize(original)), np.array(places, np.int64)


def predicted_texts(
    answers: Sequence[QuestionAnswers], null_score_diff_threshold: float | None = None
) -> dict[str, str]:
    """Choose one answer per question."""
    if null_score_diff_threshold is None:
        return {answer.id: answer.ranked[0].text for answer in answers}
    return {answer.id: "" if answer.null_odds > null_score_diff_threshold else answer.best_text for answer in answers}


def write_answers(output_dir: str, answers: Sequence[QuestionAnswers], predictions: Mapping[str, str]) -> None:
    """Write `predictions.json`, `nbest_predictions.json` and, in version 2.0, `null_odds.json` like the reference."""
    columns = RankedAnswer._fields[:-1]
    ranked = {answer.id: [dict(zip(columns, entry, strict=False)) for entry in answer.ranked] for answer in answers}
    _write_json(output_dir, PREDICTIONS_FILE, predictions)
    _write_json(output_dir, "nbest_predictions.json", ranked)
    null_odds = {answer.id: answer.null_odds for answer in answers if answer.null_odds is not None}
    if null_odds:
        _write_json(output_dir, "null_odds.json", null_odds)


def _write_json(output_dir: str, name: str, content: Mapping[str, Any]) -> None:
    writing.write_file(os.path.join(output_dir, name), json.dumps(content, indent=4) + "\n")
