"""Opens and finds files: local, remote, or models of the Hugging Face Hub, given as hf://owner/name.

Local paths use the standard library, so that tokenization and `--help` never import TensorFlow; paths with a scheme
(`gs://`) use `tf.io.gfile`, imported on first use. Only this module and `writing` use `tf.io.gfile`. File errors become
`UserError`s that name the file.
"""

import collections
import contextlib
import errno
import functools
import glob as local_glob
import hashlib
import os
import re
import signal
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from official_bert.support.errors import UserError, import_tensorflow, install_command

_MAX_NAME_BYTES = 255  # maximum on all common file systems
_BYTES_AT_ONCE = 1 << 20
_MOST_NAMED = 3  # maximum number of files in a message
_SECONDS_TO_ANSWER = 30.0  # TensorFlow itself keeps retrying a remote file system for many minutes
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # a flag of `os.open`, missing on Windows
# Files that this process already has open, such as the pipe of a shell's `--vocab_file=<(...)`.
_OWN_DESCRIPTOR = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/\d+")
KILL_AT_VARIABLE = "OFFICIAL_BERT_KILL_AT"

_answering: set[str] = set()  # remote locations that have answered
_passed: collections.Counter[str] = collections.Counter()
HUB = "hf://"
_HUB_NAME = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?")
_HUB_SETTINGS = [
    *("config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "tokenizer.json", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model"),
    "spm.model",  # DeBERTa's
    "tokenizer_78b3253a26.model",  # KoBERT's
    *("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
    *("[0-9]_*/*.json", "[0-9]_*/*.txt", "[0-9]_*/*.model"),
    *("[1-9]_*/model.safetensors", "[1-9]_*/pytorch_model.bin"),
]
# In order of preference; either may be split, and sentence-transformers may keep it in the encoder's folder.
_HUB_WEIGHTS = (
    ("model*.safetensors", "0_*/model*.safetensors", "model.safetensors.index.json"),
    ("pytorch_model*.bin", "0_*/pytorch_model*.bin", "pytorch_model.bin.index.json"),
    ("tf_model*.h5", "0_*/tf_model*.h5", "tf_model.h5.index.json"),
)
_SHA256 = re.compile("[0-9a-f]{64}")


def is_remote(path: str) -> bool:
    """Return True if `path` has a scheme such as `gs://`."""
    return "://" in path


def is_own_descriptor(path: str) -> bool:
    """Return True if `path` is a file descriptor of this process, such as a pipe, which can be read only once."""
    return _OWN_DESCRIPTOR.fullmatch(path) is not None


def is_below(path: str, folder: str) -> bool:
    """Return True if a local path is in a local folder or below it."""
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([path, folder]) == folder


def absolute_path(path: str) -> str:
    return path if is_remote(path) else os.path.abspath(path)


@contextlib.contextmanager
def remote_file_system(path: str) -> Iterator[Any]:
    """Yield `tf.io.gfile` for working with a remote path."""
    check_name(path)
    tf = import_tensorflow(path, ", or copy the file to a local disk")  # takes seconds
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
    """Check on first use that a remote location answers."""
    place = "/".join(path.split("/")[:3])
    if place in _answering:
        return
    errors = []

    def ask() -> None:
        try:
            gfile.exists(path)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)  # calls into TensorFlow cannot be interrupted
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
    """Raise if this is no valid file name, or TensorFlow could not open it because it is not UTF-8."""
    if "\0" in path:
        raise UserError(f"{path!r}: a file name cannot contain the character NUL")
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
    """Raise if a path is neither a regular file nor a folder, but a device, a pipe or a circular link.

    Writing would replace such a file by a regular one, and reading might block forever.
    """
    if is_remote(path):
        return
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise UserError(f"{path} is a circular symbolic link; give a regular file") from error
        return  # opening the file will report the reason
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(f"{path} is a device, a pipe (FIFO) or a socket, not a regular file; give a regular file")


@contextlib.contextmanager
def reporting_file_errors(action: str, path: str, *hidden: str) -> Iterator[None]:
    """Turn OS errors about a file in the block into a UserError that names it."""
    try:
        yield
    except OSError as error:
        if error.filename not in (None, path, *hidden):
            raise
        advice = "; allow more with ulimit -n, or use fewer files" if error.errno == errno.EMFILE else ""
        raise UserError(f"cannot {action} {path}: {error.strerror or error}{advice}") from error


def describe_paths(paths: Sequence[str]) -> str:
    """Describe files in a message; of many, only the first and the last."""
    if len(paths) <= _MOST_NAMED:
        return ", ".join(paths)
    return f"{len(paths):,} files, {paths[0]} to {paths[-1]}"


def open_local(path: str, mode: str) -> IO[Any]:
    """Open a local file; text is UTF-8, and line ends are unchanged."""
    check_name(path)
    if "b" in mode:
        return open(path, mode)
    return open(path, mode, encoding="utf-8", newline="")


@contextlib.contextmanager
def open_file(path: str, mode: str = "r", what: str = "") -> Iterator[IO[Any]]:
    """Open a local or remote file for the block; text is UTF-8, and line ends are unchanged."""
    is_read = mode.startswith("r")
    if is_remote(path):
        with remote_file_system(path) as gfile, gfile.GFile(path, mode) as file:
            yield file
        return
    if not (is_read and is_own_descriptor(path)):
        check_regular(path)
    with (
        reporting_file_errors(f"{'read' if is_read else 'write'}{what and f' the {what}'}", path),
        open_local(path, mode) as file,
    ):
        yield file


