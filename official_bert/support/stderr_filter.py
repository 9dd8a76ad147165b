"""Filter for notes that C++ libraries write directly to standard error."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def filtered_stderr(is_note: Callable[[str], bool]) -> Iterator[None]:
    """Capture standard error during the block, then print the lines that are not mere notes.

    Args:
      is_note: returns True for a line to drop.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            held_back.seek(0)
            for line in held_back.read().decode(errors="replace").splitlines(keepends=True):
                if not is_note(line):
                    sys.stderr.write(line)
