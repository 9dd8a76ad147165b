"""Writes, replaces and deletes files and folders, local or remote.

A file appears under its name only when it is complete and flushed to disk, so that a power failure leaves either the
old file or the new one: see `publish`.
"""

import contextlib
import errno
import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from absl import logging

from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.support.files import NO_LINKS, fault_point, is_remote

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt

# Errors of file systems without locks, such as some network file systems.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_MAX_HIDDEN_BYTES = 160  # leaves room for the suffixes of `partial_name`, checkpoints and TensorFlow
# Errors of file systems that cannot flush a file or a folder.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


@contextlib.contextmanager
def exclusive_lock(folder: str, what: str) -> Iterator[None]:
    if is_remote(folder):
        yield
        return
    path = os.path.join(folder, ".lock")
    try:  # without writing to it; links are refused, since they might lead to another user's file
        lock = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o666)
    except OSError as error:
        raise UserError(
            f"cannot open the lock file {path}: {error.strerror}; delete it or use another folder"
        ) from error
    try:
        try:
            acquire(lock)
        except BlockingIOError as error:
            raise UserError(f"another process {what} {folder}; wait for it, or use another folder") from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise UserError(f"cannot lock {path}: {error.strerror}; use a folder on another disk") from error
            message = "%s is on a file system without locks (%s): make sure that no other process %s it"
            logging.warning(message, folder, error.strerror, what)
        yield
    finally:
        os.close(lock)


def acquire(descriptor: int) -> None:
    """Lock an open file or folder until it is closed."""
    if fcntl:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from error


def make_folders(path: str) -> None:
    """Create a folder and its parents; an existing one is fine."""
    if files.is_remote(path):
        with files.remote_file_system(path) as gfile:
            gfile.makedirs(path)
        return
    files.check_name(path)
    missing, folder = [], os.path.abspath(path)
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    try:
        os.makedirs(path, exist_ok=True)
        for made in missing:
            _flush(os.path.dirname(made))
    except FileExistsError as error:
        raise UserError(f"{path} is a file, not a folder") from error
    except OSError as error:
        raise UserError(f"cannot create the folder {path}: {error.strerror or error}") from error


def publish(partials: Sequence[str], paths: Sequence[str]) -> None:
    """Rename complete files to their final names, in this order; atomic for each file on a local disk.

    All data is flushed to disk before the first rename, and the renames are flushed before this returns: later writes
    may rely on them even after a power failure. A symbolic link is kept: its target is replaced. A replaced file passes
    its permissions on to the new one.
    """
    for path in paths:
        files.check_regular(path)
        if files.is_folder(path):
            raise UserError(f"cannot write {path}: it is a folder")
    for partial, path in zip(partials, paths, strict=True):
        if not files.is_remote(path):
            with files.reporting_file_errors("write", path, partial):
                _flush(partial)
    for partial, path in zip(partials, paths, strict=True):
        _replace(partial, path)
    folders = {os.path.dirname(os.path.realpath(path)): path for path in paths if not files.is_remote(path)}
    for folder, path in folders.items():
        with files.reporting_file_errors("write", path):
            _flush(folder)
    fault_point(f"published {_place(paths[-1])}")


