"""The model server from its clients' view: a real server process with exports of tiny models."""

import base64
import concurrent.futures
import contextlib
import gzip
import json
import os
import pathlib
import re
import shutil
import socket
import time

import numpy as np
import pytest
import tensorflow as tf

from official_bert.commands.launch_workers import free_ports
from official_bert.commands.serve import ServeConfig
from official_bert.commands.serve import prepare as check_serve
from official_bert.options.groups import BatchingSettings
from official_bert.serving.rest_format import answer_body
from official_bert.serving.saved_model import signature_of
from official_bert.serving.served_model import ServedModel
from official_bert.serving.signatures import SIGNATURES
from official_bert.support.errors import UserError
from tests.conftest import assert_fails, endurance, run_script
from tests.exports import OF_CLASSIFIER, TOLERANCE
from tests.serving.server_process import Server, clients, resident_kilobytes, wait_until
from tests.serving.tiny_exports import PAIRS

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.usefixtures("unoptimized_graphs")

TEXTS = dict(zip(("text_a", "text_b"), (list(column) for column in zip(*PAIRS, strict=True)), strict=True))
IDS = {"input_ids": [[2, 7, 3]], "input_mask": [[1, 1, 1]], "segment_ids": [[0, 0, 0]]}


@pytest.fixture(scope="module")
def server(export_dir, tmp_path_factory):
    server = Server(export_dir, tmp_path_factory.mktemp("log") / "log", batch_timeout_micros=20000, ui=True)
    yield server
    if server.process.poll() is None:
        assert server.end() == 0, server.log
    assert "Traceback" not in server.log
    assert all(line.replace("\t", "").isprintable() and len(line) < 1000 for line in server.log.splitlines())


@pytest.fixture(scope="module")
def expected(signatures):
    answer = signatures["text"](**{name: tf.constant(texts) for name, texts in TEXTS.items()})
    return {name: values.numpy() for name, values in answer.items()}


def test_columns_and_rows_give_what_the_export_gives(server, expected):
    columns = server.outputs("text", TEXTS)
    rows = [dict(zip(TEXTS, pair, strict=True)) for pair in PAIRS]
    rows[0]["text_a"] = {"b64": base64.b64encode(PAIRS[0][0].encode()).decode()}
    status, answer = server.predict({"signature_name": "text", "instances": rows}, suffix="/versions/1")
    assert status == 200 and set(answer) == {"predictions"}
    for name in ("probabilities", "logits"):
        np.testing.assert_allclose(columns[name], expected[name], atol=TOLERANCE)
        np.testing.assert_allclose([row[name] for row in answer["predictions"]], expected[name], atol=TOLERANCE)
    classes = [[label.decode() for label in row] for row in expected["classes"]]
    assert columns["classes"] == [row["classes"] for row in answer["predictions"]] == classes
    assert np.ptp(expected["probabilities"], axis=0).min() > 1e-3  # the texts matter


def test_outputs_with_names_of_bytes_are_in_base64():
    outputs = {"image_bytes": np.array([[b"\xff"]], object), "text": np.array([b"a"], object)}
    expected = {"predictions": [{"image_bytes": [{"b64": "/w=="}], "text": "a"}]}
    assert json.loads(answer_body(outputs, is_in_rows=True)) == expected


def test_examples_answer_without_the_name_of_the_input(server):
    example = tf.train.Example()
    for name, values in IDS.items():
        example.features.feature[name].int64_list.value.extend(values[0] + [0] * 29)
    serialized = base64.b64encode(example.SerializeToString()).decode()
    status, answer = server.predict({"signature_name": "examples", "instances": [{"b64": serialized}]})
    assert status == 200
    logits = server.outputs("serving_default", IDS)["logits"]
    np.testing.assert_allclose([answer["predictions"][0]["logits"]], logits, atol=TOLERANCE)


