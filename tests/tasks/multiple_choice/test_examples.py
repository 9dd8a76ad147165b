"""Files of multiple choice: each published layout, own tables, and invalid rows."""

import dataclasses
import json

import pytest

from official_bert.support.errors import UserError
from official_bert.tasks.multiple_choice.data import read_examples
from official_bert.tasks.multiple_choice.options import LAYOUTS, Layout

_ARC = {
    "id": "q1", "answerKey": "2",
    "question": {"stem": "Why?", "choices": [{"text": "rain", "label": "1"}, {"text": "snow", "label": "2"}]},
}  # fmt: skip
_CSQA_CHOICES = [{"label": letter, "text": f"in {letter}"} for letter in "ABCDE"]
_CSQA_QUESTION = {"question_concept": "sky", "stem": "Where?", "choices": _CSQA_CHOICES}
_RACE = {
    "id": "high1.txt", "article": "It rained.", "questions": ["What fell?", "It _ ."],
    "options": [["rain", "snow", "hail", "ash"], ["rained", "snowed", "hailed", "burnt"]], "answers": ["A", "D"],
}  # fmt: skip
_RACE_LINE = {"example_id": "h2", "article": "a", "question": "q", "options": ["b", "c"], "answer": "B"}
_COPA = {"premise": "It fell.", "choice1": "x", "choice2": "y", "question": "cause", "label": 0, "idx": 7}
_SWAG = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    '0,v1,3,"He sits. He","He sits.",He,gold,"sleeps, then wakes.",flies.,sings.,melts.,1\n'
)
# For each data set a file of the training split, and the expected examples: context, second texts, label, id.
SAMPLES = {
    "swag": (
        *("train.csv", _SWAG),
        [("He sits.", ["He sleeps, then wakes.", "He flies.", "He sings.", "He melts."], 1, "")],
    ),
    "race": (
        *("train/high/1.txt", json.dumps(_RACE)),
        [
            ("It rained.", ["What fell? " + option for option in _RACE["options"][0]], 0, "high1.txt-0"),
            ("It rained.", ["It _ . " + option for option in _RACE["options"][1]], 3, "high1.txt-1"),
        ],
    ),
    "race ": ("train.jsonl", json.dumps(_RACE_LINE), [("a", ["q b", "q c"], 1, "h2")]),
    "arc-easy": ("ARC-Easy-Train.jsonl", json.dumps(_ARC), [("Why?", ["rain", "snow"], 1, "q1")]),
    "arc-challenge": ("ARC-Challenge-Train.jsonl", json.dumps(_ARC), [("Why?", ["rain", "snow"], 1, "q1")]),
    "commonsenseqa": (
        *("train_rand_split.jsonl", json.dumps({"id": "q2", "answerKey": "E", "question": _CSQA_QUESTION})),
        [("Where?", [f"in {letter}" for letter in "ABCDE"], 4, "q2")],
    ),
    "copa": (
        *("train.jsonl", json.dumps(_COPA)),
        [("It fell.", ["What was the cause of this? x", "What was the cause of this? y"], 0, "7")],
    ),
}


def arc_with(choices):
    return json.dumps(_ARC | {"question": {"stem": "Why?", "choices": choices}, "answerKey": "1"})


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def plain(examples):
    return [(example.context, example.second_texts, example.label, example.id) for example in examples]


def test_every_published_layout_is_read(tmp_path):
    assert {name.strip() for name in SAMPLES} == set(LAYOUTS)
    for number, (name, (file, text, expected)) in enumerate(SAMPLES.items()):
        write(tmp_path / str(number), file, text)
        assert plain(read_examples(str(tmp_path / str(number)), LAYOUTS[name.strip()], "train")) == expected, name
    examples = read_examples(str(tmp_path / "5"), LAYOUTS["commonsenseqa"], "train")
    assert examples[0].names == tuple("ABCDE")


LAYOUT = Layout("c", ("w", "x", "y"), "l", files={"train": "a.csv", "test": "b.csv"})


def test_tables_have_rows_with_different_numbers_of_choices(tmp_path):
    write(tmp_path, "a.csv", 'c,w,x,y,l,id\nin,a,b,,B,7\n"in\nout",a,"b\nc", d ,2,8\n')
    assert plain(read_examples(str(tmp_path), LAYOUT, "train")) == [
        ("in", ["a", "b"], 1, "7"),
        ("in\nout", ["a", "b c", "d"], 2, "8"),
    ]
    write(tmp_path, "b.csv", "c,w,x,y\nin,a,b,\n")  # no labels
    assert plain(read_examples(str(tmp_path), LAYOUT, "test")) == [("in", ["a", "b"], 0, "")]
    numbered = Layout("0", ("2", "3"), "4", question="1", has_header=False, files={"train": "c.tsv"})
    write(tmp_path, "c.tsv", "in\twho\ta\tb\t0\n\n\n")
    assert plain(read_examples(str(tmp_path), numbered, "train")) == [("in", ["who a", "who b"], 0, "")]


