"""`predict`: files and pipes of every kind, as `Predictor` predicts their texts."""

import csv
import functools
import io
import json
import shutil
import subprocess
import threading

import numpy as np
import pyarrow.parquet as pq
import pytest

from official_bert.inference import predictor
from official_bert.inference.predictor import Predictor, as_json
from official_bert.inference.user_models import save_model
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, MultipleChoiceModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.tokenization import FullTokenizer
from tests.commands.conftest import json_lines
from tests.conftest import prints_error, run_here, run_script, script_command, script_environment
from tests.exports import TOLERANCE, predicted

pytestmark = pytest.mark.slow

TEXTS = ["the baker woke .", "the town", "a harbour " * 30]
CONTEXT = "The bridge\nopened in 2009.\r\nZoë came by train."
SQUAD = {"paragraphs": [{"context": CONTEXT, "qas": [{"id": "q7", "question": "who came ?", "answers": []}]}]}
ASKED = [("who came ?", CONTEXT)]
OF_LABELS = ["right", "left", "up"]
CHOICES = [("the town", ["the baker", "a bridge", "snow"]), ("rain", ["a town", "the"])]


@pytest.fixture(scope="module")
def models(model_dir, one_layer_config_file, vocab_file, tmp_path_factory):
    """A folder with a saved model of every task, by name."""
    folder = tmp_path_factory.mktemp("models")
    encoder = BertEncoder.from_checkpoint(model_dir / "bert_model.ckpt", bert_config=one_layer_config_file)
    three = ClassificationModel(encoder, num_outputs=3)
    for name, model, flags in (
        ("pairs", three, {"labels": OF_LABELS, "text_b_column": "second"}),
        ("several", three, {"labels": OF_LABELS, "multi_label": True, "delimiter": ";", "id_column": "nr"}),
        ("score", ClassificationModel(encoder, num_outputs=1), {}),
        ("many", ClassificationModel(encoder, num_outputs=101), {"labels": list(map(str, range(101)))}),
        ("tags", TaggingModel(encoder, num_outputs=3), {"labels": ["O", "B-X", "I-X"]}),
        ("answers", SpanModel(encoder), {"max_query_length": 9, "doc_stride": 20}),
        ("choices", MultipleChoiceModel(encoder), {"context_column": "here", "choice_columns": "1,2,3"}),
        ("words", PretrainingModel(encoder), {}),
    ):
        save_model(folder / name, model, FullTokenizer(vocab_file), max_seq_length=32, **flags)
    shutil.copytree(model_dir, folder / "encoder", ignore=shutil.ignore_patterns("trained*"))
    shutil.copy(vocab_file, folder / "encoder" / "vocab.txt")
    return folder


@pytest.fixture(scope="module")
def load():
    return functools.cache(lambda folder: Predictor(folder))


@pytest.fixture
def loaded_once(monkeypatch, load):
    monkeypatch.setattr(predictor, "Predictor", lambda folder, **_: load(folder))


def lines_of(*rows):
    return "".join(f"{row}\n" for row in rows)


