"""Keeps other processes out of a folder, or away from an open file. No other module uses locks of the system."""

import contextlib
import errno
import os
from collections.abc import Iterator

from absl import logging

from official_bert.support.errors import UserError
from official_bert.support.files import NO_LINKS, is_remote

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt

# What file systems say that know no locks, such as some network ones.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def exclusive_lock(folder: str, what: str) -> Iterator[None]:
    """Keep other processes out of a local folder while the block runs.

    Args:
      folder: it must exist; one that is remote, or on a file system without locks, cannot be guarded.
      what: what the block does, for the message: "trains into".

    Raises:
      UserError: another process is in its block, or the lock file cannot be opened.
    """
    if is_remote(folder):
        yield
        return
    path = os.path.join(folder, ".lock")
    lock = _open_lock(path)
    try:
        try:
            acquire(lock)
        except BlockingIOError as error:
            raise UserError(f"another process {what} {folder}; wait for it, or use another folder") from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise UserError(f"cannot lock {path}: {error.strerror}; use a folder on another disk") from error
            logging.warning(
                "%s is on a file system without locks (%s): see to it yourself that no other process %s it",
                folder,
                error.strerror,
                what,
            )
        yield
    finally:
        os.close(lock)


def acquire(descriptor: int) -> None:
    """Lock an open file or folder until it is closed.

    Raises:
      OSError: another process has it, or the file system knows no locks.
    """
    if fcntl:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from error


def _open_lock(path: str) -> int:
    """Open a lock file, which nothing is written to; a link would lead to a file of somebody else."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o666)
    except OSError as error:
        raise UserError(
            f"cannot open the lock file {path}: {error.strerror}; delete it or use another folder"
        ) from error
