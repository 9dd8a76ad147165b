"""The code that finds and runs the commands of a page and compares their output."""

import pytest

from tests.pages import Block, Step, compare, find_blocks, find_commands, find_steps, reader_environment, run_step


def test_blocks_are_found_with_their_lines_languages_and_marks():
    page = "# Title\n\n```sh\nmake demo\n```\n\n<!-- not run: needs a TPU -->\n```\n$ python train.py\n```\n"
    assert find_blocks(page) == [Block(4, "sh", "make demo", None), Block(9, "", "$ python train.py", "needs a TPU")]
    for page, message in (
        ("text\n```\nmake", "line 2: the block has no end"),
        ("<!-- not run: slow -->\n\n```\nmake\n```", "line 2: '<!-- not run: slow -->' stands above no block"),
    ):
        with pytest.raises(ValueError, match=message):
            find_blocks(page)


def test_a_block_is_cut_into_commands_and_what_they_print():
    text = "$ python a.py \\\n    --flag\nloss = 1\n$ python -c '\nprint(1)'\n1\n$ ls"
    assert find_steps(Block(10, "", text, None)) == [
        Step(10, "sh", "python a.py \\\n    --flag", ["loss = 1"]),
        Step(13, "sh", "python -c '\nprint(1)'", ["1"]),
        Step(16, "sh", "ls", []),
    ]
    for language, text, shown in (("sh", "a\nls", None), ("python", "import os", None), ("python", ">>> 1", [])):
        assert find_steps(Block(3, language, text, None)) == [Step(3, language, text, shown)]
    for language in ("", "json"):
        with pytest.raises(ValueError, match="line 7: neither a command nor marked"):
            find_steps(Block(7, language, '{"a": 1}', None))


def test_the_commands_of_a_step_are_found_with_their_arguments():
    text = "ls a\npython run_ner.py --do_train \\\n  --data_dir='a b'  # here\necho q | official-bert predict out - > p"
    assert find_commands(Step(1, "sh", text, None)) == [
        ["run_ner", "--do_train", "--data_dir=a b"],
        ["predict", "out", "-"],
    ]
    assert find_commands(Step(1, "python", "official-bert predict", None)) == []


SHOWN = ["10:33:40 INFO    training: 25% of 2,000 steps, 0:07:50 left, loss 7.1480, rate 7.50e-04", "...", "saved a-10"]
START = "23:01:02 INFO    training:   5% of 8 steps, 1:00:01 left, loss 12, rate 0"


@pytest.mark.parametrize(
    ("shown", "printed", "complaint"),
    [
        (SHOWN, [START, "more", "and", "saved a-8"], []),
        (["[[0.03334245 0.9666576 ]]"], ["[[0.5000001 0.4999999]]"], []),  # spaces that fill up an array
        (["Shape of ... is 3"], ["Shape of the last output is 4"], []),
        # A model's choices.
        (["10:33:40 INFO    example: [CLS] as que"], ["10:33:41 INFO    example: [CLS] Moby"], []),
        (["Zoë Lindqvist\t195\t208"], ["Varne\t1\t2"], []),
        (["positive    0.998"], ["negative    0.5"], []),
        # Lines that depend on the machine.
        ([], ["10:00:01 INFO    writing records:  23% of 4,730 texts, 0:00:34 left", "I0000 00:00:17 1 a.cc:2]"], []),
        # Others are reported one by one.
        (["loss = 1"], ["loss = 1", "f1 = 2"], ["  loss = 0", "+ f1 = 0"]),
        (["loss = 1", "f1 = 2"], ["loss = 1"], ["  loss = 0", "- f1 = 0"]),
        (["going on from a-5"], ["resuming from a-5"], ["- going on from a0", "+ resuming from a0"]),
        (["a", "...", "b"], ["a", "c", "b", "d"], ["  a", "- ...", "+ c", "  b", "+ d"]),
        (["...", "a", "...", "b"], ["b", "a"], None),
        (["a", "...", "a"], ["a"], None),
        (["Shape of ... is 3"], ["Shape of the last output was 4"], None),
    ],
)
def test_figures_times_and_choices_may_differ_and_other_lines_are_reported(shown, printed, complaint):
    found = compare(shown, printed)
    assert found == complaint or (complaint is None and found)


@pytest.mark.parametrize(
    ("step", "complaints"),
    [
        (Step(1, "sh", "echo 2 words", ["1 words"]), []),
        (Step(1, "sh", "echo 2 words", ["1 word"]), ["- 0 word", "+ 0 words"]),
        (Step(1, "sh", "echo help >&2; false; echo more", None), ["exit code 1", "help"]),
        (Step(1, "python", "print('so far'); raise SystemExit(3)", None), ["exit code 3", "so far"]),
        (Step(1, "python", ">>> x = 2\n>>> f'{x} words'\n'3 words'\n>>> x\n1", []), []),
        (Step(1, "python", ">>> print('a')\nb\n>>> 1\n1", []), ["- b", "+ a"]),
    ],
)
def test_steps_are_run_and_compared(step, complaints, tmp_path):
    assert run_step(step, str(tmp_path), reader_environment(str(tmp_path)), timeout=60) == complaints
