"""Normal requests to a server while a hostile client keeps it busy."""

import concurrent.futures
import contextlib
import gzip
import json
import socket
import time

import numpy as np
import pytest

from official_bert.config.sentence_modules import Prompts
from tests.serving.server_process import Server, clients, resident_kilobytes

pytest.importorskip("uvicorn")
grpc = pytest.importorskip("grpc")

from google.protobuf.internal.encoder import _VarintBytes as varint  # noqa: E402

LONG = "the bright town of the river " * 700
MODEL = "/v1/models/model"
PREDICT, GRPC = f"{MODEL}:predict", "/tensorflow.serving.PredictionService/Predict"
MOST_KILOBYTES = 1_500_000  # above the idle server's
REFUSED, OVERLOAD = {400, 413, 422}, {429, 503}
GRPC_CODES = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}


def body(**fields):
    return json.dumps(fields).encode()


def to_any_model():
    """Yield address, body and allowed statuses: 60 MB of strings, numbers, brackets, and broken values."""
    yield PREDICT, b'{"instances": [' + b'"a",' * 15_000_000 + b'"a"]}', REFUSED
    yield PREDICT, b'{"inputs": [' + b"[7]," * 15_000_000 + b"[7]]}", REFUSED
    yield PREDICT, b"[" * 60_000_000, REFUSED
    for path, broken in (
        (PREDICT, b'{"signature_name": "examples", "instances": [{"b64": "\xc3\xa9"}]}'),
        (PREDICT, b'{"signature_name": "examples", "instances": [{"b64": "CgoK"}]}'),
        (PREDICT, b'{"signature_name": "text", "inputs": %sTrue}' % (b"[" * 900)),
        (PREDICT, b'{"inputs": {"input_ids": %s1%s}}' % (b"[" * 50, b"]" * 50)),
        (PREDICT, b"\xff\x00" * 1000),
        ("/tokenize", b'{"inputs": %s1%s}' % (b"[" * 900, b"]" * 900)),
    ):
        yield from [(path, broken, REFUSED)] * 40
    yield from [(f"{MODEL}/versions/{'9' * 4301}:predict", b"{}", {404})] * 20
    yield from [(f"{MODEL}:explain", b"{}", {404, 405})] * 20
    yield from [(GRPC, b"\x0a" + b"\xff" * 1000, GRPC_CODES | {grpc.StatusCode.INTERNAL})] * 20
    yield GRPC, b"\x12" + varint(57_000_000) + bytes(57_000_000), GRPC_CODES | {grpc.StatusCode.INTERNAL}
    yield "/tokenize", body(inputs="." * (1 << 20)), {200}
    yield "/tokenize", body(inputs=["."] * 2048), {200}
    yield "/tokenize", gzip.compress(body(inputs=["."] * 2048) + b" " * 60_000_000), {200}
    yield "/tokenize", gzip.compress(b" " * 500_000_000, 1), {413}
    yield "/tokenize", body(inputs=LONG * 3000), REFUSED
    yield "/decode", body(ids=[5] * 2_000_000), {200}
    yield "/decode", body(ids=[[5] * 1000] * 2000), {200}


def to_answers():
    yield PREDICT, body(signature_name="text", inputs={"question": ["who"] * 200, "context": [LONG] * 200}), {200, 400}


def to_vectors():
    yield "/v1/embeddings", body(model="model", input=["a"] * 2048), {200}
    yield "/v1/embeddings", body(model="model", input=["a " * 29] * 2048, encoding_format="base64"), {200}
    yield "/embed", body(inputs=[LONG + LONG[:8000]] * 2048), {200}
    yield "/embed", json.dumps({"inputs": "a😀 " * 9_000_000}, ensure_ascii=False).encode(), {200}
    yield "/embed", b'{"inputs": "a ' + rb"\ud800" * 10_000_000 + b'"}', {200}
    yield "/embed", body(inputs=" " * 60_000_000), REFUSED
    yield "/embed", body(inputs=[" " * 1_000_001] * 2 + ["a"] * 2000), {200}
    yield "/embed", body(inputs=[LONG] * 2048, truncation_direction="left", prompt_name="query"), {200}
    yield "/embed", body(inputs=["a " * 29] * 2048, truncate=False), {200}
    yield "/embed", body(inputs=[[5] * 1000] * 2000), REFUSED
    yield "/embed", body(inputs="a", extra=[[1]] * 1_000_000), {200}
    yield "/embed_all", body(inputs=[LONG] * 2048), {200}
    yield "/embed_all", body(inputs=["a"] * 2048, truncation_direction="left"), {200}
    yield "/similarity", body(inputs={"source_sentence": "a", "sentences": [LONG] * 2048}), {200}


