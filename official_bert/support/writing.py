"""Writes, replaces and deletes files and folders, local or remote.

What is written appears under its name only when it is whole and its bytes are on the disk, so that a power cut leaves
either the old file or the new one: see `publish`.
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

from official_bert.support import files, locks
from official_bert.support.errors import UserError
from official_bert.support.fault_points import fault_point

_MAX_HIDDEN_BYTES = 160  # leaves room for what `partial_name`, a checkpoint's suffix and TensorFlow add
# File systems that cannot flush a file or a folder say so in one of these ways.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


def make_folders(path: str) -> None:
    """Create a folder and its parents; an existing one is fine.

    Raises:
      UserError: the folder cannot be created.
    """
    if files.is_remote(path):
        with files.remote(path) as gfile:
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
    """Give files that are complete their names, in this order; on a local disk each in one step.

    Their bytes are on the disk before the first has its name, and the names before this returns: what is written later
    may count on them, after a power cut too. A symbolic link stays one: the file that it points to is replaced. A file
    that is replaced leaves its permissions to the new one.

    Args:
      partials: the files.
      paths: their names, of files that may be there already.

    Raises:
      UserError: a name stands for something else than a regular file, or the disk reports an error.
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
        with files.remote(path) as gfile:
            gfile.rename(partial, path, overwrite=True)
        return
    target = os.path.realpath(path)
    with files.reporting_file_errors("write", path, partial, target):
        with contextlib.suppress(OSError):  # it is new, or the file system knows no permissions
            os.chmod(partial, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(partial, target)


def _flush(path: str) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on the disk, where the file system can do that."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # some may be written to but not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH:
            raise
    finally:
        os.close(descriptor)


def flush(path: str) -> None:
    """Wait until the bytes of a local file that was written to its end are on the disk.

    Raises:
      UserError: the disk reports an error.
    """
    if not files.is_remote(path):
        with files.reporting_file_errors("write", path):
            _flush(path)


def rename_folder(source: str, target: str) -> None:
    """Give a folder that is complete its name; on a local disk in one step, once all it holds is on the disk.

    Raises:
      FileExistsError: there is something of that name already.
    """
    if files.exists(target):
        raise FileExistsError(target)
    if files.is_remote(target):
        with files.remote(target) as gfile:
            gfile.rename(source, target)
        return
    for folder, _, names in os.walk(source):
        for name in names:
            _flush(os.path.join(folder, name))
        _flush(folder)
    fault_point(f"rename_folder {_place(target)}")
    try:
        os.rename(source, target)
    except OSError as error:
        if files.exists(target):  # made in between
            raise FileExistsError(target) from error
        raise
    _flush(os.path.dirname(os.path.abspath(target)))


def remove_folder(path: str) -> None:
    """Delete a folder with all it holds; one that is gone already is fine."""
    if not files.is_remote(path):
        shutil.rmtree(path, ignore_errors=True)
    elif files.exists(path):
        with files.remote(path) as gfile:
            gfile.rmtree(path)


def remove(path: str) -> None:
    """Delete a file; one that is gone already is fine."""
    fault_point(f"remove {_place(path)}")
    if not files.is_remote(path):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    elif files.exists(path):
        with files.remote(path) as gfile:
            gfile.remove(path)


def discard(partials: Iterable[str]) -> None:
    """Delete what was not completed, as far as it can be: an error on the way here is the one to report."""
    for partial in partials:
        with contextlib.suppress(OSError, UserError):
            remove(partial)


def _place(path: str) -> str:
    """Return the name that fault points give a file, also one that has a `partial_name`."""
    name, is_partial, _ = os.path.basename(path).partition(".partial-")
    return name[1:] if is_partial else name


def partial_name(path: str) -> str:
    """Return a new hidden name beside `path`, to write to before `publish`; no glob matches it, nobody can guess it.

    A local one is beside the file that a symbolic link points to, on its disk.
    """
    return _partial_start(path) + secrets.token_hex(8)


def _partial_start(path: str) -> str:
    """Prefix of all names of `partial_name`."""
    files.check_name(path)
    folder, name = os.path.split(path if files.is_remote(path) else os.path.realpath(path))
    name = name.encode()[:_MAX_HIDDEN_BYTES].decode(errors="ignore")
    return os.path.join(folder, f".{name}.partial-")


def remove_abandoned(path: str) -> None:
    """Delete what processes that were killed while they wrote a local file or folder left under `partial_name`s.

    What a living process writes is locked, and left alone: two may write the same file, and two export to one folder.
    """
    if files.is_remote(path):
        return
    folder, start = os.path.split(_partial_start(path))
    with contextlib.suppress(OSError):  # what cannot be listed, opened or locked is left
        for name in os.listdir(folder or "."):
            if name.startswith(start):
                _remove_if_abandoned(os.path.join(folder, name))


def _remove_if_abandoned(partial: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(partial, os.O_RDONLY | files.NO_LINKS | getattr(os, "O_NONBLOCK", 0))
        try:
            locks.take(descriptor)
            if os.path.isdir(partial):
                shutil.rmtree(partial)
            else:
                os.remove(partial)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Make a hidden folder beside `path`, to fill and to rename in the block; at its end it is deleted if still there.

    Raises:
      UserError: it cannot be made.
    """
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


def _mark_in_use(descriptor: int) -> None:
    """Lock what lies under a `partial_name` until it is closed; see `remove_abandoned`.

    Without it one of two writers of a file would lose it: `support/test_files.py`, "two writers", "a living one".
    """
    with contextlib.suppress(OSError):  # without locks nothing is taken for abandoned either
        locks.take(descriptor)


def _created(partial: str, mode: str) -> IO[Any]:
    """Create a file, which must not be there, not even as a link, and open it."""
    file = files.opened(partial, mode.replace("w", "x"))
    _mark_in_use(file.fileno())
    fault_point(f"write {_place(partial)}")
    return file


@contextlib.contextmanager
def atomic_write(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that appears under its name only when the block ends without an error, and is on the disk then.

    Raises:
      UserError: it cannot be written; see `publish`.
    """
    with atomic_writes([path], mode) as (sink,):
        yield sink


@contextlib.contextmanager
def atomic_writes(paths: Sequence[str], mode: str = "w") -> Iterator[list[IO[Any]]]:
    """Open files that appear under their names together, when the block ends without an error; see `atomic_write`."""
    for path in paths:
        files.check_regular(path)
        remove_abandoned(path)
    partials = [partial_name(path) for path in paths]
    try:
        with (
            files.reporting_file_errors("write", files.named(paths), *paths, *partials),
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
                elif not sink.closed:  # stays open, and with that in use, until it has its name
                    sink.flush()
            publish(partials, paths)
    except BaseException:
        discard(partials)
        raise


def check_writable_folder(path: str, name: str) -> None:
    """Raise unless files can be created in the folder that will hold `path`.

    Raises:
      UserError: the folder is missing or not writable, or `path` is something that must not be replaced; the message
        names the parameter.
    """
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


def check_room(path: str, num_bytes: int, what: str) -> None:
    """Raise if the disk has no room for a file, before anything of it is written; what is remote is not known.

    Args:
      path: the file.
      num_bytes: how large it will be.
      what: what it is, for the message.

    Raises:
      UserError: the message says how much is needed, left and missing.
    """
    if files.is_remote(path):
        return
    try:
        free = shutil.disk_usage(os.path.dirname(os.path.realpath(path))).free
    except OSError:
        return  # writing will say why
    if free < num_bytes:
        needed, left, missing = (f"{number / 1e9:,.2f} GB" for number in (num_bytes, free, num_bytes - free))
        raise UserError(
            f"cannot write the {what} {path}: it needs {needed}, and the disk has {left} left; free at least {missing} "
            "there"
        )


def check_no_overwriting(outputs: Sequence[str], inputs: Iterable[str], name: str) -> None:
    """Raise if writing an output would overwrite an input, or another output.

    Args:
      outputs: files to write; they may be there already.
      inputs: files that are read.
      name: the parameter that names the outputs or their folder.

    Raises:
      UserError: two paths name the same file.
    """
    for output, source in itertools.product(outputs, inputs):
        if files.exists(output) and files.exists(source) and files.is_same(output, source):
            raise UserError(f"{name}: {output} is also an input; it would be overwritten")
    places = [path if files.is_remote(path) else os.path.realpath(path) for path in outputs]
    for place in places:
        if places.count(place) > 1:
            raise UserError(f"{name} lists {place} twice")
