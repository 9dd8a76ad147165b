"""Fault points: places where a test can kill this process, like a power failure or the OOM killer.

A test sets the environment variable OFFICIAL_BERT_KILL_AT to the name of a fault point and a count, such as `rename
model.ckpt-4.index:1`: the process sends itself SIGKILL when it passes that point for the first time. `trace:FILE`
instead writes the names of all points passed to a file, one per line. Without the variable, fault points do nothing.
"""

import collections
import os
import signal

VARIABLE = "OFFICIAL_BERT_KILL_AT"

_passed: collections.Counter[str] = collections.Counter()


def fault_point(name: str) -> None:
    """Pass a fault point.

    Args:
      name: the current or next action, with the file name if there is one: "rename eval_results.txt".
    """
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    _passed[name] += 1
    if wanted == f"{name}:{_passed[name]}":
        os.kill(os.getpid(), signal.SIGKILL)
    if wanted.startswith("trace:"):
        with open(wanted.removeprefix("trace:"), "a", encoding="utf-8") as trace:
            trace.write(f"{name}\n")
