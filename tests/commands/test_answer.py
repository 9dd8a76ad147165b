"""`answer`: questions about a text; for the process see tests/test_scripts.py."""

import io
import sys

import pytest

from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from official_bert.tasks.question_answering import servable
from tests.commands.conftest import arrays_of
from tests.conftest import GOLDEN, prints_error, run_here

CONTEXT = "The bridge\nopened in 2009.\r\nZoë came by train."


@pytest.fixture
def flags(one_layer_config_file, vocab_file, tmp_path):
    context = tmp_path / "context.txt"
    context.write_bytes(CONTEXT.encode())
    return {
        "bert_config_file": one_layer_config_file,
        "vocab_file": vocab_file,
        "init_checkpoint": str(GOLDEN / "squad" / "model.ckpt"),
        "context_file": str(context),
        "max_seq_length": 64,
        "max_query_length": 16,
        "doc_stride": 24,
    }


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Run eagerly, since tracing the graph would take longer than all questions here."""
    monkeypatch.setattr(servable.QuestionAnsweringServable, "signature", lambda self, name: self.answer)


def run(**flags):
    run_here("answer", **flags)


def give_input(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.slow
def test_the_model_is_loaded_once_and_answers_stand_on_one_line_with_their_place(flags, monkeypatch, capsys):
    loads = []
    load = servable.load
    monkeypatch.setattr(servable, "load", lambda *given: loads.append(load(*given)))
    give_input(monkeypatch, "who?\n\n \nwhen\u2028was it?\r\n".encode())
    run(**flags, top_k=20)
    lines = capsys.readouterr().out.split("\n")
    assert lines[::21] == ["who?", "when\u2028was it?", ""]
    assert len(loads) == 1
    rows = [line.split(maxsplit=3) for line in lines[1:21]]
    assert [int(row[0]) for row in rows] == list(range(1, 21))
    texts = [CONTEXT[slice(*map(int, row[2].split("-")))] for row in rows]
    assert [row[3] for row in rows] == [" ".join(text.split()) for text in texts]
    assert any("\n" in text for text in texts)


def test_windows_too_short_for_the_default_stride_get_a_shorter_one(flags, monkeypatch, capsys, caplog):
    del flags["doc_stride"]
    strides = []
    monkeypatch.setattr(servable, "servable_of_run", lambda config, *given: strides.append(config.doc_stride))
    monkeypatch.setattr(
        Predictor, "from_servable", lambda model: lambda pair: [servable.Answer("bridge", 0.75, 4, 10)] * len(pair)
    )
    caplog.set_level("INFO", logger="absl")
    for given, is_told in (({}, True), ({"doc_stride": 21}, False)):
        caplog.clear()
        run(**{**flags, "question": "who?", **given})
        row = "0.7500           4-10  bridge\n"
        assert capsys.readouterr().out == f"who?\n    1  {row}    2  {row}"
        note = "windows of 64 wordpieces are too short for the default --doc_stride=128; using 22, half"
        assert (note in caplog.text) == is_told and (is_told or not caplog.text)
    assert strides == [22, 21]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": " "}, "--question is empty"),
        ({"question": "\u200b"}, r"the question '\\u200b' contains no words"),
        ({"doc_stride": 60}, "--doc_stride=60 must be from 1 to 59"),
    ],
)
def test_mistakes(flags, changes, message):
    with prints_error(message):
        run(**{**flags, "question": "who?", **changes})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n\n", "context.txt is empty"),
        (b"\xe2\x80\x8b", "context.txt contains no words"),
    ],
)
def test_texts_that_hold_no_answers_are_mistakes(flags, tmp_path, content, message):
    (tmp_path / "context.txt").write_bytes(content)
    with prints_error(message):
        run(**flags, question="who?")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"\n \n", "no question: give --question, or questions on standard input"),
        (b"wh\xff\n", "standard input, line 1: byte 0xff at byte 3 of the line is not UTF-8"),
    ],
)
def test_input_without_questions_is_a_mistake(flags, monkeypatch, given, message):
    give_input(monkeypatch, given)
    with pytest.raises(UserError, match=message):
        run(**flags)


def test_files_that_do_not_belong_together_are_mistakes(flags, model_dir, tmp_path):
    flags["question"] = "who?"
    with pytest.raises(UserError, match="bert_model.ckpt lacks cls/squad/output_weights, .* was not fine-tuned"):
        run(**{**flags, "init_checkpoint": str(model_dir / "bert_model.ckpt")})

    arrays = arrays_of(flags["init_checkpoint"])
    del arrays["bert/encoder/layer_0/output/dense/kernel"]
    write_checkpoint(str(tmp_path / "cut.ckpt"), arrays)
    with pytest.raises(
        UserError, match="cut.ckpt lacks bert/encoder/layer_0/output/dense/kernel: it belongs to another"
    ):
        run(**{**flags, "init_checkpoint": str(tmp_path / "cut.ckpt")})
