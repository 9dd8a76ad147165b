"""File and folder locks. Only this module uses the operating system's locks."""

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

# Errors of file systems without locks, such as some network file systems.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def exclusive_lock(folder: str, what: str) -> Iterator[None]:
    """Lock a local folder against other processes during the block.

    Args:
      folder: an existing folder; a remote one, or one on a file system without locks, is not locked.
      what: description of the block for the message: "trains into".

    Raises:
      UserError: another process holds the lock, or the lock file cannot be opened.
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
                "%s is on a file system without locks (%s): make sure that no other process %s it",
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
      OSError: another process holds the lock, or the file system has no locks.
    """
    if fcntl:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from error


def _open_lock(path: str) -> int:
    """Open a lock file, without writing to it; links are refused, since they might lead to another user's file."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o666)
    except OSError as error:
        raise UserError(
            f"cannot open the lock file {path}: {error.strerror}; delete it or use another folder"
        ) from error
