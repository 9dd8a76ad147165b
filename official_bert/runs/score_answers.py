"""`tools/score_answers.py`: correct and predicted answers in, scores out."""

import sys

from official_bert.config.run_configs.question_answering import AnswerScoringConfig
from official_bert.metrics.span import NORMALIZATIONS, best_null_thresholds, score_answers, score_answers_with_null
from official_bert.support import text_files
from official_bert.support.errors import UserError
from official_bert.tasks.question_answering.examples import read_squad


def run(config: AnswerScoringConfig) -> None:
    """Prints the scores, as `eval_results.txt` has them.

    Raises:
      UserError: a file has the wrong format, or a question has no correct answers.
    """
    squad = read_squad(config.squad_file, for_training=False, version_2=config.version_2_with_negative)
    golds, normalization = squad.gold_texts, NORMALIZATIONS[config.dataset]
    predictions = _read(config.predictions_file, "file of predictions", str, "a text")
    if not config.version_2_with_negative:
        scores = score_answers(golds, predictions, normalization=normalization)
    elif config.null_odds_file:
        null_odds = _read_null_odds(config.null_odds_file)
        scores = score_answers_with_null(
            golds,
            predictions,
            normalization=normalization,
            null_odds=null_odds,
            null_threshold=config.null_odds_threshold,
        )
        scores |= best_null_thresholds(golds, predictions, null_odds, normalization=normalization)
    else:
        scores = score_answers_with_null(golds, predictions, normalization=normalization)
    sys.stdout.writelines(f"{name} = {scores[name]}\n" for name in sorted(scores))


def _read_null_odds(path: str) -> dict[str, float]:
    null_odds = _read(path, "file of null odds", (int, float), "a number")
    for question, odds in null_odds.items():
        # Of whole numbers JSON has any, of others also NaN and Infinity.
        if not abs(odds) <= sys.float_info.max:
            raise UserError(f"{path}: the null odds of question {question!r} are {odds!r:.80}; they must be finite")
    return {question: float(odds) for question, odds in null_odds.items()}


def _read(path: str, what: str, kind: type | tuple[type, ...], kind_name: str) -> dict:
    values = text_files.read_json(path, what, max_bytes=None)
    for question, value in values.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"{path}: question {question!r} has {value!r:.80}, which is not {kind_name}")
    return values
