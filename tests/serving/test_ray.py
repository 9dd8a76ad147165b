"""The Ray Serve application from its clients' view: two replicas on a Ray cluster of one machine."""

import contextlib
import http.client
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
import tensorflow as tf

from official_bert.commands.launch_workers import free_ports
from tests.conftest import ROOT, script_environment
from tests.exports import TOLERANCE
from tests.serving.server_process import clients, send

pytest.importorskip("ray.serve", reason="needs the extra `ray`")
yaml = pytest.importorskip("yaml")  # comes with it

CONFIG_FILE = ROOT / "deploy" / "ray_serve.yaml"
TEXTS = {"text_a": ["the town", "", "bright word " * 40], "text_b": ["a river", "", "the town"]}
REQUEST = {"signature_name": "text", "inputs": TEXTS}


def config(export_dir, port):
    """The project's configuration adapted to this machine, with request logs."""
    content = yaml.safe_load(CONFIG_FILE.read_text())
    (application,) = content["applications"]
    content["http_options"].update(host="127.0.0.1", port=port)
    application["args"].update(export_dir=export_dir, model_name="reviews")
    application["logging_config"]["enable_access_log"] = True
    return content


class Cluster:
    """A Ray cluster, and `serve run` on it."""

    def __init__(self, export_dir):
        # A short name, because socket paths in it may have at most 107 bytes.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ray"))
        self.port, cluster, client, agent = free_ports(4)
        self.config, self.processes = config(export_dir, self.port), []
        # A separate token: otherwise Ray looks for the user's.
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.environment = {**script_environment(), **token, "RAY_USAGE_STATS_ENABLED": "0"}
        try:
            self._start_all(cluster, client, agent)
        except BaseException:
            self.end()
            raise

    def _start_all(self, cluster, client, agent):
        self._start(
            "ray", "start", "--head", "--block", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats",
            "--node-ip-address=127.0.0.1", f"--port={cluster}", f"--ray-client-server-port={client}",
            f"--dashboard-agent-listen-port={agent}", "--min-worker-port=0", "--max-worker-port=0",
            f"--temp-dir={self.folder}/ray", "--object-store-memory=100000000",
        )  # fmt: skip
        self.wait("the cluster starts", lambda: "Ray runtime started" in self.log)
        self._address = f"--address=127.0.0.1:{cluster}"
        self.serve_run = self._start("serve", "run", self._address, self._config_file(num_replicas=2))
        self.wait("the replicas answer", lambda: self.ask(REQUEST)[0] == 200 and self.num_answering() == 2)

    def _start(self, command, *arguments):
        # Ctrl-C ends `serve run`, but background processes may ignore it.
        with open(self.folder / "log", "a") as log:
            process = subprocess.Popen(
                [os.path.join(os.path.dirname(sys.executable), command), *arguments], env=self.environment,
                stdout=log, stderr=log, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        self.processes.append(process)
        return process

    def _config_file(self, num_replicas):
        (application,) = self.config["applications"]
        application["deployments"][0]["num_replicas"] = num_replicas
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(self.config))
        return str(path)

    def deploy(self, num_replicas):
        config_file = self._config_file(num_replicas)
        process = self._start("serve", "run", "--non-blocking", self._address, config_file)
        assert process.wait(timeout=120) == 0, self.log
        self.processes.remove(process)

    @property
    def log(self):
        return (self.folder / "log").read_text()

    def wait(self, what, is_so, seconds=300):
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if is_so():
                    return
            assert all(process.poll() is None for process in self.processes), self.log
            assert time.monotonic() < deadline, f"{what}: {self.log}"
            time.sleep(0.2)

    def ask(self, body, path="/v1/models/reviews:predict", method="POST"):
        return send(self.port, method, path, body if isinstance(body, bytes | None) else json.dumps(body))

    def replicas(self):
        found = set()
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_replica = (folder / "cmdline").read_bytes().startswith(b"ray::ServeReplica:bert:ServedExport")
                logs = os.readlink(folder / "fd" / "1") if is_replica else ""
                if logs.startswith(f"{self.folder}/"):  # of this cluster only
                    found.add(int(folder.name))
        return found

    def requests_of_replicas(self):
        """Return the number of requests answered by each replica, keyed by log name."""
        logs = self.folder.glob("ray/session_2*/logs/serve/replica_bert_ServedExport_*.log")
        return {path.name: path.read_text().count("POST /v1/models") for path in logs}

    def num_answering(self):
        """Return the number of replicas, past or present, that have answered a request."""
        return sum(number > 0 for number in self.requests_of_replicas().values())

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait(timeout=60)
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def expected(signatures):
    return signatures["text"](**{name: tf.constant(texts) for name, texts in TEXTS.items()})["logits"].numpy()


