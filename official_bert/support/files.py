"""Opens, finds and replaces files, local or remote.

Local paths are served by the standard library, so that tokenization and `--help` never import TensorFlow; paths with
a scheme (`gs://`) go through `tf.io.gfile`, imported on first use. No other module uses `tf.io.gfile`. What goes wrong
with a file is a `UserError` that names it.

What is written appears under its name only when it is whole and its bytes are on the disk, so that a power cut leaves
either the old file or the new one: see `publish`.
"""

import contextlib
import errno
import fcntl
import glob as local_glob
import itertools
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from official_bert.support.errors import UserError
from official_bert.support.fault_points import fault_point

_MAX_NAME_BYTES = 255  # of a file or folder, on all usual file systems
_MAX_HIDDEN_BYTES = 160  # leaves room for what `partial_name`, a checkpoint's suffix and TensorFlow add
_SECONDS_TO_ANSWER = 30.0  # of a remote file system; TensorFlow itself tries again for many minutes
_SPECIAL = (
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
)
# What this process has open already, as `--vocab_file=<(...)` of a shell: a pipe that somebody writes to.
_OWN_DESCRIPTOR = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/\d+")
# File systems that cannot flush a file or a folder say so in one of these ways.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)

_answering: set[str] = set()  # the remote places that have answered
_drops_changes = False


def drop_changes() -> None:
    """Makes this process change no files from now on: what it writes is dropped, and what it deletes stays.

    For the workers of a run that compute what another one computes and writes. Folders are still made.
    """
    global _drops_changes
    _drops_changes = True


def are_changes_dropped() -> bool:
    """Whether `drop_changes` was called."""
    return _drops_changes


def is_remote(path: str) -> bool:
    """Tells whether `path` names a file behind a scheme such as `gs://`."""
    return "://" in path


def is_own_descriptor(path: str) -> bool:
    """Tells whether `path` names what this process has open already, such as a pipe, which can be read but once."""
    return _OWN_DESCRIPTOR.fullmatch(path) is not None


def absolute(path: str) -> str:
    """The path as a process in another folder finds the file."""
    return path if is_remote(path) else os.path.abspath(path)


@contextlib.contextmanager
def _remote(path: str) -> Iterator[Any]:
    """Gives `tf.io.gfile` for work with a remote path.

    Raises:
      UserError: TensorFlow has no file system for the path, it does not answer, or it reports an error in the block.
    """
    import tensorflow as tf  # seconds to import: only remote paths need it

    check_name(path)
    scheme = path.partition("://")[0]
    known = sorted(filter(None, tf.io.gfile.get_registered_schemes()))
    if scheme not in known:
        raise UserError(
            f"{path}: TensorFlow has no file system for {scheme}:// (it has {', '.join(known)}); "
            "copy the file to a local disk and give its path there"
        )
    try:
        _wait_for_answer(tf.io.gfile, path)
        yield tf.io.gfile
    except tf.errors.OpError as error:
        raise UserError(f"{path}: {' '.join(error.message.split())}") from error


def _wait_for_answer(gfile, path: str) -> None:
    """Checks that a remote place answers, when it is used for the first time."""
    place = "/".join(path.split("/")[:3])
    if place in _answering:
        return
    errors = []

    def ask() -> None:
        try:
            gfile.exists(path)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)  # a call into TensorFlow cannot be broken off
    thread.start()
    thread.join(_SECONDS_TO_ANSWER)
    if thread.is_alive():
        raise UserError(
            f"{path}: {place} did not answer within {_SECONDS_TO_ANSWER:g} seconds; "
            "check the network and the credentials, or use a local path"
        )
    if errors:
        raise errors[0]
    _answering.add(place)


