"""Code shared by the benchmarks: alternating rounds of two sides, and their report."""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

ROUNDS = 5


def compare(
    unit: str, ours: Callable[[], float], peer: Callable[[], float], peer_name: str, rounds: int = ROUNDS
) -> None:
    """Measure both sides in turn and print medians and their ratio.

    Args:
      unit: unit of a measurement, such as "wordpieces/s"; more is better.
      ours: measures this project once.
      peer: measures the peer once.
      peer_name: name of the peer.
      rounds: number of measurements of each side.
    """
    pairs = [(ours(), peer()) for _ in range(rounds)]
    our_median, peer_median = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(first / second for first, second in pairs)
    print(f"  ours          {our_median:>14,.2f} {unit}")
    print(f"  {peer_name:<13} {peer_median:>14,.2f} {unit}")
    print(f"  ratio         {our_median / peer_median:>14.2f}   (rounds: {ratios[0]:.2f} to {ratios[-1]:.2f})")


def measure_in_process(script: str, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})) -> dict:
    """Run a script in a separate process; its last line of output is JSON with the measurements."""
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", **environment}
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
