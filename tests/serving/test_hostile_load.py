"""Normal requests to a server while a hostile client keeps it busy."""

import contextlib
import json
import socket
import time

import numpy as np
import pytest

from tests.serving.server_process import Server, clients, resident_kilobytes

pytest.importorskip("uvicorn")

PLAIN = {"signature_name": "text", "inputs": {"question": ["who is in town"], "context": ["a man is in town"]}}
PATH = "/v1/models/answers:predict"


def hostile_requests():
    """Return address, body and allowed statuses; 200 questions, and 60 MB of strings, numbers and brackets."""
    yield PATH, b'{"instances": [' + b'"a",' * 15_000_000 + b'"a"]}', {400, 503}
    yield PATH, b'{"inputs": [' + b"[7]," * 15_000_000 + b"[7]]}", {400, 503}
    yield PATH, b"[" * 60_000_000, {400, 503}
    long = {"question": ["who is there"] * 200, "context": ["the bright town of the river " * 700] * 200}
    yield PATH, json.dumps({"signature_name": "text", "inputs": long}).encode(), {200, 400, 503}
    for body in (
        b'{"signature_name": "examples", "instances": [{"b64": "\xc3\xa9"}]}',
        b'{"signature_name": "examples", "instances": [{"b64": "CgoK"}]}',
        b'{"signature_name": "text", "inputs": %sTrue}' % (b"[" * 900),
        b'{"inputs": {"input_ids": %s1%s}}' % (b"[" * 50, b"]" * 50),
        b"\xff\x00" * 1000,
    ):
        yield from [(PATH, body, {400})] * 40
    yield from [(f"/v1/models/answers/versions/{'9' * 4301}:predict", b"{}", {404})] * 20
    yield from [("/v1/models/answers:explain", b"{}", {405})] * 20


def be_hostile(server, wrong):
    """Send all requests once; some clients of each kind disconnect before the response."""
    for number, (path, body, allowed) in enumerate(hostile_requests()):
        with contextlib.suppress(ConnectionError):  # a refused body need not be read to its end
            status, answer = server.send("POST", path, body)
            if status not in allowed:
                wrong.append((path[:60], body[:60], status, answer[:200]))
        if number % 10 == 0:
            with socket.create_connection(("127.0.0.1", server.port)) as leaving:
                leaving.sendall(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{{".encode())


@pytest.mark.slow
@pytest.mark.endurance
def test_plain_requests_are_answered_soon_beside_a_hostile_client(write_export, tmp_path):
    write_export(tmp_path / "answers", "question_answering")
    server = Server(str(tmp_path / "answers"), tmp_path / "log", num_batch_threads=2)
    body, seconds, wrong = json.dumps(PLAIN), [], []

    def ask():
        began = time.monotonic()
        status, answer = server.send("POST", PATH, body)
        seconds.append(time.monotonic() - began)
        time.sleep(0.02)
        return status, answer[:200]

    def round_of_load():
        with clients(2, ask) as answers:
            be_hostile(server, wrong)
        wrong.extend(answer for answer in answers if answer[0] != 200)
        return resident_kilobytes(server.process.pid)

    kilobytes = [round_of_load()]
    seconds.clear()
    began = time.monotonic()
    while len(kilobytes) < 3 or len(seconds) < 1000:
        kilobytes.append(round_of_load())
    p50, p99 = np.percentile(seconds, [50, 99])
    figures = (
        f"{len(seconds)} plain requests in {time.monotonic() - began:.0f} s, p50 {1000 * p50:.0f} ms, p99 "
        f"{1000 * p99:.0f} ms, longest {1000 * max(seconds):.0f} ms; resident after each round: {kilobytes} kB"
    )
    print(figures)
    assert not wrong, wrong[:3]
    assert p99 < 1, figures
    assert kilobytes[-1] < 1.1 * kilobytes[0], figures
    assert server.end() == 0
    assert "Traceback" not in server.log
