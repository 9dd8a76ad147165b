"""`score_answers` on small generated files."""

import json

import pytest

from tests.conftest import assert_refused, run_cold, run_here, run_script
from tests.metrics.plain_squad_2 import plain_squad_2

GOLDS = {"a": ["the red house", "red houses"], "b": ["1987"], "c": [], "d": ["나무 위에"]}
PREDICTIONS = {"a": "Red House!", "b": "in 1987", "c": "nothing", "d": "나무위"}
NULL_ODDS = {"a": -3.0, "b": -1.0, "c": 2.0, "d": -2}


@pytest.fixture
def write(tmp_path):
    def write_json(name, content):
        path = tmp_path / name
        path.write_text(json.dumps(content))
        return str(path)

    return write_json


def squad(golds):
    answers = {name: [{"text": text, "answer_start": 0} for text in texts] for name, texts in golds.items()}
    entries = [{"id": name, "question": "?", "is_impossible": not of, "answers": of} for name, of in answers.items()]
    return {"data": [{"paragraphs": [{"context": "text", "qas": entries}]}]}


def scores(result):
    assert result.code == 0, result
    return {name: float(value) for name, value in (line.split(" = ") for line in result.output.splitlines())}


def test_scores_of_both_data_sets(write):
    answered = {name: texts for name, texts in GOLDS.items() if texts}
    files = {"squad_file": write("1.json", squad(answered)), "predictions_file": write("predictions.json", PREDICTIONS)}
    result = run_cold("score_answers", **files)
    assert scores(result) == pytest.approx({"exact_match": 100 / 3, "f1": 100 * (1 + 2 / 3 + 0) / 3})
    # KorQuAD compares characters and keeps English articles: "the" counts.
    red_house, year, tree = 2 * 8 / (8 + 9), 2 * 4 / (6 + 4), 2 * 3 / (3 + 4)
    result = run_script("score_answers", **files, dataset="korquad")
    assert scores(result) == pytest.approx({"exact_match": 0, "f1": 100 * (red_house + year + tree) / 3})


def test_scores_with_null_odds_are_those_of_the_official_script(write, capsys):
    files = {"squad_file": write("2.json", squad(GOLDS)), "predictions_file": write("predictions.json", PREDICTIONS)}
    odds_file = write("odds.json", NULL_ODDS)
    for flags, odds in (
        ({}, ()),
        ({"null_odds_file": odds_file}, (NULL_ODDS, 1.0)),  # the official default
        ({"null_odds_file": odds_file, "null_odds_threshold": -1.5}, (NULL_ODDS, -1.5)),
    ):
        run_here("score_answers", **files, version_2_with_negative=True, **flags)
        printed = dict(line.split(" = ") for line in capsys.readouterr().out.splitlines())
        expected = plain_squad_2(GOLDS, PREDICTIONS, *odds)
        assert {name: float(value) for name, value in printed.items()} == expected
        assert expected["NoAns_exact"] == (100 if odds else 0)  # "c" has odds of 2
    assert (expected["best_exact"], expected["best_exact_thresh"], expected["best_f1_thresh"]) == (50, -3, -1)


MISTAKES = [
    ({}, {"predictions": ["a"]}, "predictions.json contains a JSON list; the file of predictions must be an object"),
    ({}, {"predictions": {"a": 1}}, "question 'a' has 1, which is not a text"),
    ({"null_odds_file": "x"}, {}, "--null_odds_file needs --version_2_with_negative"),
    ({"null_odds_threshold": 0.0}, {}, "--null_odds_threshold needs --null_odds_file"),
    ({"version_2_with_negative": True}, {"odds": {"a": True}}, "question 'a' has True, which is not a number"),
]


@pytest.mark.parametrize(("flags", "contents", "message"), MISTAKES)
def test_mistakes(write, flags, contents, message):
    files = {
        "squad_file": write("squad.json", squad(GOLDS)),
        "predictions_file": write("predictions.json", contents.get("predictions", PREDICTIONS)),
    }
    if "odds" in contents:
        files["null_odds_file"] = write("odds.json", contents["odds"])
    assert_refused("score_answers", {**files, **flags}, message)
