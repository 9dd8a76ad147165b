"""Exports for LiteRT and ONNX are used where neither TensorFlow nor Keras is installed, or not imported."""

import contextlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from packaging.requirements import Requirement

from official_bert.commands.launch_workers import free_ports
from official_bert.inference.finished_runs import export
from official_bert.inference.predictor import Predictor
from official_bert.options.groups import BatchingSettings
from official_bert.serving.served_model import ServedModel
from official_bert.support.errors import UserError
from tests.conftest import GOLDEN, ROOT, assert_fails, assert_refused, run_here, run_script, script_environment
from tests.exports import assert_same
from tests.serving.server_process import send, wait_until
from tests.serving.tiny_exports import PROMPTS

pytest.importorskip("ai_edge_litert", reason='needs the extra "lite"')

pytest.importorskip("starlette.testclient")

from starlette.testclient import TestClient

from official_bert.serving.app import make_app

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unoptimized_graphs")]
PAIRS = [("the town", "a river"), ("Zoë’s ﬁne café", "東京 tower"), ("bright word " * 40, "")]
TEXTS = ["the town", "", "the river " * 10]
_PROGRAM = """
import sys
import numpy as np
from official_bert import Predictor
from official_bert.commands import extract_features, fill_mask, predict, score_sentences, sentence_similarity

pairs, masks, sentences, file = sys.argv[1:]

def run(command, folder=None, **flags):
    model = dict.fromkeys(["init_checkpoint", "bert_config_file", "vocab_file"], folder) if folder else {}
    config = command.COMMAND.config_class(**flags, **model)
    if command.COMMAND.check:
        command.COMMAND.check(config)
    command.run(config, *([command.COMMAND.prepare(config)] if command.COMMAND.prepare else []))

labels = [found.label for found in Predictor(pairs)([("the town", "a river")] * 2)]
shape = Predictor(sentences).embed(["the town", "a longer text of the town"]).shape
run(predict, model_dir=pairs, input_file=file, output_file=file + ".jsonl")
run(fill_mask, masks, text="the [MASK]")
run(score_sentences, masks, input_file=file, output_file=file + ".scores")
run(sentence_similarity, sentences, candidates_file=file, query="the town", pooling="model")
output = {"output_file": file + ".tfrecord", "output_format": "tfrecord", "pooling": "none", "layers": "-1"}
run(extract_features, sentences, input_file=file, **output)
assert not {"tensorflow", "keras"} & set(sys.modules), sorted(sys.modules)
assert "tensorflow" not in open("/proc/self/maps").read()
print(len(set(labels)), shape)
"""


@pytest.fixture(scope="module")
def lite(write_export, tmp_path_factory):
    """Return the folder of a task's versions for LiteRT."""
    folder = tmp_path_factory.mktemp("lite")

    def write(task):
        if not (folder / task).exists():
            options = {"prompts": PROMPTS} if task == "sentence_encoder" else {}
            write_export(folder / task, task, **options, export_format="tflite")
        return str(folder / task)

    return write


def used(python, lite, tmp_path, environment):
    """Predict and embed, and run the commands that read exports, in a process; return the predictions."""
    (tmp_path / "pairs.tsv").write_text("text_a\ttext_b\nthe town\ta river\n")
    folders = map(lite, ("classification", "pretraining", "sentence_encoder"))
    command = [python, "-c", _PROGRAM, *folders, str(tmp_path / "pairs.tsv")]
    process = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "1 (2, 16)"
    return json.loads((tmp_path / "pairs.tsv.jsonl").read_text())


def test_predictions_import_neither_tensorflow_nor_keras(lite, tmp_path):
    row = used(sys.executable, lite, tmp_path, script_environment())
    found = Predictor(lite("classification"))(PAIRS[:1])[0]
    assert (row["label"], row["probability"]) == (found.label, pytest.approx(found.probability, abs=1e-5))


LINES = ["The town woke.", "", "a river ||| the town", "Zoë’s ﬁne café, 東京", "a river " * 30]
_RANKED = {"candidates_file": "{texts}", "query": "the river", "output_format": "jsonl"}
_WRITTEN = {"input_file": "{texts}", "output_file": "{out}"}
# Of commands that read exports: the model, the flags and those for the model alone.
COMMANDS = [
    ("fill_mask", "masks", {"text": "the [MASK] is [MASK]", "top_k": 3}, {}),
    ("score_sentences", "masks", {**_WRITTEN, "by_word": True, "mask_rest_of_word": True}, {"max_seq_length": 40}),
    ("sentence_similarity", "dense", _RANKED, {}),
    ("sentence_similarity", "splade", _RANKED, {}),
    ("extract_features", "dense", {**_WRITTEN, "pooling": "none"}, {"layers": "-1"}),
    ("extract_features", "dense", _WRITTEN, {}),
]


