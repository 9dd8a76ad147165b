"""Code shared by the benchmarks: alternating rounds of two sides, and their report."""

import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from official_bert.config.bert_config import BertConfig

ROUNDS = 5
QUIET = MappingProxyType({"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"})  # of processes that measure
TABLE_FILE = "BENCHMARK_TABLE"  # environment variable: the file of the rows of the table


def compare(
    unit: str, ours: Callable[[], float], peer: Callable[[], float], peer_name: str, rounds: int = ROUNDS
) -> None:
    """Measure both sides in turn, in a unit of which more is better, and print medians and their ratio."""
    report(unit, [(ours(), peer()) for _ in range(rounds)], peer_name)


def report(unit: str, pairs: Sequence[tuple[float, float]], peer_name: str) -> None:
    """Print medians of both sides and their ratio; see `medians_and_ratios`."""
    our_median, peer_median, *ratios = medians_and_ratios(unit, pairs, peer_name)
    print(f"  ours          {our_median:>14,.2f} {unit}")
    print(f"  {peer_name:<13} {peer_median:>14,.2f} {unit}")
    print(f"  ratio         {ratios[0]:>14.2f}   (rounds: {ratios[1]:.2f} to {ratios[2]:.2f})")


def medians_and_ratios(unit: str, pairs: Sequence[tuple[float, float]], peer_name: str) -> tuple[float, ...]:
    """Return the medians of both sides, their ratio, and the least and greatest ratio of a round.

    They are added to the table of `summary.py`, if that is running.
    """
    our_median, peer_median = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(first / second for first, second in pairs)
    found = (our_median, peer_median, our_median / peer_median, ratios[0], ratios[-1])
    if TABLE_FILE in os.environ:
        with open(os.environ[TABLE_FILE], "a") as sink:
            sink.write(json.dumps([unit, peer_name, *found]) + "\n")
    return found


def measure_in_process(script: str, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Run a script in a separate process; its last line of output is JSON with the measurements."""
    variables = {**os.environ, **QUIET, **environment}
    process = subprocess.run([sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True, env=variables)
    if process.returncode:
        sys.exit(f"{script} {' '.join(arguments)} failed")
    return json.loads(process.stdout.splitlines()[-1])


def process_tree_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants (PSS, in bytes); 0 for processes that have ended."""
    total = 0
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            total += sum(process_tree_bytes(int(child)) for child in (task / "children").read_text().split())
    return total


def run_watched(command: list[str]) -> tuple[float, int, str]:
    """Run a command; return its seconds, peak memory in bytes (sampled five times per second), and output."""
    # For Hugging Face peers: no threads beside the compared processes, and no network.
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    peak = 0
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        while process.poll() is None:
            peak = max(peak, process_tree_bytes(process.pid))
            time.sleep(0.2)
        seconds = time.perf_counter() - began
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(text)
    return seconds, peak, text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running_server(command: list[str], ready_url: str) -> Iterator[None]:
    """Start a server, wait until it answers at an address, and end it."""
    server = subprocess.Popen(command)
    try:
        while True:
            try:
                urllib.request.urlopen(ready_url, timeout=5)
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended")
                time.sleep(0.2)
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def measure_load(
    port: int, path: str, contents: Sequence[object], connections: int, seconds: float
) -> dict[str, float]:
    """Send requests to a server on loopback, each connection its next one when it has the response.

    The JSON contents are sent in order and again from the beginning, after a warm-up of a quarter of the seconds.

    Returns:
      `rate`, responses per second, and `p50`, `p90` and `p99` of the latency in milliseconds.
    """
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    bodies = [json.dumps(content).encode() for content in contents]
    requests = itertools.cycle([f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies])
    latencies = []

    async def connect(end: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            began = time.perf_counter()
            writer.write(next(requests))
            header = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(header.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            if not header.startswith(b"HTTP/1.1 200"):
                sys.exit(header.decode())
            latencies.append(time.perf_counter() - began)
        writer.close()

    async def run(seconds: float) -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(connect(end) for _ in range(connections)))

    asyncio.run(run(seconds / 4))  # warms up
    latencies.clear()
    began = time.perf_counter()
    asyncio.run(run(seconds))
    rate = len(latencies) / (time.perf_counter() - began)
    percentiles = statistics.quantiles(latencies, n=100)
    return {"rate": rate, **{f"p{share}": 1000 * percentiles[share - 1] for share in (50, 90, 99)}}


def with_reference_schedule(trainer: type, warmup: float) -> type:
    """Return a class of `transformers.Trainer` with the reference's schedule, whose decay starts at step 0.

    Without it, the peer's learning rate would be higher than ours by a factor of 1 / (1 - warmup) after the warm-up.
    """
    from torch.optim.lr_scheduler import LambdaLR

    class Trainer(trainer):
        def create_scheduler(self, num_training_steps, optimizer=None):
            num_warmup = int(warmup * num_training_steps)

            def share(step):
                return (step + 1) / num_warmup if step + 1 < num_warmup else 1 - (step + 1) / num_training_steps

            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, share)
            return self.lr_scheduler

    return Trainer


BACKWARD = 2  # the gradients of a matrix product are two such products


def encoder_flops(config: BertConfig, lengths: np.ndarray) -> int:
    """Return the operations of the layers in a forward pass.

    A product of [n, k] and [k, m] has 2nkm operations. `lengths` are the unpadded positions of each sequence, int [B].
    """
    width, inner = config.hidden_size, config.intermediate_size
    num_tokens, num_pairs = int(lengths.sum()), int((lengths**2).sum())
    projections = 2 * num_tokens * (4 * width**2 + 2 * width * inner)  # query, key, value, output; feed-forward
    attention = 2 * num_pairs * 2 * width  # scores, and sums of values
    return config.num_hidden_layers * (projections + attention)


def pretraining_heads_flops(config: BertConfig, num_sequences: int, num_predictions: int) -> int:
    """Return the operations of the pooler and the two pretraining heads in a forward pass."""
    width = config.hidden_size
    masked_lm = num_predictions * (width**2 + width * config.vocab_size)
    return 2 * num_sequences * (masked_lm + width**2 + width * 2)
