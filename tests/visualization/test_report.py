"""Parts of a report: bins of lengths, marked texts, matrices, and shortening."""

import numpy as np
import pytest

from official_bert.visualization.report_page import (
    Mistake,
    Mistakes,
    Part,
    Scores,
    Span,
    Text,
    confusion_section,
    length_bins,
    marked,
    report_page,
    scatter_points,
    scores_by_name,
    write_report,
)
from tests.reports import data_of, scores_of


@pytest.mark.parametrize(
    ("lengths", "names"),
    [
        ([5], ["5"]),
        ([0, 1, 2], ["0", "1", "2"]),
        ([3, 12, 29], ["0–4", "5–9", "10–14", "15–19", "20–24", "25–29"]),
        ([*range(100), 9_999], [*(f"{low}–{low + 9}" for low in range(0, 90, 10)), "90+"]),
    ],
)
def test_lengths_are_sorted_into_few_intervals(lengths, names):
    assert length_bins(lengths)[1] == names


def test_random_lengths_stand_in_the_interval_that_names_them():
    rng = np.random.default_rng(1)
    for _ in range(200):
        lengths = rng.integers(0, 10 ** rng.integers(1, 6), rng.integers(1, 50))
        places, names = length_bins(lengths)
        assert 1 <= len(names) <= 12
        for length, place in zip(lengths.tolist(), places.tolist(), strict=True):
            low, _, high = names[place].rstrip("+").partition("–")
            assert int(low) <= length and (names[place].endswith("+") or length <= int(high or low))


def test_marked_parts_are_the_text_and_know_all_their_marks():
    rng, text = np.random.default_rng(2), "0123456789" * 3
    for _ in range(100):
        marks = ("gold", "gold", "predicted")
        spans = [Span(*sorted(rng.choice(31, 2, replace=False).tolist()), mark) for mark in marks]
        marks = [{span.mark for span in spans if span.start <= place < span.end} for place in range(len(text))]
        expected = [(character, " ".join(sorted(each))) for character, each in zip(text, marks, strict=True)]
        parts = marked(text, spans)
        assert [(character, part.mark) for part in parts for character in part.text] == expected
        assert all(part.text for part in parts)
    assert marked(text, []) == [Part(text)]
    assert marked("", []) == []


def test_a_matrix_of_many_names_has_the_most_confused_and_their_counts():
    rng = np.random.default_rng(3)
    gold, predicted = rng.integers(0, 50, 3_000), rng.integers(0, 50, 3_000)
    section = confusion_section("Confusion", [str(number) for number in range(50)], gold, predicted, note="Also.")
    assert section.note == "The 30 of 50 with the most mistakes. Also."
    wrong = [((gold == name) ^ (predicted == name)).sum() for name in range(50)]
    shown = [int(name) for name in section.names]
    assert shown == sorted(shown)
    assert min(wrong[name] for name in shown) >= max(wrong[name] for name in set(range(50)) - set(shown))
    for row, counts in zip(shown, section.counts, strict=True):
        assert counts == [((gold == row) & (predicted == column)).sum() for column in shown]


def test_names_that_are_never_predicted_are_a_note_of_the_page_and_a_warning_of_the_log(tmp_path, caplog):
    counts = {"gold": [3, 2, 0, 1], "predicted": [5, 0, 0, 1], "correct": [3, 0, 0, 1]}
    table = scores_by_name("By label", "label", ["a", "b", "c", "d"], **counts)
    write_report(str(tmp_path / "report.html"), "made", [table])
    assert data_of((tmp_path / "report.html").read_text())["notes"] == ["labels never predicted: 'b'"]
    assert [record.message for record in caplog.records] == ["labels never predicted: 'b'"]


def text_of(*parts):
    page = report_page("made", [Mistakes(title="Mistakes", mistakes=[Mistake({}, [Text("", parts)])])])
    ((_, ((_, found),)),) = data_of(page)["sections"][0]["mistakes"]
    return found


def test_long_texts_are_shortened_and_say_so():
    assert text_of(Part("a" * 3_000)) == [["a" * 3_000, "", ""]]
    ((text, _, _),) = text_of(Part("a" * 3_000 + "b" * 500))
    assert text == "a" * 3_000 + " [… 500 characters …] "
    before, gold, after = text_of(Part("a" * 2_000 + "b" * 2_000), Part("c" * 9, "gold"), Part("d"))
    assert before[0] == "a" * 1_500 + " [… 1,000 characters …] " + "b" * 1_500
    assert gold == ["c" * 9, "gold", ""] and after[0] == "d"
    parts = text_of(*[Part("a" * 900, "gold")] * 20)
    assert sum(len(text) for text, _, _ in parts) < 8_100 and parts[-1][0].endswith(" […]")
    facts = {"gold": "x" * 5_000}
    page = report_page("made", [Mistakes(title="Mistakes", mistakes=[Mistake(facts, [])])])
    assert data_of(page)["sections"][0]["mistakes"] == [[{"gold": "x" * 999 + "…"}, []]]


def test_many_points_are_chosen_evenly():
    gold = np.arange(5_000.0)
    points, note = scatter_points(gold, -gold)
    assert note == "2,000 of 5,000 examples, evenly spaced."
    assert len(points) == 2_000 and points[0] == [0, 0] and points[-1] == [4_999, -4_999]
    assert scatter_points(np.array([1.0, np.nan]), np.array([2.0, 3.0])) == ([[1, 2]], "")


def test_scores_equal_the_file_and_nan_still_makes_a_page(tmp_path):
    values = {"eval_accuracy": np.float32(0.8063725), "f1": 66.05478146752431, "loss": np.float32("nan"), "step": 1234}
    write_report(str(tmp_path / "report.html"), "made", [Scores(title="Scores", values=values)])
    assert scores_of(tmp_path / "report.html") == {name: str(value) for name, value in values.items()}
    shown = [score[1] for score in data_of((tmp_path / "report.html").read_text())["sections"][0]["values"]]
    assert shown == ["0.8064", "66.05", "nan", "1,234"]