@pytest.fixture(scope="module")
def cluster(export_dir):
    cluster = Cluster(export_dir)
    yield cluster
    cluster.end()


def logits(answer):
    return np.array(json.loads(answer)["outputs"]["logits"])


pytestmark = [pytest.mark.slow, pytest.mark.multi_process]


def test_arguments():
    from official_bert.serving.ray_app import ExportArguments

    arguments = ExportArguments(export_dir="/models/mrpc/", max_execution_batch_size="8")  # as `serve run` passes them
    assert arguments.served_name == "mrpc" and arguments.batching.max_execution_batch_size == 8
    for wrong, message in (
        ({"export_dir": "models/mrpc"}, "models/mrpc must be an absolute path"),
        ({"model_name": "a/b"}, "model_name"),
        ({"max_batch_size": 0}, "max_batch_size"),
        ({"num_replicas": 2}, "num_replicas"),
    ):
        with pytest.raises(ValueError, match=message):
            ExportArguments(**{"export_dir": "/models/mrpc", **wrong})


def test_both_replicas_give_what_the_export_gives(cluster, expected):
    for _ in range(40):
        status, answer = cluster.ask(REQUEST)
        assert status == 200, answer
        np.testing.assert_allclose(logits(answer), expected, atol=TOLERANCE)
    assert len(cluster.replicas()) == len(cluster.requests_of_replicas()) == 2
    assert min(cluster.requests_of_replicas().values()) > 5


def test_the_addresses_and_errors_are_those_of_the_server(cluster):
    name = "/v1/models/reviews"
    status, answer = cluster.ask(None, name, "GET")
    assert status == 200 and json.loads(answer)["model_version_status"][0]["version"] == "1"
    status, answer = cluster.ask(None, f"{name}/versions/1/metadata", "GET")
    assert status == 200 and "text" in json.loads(answer)["metadata"]["signature_def"]["signature_def"]
    status, answer = cluster.ask(None, "/metrics", "GET")
    assert status == 200 and b"batch_positions_bucket" in answer
    for body, path, expected_status, message in (
        (b"{", f"{name}:predict", 400, "the request is not JSON"),
        (REQUEST, "/v1/models/other:predict", 404, "there is no model 'other'; reviews is served"),
        ({"inputs": "a"}, "/embed", 424, "the served model has no vectors"),
        (b"a" * ((1 << 26) + 1), f"{name}:predict", 413, "has more than 67108864 bytes"),
    ):  # fmt: skip
        status, answer = cluster.ask(body, path)
        assert status == expected_status and message in json.loads(answer)["error"], answer


def check_answers(answers, expected):
    """Assert that no response is wrong; return the number of right ones, and the failures."""
    right = [answer for status, answer in answers if status == 200]
    for answer in right:
        np.testing.assert_allclose(logits(answer), expected, atol=TOLERANCE)
    return len(right), [(status, answer) for status, answer in answers if status != 200]


def test_a_killed_replica_is_replaced_and_no_answer_is_wrong(cluster, expected):
    before, logs = cluster.replicas(), set(cluster.requests_of_replicas())

    def answered_by_the_new_one():
        return sum(number for name, number in cluster.requests_of_replicas().items() if name not in logs)

    with clients(8, lambda: cluster.ask(REQUEST)) as answers:
        time.sleep(1)
        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        cluster.wait("another replica starts", lambda: len(cluster.replicas() - {killed}) == 2)
        cluster.wait("it answers", lambda: answered_by_the_new_one() > 20)
    num_right, failed = check_answers(answers, expected)
    assert num_right > 100 and len(failed) <= 8, failed
    assert {status for status, _ in failed} <= {500, 503}  # statuses of Ray


def test_a_removed_replica_completes_its_requests(cluster, expected):
    many = {"signature_name": "text", "inputs": {name: texts * 300 for name, texts in TEXTS.items()}}
    with clients(8, lambda: cluster.ask(many)) as answers:
        time.sleep(1)
        cluster.deploy(num_replicas=1)
        cluster.wait("one replica is left", lambda: len(cluster.replicas()) == 1)
        in_the_end = len(answers)
        cluster.wait("it answers", lambda: len(answers) > in_the_end + 8)
    num_right, failed = check_answers(answers, np.tile(expected, [300, 1]))
    assert not failed and num_right > 16


def test_ctrl_c_ends_the_replicas(cluster, expected):
    """This must be the last test of the cluster, since it ends `serve run`."""
    with clients(8, lambda: cluster.ask(REQUEST)) as answers:
        time.sleep(0.5)
        cluster.serve_run.send_signal(signal.SIGINT)
        cluster.serve_run.wait(timeout=60)
    num_right, failed = check_answers(answers, expected)
    assert num_right and {status for status, _ in failed} <= {0, 500, 503}
    assert not cluster.replicas()
    with pytest.raises(OSError):
        cluster.ask(REQUEST)