@pytest.mark.endurance
def test_commands_answer_as_with_the_model(tmp_path):
    models = {name: GOLDEN / "sentence_transformers" / name for name in ("dense", "splade")}
    for name, folder in models.items():
        flags = {"init_checkpoint": folder, "export_dir": tmp_path / name, "export_format": "onnx"}
        assert run_script("export_embeddings", **flags).code == 0
    models["masks"] = GOLDEN / "families" / "answers" / "bert_masks"
    export(models["masks"], tmp_path / "masks", export_format="onnx")
    for command, model, flags, more in COMMANDS:
        lines = LINES if command == "score_sentences" else [LINES[0], LINES[1], LINES[-1]]  # none that may tie, no pair
        (tmp_path / "texts").write_text("".join(f"{line}\n" for line in lines))
        found = []
        for folder, others in ((models[model], more), (tmp_path / model, {})):
            paths = {"texts": tmp_path / "texts", "out": tmp_path / f"{folder.name}.out"}
            given = {name: str(value).format(**paths) for name, value in flags.items()}
            result = run_script(command, init_checkpoint=folder, **given, **others)
            assert result.code == 0, result
            text = paths["out"].read_text() if "output_file" in flags else result.output
            found.append(re.split(r"(-?\d+\.\d+(?:e-\d+)?)", text))
        (of_model, of_export) = found
        assert of_export[::2] == of_model[::2] and len(of_model) > 4
        numbers = (np.array(parts[1::2], float) for parts in found)
        np.testing.assert_allclose(*numbers, atol=1e-4, rtol=1e-5)


def test_what_an_export_lacks_is_one_message(lite, tmp_path):
    (tmp_path / "texts").write_text("a ||| b\n")
    texts = {"input_file": tmp_path / "texts", "output_file": tmp_path / "out"}
    ranked = {"candidates_file": tmp_path / "texts", "query": "a"}
    encoder, masks = lite("sentence_encoder"), lite("pretraining")
    for command, folder, flags, message in (
        ("fill_mask", masks, {"text": "[MASK]", "top_k": 6}, "--top_k=6: the export has 5 words for each mask"),
        ("fill_mask", encoder, {"text": "[MASK]"}, "is an export of sentence_encoder; of exports, this com"),
        ("score_sentences", masks, {**texts, "score": "next_sentence"}, "an export has no next-sentence head"),
        ("sentence_similarity", encoder, {"sts_file": tmp_path / "texts"}, "--sts_file compares layers, and"),
        ("sentence_similarity", encoder, {**ranked, "pooling": "max"}, "an export has its own vectors"),
    ):
        model = dict.fromkeys(("init_checkpoint", "bert_config_file", "vocab_file"), folder)
        assert_refused(command, {**model, **flags}, message)
    for command, folder, flags, message in (
        ("extract_features", encoder, {**texts, "layers": "-1,-2"}, "which decides 'layers'; leave it out"),
        ("score_sentences", masks, {**texts, "vocab_file": "a"}, "is an export, which decides 'vocab_file'"),
        ("sentence_similarity", encoder, ranked, "an export reads single texts, and 'b' is the second of a"),
    ):
        assert_fails(run_script(command, init_checkpoint=folder, **flags), message)
    assert not (tmp_path / "out").exists()


