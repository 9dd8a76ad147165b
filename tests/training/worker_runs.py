"""Runs scripts one after another in this process, as one worker of a cluster or alone.

  python worker_runs.py RUNS

RUNS is a JSON file, [[script, {flag: value}], ...]. A cluster is joined once; the worker is in the variable TF_CONFIG.
"""

import json
import sys

from official_bert.commands import load_command


def run_all(runs):
    for script, flags in runs:
        command = load_command(script)
        command.run(command.config_class(**flags))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        run_all(json.load(source))
