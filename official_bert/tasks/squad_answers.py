"""From start and end logits to answers: the best of each question, and whether it has one."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.tasks.squad_windows import TokenizedSquad, Window


class RankedAnswer(NamedTuple):
    """One of a question's best answers; field names are the keys of `nbest_predictions.json`.

    Attributes:
      text: the answer; "" is that there is none.
      probability: its share among the question's best.
      start_logit: of its first piece.
      end_logit: of its last piece.
      position: the character of the context at which it begins; None unless found with "offsets".
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float
    position: int | None


class QuestionAnswers(NamedTuple):
    """What is predicted for a question.

    Attributes:
      id: the question's.
      ranked: its best answers, the best first.
      null_odds: score of no answer less that of `best_text`; None in version 1.1.
      best_text: text of the best answer that is one; "" if there is none.
    """

    id: str
    ranked: list[RankedAnswer]
    null_odds: float | None
    best_text: str


def find_answers(
    tokenized: TokenizedSquad,
    windows: Sequence[Window],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    *,
    n_best_size: int,
    max_answer_length: int,
    version_2: bool,
    verbose_logging: bool = False,
) -> list[QuestionAnswers]:
    """Finds the best answers of every question.

    Args:
      tokenized: the set.
      windows: its N windows, as `prediction_windows` gives them.
      start_logits: float32 [N, S].
      end_logits: float32 [N, S].
      n_best_size: most answers a question, and most starts and ends a window that are combined.
      max_answer_length: most wordpieces of an answer.
      version_2: whether a question may have no answer.
      verbose_logging: whether to log why an answer could not be found in the context's own words.

    Returns:
      One a question, in order.
    """
    raise NotImplementedError


def predicted_texts(
    answers: Sequence[QuestionAnswers], null_score_diff_threshold: float | None = None
) -> dict[str, str]:
    """Chooses one answer a question.

    Args:
      answers: as `find_answers` gives them.
      null_score_diff_threshold: where null odds are greater, no answer ("") is predicted; None in version 1.1.

    Returns:
      Question id to text.
    """
    raise NotImplementedError


def write_answers(output_dir: str, answers: Sequence[QuestionAnswers], predictions: Mapping[str, str]) -> None:
    """Writes `predictions.json`, `nbest_predictions.json` and, in version 2.0, `null_odds.json`, as the reference does.

    Args:
      output_dir: an existing folder.
      answers: as `find_answers` gives them.
      predictions: as `predicted_texts` gives them.
    """
    raise NotImplementedError