def check_name(path: str) -> None:
    """Raises if no file can have this name, or TensorFlow, whose names are UTF-8, could not open it.

    Raises:
      UserError: the name holds NUL or bytes that are not UTF-8, or is too long.
    """
    if "\0" in path:
        raise UserError(f"{path!r}: a file name cannot hold the character NUL")
    try:
        path.encode()
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise UserError(
            f"the file name {path!a} is not UTF-8; rename the file or, if the name is UTF-8, choose a UTF-8 locale: "
            "export LC_ALL=C.UTF-8"
        ) from error
    longest = max(len(name.encode()) for name in path.split("/"))
    if not is_remote(path) and longest > _MAX_NAME_BYTES:
        raise UserError(f"{path}: File name too long: {longest} bytes; the maximum is {_MAX_NAME_BYTES}")


def check_regular(path: str) -> None:
    """Raises if something is there that is neither a regular file nor a folder: a device, a pipe, a link to itself.

    Such a file would be replaced by a regular one, or its reader would wait for ever.

    Raises:
      UserError: the message says what it is.
    """
    if is_remote(path):
        return
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise UserError(f"{path} is a symbolic link that leads back to itself; name a regular file") from error
        return  # whoever opens it learns more
    for is_kind, kind in _SPECIAL:
        if is_kind(mode):
            raise UserError(f"{path} is {kind}, not a regular file; name a regular file")


@contextlib.contextmanager
def explained_errors(action: str, path: str, *hidden: str) -> Iterator[None]:
    """Turns what the disk reports about a file inside the block into a message that names it.

    Args:
      action: "read" or "write".
      path: the file.
      hidden: other names it has in the block.

    Raises:
      UserError: it cannot be read or written.
    """
    try:
        yield
    except OSError as error:
        if error.filename not in (None, path, *hidden):
            raise
        raise UserError(f"cannot {action} {path}: {error.strerror or error}") from error


def _opened(path: str, mode: str) -> IO[Any]:
    check_name(path)
    if "b" in mode:
        return open(path, mode)
    return open(path, mode, encoding="utf-8", newline="")


@contextlib.contextmanager
def open_file(path: str, mode: str = "r", what: str = "") -> Iterator[IO[Any]]:
    """Opens a local or remote file for the block; text is UTF-8 and line ends are left as they are.

    Args:
      path: the file.
      mode: as of `open`.
      what: what the file should be, for messages: "model config".

    Raises:
      UserError: it cannot be opened, read or written, in the block too.
    """
    is_read = mode.startswith("r")
    if _drops_changes and not is_read:
        with _opened(os.devnull, mode) as file:
            yield file
        return
    if is_remote(path):
        with _remote(path) as gfile, gfile.GFile(path, mode) as file:
            yield file
        return
    if not (is_read and is_own_descriptor(path)):
        check_regular(path)
    with (
        explained_errors(f"{'read' if is_read else 'write'}{what and f' the {what}'}", path),
        _opened(path, mode) as file,
    ):
        yield file


def exists(path: str) -> bool:
    """Tells whether a file or folder is there."""
    if not is_remote(path):
        return os.path.exists(path)
    with _remote(path) as gfile:
        return gfile.exists(path)


def is_folder(path: str) -> bool:
    """Tells whether `path` is an existing folder."""
    if not is_remote(path):
        return os.path.isdir(path)
    with _remote(path) as gfile:
        return gfile.isdir(path)


def make_folders(path: str) -> None:
    """Creates a folder and its parents; an existing one is fine.

    Raises:
      UserError: the folder cannot be created.
    """
    if is_remote(path):
        with _remote(path) as gfile:
            gfile.makedirs(path)
        return
    check_name(path)
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


def list_folder(path: str) -> list[str]:
    """Names of the entries of a folder, sorted."""
    if not is_remote(path):
        return sorted(os.listdir(path))
    with _remote(path) as gfile:
        return sorted(gfile.listdir(path))


def size(path: str) -> int:
    """Length of a file in bytes."""
    if not is_remote(path):
        return os.path.getsize(path)
    with _remote(path) as gfile:
        return gfile.stat(path).length


def modified_ns(path: str) -> int:
    """When a local file was changed last, in nanoseconds; 0 for a remote one."""
    return 0 if is_remote(path) else os.stat(path).st_mtime_ns


def is_same(first: str, second: str) -> bool:
    """Tells whether two paths name the same existing file."""
    if is_remote(first) or is_remote(second):
        return first == second
    return os.path.samefile(first, second)


