"""Finds the input files given by names, globs, folders and file lists."""

from collections.abc import Callable, Iterable, Iterator

from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.support.text_files import LineReader

_LIST_SIGN = "@"
_SIDECARS = (".json", ".vocab.txt", ".spiece.model")


def find_inputs(patterns: str, *, is_input: Callable[[str], bool] | None = None) -> list[str]:
    """Find the input files given by a comma-separated list of names, globs, folders and file lists.

    A folder stands for all files below it, sorted, without hidden files and folders. `@list.txt` stands for the
    contents of list.txt: one name, glob or folder per line. Relative paths in it are relative to the current folder,
    like those in `patterns`; blank lines are ignored.
    """
    found = []
    for pattern in patterns.split(","):
        name = pattern.strip()
        if name.startswith(_LIST_SIGN):
            found += _listed(name.removeprefix(_LIST_SIGN), is_input)
        else:
            found += _found(name, patterns, is_input)
    return found


def _listed(path: str, is_input: Callable[[str], bool] | None) -> list[str]:
    if not path:
        raise UserError(f"{_LIST_SIGN!r} needs the name of a file list: {_LIST_SIGN}list.txt")
    if files.is_folder(path):
        raise UserError(f"{_LIST_SIGN}{path} is a folder, not a list of files; leave out the {_LIST_SIGN}")
    files.check_regular(path)  # a pipe cannot be read twice
    found = []
    for where, name in _entries(path):
        if name.startswith(_LIST_SIGN):
            raise UserError(f"{where}: {name!r} is a list within a list; use only files, globs and folders")
        try:
            found += _found(name, None, is_input)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
    if not found:
        raise UserError(f"the file list {path} is empty; write one path, glob or folder per line")
    return found


def _entries(path: str) -> Iterator[tuple[str, str]]:
    """Yield the non-blank lines of a list, each with its location for messages."""
    for number, line in enumerate(LineReader(path), start=1):
        if name := line.removeprefix("\ufeff").strip():
            yield f"{path}, line {number}", name


def _found(name: str, given: str | None, is_input: Callable[[str], bool] | None) -> list[str]:
    """Return the files given by a name, glob or folder."""
    files.check_name(name)
    if not name or not files.is_folder(name):
        found = files.find_one(name, given)  # an explicitly named file is always used
        return [path for path in found if path == name or is_input is None or is_input(path)] or found
    found = [path for path in files.files_below(name) if is_input is None or is_input(path)]
    if not found:
        raise UserError(f"there are no input files in the folder {name} (hidden ones are ignored)")
    return found


class InputState:
    """The sizes and modification times of input files, to detect changes while they are read."""

    def __init__(self, paths: Iterable[str]):
        """Record the state of files."""
        # path to size and time; pipes are omitted
        self.states = {path: _state(path) for path in paths if not files.is_own_descriptor(path)}

    def check_unchanged(self) -> None:
        """Raise if a file has changed."""
        for path, before in self.states.items():
            after = _state(path) if files.exists(path) else (0, 0)
            if after != before:
                raise UserError(
                    f"{path} changed while it was read: {before[0]:,} bytes at first, {after[0]:,} at the end; "
                    "run the command again when nothing writes to it"
                )


def _state(path: str) -> tuple[int, int]:
    return files.size(path), files.modified_ns(path)


def is_no_sidecar(path: str) -> bool:
    """Return True unless a file is one of those that describe the records beside them."""
    return not path.endswith(_SIDECARS)
