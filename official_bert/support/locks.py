"""Keeps other processes out of a folder."""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator

from absl import logging

from official_bert.support.errors import UserError
from official_bert.support.files import are_changes_dropped, is_remote

# What file systems say that know no locks, such as some network ones.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def exclusive_lock(folder: str, what: str) -> Iterator[None]:
    """Keeps other processes out of a local folder while the block runs.

    Args:
      folder: it must exist; one that is remote, or on a file system without locks, cannot be guarded, and a process
        that changes no files needs no lock.
      what: what the block does, for the message: "trains into".

    Raises:
      UserError: another process is in its block, or the lock file cannot be opened.
    """
    if is_remote(folder) or are_changes_dropped():
        yield
        return
    path = os.path.join(folder, ".lock")
    lock = _open_lock(path)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def _open_lock(path: str) -> int:
    """Opens a lock file, which nothing is written to: it may be a link to, or be, something else than a lock."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise UserError(f"cannot open the lock file {path}: {reason}; delete it or use another folder") from error
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        os.close(lock)
        raise UserError(f"the lock file {path} is not a regular file; delete it or use another folder")
    return lock