def publish(partials: Sequence[str], paths: Sequence[str]) -> None:
    """Gives files that are complete their names, in this order; on a local disk each in one step.

    Their bytes are on the disk before the first has its name, and the names before this returns: what is written later
    may count on them, after a power cut too. A symbolic link stays one: the file that it points to is replaced. A file
    that is replaced leaves its permissions to the new one.

    Args:
      partials: the files.
      paths: their names, of files that may be there already.

    Raises:
      UserError: a name stands for something else than a regular file, or the disk reports an error.
    """
    if _drops_changes:
        return
    for path in paths:
        check_regular(path)
        if is_folder(path):
            raise UserError(f"cannot write {path}: it is a folder")
    for partial, path in zip(partials, paths, strict=True):
        if not is_remote(path):
            with explained_errors("write", path, partial):
                _flush(partial)
    for partial, path in zip(partials, paths, strict=True):
        _replace(partial, path)
    folders = {os.path.dirname(os.path.realpath(path)): path for path in paths if not is_remote(path)}
    for folder, path in folders.items():
        with explained_errors("write", path):
            _flush(folder)
    fault_point(f"published {_place(paths[-1])}")


def _replace(partial: str, path: str) -> None:
    fault_point(f"rename {_place(path)}")
    if is_remote(path):
        with _remote(path) as gfile:
            gfile.rename(partial, path, overwrite=True)
        return
    target = os.path.realpath(path)
    with explained_errors("write", path, partial, target):
        with contextlib.suppress(OSError):  # it is new, or the file system knows no permissions
            os.chmod(partial, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(partial, target)


def _flush(path: str) -> None:
    """Waits until the bytes of a file, or the names in a folder, are on the disk, where the file system can do that."""
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
    """Waits until the bytes of a local file that was written to its end are on the disk.

    Raises:
      UserError: the disk reports an error.
    """
    if not is_remote(path) and not _drops_changes:
        with explained_errors("write", path):
            _flush(path)


def rename_folder(source: str, target: str) -> None:
    """Gives a folder that is complete its name; on a local disk in one step, once all it holds is on the disk.

    Raises:
      FileExistsError: there is something of that name already.
    """
    if _drops_changes:
        return
    if exists(target):
        raise FileExistsError(target)
    if is_remote(target):
        with _remote(target) as gfile:
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
        if exists(target):  # made in between
            raise FileExistsError(target) from error
        raise
    _flush(os.path.dirname(os.path.abspath(target)))


def remove_folder(path: str) -> None:
    """Deletes a folder with all it holds; one that is gone already is fine."""
    if _drops_changes:
        return
    if not is_remote(path):
        shutil.rmtree(path, ignore_errors=True)
    elif exists(path):
        with _remote(path) as gfile:
            gfile.rmtree(path)


def remove(path: str) -> None:
    """Deletes a file; one that is gone already is fine."""
    if _drops_changes:
        return
    fault_point(f"remove {_place(path)}")
    if not is_remote(path):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    elif exists(path):
        with _remote(path) as gfile:
            gfile.remove(path)


def discard(partials: Iterable[str]) -> None:
    """Deletes what was not completed, as far as it can be: an error on the way here is the one to report."""
    for partial in partials:
        with contextlib.suppress(OSError, UserError):
            remove(partial)


def find(patterns: str) -> list[str]:
    """Finds the files that a comma-separated list of names and globs stands for.

    The names keep the list's order; the matches of one glob are sorted, and hidden files never match.

    Args:
      patterns: for example `"a.txt,books/*.txt"`.

    Returns:
      Paths, at least one per pattern.

    Raises:
      UserError: a pattern matches no file; the message names it.
    """
    return [path for pattern in patterns.split(",") for path in find_one(pattern.strip(), patterns)]


def find_one(pattern: str, given: str | None = None) -> list[str]:
    """Finds the files that a name or glob stands for.

    Args:
      pattern: a path, in which a comma is a character like any other.
      given: the list that it is part of, for messages.

    Raises:
      UserError: there is no file; the message names the pattern.
    """
    matches = find_any(pattern)
    for path in matches or [pattern]:
        check_name(path)
    if not matches and pattern and is_folder(pattern):
        raise UserError(f"{pattern!r} is a folder; name the files in it, as in {os.path.join(pattern, '*')!r}")
    if not matches:
        check_regular(pattern)
        hint = "" if given is None else f" (given: {given!r})"
        raise UserError(f"no file matches {pattern!r}; check the path{hint}")
    return matches


def files_below(folder: str) -> list[str]:
    """Paths of all files below a folder, sorted; what is hidden is left out, and so is what is no regular file.

    Links to folders are followed, but each folder is visited once.
    """
    if is_remote(folder):
        with _remote(folder) as gfile:
            entries = list(gfile.walk(folder))
        paths = [f"{path.rstrip('/')}/{name}" for path, _, names in entries for name in names]
        return sorted(path for path in paths if not _is_hidden_below(path, folder))
    found, visited = [], set()
    for path, folders, names in os.walk(folder, followlinks=True, onerror=_raise_unreadable):
        place = os.path.realpath(path)
        if place in visited:
            folders.clear()
            continue
        visited.add(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.join(path, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if os.path.isfile(path))


def _is_hidden_below(path: str, folder: str) -> bool:
    return any(name.startswith(".") for name in path.removeprefix(folder).split("/"))


def _raise_unreadable(error: OSError) -> None:
    raise UserError(f"cannot read the folder {error.filename}: {error.strerror}") from error


def find_any(pattern: str) -> list[str]:
    """Finds the files that a name or glob stands for, sorted; there may be none."""
    if is_remote(pattern):
        with _remote(pattern) as gfile:
            paths = gfile.glob(pattern)
        paths = [path for path in paths if not os.path.basename(path).startswith(".")]
    elif os.path.isfile(pattern):  # a name that holds [ or * itself
        paths = [pattern]
    else:
        paths = [path for path in local_glob.glob(pattern) if os.path.isfile(path)]
    return sorted(paths)


def _place(path: str) -> str:
    """How fault points call a file, also one that has a `partial_name`."""
    name, is_partial, _ = os.path.basename(path).partition(".partial-")
    return name[1:] if is_partial else name


def partial_name(path: str) -> str:
    """A new hidden name beside `path`, to write to before `publish`; globs do not match it, and nobody can guess it.

    A local one is beside the file that a symbolic link points to, on its disk.
    """
    return _partial_start(path) + secrets.token_hex(8)


def _partial_start(path: str) -> str:
    """What all the names of `partial_name` begin with."""
    check_name(path)
    folder, name = os.path.split(path if is_remote(path) else os.path.realpath(path))
    name = name.encode()[:_MAX_HIDDEN_BYTES].decode(errors="ignore")
    return os.path.join(folder, f".{name}.partial-")


def remove_abandoned(path: str) -> None:
    """Deletes what processes that were killed while they wrote a local file or folder left under `partial_name`s.

    What a living process writes is left alone: see `_hold`.
    """
    if is_remote(path) or _drops_changes:
        return
    folder, start = os.path.split(_partial_start(path))
    with contextlib.suppress(OSError):  # what cannot be listed, opened or locked is left
        for name in os.listdir(folder or "."):
            if name.startswith(start):
                _remove_if_abandoned(os.path.join(folder, name))


def _remove_if_abandoned(partial: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.isdir(partial):
                shutil.rmtree(partial)
            else:
                os.remove(partial)
        finally:
            os.close(descriptor)


def _hold(descriptor: int) -> None:
    """Marks an open file or folder under a `partial_name` as in use until it is closed, where there are locks.

    Raises:
      FileNotFoundError: another process took it for abandoned in this very moment.
    """
    with contextlib.suppress(OSError):  # without locks nothing is taken for abandoned either
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if not os.fstat(descriptor).st_nlink:
        raise FileNotFoundError(errno.ENOENT, "another process writes it at the same time")


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Makes a hidden folder beside `path`, to fill and to rename in the block; at its end it is deleted if still there.

    Raises:
      UserError: it cannot be made.
    """
    remove_abandoned(path)
    partial = partial_name(path)
    with contextlib.ExitStack() as stack:
        if is_remote(path):
            make_folders(partial)
        else:
            with explained_errors("write", path, partial):
                os.mkdir(partial)
                descriptor = os.open(partial, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                _hold(descriptor)
        stack.callback(remove_folder, partial)
        yield partial


def _created(partial: str, mode: str) -> IO[Any]:
    """Creates a file, which must not be there, not even as a link, and opens it."""
    file = _opened(partial, mode.replace("w", "x"))
    try:
        _hold(file.fileno())
    except BaseException:
        file.close()
        raise
    fault_point(f"write {_place(partial)}")
    return file


def _made_private(file: IO[Any]) -> int:
    """Lets nobody else read what is not complete yet; returns the rights that it was created with."""
    rights = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    os.fchmod(file.fileno(), 0o600)
    return rights


@contextlib.contextmanager
def atomic_write(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a file that appears under its name only when the block ends without an error, and is on the disk then.

    Raises:
      UserError: it cannot be written; see `publish`.
    """
    with atomic_writes([path], mode) as (sink,):
        yield sink


@contextlib.contextmanager
def atomic_writes(paths: Sequence[str], mode: str = "w") -> Iterator[list[IO[Any]]]:
    """Opens files that appear under their names together, when the block ends without an error; see `atomic_write`."""
    if _drops_changes:
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(open_file(path, mode)) for path in paths]
        return
    for path in paths:
        check_regular(path)
        remove_abandoned(path)
    partials = [partial_name(path) for path in paths]
    try:
        with explained_errors("write", ", ".join(paths), *paths, *partials), contextlib.ExitStack() as stack:
            sinks = [
                stack.enter_context(open_file(partial, mode) if is_remote(path) else _created(partial, mode))
                for partial, path in zip(partials, paths, strict=True)
            ]
            rights = [None if is_remote(path) else _made_private(sink) for sink, path in zip(sinks, paths, strict=True)]
            yield sinks
            for sink, path, partial, of_file in zip(sinks, paths, partials, rights, strict=True):
                if is_remote(path):
                    sink.close()
                    continue
                if not sink.closed:  # stays open, and with that in use, until it has its name
                    sink.flush()
                os.chmod(partial, of_file)
            publish(partials, paths)
    except BaseException:
        discard(partials)
        raise


def check_writable_folder(path: str, name: str) -> None:
    """Raises unless files can be created in the folder that will hold `path`.

    Raises:
      UserError: the folder is missing or not writable, or `path` is something that must not be replaced; the message
        names the parameter.
    """
    try:
        check_name(path)
        check_regular(path)
    except UserError as error:
        raise UserError(f"{name}={error}") from error
    folder = os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path) or "."
    if not is_folder(folder):
        raise UserError(f"{name}={path}: the folder {folder} does not exist; create it first")
    if is_folder(path):
        raise UserError(f"{name}={path} is a folder; give a file name")
    if not is_remote(folder) and not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{name}={path}: the folder {folder} is not writable")


def check_room(path: str, num_bytes: int, what: str) -> None:
    """Raises if the disk has no room for a file, before anything of it is written; what is remote is not known.

    Args:
      path: the file.
      num_bytes: how large it will be.
      what: what it is, for the message.

    Raises:
      UserError: the message says how much is needed, left and missing.
    """
    if is_remote(path):
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
    """Raises if writing an output would overwrite an input, or another output.

    Args:
      outputs: files to write; they may be there already.
      inputs: files that are read.
      name: the parameter that names the outputs or their folder.

    Raises:
      UserError: two paths name the same file.
    """
    for output, source in itertools.product(outputs, inputs):
        if exists(output) and exists(source) and is_same(output, source):
            raise UserError(f"{name}: {output} is also an input; it would be overwritten")
    places = [path if is_remote(path) else os.path.realpath(path) for path in outputs]
    for place in places:
        if places.count(place) > 1:
            raise UserError(f"{name} lists {place} twice")
