"""`score_answers`: score predicted answers against correct answers."""

import sys

from official_bert.options.command import Command
from official_bert.options.option import Options, option, options
from official_bert.support import text_files
from official_bert.support.errors import UserError


@options(group="input")
class AnswerScoringConfig(Options):
    squad_file: str | None = option(
        None, "Questions with the correct answers, in SQuAD's JSON format.", required=True, is_path=True
    )
    predictions_file: str | None = option(
        None, "JSON file that maps question ids to texts, as in predictions.json.", required=True, is_path=True
    )
    null_odds_file: str | None = option(
        None,
        "JSON file that maps question ids to null odds, or to probabilities of no answer; adds the best thresholds, "
        "found among the predictions that are not empty.",
        is_path=True,
    )
    null_odds_threshold: float = option(
        1.0,
        "With --null_odds_file: predictions whose null odds exceed this are scored as empty. The default is that of "
        "SQuAD's script, which is meant for probabilities.",
    )
    version_2_with_negative: bool = option(False, "Questions may have no answer, as in SQuAD 2.0.")
    dataset: str = option(
        "squad", "Data set whose answer normalization is used for scoring.", choices=("squad", "korquad", "klue")
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.version_2_with_negative:
            self.refuse("null_odds_file", because="needs --version_2_with_negative")
        if not self.null_odds_file:
            self.refuse("null_odds_threshold", because="needs --null_odds_file")


def run(config: AnswerScoringConfig) -> None:
    """Print the scores in the format of `eval_results.txt`."""
    from official_bert.metrics.answer_scores import (
        NORMALIZATIONS,
        best_null_thresholds,
        score_answers,
        score_answers_with_null,
    )
    from official_bert.tasks.question_answering.data import read_squad

    squad = read_squad(config.squad_file, for_training=False, version_2=config.version_2_with_negative)
    golds, normalization = squad.gold_texts, NORMALIZATIONS[config.dataset]
    predictions = _read(config.predictions_file, "file of predictions", str, "a text")
    if not config.version_2_with_negative:
        scores = score_answers(golds, predictions, normalization=normalization)
    elif config.null_odds_file:
        read = _read(config.null_odds_file, "file of null odds", (int, float), "a number")
        null_odds = {question: float(odds) for question, odds in read.items()}
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


def _read(path: str, what: str, kind: type | tuple[type, ...], kind_name: str) -> dict:
    values = text_files.read_json(path, what, max_bytes=None)
    for question, value in values.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"{path}: question {question!r} has {value!r:.80}, which is not {kind_name}")
    return values


COMMAND = Command(
    config_class=AnswerScoringConfig,
    summary="Scores predicted answers as SQuAD's official scripts do: exact match and F1.",
    usage="""
  {command} --squad_file=dev-v1.1.json --predictions_file=predictions.json

With --version_2_with_negative, questions with and without an answer are also scored separately; --null_odds_file then
adds the thresholds of the null odds above which predicting no answer would have scored best.
""",
    run=run,
    uses_tensorflow=False,
)
