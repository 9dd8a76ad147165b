"""Exports for LiteRT and ONNX are used where neither TensorFlow nor Keras is installed, or not imported."""

import contextlib
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from packaging.requirements import Requirement

from official_bert.commands.launch_workers import free_ports
from official_bert.config.sentence_modules import Prompts
from official_bert.inference.predictor import Predictor
from official_bert.options.groups import BatchingSettings
from official_bert.serving.served_model import ServedModel
from official_bert.support.errors import UserError
from tests.conftest import ROOT, endurance, run_here, script_environment
from tests.exports import assert_same
from tests.serving.server_process import send, wait_until

pytest.importorskip("ai_edge_litert", reason='needs the extra "lite"')

pytest.importorskip("starlette.testclient")

from starlette.testclient import TestClient

from official_bert.serving.server import make_app

pytestmark = pytest.mark.slow
PAIRS = [("the town", "a river"), ("Zoë’s ﬁne café", "東京 tower"), ("bright word " * 40, "")]
TEXTS = ["the town", "", "the river " * 10]
_PROGRAM = """
import sys
import numpy as np
from official_bert import Predictor
from official_bert.commands import predict

pairs, file, *sentences = sys.argv[1:]
labels = [found.label for found in Predictor(pairs)([("the town", "a river")] * 2)]
shapes = [Predictor(folder).embed(["the town", "a longer text of the town"]).shape for folder in sentences]
config = predict.PredictConfig(model_dir=pairs, input_file=file, output_file=file + ".jsonl")
predict.check(config)
predict.run(config)
assert not {"tensorflow", "keras"} & set(sys.modules), sorted(sys.modules)
assert "tensorflow" not in open("/proc/self/maps").read()
print(len(set(labels)), *shapes)
"""


@pytest.fixture(scope="module")
def lite(write_export, tmp_path_factory):
    """Return the folder of a task's versions for LiteRT."""
    folder = tmp_path_factory.mktemp("lite")

    def write(task):
        if not (folder / task).exists():
            write_export(folder / task, task, export_format="tflite")
        return str(folder / task)

    return write


def used(python, lite, tmp_path, environment, *others):
    """Predict, and embed by other tasks, in a process; return what the command wrote."""
    (tmp_path / "pairs.tsv").write_text("text_a\ttext_b\nthe town\ta river\n")
    command = [python, "-c", _PROGRAM, lite("classification"), str(tmp_path / "pairs.tsv"), *map(lite, others)]
    process = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "1" + " (2, 16)" * len(others)
    return json.loads((tmp_path / "pairs.tsv.jsonl").read_text())


def test_predictions_import_neither_tensorflow_nor_keras(lite, tmp_path):
    row = used(sys.executable, lite, tmp_path, script_environment())
    found = Predictor(lite("classification"))(PAIRS[:1])[0]
    assert (row["label"], row["probability"]) == (found.label, pytest.approx(found.probability, abs=1e-5))


def answers(port):
    with contextlib.suppress(OSError):
        return send(port, "GET", "/health")[0] == 200
    return False


@pytest.mark.parametrize("export_format", ["tflite", *endurance("onnx")])
def test_a_server_answers_as_with_a_saved_model(write_export, tmp_path, export_format):
    """The endpoints are the same; only the signatures of tf.Examples are missing."""
    answers = []
    for name in ("saved_model", export_format):
        prompts = Prompts({"query": "the "}, "")
        write_export(tmp_path / name / "texts", "sentence_encoder", export_format=name, prompts=prompts)
        served = ServedModel(str(tmp_path / name / "texts"), BatchingSettings(num_batch_threads=2))
        client, model = TestClient(make_app(served, "texts")), "/v1/models/texts"
        ids = {name: [[2, 9, 3]] for name in ("input_ids", "segment_ids", "input_mask")}
        ids["segment_ids"] = ids["input_mask"] = [[1, 1, 1]]
        requests = [
            (f"{model}:predict", {"signature_name": "text", "instances": [{"text": text} for text in TEXTS]}),
            (f"{model}:predict", {"signature_name": "tokenize", "inputs": TEXTS}),
            (f"{model}:predict", {"inputs": ids}),
            (f"{model}:predict", {"signature_name": "serving_int64", "inputs": ids}),
            (f"{model}:predict", {"signature_name": "token_vectors", "inputs": ids}),
            ("/embed_all", {"inputs": TEXTS[::2]}),
            (f"{model}:predict", {"inputs": {**ids, "input_ids": [[2, 99999, 3]]}}),
            (f"{model}:predict", {"inputs": {**ids, "input_mask": [[1]]}}),
            ("/v1/embeddings", {"model": "texts", "input": ["the town", "a river"], "dimensions": 4}),
            ("/embed", {"inputs": "the town", "prompt_name": "query"}),
        ]
        found = [client.post(path, json=body) for path, body in requests]
        answers.append([(response.status_code, response.json()) for response in found])
        assert [code for code, _ in answers[-1]] == [200] * 6 + [400, 400, 200, 200]
        definitions = client.get(f"{model}/metadata").json()["metadata"]["signature_def"]["signature_def"]
        assert definitions["text"]["outputs"]["vectors"]["tensor_shape"]["dim"][1]["size"] == "16"
        if name != "saved_model":
            assert client.post(f"{model}:classify", json={"examples": [{"text": "a"}]}).status_code == 400
            before = served.version
            write_export(tmp_path / name / "texts", "sentence_encoder", export_format=name, seed=2)
            served.start_watching()
            wait_until(lambda before=before, served=served: served.version is not before)
            served.close()
    for (_, expected), (_, answer) in zip(*answers, strict=True):
        if "error" in expected:
            assert answer["error"].split(" to ")[0] == expected["error"].split(" to ")[0]
        else:
            assert_same(answer, expected)


