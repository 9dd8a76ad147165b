"""Answer scores, compared with manual sums and plain rules, and thresholds, compared with exhaustive search."""

import itertools
import random

import pytest

from official_bert.metrics.answer_scores import (
    NORMALIZATIONS,
    best_f1_threshold,
    best_null_thresholds,
    english_normalized,
    korean_normalized,
    score_answer,
    score_answers,
    score_answers_with_null,
)
from official_bert.support.errors import UserError
from tests.metrics.plain_squad_2 import plain_squad_2

SQUAD, KORQUAD, KLUE = (NORMALIZATIONS[name] for name in ("squad", "korquad", "klue"))


@pytest.mark.parametrize(
    ("normalize", "text", "normalized"),
    [
        (english_normalized, "The U.S.A., an ally", "usa ally"),
        (english_normalized, "  a\tcat\n and THE  dog theatre anthem", "cat and dog theatre anthem"),
        (english_normalized, "the-cat a-b", "thecat ab"),  # punctuation is removed before articles
        (english_normalized, "The a an.", ""),
        (english_normalized, "à a’s “the” …", "à ’s “ ” …"),  # non-ASCII punctuation is kept and ends words
        (english_normalized, "$1,000 50% <b> ΟΔΟΣ İ", "1000 50 b οδος i̇"),
        (korean_normalized, "《홍길동전》(소설)", "홍길동전 소설"),
        (korean_normalized, "'가'나\"다\" <라>마 〈바〉사 ‘아’자", "가 나 다 라 마 바 사 아 자"),
        (korean_normalized, "1,234.5 가-나 The KBS  방송", "12345 가나 the kbs 방송"),
        (korean_normalized, "「가」“나”", "「가」“나”"),  # other brackets and quotes are kept
        (korean_normalized, "ΑΣ'Α", "ας α"),  # the final sigma of a word that ends at the quote
        (korean_normalized, "()", ""),
    ],
)
def test_normalized_texts(normalize, text, normalized):
    assert normalize(text) == normalized


@pytest.mark.parametrize(
    ("prediction", "golds", "without_null", "with_null"),
    [
        ("The cat.", ["a cat"], (1, 1), (1, 1)),
        ("black cat", ["cat"], (0, 2 / 3), (0, 2 / 3)),  # precision 1/2, recall 1
        ("a b b b c", ["b b d"], (0, 4 / 7), (0, 4 / 7)),  # 2 in common of 4 ("a" is an article) and 3
        ("black cat", ["dog", "cat", "black cat sat"], (0, 4 / 5), (0, 4 / 5)),  # the best: precision 1, recall 2/3
        ("cat dog", ["cat", "dog cat"], (0, 1), (0, 1)),
        ("", ["cat"], (0, 0), (0, 0)),
        ("a", ["the"], (1, 0), (1, 1)),
        ("", ["the", "cat"], (1, 0), (0, 0)),  # "the" is not an answer if there is another one
        ("cat", ["the"], (0, 0), (0, 0)),
    ],
)
def test_an_answer_is_scored_by_the_rules_of_its_version(prediction, golds, without_null, with_null):
    for has_null, (exact, f1) in ((False, without_null), (True, with_null)):
        scores = score_answer(prediction, golds, normalization=SQUAD, has_null=has_null)
        assert scores == (exact, pytest.approx(f1, abs=1e-15))


def test_korquad_counts_characters_and_no_spaces():
    assert score_answer("홍길동 전", ["홍길동전"], normalization=KORQUAD) == (0, 1)
    assert score_answer("홍길동은", ["홍길동전 소설"], normalization=KORQUAD) == (0, pytest.approx(2 * 3 / (4 + 6)))
    assert score_answer("홍길동은", ["홍길동전 소설"], normalization=SQUAD) == (0, 0)


def test_klue_counts_the_longest_run_of_characters():
    """The expected numbers are those of KLUE's baseline, metrics/utils.py."""
    rows = [
        ("한 달가량", ["한 달가량", "한 달"], 1, 1), ("약 한 달", ["한 달가량", "한 달"], 0, 0.75),
        ("《홍길동전》", ["홍길동전"], 0, 0.8), ('"Lamb-Rock" 섬', ["lambrock 섬"], 1, 1), ("", [], 1, 1),
        ("섬", [], 0, 0), ("", ["섬"], 0, 0), ("서울 특별시 종로구", ["부산 광역시", "종로"], 0, 1 / 3),
    ]  # fmt: skip
    for text, golds, *expected in rows:
        assert score_answer(text, golds, normalization=KLUE, has_null=True) == pytest.approx(expected)
    golds, predictions = ({str(n): row[column] for n, row in enumerate(rows)} for column in (1, 0))
    scores = score_answers_with_null(golds, predictions, normalization=KLUE)
    assert (scores["exact"], scores["rouge_w"]) == (37.5, pytest.approx(61.04166667))
    assert "f1" not in scores


def test_scores_of_a_data_set_are_percents_of_all_questions(caplog):
    golds = {"q1": ["cat"], "q2": ["dog"], "q3": ["black bird", "bird"], "q4": ["fish"]}
    predictions = {"q1": "The cat", "q2": "cow", "q3": "white bird", "other": "fish"}
    scores = score_answers(golds, predictions, normalization=SQUAD)
    assert scores == {"exact_match": 25.0, "f1": pytest.approx(100 * (1 + 0 + 2 / 3 + 0) / 4)}
    assert caplog.messages == ["1 of 4 questions have no prediction and score 0: 'q4'"]


