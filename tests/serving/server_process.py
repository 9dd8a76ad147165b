"""Runs a process of `serve` and sends requests to it."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import signal
import threading
import time

from official_bert.commands.launch_workers import free_ports
from tests import warm_start
from tests.conftest import script_command, script_environment


def send(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read()


@contextlib.contextmanager
def clients(number, ask):
    """Answers to clients that keep asking until the block ends; a client whose connection is lost leaves the error."""
    answers, is_ending = [], threading.Event()

    def keep_asking():
        while not is_ending.is_set():
            try:
                answers.append(ask())
            except (OSError, http.client.HTTPException) as error:
                answers.append((0, error))
                return

    with concurrent.futures.ThreadPoolExecutor(number) as executor:
        asking = [executor.submit(keep_asking) for _ in range(number)]
        try:
            yield answers
        finally:
            is_ending.set()
        for client in asking:
            client.result()


def wait_until(is_true, describe=lambda: "", seconds=60):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.01)


class Server:
    def __init__(self, export_dir, log_file, **flags):
        self.name = flags.get("model_name", os.path.basename(export_dir))
        self.port, self.grpc_port = free_ports(2)
        flags = {"export_dir": export_dir, "port": self.port, "grpc_port": self.grpc_port, **flags}
        self.log_file = log_file
        with open(log_file, "w") as log:
            self.process = warm_start.popen(script_command("serve", flags), script_environment(), log)
        deadline = time.monotonic() + 120
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log
            with contextlib.suppress(OSError):
                if self.send("GET", "/health")[0] == 200:
                    return
            time.sleep(0.1)

    @property
    def log(self):
        return pathlib.Path(self.log_file).read_text()

    def send(self, method, path, body=None, headers=None):
        return send(self.port, method, path, body, headers)

    def get(self, path):
        status, answer = self.send("GET", path)
        return status, json.loads(answer)

    def predict(self, body, suffix="", name=None):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, answer = self.send("POST", f"/v1/models/{name or self.name}{suffix}:predict", body)
        assert b"Traceback" not in answer
        return status, json.loads(answer)

    def ask(self, verb, body):
        """Send a request with Examples: classify or regress."""
        status, answer = self.send("POST", f"/v1/models/{self.name}:{verb}", json.dumps(body))
        return status, json.loads(answer)

    def outputs(self, signature, inputs):
        status, answer = self.predict({"signature_name": signature, "inputs": inputs})
        assert status == 200, answer
        return answer["outputs"]

    def served_version(self):
        return self.get(f"/v1/models/{self.name}")[1]["model_version_status"][0]["version"]

    def wait_for_version(self, version):
        self.wait_until(lambda: self.served_version() == version)

    def wait_until(self, is_true, seconds=60):
        wait_until(is_true, lambda: self.log, seconds)

    def metrics(self):
        lines = self.send("GET", "/metrics")[1].decode().splitlines()
        rows = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def resident_kilobytes(pid, field="VmRSS"):
    """Return the resident memory of a process, or with `VmHWM` the most that it has had."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(field)).split()[1])


def to_json(values):
    """Convert nested lists of bytes or numbers to JSON values; bytes need not be UTF-8."""
    if isinstance(values, list):
        return [to_json(value) for value in values]
    return {"b64": base64.b64encode(values).decode()} if isinstance(values, bytes) else values