def nested(depth):
    return json.loads("[" * depth + '["a"]' + "]" * depth)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"inputs"', "the request is not JSON"),
        (b"[1]", "must be a JSON object"),
        ({"inputs": TEXTS, "signature_name": "absent"}, "there is no signature 'absent'; the model has 'classify', "),
        ({"inputs": {"text": ["a"]}, "signature_name": "text"}, "reads 'text_a', 'text_b', but the request has 'text'"),
        ({"inputs": ["a"], "signature_name": "text"}, "the values need these names"),
        ({"inputs": {"text_a": ["a"], "text_b": []}, "signature_name": "text"}, "the same number of examples"),
        ({"inputs": {**TEXTS, "text_a": [{"b64": "é"}] * 4}, "signature_name": "text"}, "a value of b64 that is not"),
        ({"inputs": {**IDS, "input_ids": [[2, 1182, 3]]}}, "input_ids must be from 0 to 1181, but is from 2 to 1182"),
        ({"inputs": {**IDS, "input_ids": [[2, 2**70, 3]]}}, "input_ids must be from -2147483648 to 2147483647"),
        ({"inputs": {**IDS, "input_ids": [[2, 7.5, 3]]}}, "input_ids must have whole numbers"),
        ({"inputs": {**IDS, "input_mask": [[1, 1]]}}, "input_mask must have the shape of input_ids"),
        ({"inputs": {**IDS, "input_ids": [[2, 7], [3]]}}, "input_ids has rows of different lengths"),
        ({"inputs": IDS, "instances": []}, 'must have either "inputs" or "instances"'),
        ({"instances": []}, "at least one example"),
        ({"instances": [{"input_ids": [1]}, {"input_mask": [1]}]}, "must have the same inputs"),
        ({"inputs": IDS, "signature_name": 3}, "signature_name must be a string"),
        ({"inputs": {name: [""] * 1025 for name in TEXTS}, "signature_name": "text"}, "has 1025 examples; at most"),
        ({"instances": [{"b64": "YQ=="}], "signature_name": "examples"}, "is not a serialized tf.train.Example"),
        ({"instances": [{"b64": ""}], "signature_name": "examples"}, "Feature: input_ids"),
        (b'{"inputs": {"text_a": %sTrue}}' % (b"[" * 2000), "it is nested too deeply"),
        (b'{"inputs": {"input_ids": [[%s]]}}' % (b"7" * 5000), "a number has too many digits"),
        (b'{"inputs": "\xff"}', "it is not UTF-8"),
        (b'{"inputs": [%s"a"]}' % (b'"a",' * (1 << 21)), "has more than 2097152 values"),
        ({"inputs": {**TEXTS, "text_a": ["", nested(900)]}, "signature_name": "text"}, "must have strings, not a list"),
        ({"inputs": {**IDS, "input_ids": nested(900)}}, "must have 2 dimension(s), but has 901"),
        ({"inputs": {**IDS, "input_ids": [["a" * (1 << 20), *"bcd"]]}}, "input_ids must have whole numbers"),
        ({"inputs": IDS, "signature_name": "\n" * 5000}, "there is no signature '" + r"\n" * 200 + "...'"),
        ({"instances": ["text"]}, """signature that reads texts ('text_a', 'text_b') is "signature_name": "text\""""),
        ({"inputs": TEXTS, "signature_name": "examples"}, """signature that reads texts ('text_a', 'text_b') is """),
    ],
)  # fmt: skip
def test_mistakes_of_clients(server, body, message):
    status, answer = server.predict(body)
    assert (status, set(answer)) == (400, {"error"})
    assert message in answer["error"] and "{{" not in answer["error"] and "node" not in answer["error"]


def test_missing_models_versions_and_addresses(server):
    for method, path in (
        ("POST", "/v1/models/other:predict"), ("GET", "/v1/models/other"), ("GET", "/v1/models/reviews/versions/7"),
        ("POST", "/v1/models/reviews/versions/7:predict"), ("GET", "/nowhere"), ("GET", "/ui/index.html"),
        ("GET", f"/v1/models/reviews/versions/{'9' * 4301}"),
        ("POST", "/v1/models/a%0A%1B[31mb:predict"), ("GET", "/ui/../server.py"), ("GET", "/v2/models/reviews"),
    ):  # fmt: skip
        status, answer = server.send(method, path, b"{}" if method == "POST" else None)
        assert status == 404 and set(json.loads(answer)) == {"error"}, path


