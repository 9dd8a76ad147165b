"""Scores in a finished run's output folder, for commands that compare runs. Needs no TensorFlow."""

from collections.abc import Iterable

from official_bert.support import text_files
from official_bert.support.errors import UserError, format_names

RESULTS_FILE = "eval_results.txt"


def read_results(path: str) -> dict[str, float]:
    """Read the `key = value` lines of an `eval_results.txt`.

    Raises:
      UserError: the file is missing, or a line is malformed; the message gives its number.
    """
    results = {}
    for number, line in enumerate(text_files.LineReader(path), start=1):
        *name, value = line.rsplit(" = ", maxsplit=1)  # label names may contain the separator, too
        try:
            (key,) = name
            results[key] = float(value)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {line[:80]!r} is not of the form 'key = number'") from error
    return results


def selecting_metric(given: str | None, default: str, names: Iterable[str]) -> str:
    """Return the key of the score that selects the best checkpoint.

    Args:
      given: the flag `primary_metric`.
      default: the name of the task's main score.
      names: the names of all scores that the flag can choose; higher is better.

    Raises:
      UserError: the flag names none of them.
    """
    names = list(names)
    if given and given not in names:
        raise UserError(f"primary_metric={given} is not one of the scores of this run: {format_names(names)}")
    return f"eval_{given or default}"
