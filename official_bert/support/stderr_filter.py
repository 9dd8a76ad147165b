"""Notes of native code: what libraries in C++ write to standard error, past Python's logging."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def filtered_stderr(is_note: Callable[[str], bool]) -> Iterator[None]:
    """Hold back what is written to standard error in the block, then pass on the lines that are not mere notes.

    Args:
      is_note: tells a line that nobody needs.
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