PAIRS = list(zip(TEXTS, TEXTS[::-1], strict=True))
OF_ANSWERS = ["prediction", "probability", "start", "end"]
OF_TAGS = ["words", "tags", "probabilities"]
OF_PAIRS = ["prediction", "probability", *OF_LABELS]
OF_CHOICES = ["prediction", "number", "probability", "probabilities"]
CASES = {
    "columns of the run": (
        *("pairs", "a.tsv", lines_of("id\tsecond\ttext", *(f"n{n}\t{b}\t{a}" for n, (a, b) in enumerate(PAIRS)))),
        *({}, ["n0", "n1", "n2"], PAIRS, OF_PAIRS),
    ),
    "pairs in lines": (
        *("pairs", "a.txt", lines_of("", *map(" ||| ".join, PAIRS), "")),
        *({}, None, [None, *PAIRS, None], OF_PAIRS),
    ),
    "blank rows of pairs": (
        *("pairs", "a.csv", lines_of("second,id,text", "a,1,b", "", ",3,", "b,4,", "a,,b", ",,", "")),
        *({}, ["1", "", "3", "4", ""], [("b", "a"), None, None, ("", "b"), ("b", "a")], OF_PAIRS),
    ),
    "ids of some": (
        *("score", "a.jsonl", lines_of('{"text": "a"}', "", '{"text": "the", "id": 0}', '{"text": " ", "id": "x"}')),
        *({}, ["", "", "0", "x"], ["a", None, "the", None], ["prediction"]),
    ),
    "given columns": (
        *("several", "a.csv", lines_of("nr;body", *(f'"{n};";{text}' for n, text in enumerate(TEXTS)))),
        *({"text_columns": "body", "id_column": "nr"}, ["0;", "1;", "2;"], TEXTS, ["prediction", *OF_LABELS]),
    ),
    "ids of the run": (
        *("several", "a.csv", lines_of("text;nr", *(f"{text};n{n}" for n, text in enumerate(TEXTS)))),
        *({}, ["n0", "n1", "n2"], TEXTS, ["prediction", *OF_LABELS]),
    ),
    "without the ids of the run": (
        *("several", "a.jsonl", lines_of(*(json.dumps({"text": text}) for text in TEXTS))),
        *({}, None, TEXTS, ["prediction", *OF_LABELS]),
    ),
    "blank lines": (
        *("tags", "a.txt", lines_of("the town", "", "a ||| b")),
        *({}, None, ["the town", None, "a ||| b"], OF_TAGS),
    ),
    "words with tags": (
        *("tags", "a.txt", lines_of("1 the _ O", "2 town _ B-X", "", "1 rain _ O")),
        *({}, None, ["the town", "rain"], OF_TAGS),
    ),
    "sentences with tags": ("tags", "a.tsv", "the town\tO B-X\n", {}, None, ["the town"], OF_TAGS),
    "words without tags": ("tags", "a", "a\ntown\n", {"input_format": "columns"}, None, ["a town"], OF_TAGS),
    "words in lines": ("tags", "a", "a O\n\nb O\n", {"input_format": "lines"}, None, ["a O", None, "b O"], OF_TAGS),
    "lists of words with ids": (
        *("tags", "a.jsonl", lines_of(*(json.dumps({"id": n, "tokens": ["a"] * (n % 2)}) for n in range(1, 4)))),
        *({}, ["1", "2", "3"], ["a", None, "a"], OF_TAGS),
    ),
    "squad": ("answers", "a.json", json.dumps({"version": "1", "data": [SQUAD]}), {}, ["q7"], ASKED, OF_ANSWERS),
    "context": (
        *("answers", "a.txt", lines_of("who came ?", "")),
        *({"context_file": "c.txt"}, None, [*ASKED, None], OF_ANSWERS),
    ),
    "choices": (
        *("choices", "a.jsonl", lines_of(*(json.dumps({"here": c, "of": texts}) for c, texts in CHOICES))),
        *({"text_columns": "here,of"}, None, CHOICES, OF_CHOICES),
    ),
    "columns of choices": (
        *("choices", "a.tsv", lines_of("here\ta\tb\tc", *("\t".join([c, *texts, ""][:4]) for c, texts in CHOICES))),
        *({}, None, CHOICES, OF_CHOICES),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_file_gives_what_predictor_gives_for_its_texts(models, load, loaded_once, tmp_path, case, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, file, content, flags, ids, texts, columns = CASES[case]
    (tmp_path / file).write_text(content)
    (tmp_path / "c.txt").write_bytes(CONTEXT.encode())
    flags = {**flags, "model_dir": str(models / name), "input_file": file}
    results = iter(load(str(models / name))([text for text in texts if text]))
    expected = [as_json(next(results) if text else None) for text in texts]  # no text, no prediction
    run_here("predict", **flags, output_file="found.jsonl")
    found = json_lines(tmp_path / "found.jsonl")
    assert [row.pop("id", None) or "" for row in found] == (ids or [""] * len(texts))
    found = [row.get("answers", row.get("prediction", row)) for row in found]
    assert json.dumps(found) == json.dumps(expected)

    run_here("predict", **flags, output_file="found.tsv")
    header, *rows = [line.split("\t") for line in (tmp_path / "found.tsv").read_text().splitlines()]
    assert header == [*(["id"] if ids else []), *columns]
    assert [row[0] for row in rows] == ids or not ids
    for row, result in zip(rows, expected, strict=True):
        cells = dict(zip(header, row, strict=True))
        best = result[0] if isinstance(result, list) else result
        if best is None:
            assert not any(cells[column] for column in columns)
        elif name == "score":
            assert cells["prediction"] == f"{best:.6f}"
        elif name == "tags":
            assert cells["words"].split() == best["words"] and cells["tags"].split() == best["tags"]
        elif name == "several":
            shares = {label: float(cells[label]) for label in OF_LABELS}
            assert shares == pytest.approx(best["probabilities"], abs=1e-6)
            likely = {label for label in OF_LABELS if shares[label] > 0.5}
            assert set(filter(None, cells["prediction"].split(","))) == likely
        else:
            text = best.get("label", best.get("text"))
            assert cells["prediction"] == text.replace("\n", "\\n").replace("\r", "\\r")
            assert float(cells["probability"]) == pytest.approx(best["probability"], abs=1e-6)


@pytest.mark.parametrize(("top_k", "number"), [(None, 10), (2, 2), (101, 101)])
def test_of_many_labels_the_most_likely_are_written(models, load, loaded_once, tmp_path, top_k, number):
    (tmp_path / "a.txt").write_text(lines_of(*TEXTS))
    files = [tmp_path / "found.jsonl", tmp_path / "found.tsv"]
    for file in files:
        run_here("predict", model_dir=models / "many", input_file=tmp_path / "a.txt", output_file=file, top_k=top_k)
    objects = json_lines(files[0])
    header, *rows = [line.split("\t") for line in files[1].read_text().splitlines()]
    assert header[:4] == ["prediction", "probability", "label_1", "probability_1"] and len(header) == 2 + 2 * number
    for result, found, row in zip(load(str(models / "many"))(TEXTS), objects, rows, strict=True):
        expected = list(result.probabilities.items())[:number]
        assert found["label"] == row[0] == expected[0][0] and list(found["probabilities"].items()) == expected
        assert row[2::2] == [label for label, _ in expected]
        assert list(map(float, row[3::2])) == pytest.approx([share for _, share in expected], abs=1e-6)


def test_the_name_of_the_output_gives_its_format(models, loaded_once, tmp_path):
    (tmp_path / "a.tsv").write_text('id\ttext\n\t\nn"1\tthe, town\nx;\tsnow\n')
    flags = {"model_dir": models / "score", "input_file": tmp_path / "a.tsv", "id_column": "0"}

    def written(name, **more):
        run_here("predict", **flags, **more, output_file=tmp_path / name)
        return (tmp_path / name).read_bytes()

    rows = [line.split("\t") for line in written("a.txt").decode().splitlines()]
    assert [row[0] for row in rows] == ["id", "", 'n"1', "x;"] and rows[1][1] == ""
    lines = written("a.csv")
    assert lines.endswith(b"\r\n") and b'"n""1",' in lines
    assert list(csv.reader(io.StringIO(lines.decode(), newline=""))) == rows
    written("a.parquet")
    table = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert [(row["id"], row["prediction"] and f"{row['prediction']:.6f}") for row in table] == [
        (id_, prediction or None) for id_, prediction in rows[1:]
    ]
    for name, given, message in (
        ("a.csv", "tsv", "output_format=tsv contradicts the name of output_file=.*a.csv"),
        ("a.json", "parquet", "output_format=parquet contradicts the name"),
        ("a.csv.gz", None, "a.csv.gz: compressed files are not written; leave out .gz"),
        ("-", "parquet", "output_format=parquet needs output_file"),
    ):
        with prints_error(message):
            run_here("predict", **flags, output_file=name, output_format=given)


def test_an_export_reads_a_pipe_and_gives_what_the_run_predicted(reviews, version):
    with open(f"{reviews['data_dir']}/test.tsv", "rb") as source:
        content = source.read()
    flags = {"text_columns": "text,other", "input_format": "tsv"}
    result = run_script("predict", reviews["export_dir"], "-", piped=content, **flags)
    assert result.code == 0, result
    header, *rows = [line.split("\t") for line in result.output.splitlines()]
    assert header[:2] == ["prediction", "probability"]
    found = [[float(cell) for cell in row[2:]] for row in rows]
    np.testing.assert_allclose(found, predicted(reviews["output_dir"]), atol=TOLERANCE)


@pytest.mark.endurance
def test_a_question_is_answered_before_the_next_one_comes(models, tmp_path, forked_python):
    (tmp_path / "c.txt").write_text(CONTEXT)
    environment = {name: value for name, value in script_environment().items() if name != "PYTHONUNBUFFERED"}
    flags = {"model_dir": models / "answers", "input_file": "-", "context_file": tmp_path / "c.txt"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [forked_python, *script_command("predict", flags)[1:]]
    with subprocess.Popen(command, **pipes, env=environment) as process:
        watchdog = threading.Timer(300, process.kill)  # instead of waiting forever for an answer
        watchdog.start()
        for number_of_lines in (2, 1):
            process.stdin.write("who came ?\n")
            process.stdin.flush()
            lines = [process.stdout.readline() for _ in range(number_of_lines)]
            assert lines[-1].count("\t") == 3
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait() == 0
        watchdog.cancel()


@pytest.mark.parametrize(
    ("name", "content", "flags", "message"),
    [
        ("score", "", {}, "a.txt has no texts; give one per line or row"),
        ("pairs", "one ||| two\nthree\n", {}, "a.txt, line 2: text 0 is 'three', but this model reads"),
        ("pairs", "text\n1\n", {"input_format": "tsv"}, "line 1: no column 'second'; the columns are 'text'"),
        ("pairs", "text\tsecond\n1\t2\n3\n", {"input_format": "tsv"}, "line 3: there is no column 1"),
        ("score", "text\n1\n", {"input_format": "tsv", "id_column": "nr"}, "line 1: no column 'nr'; the columns are"),
        ("score", "a\n", {"id_column": "nr"}, "--id_column needs a table; give --input_format"),
        ("choices", "a ||| b\n", {}, "line 1: the choices are 'b'; give a list of at least two"),
        ("choices", "here\t1\t2\t3\na\tb\t\tc\n", {"input_format": "tsv"}, "give at least two, none of them empty"),
        ("answers", f"who ||| a\nwho ||| {'a' * (1 << 20)}a\n", {}, "line 2: .* must have at most 1048576"),
        ("score", "a\n", {"input_format": "columns"}, "input_format=columns needs a tagger; .* is a model of classifi"),
        ("tags", "a O\nb\n", {}, "a.txt, line 2: 1 column, but line 1 has 2"),
        ("encoder", "a\n", {}, "is an encoder without a task: extract_features writes its vectors"),
        ("tags", "a\n", {"top_k": 2}, "top_k is for labels, but .* is a model of tagging"),
        ("words", "a [MASK]\n", {}, "is a model of pretraining: fill_mask predicts its words"),
    ],
)
def test_mistakes_leave_no_file(models, loaded_once, tmp_path, name, content, flags, message):
    (tmp_path / "a.txt").write_text(content)
    out = tmp_path / "out.tsv"
    with prints_error(message):
        run_here("predict", model_dir=models / name, input_file=tmp_path / "a.txt", output_file=out, **flags)
    assert not out.exists()


@pytest.mark.parametrize("header", ["id\tbody", "text", "nr,text"])
def test_lines_that_begin_like_a_table_are_told(models, loaded_once, tmp_path, caplog, header):
    (tmp_path / "a.txt").write_text(f"{header}\n")
    run_here("predict", model_dir=models / "score", input_file=tmp_path / "a.txt", output_file=tmp_path / "out.tsv")
    assert "line 1 looks like a row of a table, but is read as a text; for a table give input_format" in caplog.text
