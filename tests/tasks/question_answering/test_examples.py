"""Reading files in SQuAD's format: valid ones, and every kind of invalid one."""

import copy
import json

import pytest

from official_bert.support.errors import UserError
from official_bert.tasks.question_answering.data import Answer, Question, SquadSet, read_squad

CONTEXT = "In 1889 the tower opened. It is 330 m tall."
QUESTIONS = [
    {"id": "a", "question": "When?", "answers": [{"text": "1889", "answer_start": 3}], "is_impossible": False},
    {"id": "b", "question": "Who?", "answers": [], "is_impossible": True},
]
PARAGRAPHS = [{"context": CONTEXT, "qas": QUESTIONS}, {"context": "Nobody asks.", "qas": []}]
GOOD = {"version": "v2.0", "data": [{"title": "Tower", "paragraphs": PARAGRAPHS}]}
WHEN = Question("a", "When?", 0, (Answer("1889", 3),), False)


def changed(change):
    """Return the valid content after `change`, called with the content, the paragraph and its first question."""
    content = copy.deepcopy(GOOD)
    paragraph = content["data"][0]["paragraphs"][0]
    change(content, paragraph, paragraph["qas"][0])
    return content


def read(tmp_path, content, *, for_training=True, version_2=True):
    path = tmp_path / "squad.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_squad(str(path), for_training=for_training, version_2=version_2)


def test_questions_come_in_order_with_their_contexts_and_answers(tmp_path):
    expected = SquadSet([CONTEXT, "Nobody asks."], [WHEN, Question("b", "Who?", 0, (), True)])
    assert read(tmp_path, GOOD) == read(tmp_path, GOOD, for_training=False) == expected
    assert expected.is_labelled
    assert read(tmp_path, "\ufeff" + json.dumps(GOOD)) == expected
    assert read(tmp_path, changed(lambda c, p, q: q.update(id=7))).questions[0].id == "7"


def test_only_version_2_knows_impossible_questions(tmp_path):
    squad = read(tmp_path, GOOD, for_training=False, version_2=False)
    assert [question.is_impossible for question in squad.questions] == [False, False]
    assert (squad.num_labelled, squad.is_labelled) == (1, False)
    without_key = changed(lambda c, p, q: p["qas"][1].pop("is_impossible"))
    assert read(tmp_path, without_key, for_training=False).questions[1].is_impossible


def test_predicting_needs_no_answers_and_no_places(tmp_path):
    without_answers = changed(lambda c, p, q: q.pop("answers"))
    assert read(tmp_path, without_answers, for_training=False).num_labelled == 1
    assert read(tmp_path, squad_with([("1889", 999)]), for_training=False, version_2=False).is_labelled
    without_place = changed(lambda c, p, q: q["answers"][0].pop("answer_start"))
    assert read(tmp_path, without_place, for_training=False).questions[0].answers == (Answer("1889", -1),)
    several = changed(lambda c, p, q: q["answers"].append({"text": "in 1889", "answer_start": 0}))
    assert len(read(tmp_path, several, for_training=False).questions[0].answers) == 2


@pytest.mark.parametrize("name", ["id", "guid"])  # of SQuAD's format, and of KLUE's
def test_the_first_of_several_answers_is_learnt(tmp_path, caplog, name):
    caplog.set_level("INFO", logger="absl")
    content = changed(lambda c, p, q: q["answers"].append({"text": "in 1889", "answer_start": 0}))
    for entry in content["data"][0]["paragraphs"][0]["qas"]:
        entry[name] = entry.pop("id")
    (question, *_) = read(tmp_path, content).questions
    assert (question.id, [answer.text for answer in question.answers]) == ("a", ["1889"])
    told = "1 questions have several answers; the first of each is learnt"
    assert caplog.messages == [f"{tmp_path / 'squad.json'}: {told}"]


BAD = [
    ('{"data": [}', ["squad.json is not JSON", "line 1 column 11"]),
    ("[]", ["must be an object"]),
    ({}, ["squad.json has no data"]),
    ({"data": []}, ["squad.json: no questions", "right file"]),
    (lambda c, p, q: p.pop("context"), ["has no data[0].paragraphs[0].context"]),
    (lambda c, p, q: q.update(id=True), ["data[0].paragraphs[0].qas[0].id is True; it must be text or "]),
    (lambda c, p, q: q.pop("id"), ["squad.json: the question", "has no id"]),
    (lambda c, p, q: q.update(id="b"), ["two questions have the id 'b'", "rename"]),
    (lambda c, p, q: q["answers"][0].update(answer_start=True), ["qas[0].answers[0].answer_start is True; it must"]),
    (lambda c, p, q: q.update(answers=[], is_impossible=False), ["'a' has no answer", "needs one", "is_impossible"]),
    (lambda c, p, q: q.update(is_impossible="no"), ["is_impossible is 'no'; it must be"]),
    (lambda c, p, q: (q["answers"][0].update(text="x"), p["qas"].pop()), ["none of its 1 questions can be used"]),
]


@pytest.mark.parametrize(("content", "parts"), BAD, ids=[case[1][0] for case in BAD])
def test_bad_input_is_one_clear_message(tmp_path, content, parts):
    content = changed(content) if callable(content) else content
    with pytest.raises(UserError) as caught:
        read(tmp_path, content)
    assert "\n" not in str(caught.value)
    for part in (str(tmp_path / "squad.json"), *parts):
        assert part in str(caught.value)


def squad_with(answers, context=CONTEXT):
    """Return a file with a question for each (text, start)."""
    entries = [
        {"id": str(number), "question": "?", "answers": [{"text": text, "answer_start": start}]}
        for number, (text, start) in enumerate(answers)
    ]
    return {"data": [{"paragraphs": [{"context": context, "qas": entries}]}]}


def test_misplaced_answers_are_counted_and_left_out_if_their_words_do_not_hold_them(tmp_path, caplog):
    usable = [("1889", 3), ("opened", 18), ("pened", 18), ("1889  the", 3), ("330 m", 32), (CONTEXT, 0)]
    useless = [("1889", 8), ("tall.", 999), ("tall.", len(CONTEXT) - 4), ("In", -1), ("", 4), (" ", 2), ("1889", 43)]
    squad = read(tmp_path, squad_with(usable + useless), version_2=False)
    assert [question.id for question in squad.questions] == ["0", "1", "2", "3", "4", "5"]
    (line,) = caplog.messages
    assert "answer_start of 9 questions does not point at the answer; 7 of them are skipped" in line
    assert "'2', '3', '6'" in line


def test_answers_with_white_space_that_is_part_of_words_are_used(tmp_path):
    context = "to the 5\u00a0km  \u00ab\u2009b  c\u2009\u00bb  d\u3000e."
    answers = ["5\u00a0km", "\u00ab\u2009b  c\u2009\u00bb", "d\u3000e"]
    squad = squad_with([(answer, context.index(answer)) for answer in answers], context)
    assert len(read(tmp_path, squad, version_2=False).questions) == 3
