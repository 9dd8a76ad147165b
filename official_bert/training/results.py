"""The scores that a finished run left in its output folder, for the tools that compare runs; needs no TensorFlow."""

from official_bert.support import text_files
from official_bert.support.errors import UserError

RESULTS_FILE = "eval_results.txt"


def read_results(path: str) -> dict[str, float]:
    """Read the lines `key = value` of an `eval_results.txt`.

    Raises:
      UserError: the file is missing, or a line is something else; the message gives its number.
    """
    results = {}
    for number, line in enumerate(text_files.LineReader(path), start=1):
        *name, value = line.rsplit(" = ", maxsplit=1)  # the name of a label may have the sign, too
        try:
            (key,) = name
            results[key] = float(value)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {line[:80]!r} is not of the form 'key = number'") from error
    return results
