"""Finds input files; `Manifest` records what other files were made from."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypedDict

from absl import logging

from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError
from official_bert.support.text_files import LineReader

_LIST_SIGN = "@"
_SIDECARS = (".json", ".vocab.txt", ".model")


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
    for number, line in enumerate(LineReader(path), start=1):
        name, where = line.strip(), f"{path}, line {number}"
        if not name:
            continue
        if name.startswith(_LIST_SIGN):
            raise UserError(f"{where}: {name!r} is a list within a list; use only files, globs and folders")
        try:
            found += _found(name, None, is_input)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
    if not found:
        raise UserError(f"the file list {path} is empty; write one path, glob or folder per line")
    return found


def _found(name: str, given: str | None, is_input: Callable[[str], bool] | None) -> list[str]:
    files.check_name(name)
    if not name or not files.is_folder(name):
        found = files.find(name, given)  # an explicitly named file is always used
        return [path for path in found if path == name or is_input is None or is_input(path)] or found
    found = [path for path in files.files_below(name) if is_input is None or is_input(path)]
    if not found:
        raise UserError(f"there are no input files in the folder {name} (hidden ones are ignored)")
    return found


class InputState:
    """The sizes and modification times of input files, to detect changes while they are read."""

    def __init__(self, paths: Iterable[str]):
        # path to size and time; pipes are omitted
        self.states = {path: _state(path) for path in paths if not files.is_own_descriptor(path)}

    def check_unchanged(self) -> None:
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


def fingerprint(*values: Any) -> str:
    """Hash numbers, strings, and lists and dicts of them, for values too long for a manifest."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


class _Needed(TypedDict):
    provenance: dict[str, Any]
    num_bytes: dict[str, int]


class _Contents(_Needed, total=False):
    num_records: int | None
    checksums: dict[str, str]


class Manifest(NamedTuple):
    # everything that determines the contents of the files: names, used in messages, to JSON values
    provenance: Mapping[str, Any]
    num_bytes: Mapping[str, int]  # file name to length, relative to the folder of the manifest
    num_records: int | None  # total number of records, if known
    checksums: Mapping[str, str]  # file name to SHA-256, of files that have no checksums themselves

    @classmethod
    def write(
        cls,
        path: str,
        provenance: Mapping[str, Any],
        names: Iterable[str] = (),
        num_records: int | None = None,
        *,
        is_checked: bool = True,
    ) -> None:
        paths = {name: os.path.join(os.path.dirname(path), name) for name in names}
        num_bytes = {name: files.size(file) for name, file in paths.items()}
        checksums = {name: files.sha256(file) for name, file in paths.items()} if is_checked else {}
        manifest = cls(provenance, num_bytes, num_records, checksums)
        writing.write_file(path, json.dumps(manifest._asdict(), indent=2))

    @classmethod
    def read(cls, path: str) -> "Manifest | None":
        if not files.exists(path):
            return None
        try:
            values = text_files.read_json_as(path, "note about files", _Contents)
        except UserError as error:
            raise UserError(f"{error}; restore or delete it") from error
        return cls(values["provenance"], values["num_bytes"], values.get("num_records"), values.get("checksums", {}))

    @classmethod
    def read_or_none(cls, path: str) -> "Manifest | None":
        """Read a manifest; return None if there is none or, with a warning, if it is damaged."""
        files.check_regular(path)
        try:
            return cls.read(path)
        except UserError as error:
            logging.warning("%s is damaged (%s); rebuilding the files that it describes", path, error)
            return None

    @classmethod
    def read_if_current(cls, path: str, provenance: Mapping[str, Any], what: str) -> "Manifest | None":
        """Read the manifest of reusable files; return None if there is none or the files are outdated or damaged."""
        known = cls.read_or_none(path)
        if known is None:
            return None
        names = known.find_differences(provenance)
        reason = f"was built with different {', '.join(names)}" if names else known.find_damage(os.path.dirname(path))
        if reason:
            logging.info("%s %s; rebuilding it", what, reason)
        return None if reason else known

    def find_differences(self, provenance: Mapping[str, Any]) -> list[str]:
        wanted = json.loads(json.dumps(provenance))  # tuples become lists in JSON
        return [name for name in {**wanted, **self.provenance} if self.provenance.get(name) != wanted.get(name)]

    def find_damage(self, folder: str) -> str | None:
        """Describe the damage to the files in a folder; return None if they are unchanged."""
        for name, num_bytes in self.num_bytes.items():
            path = os.path.join(folder, name)
            if not files.exists(path) or files.size(path) != num_bytes:
                return f"is damaged: {name} is missing or has another length"
            if name in self.checksums and self.checksums[name] != files.sha256(path):
                return f"is damaged: {name} does not match its checksum"
        return None
