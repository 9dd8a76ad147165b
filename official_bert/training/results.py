"""Scores in a finished run's output folder, for commands that compare runs. Needs no TensorFlow."""

from official_bert.support import text_files
from official_bert.support.errors import UserError

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