def test_descriptions_that_were_changed(lite, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(f"{lite('tagging')}/1", tmp_path / "1")
    (tmp_path / "1" / "checksums.json").unlink()
    path = tmp_path / "1" / "official_bert.json"
    said = json.loads(path.read_text())
    for changes, message in (
        ({"max_seq_length": 0}, "max_seq_length is 0; it must be from 1 to the 64 positions of the model"),
        ({"max_seq_length": "9"}, "max_seq_length is '9'; it must be a whole number"),
        ({"text_names": None}, "text_names is None; it must be a list"),
        ({"task": "a.b"}, "unknown task 'a.b'"),
    ):
        path.write_text(json.dumps({**said, **changes}))
        with pytest.raises(UserError, match=message):
            Predictor(tmp_path)
    path.write_text(json.dumps({**said, "tags": ["DET", "NOUN", "VERB"]}))  # these mark no entities
    (tmp_path / "tagged.txt").write_text("the DET\ntown NOUN\n\na DET\n")
    run_here("predict", model_dir="1", input_file="tagged.txt", output_file="found.jsonl")
    found = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [row["words"] for row in found] == [["the", "town"], ["a"]]


def answers(port):
    with contextlib.suppress(OSError):
        return send(port, "GET", "/health")[0] == 200
    return False


def test_a_server_answers_as_with_a_saved_model(write_export, tmp_path, caplog):
    """The endpoints are the same; only the signatures of tf.Examples are missing."""
    answers = []
    for name, options in (("saved_model", {}), ("lite", {"export_format": "tflite"})):
        write_export(tmp_path / name, "sentence_encoder", prompts=PROMPTS, **options)
        served = ServedModel(str(tmp_path / name), BatchingSettings(num_batch_threads=2))
        client, model = TestClient(make_app(served, "texts")), "/v1/models/texts"
        ids = {"input_ids": [[2, 9, 3]], "segment_ids": [[1, 1, 1]], "input_mask": [[1, 1, 1]]}
        requests = [
            (f"{model}:predict", {"signature_name": "text", "instances": [{"text": text} for text in TEXTS]}),
            (f"{model}:predict", {"signature_name": "tokenize", "inputs": TEXTS}),
            (f"{model}:predict", {"signature_name": "tokenize", "inputs": []}),
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
        assert [code for code, _ in answers[-1]] == [200] * 7 + [400, 400, 200, 200]
        definitions = client.get(f"{model}/metadata").json()["metadata"]["signature_def"]["signature_def"]
        assert definitions["text"]["outputs"]["vectors"]["tensor_shape"]["dim"][1]["size"] == "16"
    for (_, expected), (_, answer) in zip(*answers, strict=True):
        if "error" in expected:
            assert answer["error"].split(" to ")[0] == expected["error"].split(" to ")[0]
        else:
            assert_same(answer, expected)
    assert client.post(f"{model}:classify", json={"examples": [{"text": "a"}]}).status_code == 400
    before, versions = served.version, tmp_path / "lite"
    new, wrong = (shutil.copytree(versions / "1", tmp_path / copy) for copy in ("new", "wrong"))
    (wrong / "checksums.json").unlink()
    said = json.loads((wrong / "official_bert.json").read_text())
    (wrong / "official_bert.json").write_text(json.dumps({**said, "limits": {}}))
    wrong.rename(versions / "2")
    served.start_watching()
    wait_until(lambda: "still serving version 1: cannot load version 2: KeyError(" in caplog.text)
    new.rename(versions / "3")
    wait_until(lambda: served.version is not before)
    served.close()
    assert caplog.text.count("cannot load version 2") == 1
    (versions / "3").rename(tmp_path / "old")  # before the first text
    assert client.post("/embed", json={"inputs": "the town"}).status_code == 200


def test_choices_have_no_endpoints_of_texts(lite):
    served = ServedModel(lite("multiple_choice"), BatchingSettings(num_batch_threads=1))
    client = TestClient(make_app(served, "choices"))
    assert client.get("/info").json()["model_type"] == {"multiple_choice": {}}
    assert client.post("/tokenize", json={"inputs": "the town"}).status_code == 200
    for path, content in (("/predict", {"inputs": "a"}), ("/rerank", {"query": "a", "texts": ["b"]})):
        assert client.post(path, json=content).status_code == 424


def test_labels_that_a_model_of_entailment_was_not_trained_on(write_export, lite, tmp_path):
    write_export(tmp_path / "nli", labels=("contradiction", "entailment", "neutral"), export_format="tflite")
    predict, texts, labels = Predictor(tmp_path / "nli"), ["the town has a river", "bright word"], ["town", "café"]
    pairs = [(text, f"It is {label}.") for text in texts for label in labels]
    first, second = ([text.encode() for text in column] for column in zip(*pairs, strict=True))
    logits = predict._model.answer({"text_a": first, "text_b": second})["logits"].reshape(2, 2, 3).astype(float)
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
    one = predict.classify(texts[0], labels, hypothesis="It is {}.", multi_label=True)
    assert (one.label, one.labels) == (found[0].label, found[0].labels)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    flags = {"labels": ",".join(labels), "hypothesis": "It is {}.", "output_file": tmp_path / "out.jsonl"}
    run_here("predict", model_dir=tmp_path / "nli", input_file=tmp_path / "texts.txt", **flags)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == [labels[place] for place in together.argmax(axis=1)]
    for wrong, message in (
        ({"labels": ["a", "a"]}, "labels=a,a: give different labels"),
        ({"labels": ["a"], "hypothesis": "b"}, "hypothesis='b' has no place for the label; write it as {}"),
        ({"labels": "abc"}, "labels='abc', .*: give a list of strings, and a string"),
        ({"labels": [1]}, r"labels=\[1\], .*: give a list of strings, and a string"),
        ({"labels": ["a"], "hypothesis": None}, "hypothesis=None: give a list of strings, and a string"),
        ({"texts": [None], "labels": ["a"]}, "text 0 is .None, "),
    ):
        with pytest.raises(UserError, match=message):
            predict.classify(**{"texts": texts, **wrong})
    with pytest.raises(UserError, match="named entailment and contradiction; this one has 'bad', 'good'"):
        Predictor(lite("classification")).classify(texts, labels)


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
    used(light, lite, tmp_path, environment)
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