def test_data_that_cannot_be_scored_are_refused():
    with pytest.raises(UserError, match="question q2 has no answer.*version_2_with_negative"):
        score_answers({"q1": ["cat"], "q2": []}, {}, normalization=SQUAD)
    for score in (score_answers, score_answers_with_null):
        with pytest.raises(UserError, match="no questions to score"):
            score({}, {"q1": "cat"}, normalization=SQUAD)
    with pytest.raises(UserError, match="no questions to score"):
        best_null_thresholds({}, {}, {}, normalization=SQUAD)
    golds, answers = {"q1": [], "q2": []}, {"q1": "a", "q2": "b"}
    for find in (best_null_thresholds, best_f1_threshold):
        for odds in (float("nan"), float("inf")):
            with pytest.raises(UserError, match=f"null odds of question q2 are {odds}"):
                find(golds, answers, {"q1": 0.0, "q2": odds}, normalization=SQUAD)
        with pytest.raises(UserError, match="1 of the predicted questions have no null odds: 'q2'"):
            find(golds, answers, {"q1": 0.0}, normalization=SQUAD)
    with pytest.raises(UserError, match="1 of the predicted questions have no null odds: 'q2'"):
        score_answers_with_null(golds, answers, normalization=SQUAD, null_odds={"q1": 0.0})


def random_questions(rng, share_impossible, num_odds, num_questions):
    """Return questions, good and bad answers, and odds in another order, with many equal values."""
    texts = ["cat", "black cat", "the", "dog", "black dog sat", "A cat sat.", ""]
    golds, answers, null_odds = {}, {}, {}
    for number in range(num_questions):
        question = f"q{number}"
        golds[question] = [] if rng.random() < share_impossible else rng.choices(texts, k=rng.randint(1, 3))
        answers[question] = rng.choice(golds[question] or texts) if rng.random() < 0.5 else rng.choice(texts)
    for question in rng.sample(sorted(golds), num_questions):
        null_odds[question] = rng.randint(1, num_odds) / 4 - rng.choice([0, 2])
    return golds, answers, null_odds


def f1_at(threshold, golds, answers, null_odds):
    predictions = {question: "" if null_odds[question] > threshold else text for question, text in answers.items()}
    return score_answers_with_null(golds, predictions, normalization=SQUAD)["f1"]


SETS = list(itertools.product((0.0, 0.3, 0.7, 1.0), (1, 2, 40), (1, 5, 1000)))


@pytest.mark.parametrize(("share_impossible", "num_questions", "num_odds"), SETS)
def test_numbers_are_those_of_the_official_script_and_no_threshold_is_better(share_impossible, num_questions, num_odds):
    rng = random.Random(f"{share_impossible} {num_questions} {num_odds}")
    for _ in range(3):
        golds, answers, null_odds = random_questions(rng, share_impossible, num_odds, num_questions)
        assert score_answers_with_null(golds, answers, normalization=SQUAD) == plain_squad_2(golds, answers)
        others = {"other": "cat"}, {"other": -9.0}  # for an unknown question
        for threshold in (1.0, 0.0, -0.75):
            odds = {"null_odds": null_odds | others[1], "null_threshold": threshold}
            scores = score_answers_with_null(golds, answers | others[0], normalization=SQUAD, **odds)
            scores |= best_null_thresholds(golds, answers | others[0], null_odds | others[1], normalization=SQUAD)
            assert scores == plain_squad_2(golds, answers, null_odds, threshold)
        found = best_f1_threshold(golds, answers, null_odds, normalization=SQUAD)
        candidates = [min(null_odds.values()) - 1, *sorted(set(null_odds.values()))]  # never answer, or up to some odds
        tried = [f1_at(threshold, golds, answers, null_odds) for threshold in candidates]
        best = max(tried)
        assert f1_at(found, golds, answers, null_odds) == pytest.approx(best, abs=1e-9)
        lowest = next(index for index, f1 in enumerate(tried) if f1 == pytest.approx(best, abs=1e-9))
        assert found <= candidates[lowest] if lowest else found < candidates[1]


def test_questions_without_answer_score_zero():
    golds = {"q1": ["cat"], "q2": [], "q3": [], "q4": ["dog"]}
    answers, null_odds = {"q1": "cat", "q2": "cow"}, {"q1": 1.5, "q2": 2.0, "q3": 0.0}
    found = best_null_thresholds(golds, answers, null_odds, normalization=SQUAD)
    assert found == {"best_exact": 50.0, "best_exact_thresh": 1.5, "best_f1": 50.0, "best_f1_thresh": 1.5}
    assert best_f1_threshold(golds, answers, null_odds, normalization=SQUAD) == 1.5
    scores = score_answers_with_null(golds, answers, normalization=SQUAD, null_odds=null_odds, null_threshold=1.5)
    assert (scores["exact"], scores["total"], scores["NoAns_f1"]) == (50.0, 4, 50.0)
    assert best_null_thresholds(golds, {}, {}, normalization=SQUAD)["best_f1"] == 0.0
    assert best_f1_threshold(golds, {}, {}, normalization=SQUAD) == 0.0