def _ask(path: str, local: Callable[[str], Any], name: str) -> Any:
    """Call a local function with a path, or the method of `tf.io.gfile` with this name."""
    if not is_remote(path):
        return local(path)
    with remote_file_system(path) as gfile:
        return getattr(gfile, name)(path)


def exists(path: str) -> bool:
    return _ask(path, os.path.exists, "exists")


def check_file(path: str, parameter: str) -> None:
    if not exists(path):
        raise UserError(f"{parameter}: there is no file {path}; check the path")


def check_folder(path: str, parameter: str) -> None:
    if not is_folder(path):
        raise UserError(f"{parameter}: there is no folder {path}; check the path")


def is_folder(path: str) -> bool:
    return _ask(path, os.path.isdir, "isdir")


def list_folder(path: str) -> list[str]:
    return sorted(_ask(path, os.listdir, "listdir"))


def size(path: str) -> int:
    found = _ask(path, os.stat, "stat")
    return found.length if is_remote(path) else found.st_size


def read_part(path: str, start: int, num_bytes: int) -> bytes:
    if start + num_bytes > size(path):
        raise UserError(f"{path} ends before byte {start + num_bytes:,}, which it declares; is it truncated?")
    with open_file(path, "rb") as source:
        source.seek(start)
        return source.read(num_bytes)


def modified_ns(path: str) -> int:
    """Return the modification time of a local file in nanoseconds; 0 for a remote one."""
    return 0 if is_remote(path) else os.stat(path).st_mtime_ns


def sha256(path: str) -> str:
    with open_file(path, "rb") as source:
        digest = hashlib.sha256()
        while chunk := source.read(_BYTES_AT_ONCE):
            digest.update(chunk)
    return digest.hexdigest()


def find(pattern: str, given: str | None = None) -> list[str]:
    """Find the files matching a name or glob, sorted."""
    if is_remote(pattern):
        with remote_file_system(pattern) as gfile:
            matches = [path for path in gfile.glob(pattern) if not os.path.basename(path).startswith(".")]
    elif os.path.isfile(pattern):  # a literal name with [ or *
        matches = [pattern]
    else:
        matches = [path for path in local_glob.glob(pattern) if os.path.isfile(path)]
    for path in matches or [pattern]:
        check_name(path)
    if not matches:
        check_regular(pattern)
        hint = "" if given is None else f" (given: {given!r})"
        raise UserError(f"no file matches {pattern!r}; check the path{hint}")
    return sorted(matches)


def files_below(folder: str) -> list[str]:
    """Return the sorted paths of all regular files below a folder, without hidden ones.

    Links to folders are followed, but each folder is visited once.
    """
    if is_remote(folder):
        with remote_file_system(folder) as gfile:
            entries = list(gfile.walk(folder))
        paths = [f"{path.rstrip('/')}/{name}" for path, _, names in entries for name in names]
        return sorted(path for path in paths if "/." not in path.removeprefix(folder.rstrip("/")))
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


def _raise_unreadable(error: OSError) -> None:
    raise UserError(f"cannot read the folder {error.filename}: {error.strerror}") from error


def fault_point(name: str) -> None:
    """Kill the process here if a test wants it, or note that it came here."""
    wanted = os.environ.get(KILL_AT_VARIABLE)
    if not wanted:
        return
    _passed[name] += 1
    if wanted == f"{name}:{_passed[name]}":
        os.kill(os.getpid(), signal.SIGKILL)
    if wanted.startswith("trace:"):
        with open(wanted.removeprefix("trace:"), "a", encoding="utf-8") as trace:
            trace.write(f"{name}\n")


def local_folder(path: str) -> str:
    """Download the needed files of a hub model and return their folder in the cache; return other paths unchanged.

    The client's environment variables apply: `HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN`, `HF_ENDPOINT`.
    """
    if not path.startswith(HUB):
        return path
    match = _HUB_NAME.fullmatch(path)
    if match is None:
        raise UserError(f"{path} is not a model name; write hf://owner/name or hf://owner/name@revision")
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise UserError(f"{path} needs the client of the hub; run: {install_command('hub')}") from error
    name, revision = match.groups()
    try:
        for weights in _HUB_WEIGHTS:
            folder = huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=[*_HUB_SETTINGS, *weights]
            )
            if any(local_glob.glob(os.path.join(local_glob.escape(folder), pattern)) for pattern in weights):
                break
    except errors.GatedRepoError as error:
        raise UserError(f"{path}: access is restricted; request it on the model's page, and set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(f"{path}: the model does not exist or is private; check the name, or set HF_TOKEN") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{path}: this model has no revision {revision!r}") from error
    except (OSError, ValueError, errors.HTTPError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"{path} cannot be downloaded, and is not in the cache: {reason:.200}") from error
    for pattern in (*_HUB_SETTINGS, *weights):
        for file in sorted(local_glob.glob(pattern, root_dir=folder)):
            _check_content(path, file, os.path.realpath(os.path.join(folder, file)))
    return folder


@functools.cache  # commands ask for one folder several times
def _check_content(model: str, file: str, blob: str) -> None:
    """Raise if a large file of a model differs from its hash, which is its name in the cache."""
    wanted = os.path.basename(blob)
    if not _SHA256.fullmatch(wanted):
        return
    if sha256(blob) != wanted:
        raise UserError(f"{model}: {file} is damaged: its SHA-256 does not match; delete {blob} to download it again")