def to_rankings():
    yield "/rerank", body(query="a " * 5_000_000, texts=["a town"] * 400), {200}
    yield "/rerank", body(query=" " * 10_000_000, texts=["a town"] * 400), REFUSED
    yield "/rerank", body(query=LONG, texts=[LONG] * 2048, return_text=True), {200}
    yield "/rerank", body(query="a", texts=["a " * 28] * 2048, truncate=False), {200}
    yield "/predict", body(inputs=[[LONG, LONG]] * 1024), {200}
    yield "/predict", body(inputs=[["a"]] * 1_000_000), REFUSED
    pairs = {"text_a": [" " * 1_000_000] + ["a"] * 1000, "text_b": ["a"] * 1001}
    yield PREDICT, body(signature_name="text", inputs=pairs), {200}


# The task of each model, its options, a plain request to it, and the hostile ones.
MODELS = {
    "question_answering": (
        {}, PREDICT, body(signature_name="text", inputs={"question": ["who"], "context": ["a man is here"]}), to_answers
    ),
    "sentence_encoder": (
        {"prompts": Prompts({"query": "the "}, "")}, "/v1/embeddings", body(model="model", input="the town"), to_vectors
    ),
    "classification": ({"labels": ("0", "1")}, "/rerank", body(query="who", texts=["a man", "a town"]), to_rankings),
}  # fmt: skip


def is_compressed(content):
    return content[:2] == b"\x1f\x8b"


def send(server, path, content):
    if path != GRPC:
        return server.send("POST", path, content, {"Content-Encoding": "gzip"} if is_compressed(content) else None)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        try:
            return 200, channel.unary_unary(path)(content, timeout=60)
        except grpc.RpcError as error:
            return error.code(), error.details().encode()


def be_hostile(server, requests, wrong):
    """Send all requests once; some clients of each kind disconnect before the response."""
    for number, (path, content, allowed) in enumerate(requests):
        with contextlib.suppress(ConnectionError):  # a refused body need not be read to its end
            status, answer = send(server, path, content)
            if status not in allowed:
                wrong.append((path[:60], content[:60], status, answer[:200]))
        if number % 10 == 0:
            with socket.create_connection(("127.0.0.1", server.port)) as leaving:
                leaving.sendall(f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{{".encode())


def be_many(server, requests, wrong):
    """Send all large requests at once; some are refused, since together they have too many bytes."""
    large = [each for each in requests if len(each[1]) > 1 << 20 or is_compressed(each[1])]
    with concurrent.futures.ThreadPoolExecutor(len(large)) as executor:
        requests = ([(path, content, allowed | OVERLOAD)] for path, content, allowed in large)
        list(executor.map(lambda request: be_hostile(server, request, wrong), requests))


@pytest.mark.endurance
@pytest.mark.parametrize("task", MODELS)
def test_plain_requests_are_answered_soon_beside_a_hostile_client(task, write_export, tmp_path):
    """The hostile client also comes many at once; then plain requests may wait longer, but memory is still limited."""
    options, path, plain, more = MODELS[task]
    write_export(tmp_path / "model", task, **options)
    server = Server(str(tmp_path / "model"), tmp_path / "log", num_batch_threads=2)
    requests, seconds, wrong = [*to_any_model(), *more()], [], []

    def ask():
        began = time.monotonic()
        status, answer = server.send("POST", path, plain)
        seconds.append(time.monotonic() - began)
        time.sleep(0.02)
        return status, answer[:200]

    def round_of_load(work):
        with clients(2, ask) as answers:
            work(server, requests, wrong)
        wrong.extend(answer for answer in answers if answer[0] != 200)
        time.sleep(2)  # until the server has returned free memory
        return resident_kilobytes(server.process.pid)

    ask()
    idle = resident_kilobytes(server.process.pid)
    kilobytes = [round_of_load(be_many), round_of_load(be_hostile)]
    seconds.clear()
    began = time.monotonic()
    while len(kilobytes) < 8 or len(seconds) < 500:
        kilobytes.append(round_of_load(be_hostile))
    p50, p99 = np.percentile(seconds, [50, 99])
    most = resident_kilobytes(server.process.pid, "VmHWM")
    figures = (
        f"{task}: {len(seconds)} plain requests in {time.monotonic() - began:.0f} s, p50 {1000 * p50:.0f} ms, p99 "
        f"{1000 * p99:.0f} ms, longest {1000 * max(seconds):.0f} ms; idle {idle} kB, after each round {kilobytes} kB, "
        f"at most {most} kB"
    )
    print(figures)
    assert not wrong, wrong[:3]
    assert p99 < 1, figures
    assert most - idle < MOST_KILOBYTES, figures
    assert kilobytes[-1] < 1.05 * kilobytes[4], figures  # before, the heap is still growing to its usual size
    assert server.end() == 0
    assert "Traceback" not in server.log
