"""Runs scripts one after another in this process, as one worker of a cluster or alone.

  python worker_runs.py RUNS

RUNS is a JSON file, [[script, {flag: value}], ...]. A cluster is joined once, as the worker in the variable TF_CONFIG.
Workers other than the first fail if they change anything in an output folder.
"""

import json
import os
import sys

from official_bert.commands import load_command


def run_all(runs):
    for script, flags in runs:
        command = load_command(script)
        config = command.config_class(**flags)
        command.run(config, *([command.prepare(config)] if command.prepare else []))


def refuse_changes(folders):
    """Make every later change in these folders raise."""

    def look(event, arguments):
        is_change = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod")
        is_written = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (is_change or is_written) and str(arguments[0]).startswith(folders):
            raise AssertionError(f"{event} {arguments}")

    sys.addaudithook(look)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        runs = json.load(source)
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
        refuse_changes(tuple(flags["output_dir"] for _, flags in runs))
    run_all(runs)