NLI = ("contradiction", "entailment", "neutral")


@pytest.mark.parametrize("export_format", ["tflite", *endurance("saved_model")])
def test_labels_that_a_model_of_entailment_was_not_trained_on(write_export, tmp_path, export_format):
    write_export(tmp_path / "nli", labels=NLI, export_format=export_format)
    predict, texts, labels = Predictor(tmp_path / "nli"), ["the town has a river", "bright word"], ["town", "café"]
    pairs = [(text, f"It is {label}.") for text in texts for label in labels]
    first, second = ([text.encode() for text in column] for column in zip(*pairs, strict=True))
    columns = {"text_a": first, "text_b": second}
    logits = predict._model.answer(columns)["logits"].reshape(2, 2, 3).astype(float)
    powers = np.exp(logits)
    alone = powers[..., 1] / (powers[..., 1] + powers[..., 0])  # of entailment and contradiction
    together = powers[..., 1] / powers[..., 1].sum(axis=1, keepdims=True)
    for multi_label, expected in ((False, together), (True, alone)):
        found = predict.classify(texts, labels, hypothesis="It is {}.", multi_label=multi_label)
        for result, row in zip(found, expected, strict=True):
            assert [result.probabilities[label] for label in labels] == pytest.approx(row, abs=1e-5)
            assert result.label == labels[row.argmax()] and result.probability == pytest.approx(row.max(), abs=1e-5)
            if multi_label:
                assert set(result.labels) == {label for label, share in zip(labels, row, strict=True) if share > 0.5}
    alone = predict.classify(texts[0], labels, hypothesis="It is {}.", multi_label=True)
    assert (alone.label, alone.labels) == (found[0].label, found[0].labels)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    flags = {"labels": ",".join(labels), "hypothesis": "It is {}.", "output_file": tmp_path / "out.jsonl"}
    run_here("predict", model_dir=tmp_path / "nli", input_file=tmp_path / "texts.txt", **flags)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == [labels[place] for place in together.argmax(axis=1)]
    for wrong, message in (
        ({"labels": ["a", "a"]}, "labels=a,a: give different labels"),
        ({"labels": ["a"], "hypothesis": "b"}, "hypothesis='b' has no place for the label; write it as {}"),
    ):
        with pytest.raises(UserError, match=message):
            predict.classify(texts, **wrong)
    write_export(tmp_path / "reviews", labels=("bad", "good"))
    with pytest.raises(UserError, match="named entailment and contradiction; this one has 'bad', 'good'"):
        Predictor(tmp_path / "reviews").classify(texts, labels)


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """Return the Python of an environment with what deploy/light.txt lists, and nothing else."""
    folder = tmp_path_factory.mktemp("light") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    lines = (ROOT / "deploy" / "light.txt").read_text().splitlines()
    wanted, seen = [Requirement(line) for line in lines if line and line[0] != "#"], set()
    while wanted:
        requirement = wanted.pop()
        if requirement.name.lower() in seen:
            continue
        seen.add(requirement.name.lower())
        distribution = importlib.metadata.distribution(requirement.name)
        assert distribution.version in requirement.specifier
        for top in {path.parts[0] for path in distribution.files if path.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists():
                (packages / top).symlink_to(distribution.locate_file(top))
        for extra in {"", *requirement.extras}:
            others = map(Requirement, distribution.requires or ())
            wanted += [each for each in others if not each.marker or each.marker.evaluate({"extra": extra})]
    (packages / "official_bert").symlink_to(ROOT / "official_bert")
    return folder / "bin" / "python"


def test_an_environment_without_tensorflow_predicts_and_serves(light, lite, tmp_path, monkeypatch):
    missing = "import importlib.util; print([importlib.util.find_spec(n) for n in ('tensorflow', 'keras', 'numpy')])"
    printed = subprocess.run([light, "-c", missing], capture_output=True, text=True, check=True).stdout
    assert re.match(r"\[None, None, ModuleSpec", printed)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    used(light, lite, tmp_path, environment, "sentence_encoder")
    (port,), path = free_ports(1), lite("classification")
    command = [light, "-m", "official_bert", "serve", f"--export_dir={path}", f"--port={port}", "--ui"]
    with (
        open(tmp_path / "log", "w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            wait_until(lambda: server.poll() is not None or answers(port), (tmp_path / "log").read_text)
            columns = dict(zip(("text_a", "text_b"), zip(*PAIRS, strict=True), strict=True))
            body = json.dumps({"signature_name": "text", "inputs": columns})
            status, answer = send(port, "POST", "/v1/models/classification:predict", body)
            maps = pathlib.Path(f"/proc/{server.pid}/maps").read_text()
        finally:
            server.terminate()
    assert (status, server.wait()) == (200, 0), (tmp_path / "log").read_text()
    expected = [found.label for found in Predictor(path)(PAIRS)]
    assert [labels[0] for labels in json.loads(answer)["outputs"]["classes"]] == expected
    assert "litert" in maps and "tensorflow" not in maps