def test_json_may_hold_choices_in_each_form_and_parquet_too(tmp_path):
    rows = [
        {"c": "in", "o": ["a", "b", "c"], "l": 2},
        {"c": "in", "o": {"text": ["a", "b"], "label": ["P", "Q"]}, "l": "Q"},
        {"c": "in", "o": [{"text": "a", "label": "P"}, {"text": "b", "label": "Q"}], "l": "P"},
    ]
    expected = [("in", ["a", "b", "c"], 2, ""), ("in", ["a", "b"], 1, ""), ("in", ["a", "b"], 0, "")]
    write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    layout = Layout("c", ("o",), "l", files={"train": "a.jsonl"})
    assert plain(read_examples(str(tmp_path), layout, "train")) == expected
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(rows[:1]), tmp_path / "a.parquet")
    layout = dataclasses.replace(layout, files={"train": "a.parquet"})
    assert plain(read_examples(str(tmp_path), layout, "train")) == expected[:1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("in,a,,,0", "a.csv, line 2: an example needs at least two choices, but this one has 1"),
        ("in,a,,b,0", "a.csv, line 2: choice 1 .counted from 0. is empty, but later ones are not"),
        ("in,a,b,,2", "a.csv, line 2: the label '2' is not one of the 2 choices: 0 to 1, or a letter from A"),
        ("in,a,b,,yes", "the label 'yes' is not one of the 2 choices"),
        (f"in,a,b,,{'1' * 5000}", "the label '11111"),
        ("in,a", "a.csv, line 2: there is no 'x'; it has 'c', 'w'"),
        ("", "a.csv has no examples"),
    ],
)
def test_an_invalid_row_is_refused_with_its_line(tmp_path, row, message):
    write(tmp_path, "a.csv", f"c,w,x,y,l\n{row}\n")
    with pytest.raises(UserError, match=message):
        read_examples(str(tmp_path), LAYOUT, "train")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("race", '{"article": "a", "questions": ["q"], "options": [], "answers": []}', "must be lists of the same len"),
        ("race", '{"article": "a", "questions": [], "options": [], "answers": []}', "train has no examples"),
        ("copa", '{"premise": "a", "question": "why"}', "'question' is 'why'; it must be one of 'cause', 'effect'"),
        ("copa", '{"premise": "a", "question": "cause", "choice1": 3}', "'choice1' contains 3; a choice must be a str"),
        ("arc-easy", json.dumps(_ARC | {"answerKey": "A"}), "the label 'A' is not one of the 2 choices: '1', '2'"),
        ("arc-easy", arc_with({"text": ["a", "b"], "label": ["A"]}), "the label of .* is .'A'.; give a list with one"),
        ("arc-easy", arc_with([{"text": "a", "label": "1"}] * 2), "2 choices have the label '1'; give each its own"),
    ],
)
def test_an_invalid_object_is_refused_with_its_line(tmp_path, name, text, message):
    file = LAYOUTS[name].files["train"]
    write(tmp_path, file if "." in file else f"{file}.jsonl", text)
    with pytest.raises(UserError, match=message):
        read_examples(str(tmp_path), LAYOUTS[name], "train")


def test_a_folder_without_files_is_refused(tmp_path):
    (tmp_path / "train" / "high").mkdir(parents=True)
    with pytest.raises(UserError, match=r"train has no \.txt files, nor do its subfolders"):
        read_examples(str(tmp_path), LAYOUTS["race"], "train")
    with pytest.raises(UserError, match=r"dev\.jsonl: there is no file"):
        read_examples(str(tmp_path), LAYOUTS["race"], "dev")


def test_a_named_column_of_ids_is_required_only_to_predict(tmp_path):
    rows = {
        "t.csv": "id,nr,c,a,b,l\nx,7,sky,blue,red,0\n",
        "t.jsonl": '{"id": "x", "nr": 7, "c": "sky", "a": "1", "b": "2", "l": 0}\n',
    }
    for name, content in rows.items():
        (tmp_path / name).write_text(content)
        layout = Layout("c", ("a", "b"), "l", files={"test": name, "dev": name})
        for column, expected in (("nr", "7"), (None, "x"), ("none", "")):
            for split in ("test", "dev") if expected else ("dev",):
                (example,) = read_examples(str(tmp_path), dataclasses.replace(layout, id=column), split)
                assert example.id == expected
        with pytest.raises(UserError, match=r"line 1: .*'none'"):
            read_examples(str(tmp_path), dataclasses.replace(layout, id="none"), "test")
