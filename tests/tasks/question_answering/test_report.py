"""Sections of a report of answers: groups that add up to the official scores, and marked texts."""

import random

import pytest

from official_bert.metrics.answer_scores import NORMALIZATIONS, score_answers, score_answers_with_null
from official_bert.tasks.question_answering.answers import QuestionAnswers, RankedAnswer
from official_bert.tasks.question_answering.data import Answer, Question, SquadSet
from official_bert.tasks.question_answering.job import question_word, report_sections
from official_bert.visualization.report_page import NUM_MISTAKES, report_page
from tests.reports import data_of

CONTEXT = "The warm harbour of  the old town has a bridge, and the bridge is empty in the rain."
WORDS = CONTEXT.split()
RULES = {"normalization": NORMALIZATIONS["squad"]}


def made_set(count, *, version_2=False, words=("What is", "Who has", "In which town", "Name")):
    """Return questions with gold answers, and predictions with probabilities; a third of each kind is right."""
    rng, questions, answers = random.Random(1), [], []
    for number in range(count):
        first = rng.randrange(len(WORDS) - 3)
        is_article = WORDS[first].lower() in ("the", "a")  # alone, it would be an empty answer to the official script
        gold = " ".join(WORDS[first : first + rng.randint(1 + is_article, 3)])
        is_impossible = version_2 and number % 3 == 0
        golds = () if is_impossible else (Answer(gold, CONTEXT.find(gold)),)
        questions.append(Question(str(number), f"{words[number % len(words)]} {number}?", 0, golds, is_impossible))
        predicted = rng.choice([gold, " ".join(WORDS[first : first + 4]), "snow", "" if version_2 else "snow"])
        probability = rng.random()
        ranked = [RankedAnswer(predicted, probability, 1.0, 1.0, None), RankedAnswer("other", 0.1, 0.0, 0.0, None)]
        answers.append(QuestionAnswers(str(number), ranked, 0.5 if version_2 else None, predicted or "other"))
    return SquadSet([CONTEXT], questions), answers


def texts_of(answers):
    return {answer.id: answer.ranked[0].text for answer in answers}


def sections(squad, answers, *, version_2=False, dataset="squad"):
    settings = {"scores": {"f1": 1.0}, "normalization": NORMALIZATIONS[dataset], "version_2": version_2}
    made = report_sections(squad, answers, texts_of(answers), **settings)
    return {section["title"]: section for section in data_of(report_page("made", made))["sections"]}


def mean_of(rows, column):
    """Return the mean over questions of a column of percentages."""
    return sum(int(row[1]) * float(row[column]) for row in rows) / sum(int(row[1]) for row in rows)


def test_the_first_word_that_asks_counts():
    for question, word in (
        ("In what year did the town burn?", "what"),
        ("Whom did she meet, and when?", "who"),
        ("Whose boat sank?", "who"),
        ("What's that?", "what"),
        ("HOW many boats?", "how"),
        *((text, "other") for text in ("Name the town.", "Somewhat whatever", "항구의 이름은?", "")),
    ):
        assert question_word(question) == word, question


def test_groups_add_up_to_the_official_scores():
    squad, answers = made_set(90)
    found = sections(squad, answers)
    official = score_answers(squad.gold_texts, texts_of(answers), **RULES)
    for title in ("By question word", "By answer length"):
        rows = found[title]["rows"]
        assert sum(int(row[1]) for row in rows) == 90
        assert mean_of(rows, 2) == pytest.approx(official["exact_match"], abs=0.01)
        assert mean_of(rows, 3) == pytest.approx(official["f1"], abs=0.01)
    assert [row[:2] for row in found["By question word"]["rows"]] == [
        ["what", "23"], ["who", "23"], ["which", "22"], ["other", "22"],
    ]  # fmt: skip
    lengths = [len(question.answers[0].text.split()) for question in squad.questions]
    assert [row[:2] for row in found["By answer length"]["rows"]] == [
        [str(length), str(lengths.count(length))] for length in (1, 2, 3)
    ]
    assert "With and without answer" not in found


