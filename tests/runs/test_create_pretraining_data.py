"""Mistakes that `create_pretraining_data.py` finds; the records are in tests/tasks, the process in test_scripts.py."""

import os

import pytest

from official_bert.config.run_configs.pretraining import PretrainingDataConfig
from official_bert.runs import create_pretraining_data
from tests.conftest import assert_refused


@pytest.fixture
def refuse(corpus_file, vocab_file, tmp_path):
    """Asserts that a run with some other flags ends in a message with the parts given."""
    flags = {"input_file": corpus_file, "output_file": tmp_path / "out.tfrecord", "vocab_file": vocab_file}

    def run(changes, *parts):
        assert_refused(create_pretraining_data.run, PretrainingDataConfig, {**flags, **changes}, *parts)

    return run


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"input_file": "absent*.txt"}, ["no file matches 'absent*.txt'"]),
        ({"max_seq_length": 4}, ["--max_seq_length=4: must be at least 5"]),
        ({"vocab_file": "absent.txt"}, ["cannot read absent.txt: No such file"]),
        ({"masking": "dynamic"}, ["--masking=dynamic: must be one of static, none"]),
        ({"masking": "none", "masked_lm_prob": 0.2}, ["--masked_lm_prob has no effect without --masking=static"]),
        (
            {"masking": "none", "max_predictions_per_seq": 10},
            ["--max_predictions_per_seq has no effect without --masking=static; leave it out"],
        ),
        (
            {"masking": "none", "do_whole_word_mask": True},
            ["--do_whole_word_mask has no effect without --masking=static"],
        ),
        ({"output_file": "absent/folder/out"}, ["--output_file=absent/folder/out", "does not exist"]),
    ],
)
def test_flags_and_files_that_do_not_serve(refuse, changes, parts):
    refuse(changes, *parts)


def test_the_vocabulary_is_not_overwritten(refuse, vocab_file, tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_bytes(open(vocab_file, "rb").read())
    refuse({"vocab_file": vocab, "output_file": vocab}, "is also an input")
    assert vocab.read_bytes() == open(vocab_file, "rb").read()


def test_an_output_that_is_an_input_is_refused(refuse, tmp_path, corpus_file):
    copy, link = tmp_path / "corpus.txt", tmp_path / "link.txt"
    copy.write_bytes(open(corpus_file, "rb").read())
    link.symlink_to(copy)
    refuse({"input_file": copy, "output_file": link}, "is also an input")
    assert copy.read_bytes() == open(corpus_file, "rb").read()


def test_what_is_no_regular_file_is_refused_at_once(refuse, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    message = f"{pipe} is a pipe (FIFO), not a regular file; name a regular file"
    refuse({"output_file": pipe, "vocab_file": "absent.txt"}, f"--output_file={message}")  # before anything is read
    refuse({"input_file": pipe}, message)
    refuse({"vocab_file": pipe}, message)
    assert pipe.is_fifo()


def test_bytes_that_are_not_utf8_are_located(refuse, tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(b"good\n\nbad \xff line\n")
    refuse({"input_file": text}, "text.txt, line 3: byte 0xff")
    assert os.listdir(tmp_path) == ["text.txt"]