def _replace(partial: str, path: str) -> None:
    fault_point(f"rename {_place(path)}")
    if files.is_remote(path):
        with files.remote_file_system(path) as gfile:
            gfile.rename(partial, path, overwrite=True)
        return
    target = os.path.realpath(path)
    with files.reporting_file_errors("write", path, partial, target):
        with contextlib.suppress(OSError):  # the file is new, or the file system has no permissions
            os.chmod(partial, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(partial, target)


def _flush(path: str) -> None:
    """Flush a file, or the entries of a folder, to disk if the file system supports it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # some files are writable but not readable
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH:
            raise
    finally:
        os.close(descriptor)


def flush(path: str) -> None:
    """Flush a completely written local file to disk."""
    if not files.is_remote(path):
        with files.reporting_file_errors("write", path):
            _flush(path)


def rename_folder(source: str, target: str) -> None:
    """Rename a complete folder to its final name; atomic on a local disk, after its contents are flushed."""
    if files.exists(target) and not (files.is_folder(target) and not files.list_folder(target)):
        raise FileExistsError(target)
    if files.is_remote(target):
        with files.remote_file_system(target) as gfile:
            gfile.rename(source, target)
        return
    for folder, _, names in os.walk(source):
        for name in names:
            _flush(os.path.join(folder, name))
        _flush(folder)
    fault_point(f"rename_folder {_place(target)}")
    with contextlib.suppress(OSError):  # Windows renames nothing to an existing name
        os.rmdir(target)
    try:
        os.rename(source, target)
    except OSError as error:
        if files.exists(target):  # created in the meantime
            raise FileExistsError(target) from error
        raise
    _flush(os.path.dirname(os.path.abspath(target)))


def remove_folder(path: str) -> None:
    if not files.is_remote(path):
        shutil.rmtree(path, ignore_errors=True)
    elif files.exists(path):
        with files.remote_file_system(path) as gfile:
            gfile.rmtree(path)


def remove(path: str) -> None:
    """Delete a file; a missing file is fine."""
    fault_point(f"remove {_place(path)}")
    if not files.is_remote(path):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    elif files.exists(path):
        with files.remote_file_system(path) as gfile:
            gfile.remove(path)


def discard(partials: Iterable[str]) -> None:
    """Delete incomplete files as far as possible; errors are ignored, since an earlier one is being reported."""
    for partial in partials:
        with contextlib.suppress(OSError, UserError):
            remove(partial)


def discard_beginning_with(partial: str) -> None:
    """Delete all files of a folder that begin with an incomplete file's name, as far as possible."""
    folder, name = os.path.split(partial)
    with contextlib.suppress(OSError, UserError):
        discard(os.path.join(folder, entry) for entry in files.list_folder(folder or ".") if entry.startswith(name))


def _place(path: str) -> str:
    """Return the name of a file in fault points, without the suffix of `partial_name`."""
    name, is_partial, _ = os.path.basename(path).partition(".partial-")
    return name[1:] if is_partial else name


def partial_name(path: str) -> str:
    """Return a new hidden, unguessable name beside `path` to write to before `publish`.

    If `path` is a local symbolic link, the name is beside its target, on the same disk.
    """
    return _partial_start(path) + secrets.token_hex(8)


def _partial_start(path: str) -> str:
    files.check_name(path)
    folder, name = os.path.split(_real_path(path))
    name = name.encode()[:_MAX_HIDDEN_BYTES].decode(errors="ignore")
    return os.path.join(folder, f".{name}.partial-")


def remove_abandoned(path: str) -> None:
    """Delete partial files and folders that killed processes left under names of `partial_name`.

    Files of living processes are locked and left alone: two processes may write the same file or export to one folder.
    """
    if files.is_remote(path):
        return
    folder, start = os.path.split(_partial_start(path))
    with contextlib.suppress(OSError):  # skip what cannot be listed, opened or locked
        for name in os.listdir(folder or "."):
            if name.startswith(start):
                _remove_if_abandoned(os.path.join(folder, name))


def _remove_if_abandoned(partial: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(partial, os.O_RDONLY | files.NO_LINKS | getattr(os, "O_NONBLOCK", 0))
        try:
            acquire(descriptor)
            if os.path.isdir(partial):
                shutil.rmtree(partial)
            else:
                os.remove(partial)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Create a hidden folder beside `path` to fill and rename in the block; delete it at the end if it still exists."""
    remove_abandoned(path)
    partial = partial_name(path)
    with contextlib.ExitStack() as stack:
        if files.is_remote(path):
            make_folders(partial)
        else:
            with files.reporting_file_errors("write", path, partial):
                os.mkdir(partial)
                descriptor = os.open(partial, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                _mark_in_use(descriptor)
        stack.callback(remove_folder, partial)
        yield partial


def check_new_folder(path: str, name: str) -> None:
    """Raise unless `complete_folder` can write a folder; `name` is the parameter, for messages."""
    files.check_name(path)
    if not files.exists(path):
        return
    if not files.is_folder(path):
        raise UserError(f"{name}={path} is a file, not a folder")
    if entries := files.list_folder(path):
        raise UserError(f"{name}={path}: {os.path.join(path, entries[0])} exists already; give another folder")
    if not files.is_remote(path) and (os.path.ismount(path) or os.path.samefile(path, os.curdir)):
        raise UserError(f"{name}={path}: a mount point or the working folder cannot be replaced; give a folder in it")


@contextlib.contextmanager
def complete_folder(path: str, name: str) -> Iterator[str]:
    """Create a hidden folder that becomes `path`, flushed to disk, only if the block ends without an error."""
    check_new_folder(path, name)
    target = _real_path(path)
    make_folders(os.path.dirname(target))
    with new_folder(target) as partial:
        try:
            yield partial
            with files.reporting_file_errors("write", path, partial, target):
                rename_folder(partial, target)
        except FileExistsError as error:
            raise UserError(f"{name}={path} exists already; give another folder") from error
        except UserError as error:
            raise UserError(str(error).replace(partial, path)) from error


def _mark_in_use(descriptor: int) -> None:
    """Lock a partial file or folder, which another writer of it would delete as abandoned otherwise."""
    with contextlib.suppress(OSError):  # without locks, no file is considered abandoned
        acquire(descriptor)


def _created(partial: str, mode: str) -> IO[Any]:
    """Create and open a file that must not exist yet, not even as a link."""
    file = files.open_local(partial, mode.replace("w", "x"))
    _mark_in_use(file.fileno())
    fault_point(f"write {_place(partial)}")
    return file


@contextlib.contextmanager
def atomic_write(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that appears under its name, flushed to disk, only if the block ends without an error."""
    with atomic_writes([path], mode) as (sink,):
        yield sink


def write_file(path: str, content: str | bytes) -> None:
    """Write a whole file; see `atomic_write`."""
    with atomic_write(path, "wb" if isinstance(content, bytes) else "w") as sink:
        sink.write(content)


@contextlib.contextmanager
def atomic_writes(paths: Sequence[str], mode: str = "w") -> Iterator[list[IO[Any]]]:
    """Open files that appear under their names together if the block ends without an error; see `atomic_write`."""
    for path in paths:
        files.check_regular(path)
        remove_abandoned(path)
    partials = [partial_name(path) for path in paths]
    try:
        with (
            files.reporting_file_errors("write", files.describe_paths(paths), *paths, *partials),
            contextlib.ExitStack() as stack,
        ):
            are_remote = [files.is_remote(path) for path in paths]
            sinks = [
                stack.enter_context(files.open_file(partial, mode) if is_remote else _created(partial, mode))
                for partial, is_remote in zip(partials, are_remote, strict=True)
            ]
            yield sinks
            for sink, is_remote in zip(sinks, are_remote, strict=True):
                if is_remote:
                    sink.close()
                elif not sink.closed:  # stays open, and so locked, until it has its final name
                    sink.flush()
            publish(partials, paths)
    except BaseException:
        discard(partials)
        raise


def check_writable_folder(path: str, name: str) -> None:
    """Raise unless files can be created in the folder that will hold `path`."""
    try:
        files.check_name(path)
        files.check_regular(path)
    except UserError as error:
        raise UserError(f"{name}={error}") from error
    folder = os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path) or "."
    if not files.is_folder(folder):
        raise UserError(f"{name}={path}: the folder {folder} does not exist; create it first")
    if files.is_folder(path):
        raise UserError(f"{name}={path} is a folder; give a file name")
    if not files.is_remote(folder) and not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{name}={path}: the folder {folder} is not writable")


def check_disk_space(path: str, num_bytes: int, what: str) -> None:
    """Raise before writing if the disk has no room for a file; remote file systems are not checked."""
    if files.is_remote(path):
        return
    try:
        free = shutil.disk_usage(os.path.dirname(os.path.realpath(path))).free
    except OSError:
        return  # writing the file will report why
    if free < num_bytes:
        needed, left, missing = (f"{number / 1e9:,.2f} GB" for number in (num_bytes, free, num_bytes - free))
        raise UserError(
            f"cannot write the {what} {path}: it needs {needed}, but only {left} are free; free at least {missing} "
            "on that disk"
        )


def check_outputs(outputs: Sequence[str], inputs: Iterable[str], name: str) -> None:
    """Raise unless files can be written, and none would overwrite an input or another output."""
    for output in outputs:
        check_writable_folder(output, name)
    for output, source in itertools.product(outputs, inputs):
        are_local = not (is_remote(output) or is_remote(source)) and os.path.exists(output) and os.path.exists(source)
        if output == source or (are_local and os.path.samefile(output, source)):
            raise UserError(f"{name}: {output} is also an input; it would be overwritten")
    places = list(map(_real_path, outputs))
    for place in places:
        if places.count(place) > 1:
            raise UserError(f"{name} lists {place} twice")


def _real_path(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)
