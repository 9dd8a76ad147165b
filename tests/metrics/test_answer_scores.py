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
    ("text", "normalized"),
    [
        ("The U.S.A., an ally", "usa ally"),
        ("  a\tcat\n and THE  dog ", "cat and dog"),
        ("theatre another anthem", "theatre another anthem"),
        ("The a an", ""),
        ("the-cat a-b", "thecat ab"),  # punctuation is removed before articles
        ("an.", ""),
        ("à a’s “the” …", "à ’s “ ” …"),  # non-ASCII punctuation is kept and ends words
        ("$1,000 50% <b>", "1000 50 b"),
        ("ΟΔΟΣ İ", "οδος i̇"),
        ("", ""),
    ],
)
def test_english_normalization(text, normalized):
    assert english_normalized(text) == normalized


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("《홍길동전》(소설)", "홍길동전 소설"),
        ("'가'나\"다\" <라>마 〈바〉사 ‘아’자", "가 나 다 라 마 바 사 아 자"),
        ("1,234.5 가-나", "12345 가나"),
        ("The KBS  방송", "the kbs 방송"),
        ("「가」“나”", "「가」“나”"),  # other brackets and quotes are kept
        ("ΑΣ'Α", "ας α"),  # the final sigma of a word that ends at the quote
        ("()", ""),
    ],
)
def test_korean_normalization(text, normalized):
    assert korean_normalized(text) == normalized


@pytest.mark.parametrize(
    ("prediction", "golds", "exact", "f1"),
    [
        ("The cat.", ["a cat"], 1, 1),
        ("black cat", ["cat"], 0, 2 / 3),  # precision 1/2, recall 1
        ("a b b b c", ["b b d"], 0, 4 / 7),  # 2 in common of 4 ("a" is an article) and 3
        ("black cat", ["dog", "cat", "black cat sat"], 0, 4 / 5),  # precision 1, recall 2/3: the best gold answer
        ("cat dog", ["cat", "dog cat"], 0, 1),
        ("dog", ["cat"], 0, 0),
        ("", ["cat"], 0, 0),
    ],
)
def test_an_answer_is_scored_alike_with_and_without_the_empty_one(prediction, golds, exact, f1):
    for has_null in (False, True):
        scores = score_answer(prediction, golds, normalization=SQUAD, has_null=has_null)
        assert scores == (exact, pytest.approx(f1, abs=1e-15))


@pytest.mark.parametrize(
    ("prediction", "golds", "without_null", "with_null"),
    [
        ("", ["the"], (1, 0), (1, 1)),
        ("a", ["the"], (1, 0), (1, 1)),
        ("", ["the", "cat"], (1, 0), (0, 0)),  # "the" is not an answer if there is another one
        ("cat", ["the", "cat"], (1, 1), (1, 1)),
        ("cat", ["the"], (0, 0), (0, 0)),
    ],
)
def test_an_answer_of_articles_alone_counts_by_the_rules_of_its_version(prediction, golds, without_null, with_null):
    assert score_answer(prediction, golds, normalization=SQUAD) == without_null
    assert score_answer(prediction, golds, normalization=SQUAD, has_null=True) == with_null


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


SETS = list(itertools.product((0.0, 0.3, 0.7, 1.0), (1, 2, 40), (1, 5, 1000)))


@pytest.mark.parametrize(("share_impossible", "num_questions", "num_odds"), SETS)
def test_all_numbers_are_those_of_the_official_script(share_impossible, num_questions, num_odds):
    rng = random.Random(f"{share_impossible} {num_questions} {num_odds}")
    for _ in range(5):
        golds, answers, null_odds = random_questions(rng, share_impossible, num_odds, num_questions)
        assert score_answers_with_null(golds, answers, normalization=SQUAD) == plain_squad_2(golds, answers)
        others = {"other": "cat"}, {"other": -9.0}  # for an unknown question
        for threshold in (1.0, 0.0, -0.75):
            odds = {"null_odds": null_odds | others[1], "null_threshold": threshold}
            scores = score_answers_with_null(golds, answers | others[0], normalization=SQUAD, **odds)
            scores |= best_null_thresholds(golds, answers | others[0], null_odds | others[1], normalization=SQUAD)
            assert scores == plain_squad_2(golds, answers, null_odds, threshold)


@pytest.mark.parametrize(("share_impossible", "num_questions", "num_odds"), SETS)
def test_no_threshold_is_better_than_the_one_found(share_impossible, num_questions, num_odds):
    rng = random.Random(f"{share_impossible} {num_questions} {num_odds}")
    for _ in range(4):
        golds, answers, null_odds = random_questions(rng, share_impossible, num_odds, num_questions)
        found = best_f1_threshold(golds, answers, null_odds, normalization=SQUAD)
        candidates = [min(null_odds.values()) - 1, *sorted(set(null_odds.values()))]  # never answer, or up to some odds
        tried = [f1_at(threshold, golds, answers, null_odds) for threshold in candidates]
        best = max(tried)
        assert f1_at(found, golds, answers, null_odds) == pytest.approx(best, abs=1e-9)
        lowest = next(index for index, f1 in enumerate(tried) if f1 == pytest.approx(best, abs=1e-9))
        if lowest == 0:
            assert found < candidates[1]
        else:
            assert found <= candidates[lowest]


def f1_at(threshold, golds, answers, null_odds):
    predictions = {question: "" if null_odds[question] > threshold else text for question, text in answers.items()}
    return score_answers_with_null(golds, predictions, normalization=SQUAD)["f1"]


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
    with pytest.raises(KeyError):  # the official script has no numbers to compare with
        plain_squad_2(golds, answers, null_odds)
