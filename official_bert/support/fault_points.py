"""Places where a test has this process killed, as a power cut or the system's killer of processes would end it.

A test sets the variable OFFICIAL_BERT_KILL_AT to the name of a place and a number, `rename model.ckpt-4.index:1`: the
process sends itself SIGKILL when it passes that place for the first time. `trace:FILE` writes the names of all places
that are passed to a file instead, a line each. Without the variable, passing a place does nothing.
"""

import collections
import os
import signal

VARIABLE = "OFFICIAL_BERT_KILL_AT"

_passed: collections.Counter[str] = collections.Counter()


def fault_point(name: str) -> None:
    """Pass a place.

    Args:
      name: what is done there or next, and the name of the file if there is one: "rename eval_results.txt".
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
