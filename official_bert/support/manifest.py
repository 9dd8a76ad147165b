"""`Manifest`: a file that records what other files were made from, so that a later run can reuse them."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from absl import logging

from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError


def fingerprint(*values: Any) -> str:
    """Hash numbers, strings, and lists and dicts of them, for values too long for a manifest."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


class Manifest(NamedTuple):
    """Record of the provenance and lengths of files, without checksums.

    Attributes:
      provenance: everything that determines the contents of the files: names, used in messages, to JSON values.
      num_bytes: file name to length, relative to the folder of the manifest.
      num_records: total number of records, if known.
    """

    provenance: Mapping[str, Any]
    num_bytes: Mapping[str, int]
    num_records: int | None = None

    @classmethod
    def write(
        cls, path: str, provenance: Mapping[str, Any], names: Iterable[str] = (), num_records: int | None = None
    ) -> None:
        """Write the manifest of complete files.

        Args:
          path: a JSON file in their folder.
          provenance: see the class.
          names: the files.
          num_records: see the class.

        Raises:
          UserError: it cannot be written.
        """
        folder = os.path.dirname(path)
        num_bytes = {name: files.size(os.path.join(folder, name)) for name in names}
        with writing.atomic_write(path) as sink:
            json.dump(cls(provenance, num_bytes, num_records)._asdict(), sink, indent=2)

    @classmethod
    def read(cls, path: str) -> "Manifest | None":
        """Read a manifest; return None if there is none.

        Raises:
          UserError: it is damaged.
        """
        if not files.exists(path):
            return None
        values = text_files.read_json(path, "note about files")
        found = cls(*(values.get(name) for name in cls._fields))
        has_numbers = type(found.num_records) is int or found.num_records is None
        if not (isinstance(found.provenance, dict) and isinstance(found.num_bytes, dict) and has_numbers):
            raise UserError(f"{path} does not record what the files were made from; restore or delete it")
        return found

    @classmethod
    def read_or_none(cls, path: str) -> "Manifest | None":
        """Read a manifest; return None if there is none or, with a warning, if it is damaged.

        Raises:
          UserError: the path is not a regular file.
        """
        files.check_regular(path)
        try:
            return cls.read(path)
        except UserError as error:
            logging.warning("%s is damaged (%s); rebuilding the files that it describes", path, error)
            return None

    @classmethod
    def read_if_current(cls, path: str, provenance: Mapping[str, Any], what: str) -> "Manifest | None":
        """Read the manifest of reusable files; return None if there is none or the files are outdated or damaged.

        Args:
          path: the manifest.
          provenance: everything that determines the contents of the files.
          what: description of the files for the message about why they cannot be reused.
        """
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
        """Describe the damage to the files in a folder; return None if their lengths are unchanged."""
        for name, num_bytes in self.num_bytes.items():
            path = os.path.join(folder, name)
            if not files.exists(path) or files.size(path) != num_bytes:
                return f"is damaged: {name} is missing or has another length"
        return None