def test_questions_without_answers_have_a_table_of_their_own():
    squad, answers = made_set(90, version_2=True)
    found = sections(squad, answers, version_2=True)
    rows = {row[0]: row for row in found["With and without answer"]["rows"]}
    official = score_answers_with_null(squad.gold_texts, texts_of(answers), **RULES)
    for name, prefix in (("has an answer", "HasAns"), ("has none", "NoAns")):
        part = [row for kind, row in rows.items() if kind.startswith(name)]
        assert sum(int(row[1]) for row in part) == official[f"{prefix}_total"]
        assert mean_of(part, 2) == pytest.approx(official[f"{prefix}_exact"], abs=0.01)
        assert mean_of(part, 3) == pytest.approx(official[f"{prefix}_f1"], abs=0.01)
    assert rows["has none, not answered"][2:] == ["100.00", "100.00"]
    assert rows["has an answer, not answered"][2:] == ["0.00", "0.00"]
    assert sum(int(row[1]) for row in found["By answer length"]["rows"]) == 60
    missed = [facts for facts, _ in found["Worst mistakes"]["mistakes"] if facts["predicted"] == "(no answer)"]
    invented = [facts for facts, _ in found["Worst mistakes"]["mistakes"] if facts["gold"] == "(no answer)"]
    assert missed and invented


def test_the_worst_mistakes_come_first_the_most_confident_ones_before_others():
    squad, answers = made_set(90)
    mistakes = sections(squad, answers)["Worst mistakes"]["mistakes"]
    golds = squad.gold_texts

    def key(answer):
        text, probability, *_ = answer.ranked[0]
        scores = score_answers({answer.id: golds[answer.id]}, {answer.id: text}, **RULES)
        return scores["exact_match"], scores["f1"], -probability

    wrong = [answer for answer in sorted(answers, key=key) if not key(answer)[0]]
    assert [facts["id"] for facts, _ in mistakes] == [answer.id for answer in wrong[:NUM_MISTAKES]]
    assert mistakes[0][0]["probability"] == f"{wrong[0].ranked[0].probability:.4f}"


def one(gold, predicted, position=None, start=None, context=CONTEXT):
    """Return the marked parts of the context of one error, by mark."""
    start = context.find(gold) if start is None else start
    squad = SquadSet([context], [Question("a", "why?", 0, (Answer(gold, start),), False)])
    answers = [QuestionAnswers("a", [RankedAnswer(predicted, 0.5, 0.0, 0.0, position)], None, predicted)]
    ((_, (_, (_, parts))),) = sections(squad, answers)["Worst mistakes"]["mistakes"]
    assert "".join(text for text, _, _ in parts) == context
    return {mark: text for text, mark, _ in parts if mark}, parts


def test_gold_and_predicted_texts_are_marked_where_they_stand():
    assert one("empty", "warm harbour")[0] == {"gold": "empty", "predicted": "warm harbour"}
    assert one("warm harbour", "harbour of the old")[0] == {
        "gold": "warm ", "gold predicted": "harbour", "predicted": " of  the old",
    }  # fmt: skip
    assert one("warm", "not there")[0] == {"gold": "warm"}
    assert one("warm", "")[0] == {"gold": "warm"}
    second = CONTEXT.rfind("bridge")
    parts = one("warm", "bridge", position=second)[1]
    assert parts[-2][:2] == ["bridge", "predicted"] and parts[-1][0] == CONTEXT[second + 6 :]
    assert one("bridge", "rain", start=second)[1][1][0] == "bridge"
    assert one("warm", "bridge")[1][3][0] == "bridge" and one("warm", "bridge")[1][4][0].startswith(", and")
    assert one("warm", "rain", start=-1)[0] == {"gold": "warm", "predicted": "rain"}
    assert one("동생", "(형.*", context="그의 (형.*은 동생을")[0] == {"gold": "동생", "predicted": "(형.*"}


def test_questions_in_other_languages_are_not_sorted_by_english_words():
    squad, answers = made_set(12, words=("누가", "어디"))
    assert "By question word" not in sections(squad, answers, dataset="korquad")
