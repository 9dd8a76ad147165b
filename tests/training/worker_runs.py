"""Runs scripts one after another in this process, as one worker of a cluster or alone.

  python worker_runs.py RUNS

RUNS is a JSON file, [[script, {flag: value}], ...]. A cluster is joined once; the worker is in the variable TF_CONFIG.
"""

import json
import sys
from unittest import mock

from official_bert.config.run_script import _function
from official_bert.config.scripts import SCRIPTS


def run_all(runs):
    """Without the dropout of the heads, which no config turns off: devices drop out different numbers on purpose."""
    heads = ("official_bert.modeling.classifier", "official_bert.modeling.tagging")
    with mock.patch(f"{heads[0]}.HEAD_DROPOUT", 0.0), mock.patch(f"{heads[1]}.HEAD_DROPOUT", 0.0):
        for script, flags in runs:
            _function(SCRIPTS[script].run)(SCRIPTS[script].config_class(**flags))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        run_all(json.load(source))
