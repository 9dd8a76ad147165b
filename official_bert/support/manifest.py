"""`Manifest`: a file that records what other files were made from, so that a later run can reuse them."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypedDict

from absl import logging

from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError


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
    """Record of the provenance, lengths and checksums of files."""

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
        """Write the manifest of complete files."""
        paths = {name: os.path.join(os.path.dirname(path), name) for name in names}
        num_bytes = {name: files.size(file) for name, file in paths.items()}
        checksums = {name: files.sha256(file) for name, file in paths.items()} if is_checked else {}
        with writing.atomic_write(path) as sink:
            json.dump(cls(provenance, num_bytes, num_records, checksums)._asdict(), sink, indent=2)

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
        """Return the names of the provenance values that differ."""
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