def test_clients_that_leave_are_at_most_a_line_of_the_log(server):
    """The server fixture checks for tracebacks when it stops."""
    num_lines = len(server.log.splitlines())
    text = json.dumps({"signature_name": "text", "inputs": {name: texts[:1] * 512 for name, texts in TEXTS.items()}})
    for body in ("{", text):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = f"POST /v1/models/reviews:predict HTTP/1.1\r\nHost: a\r\nContent-Length: {len(text)}\r\n\r\n"
            connection.sendall((head + body).encode())
    server.outputs("text", TEXTS)
    assert len(server.log.splitlines()) <= num_lines + 2


@pytest.mark.slow
def test_the_size_of_requests_is_limited(server):
    text = "a" * (1 << 26)
    status, answer = server.predict({"inputs": text})
    assert status == 413 and answer == {"error": "the request has more than 67108864 bytes"}
    status, answer = server.predict({"inputs": {"text_a": [text[1000:]]}})  # is read
    assert status == 400 and "but the request has 'text_a'" in answer["error"]


HEAD = b"GET /health HTTP/1.1\r\nHost: a\r\n"
POST = b"POST /v1/models/reviews:predict HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"


def answer_to(server, content, more=b""):
    """Return the status of the answer to raw bytes, 0 without one, after which the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        received = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(content)
            if more:
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
                connection.sendall(more)
            while part := connection.recv(1 << 16):
                received += part
    return int(received[9:12] or 0)


def test_heads_are_limited_in_bytes_headers_and_memory(server):
    last = b"Connection: close\r\n\r\n"
    answer_to(server, HEAD + last)
    idle, seconds = resident_kilobytes(server.process.pid), []

    def ask():
        began = time.monotonic()
        server.send("GET", "/health")
        seconds.append(time.monotonic() - began)
        time.sleep(0.05)

    with clients(1, ask), contextlib.ExitStack() as connections:
        for content, status in (
            (HEAD + b"a: " + b"b" * 60_000 + b"\r\n" + last, 200),
            (HEAD + b"a: " + b"b" * 70_000 + b"\r\n" + last, 431), (HEAD + b"a: " + b"b" * 40_000_000, 431),
            (b"GET /" + b"a" * 1_000_000, 431), (HEAD + b"ab: cd\r\n" * 120 + last, 200),
            (HEAD + b"ab: cd\r\n" * 130 + last, 431), (HEAD + b"ab: cd\r\n" * 1_000_000, 431),
            (CHUNKED + b"0\r\n" + b"ab: cd\r\n" * 1_000_000, 431), (CHUNKED + b"1;" + b"a" * 40_000_000, 431),
            (b"\r\n" * 1_000_000, 0), ((HEAD + b"\r\n") * 100_000, 0),
        ):  # fmt: skip
            assert answer_to(server, content) in {status, 200 * (status == 0)}, content[:200]
        for _ in range(500):
            half = connections.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            half.sendall(HEAD + b"ab: cd\r\n" * 100 + b"a: " + b"b" * 60_000)
        server.send("GET", "/health")
        assert resident_kilobytes(server.process.pid) - idle < 256_000
    assert max(seconds) < 2


@pytest.mark.endurance
def test_slow_clients_do_not_keep_their_connections(server):
    """The last of these clients sends a line end after an answer."""
    begun = POST + b"Content-Length: 9\r\n\r\n{"
    slow = [(b"", b""), (HEAD, b""), (begun, b""), (CHUNKED, b""), (HEAD + b"\r\n", b"\r\n")]
    with concurrent.futures.ThreadPoolExecutor(len(slow)) as executor:
        began = time.monotonic()
        statuses = list(executor.map(lambda contents: answer_to(server, *contents), slow))
    assert statuses == [0, 408, 408, 408, 408] and 10 < time.monotonic() - began < 20
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(POST + b"Content-Length: 30000\r\n\r\n")
        for _ in range(15):
            connection.sendall(b" " * 2000)
            time.sleep(1)
        assert connection.recv(20).startswith(b"HTTP/1.1 400")  # 2,000 bytes a second are enough


def test_requests_may_be_compressed(server):
    """Compressed bodies are read within the limit; a bomb of 64 kB has 64 MiB and more."""
    body = gzip.compress(json.dumps({"signature_name": "text", "inputs": TEXTS}).encode())
    large = gzip.compress(json.dumps({"inputs": IDS, "ignored": os.urandom(1 << 20).hex()}).encode())
    bomb = gzip.compress(b" " * (1 << 26) + b"{}")
    for content, encoding, expected, message in (
        (body, "gzip", 200, ""),
        (large, "gzip", 200, ""),
        (bomb, "gzip", 413, "the request has more than 67108864 bytes"),
        (body[:-1], "gzip", 400, "not one complete file of gzip"),
        (body + b"a", "gzip", 400, "not one complete file of gzip"),
        (b"{}", "gzip", 400, "the request is not compressed with gzip"),
        (b"", "gzip", 400, "not one complete file of gzip"),
        (b"{}", "br", 415, "Content-Encoding must be gzip"),
    ):
        status, answer = server.send("POST", "/v1/models/reviews:predict", content, {"Content-Encoding": encoding})
        assert status == expected and message in json.loads(answer).get("error", ""), answer
        if content == body:
            assert json.loads(answer)["outputs"] == server.outputs("text", TEXTS)


def test_a_request_without_a_signature_gets_the_one_that_reads_its_inputs(server):
    expected, default = server.outputs("text", TEXTS), server.outputs("serving_default", IDS)
    for name in ({}, {"signature_name": ""}):
        assert server.predict({**name, "inputs": TEXTS}) == (200, {"outputs": expected})
        rows = {**name, "instances": [dict(zip(TEXTS, pair, strict=True)) for pair in PAIRS], "ignored": [1]}
        assert [row["logits"] for row in server.predict(rows)[1]["predictions"]] == expected["logits"]
        assert server.predict({**name, "inputs": IDS}) == (200, {"outputs": default})


def test_status_metadata_and_metrics(server):
    available = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    status, model = server.get("/v1/models/reviews/versions/1")
    assert status == 200 and model.pop("created") <= time.time()
    assert model == {
        "model_version_status": [available], "id": "reviews", "object": "model", "owned_by": "official_bert",
        "name": "reviews", "ready": True,
    }  # fmt: skip
    assert server.send("GET", "/health") == (200, b"")
    status, metadata = server.get("/v1/models/reviews/metadata")
    assert status == 200 and metadata["model_spec"]["version"] == "1"
    definitions = metadata["metadata"]["signature_def"]["signature_def"]
    assert definitions["text"]["inputs"]["text_a"]["dtype"] == "DT_STRING"
    methods = {name: definition["method_name"] for name, definition in definitions.items()}
    # Otherwise TensorFlow Serving refuses to classify with it.
    assert methods.pop("classify") == "tensorflow/serving/classify"
    assert methods == dict.fromkeys(SIGNATURES, "tensorflow/serving/predict")
    classify = definitions["classify"]
    assert (set(classify["inputs"]), set(classify["outputs"])) == ({"inputs"}, {"classes", "scores"})
    server.outputs("text", TEXTS)
    metrics = server.send("GET", "/metrics")[1].decode()
    for name in ('request_seconds_count{method="POST",path="/v1/models/{model_name}:predict"}', "examples_bucket"):
        assert name in metrics


def test_concurrent_requests_are_joined_and_a_wrong_one_fails_alone(server, signatures):
    requests = []
    for number in range(24):
        length = 3 + number % 9
        masks = {"input_mask": [[1] * length], "segment_ids": [[0] * length]}
        requests.append({"input_ids": [[2, *range(5, 3 + length), 3]], **masks})

    def answers():
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as executor:
            return list(executor.map(lambda request: server.predict({"inputs": request}), requests))

    before = server.metrics()["batch_examples_count"]
    answers()
    assert server.metrics()["batch_examples_count"] - before < len(requests) / 2
    requests[5]["input_ids"][0][1] = 99_999
    for number, (request, (status, answer)) in enumerate(zip(requests, answers(), strict=True)):
        if number == 5:
            assert status == 400 and "input_ids must be from 0 to 1181" in answer["error"]
            continue
        alone = signatures["serving_default"](**{name: tf.constant(ids) for name, ids in request.items()})
        np.testing.assert_allclose(answer["outputs"]["logits"], alone["logits"].numpy(), atol=TOLERANCE)


def test_only_answers_of_one_shape_are_joined(signatures):
    joined = {name for name, function in signatures.items() if signature_of(name, function).is_joining}
    assert joined == set(OF_CLASSIFIER) - {"tokenize"}


def test_a_large_request_is_computed_in_parts(server, expected):
    outputs = server.outputs("text", {name: texts * 25 for name, texts in TEXTS.items()})
    np.testing.assert_allclose(outputs["logits"], np.tile(expected["logits"], [25, 1]), atol=TOLERANCE)
    assert server.metrics()['batch_examples_bucket{le="32.0"}'] == server.metrics()["batch_examples_count"]


@pytest.mark.slow
@pytest.mark.parametrize(("num_connections", "seconds"), [(2, 0.6), *endurance((64, 300))], ids=["short", "long"])
def test_a_new_version_replaces_the_old_one_under_load(
    num_connections, seconds, server, export_dir, write_export, tmp_path
):
    folder, made = pathlib.Path(export_dir), tmp_path / "made"
    write_export(made, seed=2)
    shutil.copytree(made / "1", tmp_path / "damaged")
    with open(tmp_path / "damaged" / "variables" / "variables.data-00000-of-00001", "r+b") as file:
        file.write(b"damage")
    request = {"signature_name": "text", "inputs": {name: texts[:1] for name, texts in TEXTS.items()}}
    with clients(num_connections, lambda: server.predict(request)) as answers:
        time.sleep(seconds / 3)
        if seconds > 10:
            kilobytes = resident_kilobytes(server.process.pid)
            time.sleep(seconds / 3)
            grown = resident_kilobytes(server.process.pid) / kilobytes
            assert grown < 1.1, f"memory grew from {kilobytes} kB by the factor {grown:.2f}"
        (tmp_path / "damaged").rename(folder / "2")  # a damaged version is refused, and version 1 stays
        server.wait_until(lambda: "still serving version 1" in server.log)
        (made / "1").rename(folder / "3")
        server.wait_for_version("3")
        time.sleep(seconds / 6)
        # When the newer one is moved away, the older one is served again.
        (folder / "3").rename(tmp_path / "away")
        shutil.rmtree(folder / "2")
        server.wait_for_version("1")
        in_the_end = len(answers)
        time.sleep(seconds / 6)
    assert {status for status, _ in answers} == {200}
    kinds = np.unique(np.round([answer["outputs"]["logits"][0] for _, answer in answers], 2), axis=0)
    assert len(kinds) == 2 and len(answers) > in_the_end, kinds


def test_the_page_to_try_the_model_takes_nothing_from_elsewhere(server):
    status, page = server.send("GET", "/ui")
    assert status == 200 and b"http" not in page
    assert server.send("GET", "/")[0] == 307
    for path in ("/ui/page.js", "/ui/page.css"):
        assert server.send("GET", path)[0] == 200


@pytest.mark.endurance
def test_requests_that_have_begun_are_answered_after_sigterm(server):
    """This must be the last test of the server, since it stops it."""
    before = server.metrics()["batch_examples_count"]
    request = {"signature_name": "text", "inputs": {name: texts * 256 for name, texts in TEXTS.items()}}
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(server.predict, request)
        wait_until(lambda: server.metrics()["batch_examples_count"] > before)
        assert not waiting.done()
        with socket.create_connection(("127.0.0.1", server.port)) as slow:  # its body is cut off after 10 seconds
            slow.sendall(POST + b"Content-Length: 9\r\n\r\n{")
            assert server.end() == 0, server.log
            assert b"408 Request Timeout" in slow.recv(1000)
    status, answer = waiting.result()
    assert status == 200 and len(answer["outputs"]["logits"]) == 1024


@pytest.mark.slow
def test_a_folder_that_is_away_is_one_line_of_the_log_until_it_is_back(export_dir, tmp_path, caplog):
    away, folder = tmp_path / "away", tmp_path / "export"
    shutil.copytree(export_dir, folder)
    served = ServedModel(str(folder), BatchingSettings(num_batch_threads=1), poll_seconds=0.01)
    served.start_watching()
    caplog.set_level("INFO", logger="absl")
    for _ in range(2):
        folder.rename(away)
        wait_until(lambda: "still serving version 1" in caplog.text)
        time.sleep(0.2)
        assert caplog.text.count("still serving version 1") == 1
        away.rename(folder)
        wait_until(lambda: "is back" in caplog.text)
        caplog.clear()
    served.close()


@pytest.mark.endurance
def test_a_version_that_is_copied_slowly_is_served_when_it_is_complete(export_dir, write_export, tmp_path, caplog):
    folder, made = tmp_path / "export", pathlib.Path(write_export(tmp_path / "made", seed=2))
    shutil.copytree(pathlib.Path(export_dir) / "1", folder / "1")
    served = ServedModel(str(folder), BatchingSettings(num_batch_threads=1), poll_seconds=0.02)
    served.start_watching()

    for file in sorted(path for path in made.rglob("*") if path.is_file()):  # saved_model.pb before variables
        target = folder / "2" / file.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = file.read_bytes()
        with open(target, "wb", buffering=0) as copy:
            for part in np.array_split(np.frombuffer(content, np.uint8), 5):
                copy.write(part.tobytes())
                time.sleep(0.01)  # the copy goes on between two looks
        assert served.version.number == 1
        if file.name == "saved_model.pb":
            refused = "still serving version 1: .*2 is damaged: variables.* is missing"
            wait_until(lambda refused=refused: re.search(refused, caplog.text))  # the copy rests
    wait_until(lambda: served.version.number == 2)
    served.close()


@pytest.mark.slow
def test_mistakes_at_the_start(export_dir, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run_config.json").write_text("{}")
    result = run_script("serve", export_dir=tmp_path / "run")
    assert_fails(result, "run is a training run, not an export; export it first: repeat the command of the run with")
    for name in ("empty", "lite"):
        (tmp_path / name / "1").mkdir(parents=True)
    (tmp_path / "lite" / "1" / "model.tflite").write_bytes(b"")
    for name, file in (("damaged", "saved_model.pb"), ("requests", "assets.extra/tf_serving_warmup_requests")):
        (shutil.copytree(export_dir, tmp_path / name) / "1" / file).write_bytes(b"damage" * 9)
    for name, message in (
        ("empty", "contains no exported version"),
        ("requests/1", "requests/1 is itself an exported version; give its parent folder"),
        ("lite", "lite/1 was exported by an earlier version, .* again with export_format=tflite"),
        ("damaged", "saved_model.pb does not match its checksum"),
        ("requests", "tf_serving_warmup_requests"),
    ):
        with pytest.raises(UserError, match=message):
            ServedModel(str(tmp_path / name), BatchingSettings(num_batch_threads=1))


def test_a_port_in_use_is_named():
    port, other = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        for flags in ({"port": port, "grpc_port": 0}, {"port": other, "grpc_port": port}):
            with pytest.raises(UserError, match=f"port={port} cannot be used"):
                check_serve(ServeConfig(export_dir=".", **flags))
        check_serve(ServeConfig(export_dir=".", port=other, grpc_port=0))


def test_flags():
    assert ServeConfig(export_dir="serving/reviews/").served_name == "reviews"
    slash, ports = "--model_name=a/b: must consist of letters", "--port and --grpc_port are both 8500"
    for flags, message in (({"model_name": "a/b"}, slash), ({"port": 8500}, ports)):
        with pytest.raises(UserError, match=message):
            ServeConfig(export_dir="a", **flags)
