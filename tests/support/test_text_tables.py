"""Tables as text."""

from official_bert.support.console import format_table, mean_and_deviation

ROWS = [("task", "runs", "score"), ("CoLA", "12", "-5.25"), ("a long name", "3", ""), ("", "", "1e-05")]


def test_numbers_stand_at_the_right_and_texts_at_the_left():
    assert format_table(ROWS) == (
        "task         runs  score\n"
        "CoLA           12  -5.25\n"
        "a long name     3\n"
        "                   1e-05\n"
    )  # fmt: skip


def test_markdown_marks_numeric_columns_too():
    assert format_table(ROWS, "markdown") == (
        "| task        | runs | score |\n"
        "| ----------- | ---: | ----: |\n"
        "| CoLA        |   12 | -5.25 |\n"
        "| a long name |    3 |       |\n"
        "|             |      | 1e-05 |\n"
    )


def test_tab_separated_cells_are_bare():
    assert format_table(ROWS, "tsv") == "task\truns\tscore\nCoLA\t12\t-5.25\na long name\t3\t\n\t\t1e-05\n"


def test_the_deviation_is_that_of_a_sample():
    assert mean_and_deviation([1.0, 2.0, 6.0], 2) == ("3.00", "2.65")  # sqrt((4 + 1 + 9) / 2)
    assert mean_and_deviation([1.0], 2) == ("1.00", "")
    assert mean_and_deviation([], 2) == ("", "")
