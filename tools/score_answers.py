r"""Scores predicted answers as SQuAD's own scripts do: exact match and F1, in version 2.0 with and without answer.

python tools/score_answers.py --squad_file=dev-v1.1.json --predictions_file=predictions.json

With --null_odds_file it also finds from which null odds on it would have been best to predict no answer.
"""

from official_bert.config.run_configs import AnswerScoringConfig
from official_bert.script import run_script


def main(config: AnswerScoringConfig) -> None:
    """Runs the tool."""
    from official_bert.runs import answer_scoring

    answer_scoring.run(config)


if __name__ == "__main__":
    run_script(AnswerScoringConfig, main, uses_tensorflow=False)
