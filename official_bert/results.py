"""What a finished run left in its output folder, for the tools that compare runs; needs no TensorFlow."""

import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from official_bert import files
from official_bert.errors import UserError

RESULTS_FILE = "eval_results.txt"
RUN_CONFIG_FILE = "run_config.json"


def read_results(path: str) -> dict[str, float]:
    """Reads the lines `key = value` of an `eval_results.txt`.

    Raises:
      UserError: the file is missing, or a line is something else; the message gives its number.
    """
    results = {}
    for number, line in enumerate(files.LineReader(path), start=1):
        key, _, value = line.partition(" = ")
        try:
            results[key] = float(value)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {line[:80]!r} is not of the form 'key = number'") from error
    return results


def read_run_flags(folder: str) -> dict[str, Any] | None:
    """The flags that a run wrote to `run_config.json` in a folder; None if there is no such file.

    Raises:
      UserError: the file is damaged.
    """
    path = os.path.join(folder, RUN_CONFIG_FILE)
    if not files.exists(path):
        return None
    try:
        with files.open_file(path) as source:
            return dict(json.load(source)["flags"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not what a run writes ({error!r}); restore it or delete the folder") from error


def differing_flags(first: Mapping[str, Any], second: Mapping[str, Any], *, ignored: Collection[str]) -> list[str]:
    """The names of the flags that two runs do not share, but for the ignored ones; sorted."""
    names = (first.keys() | second.keys()) - set(ignored)
    absent = object()
    return sorted(name for name in names if first.get(name, absent) != second.get(name, absent))
