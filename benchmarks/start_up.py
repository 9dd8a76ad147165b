"""Time of `python SCRIPT.py --help` for every script; the limit is one second.

python benchmarks/start_up.py
"""

import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
SCRIPTS = ("create_pretraining_data.py", "run_pretraining.py")


def seconds(command: list[str]) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    print("Start-up: median of 5")
    for script in SCRIPTS:
        print(f"  {script + ' --help':<36} {seconds([sys.executable, str(ROOT / script), '--help']):6.2f} s")
    print(f"  {'python -c pass':<36} {seconds([sys.executable, '-c', 'pass']):6.2f} s")


if __name__ == "__main__":
    main()
