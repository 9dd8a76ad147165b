"""A process that imports TensorFlow and this project once and forks a child for each script that the tests run.

Importing TensorFlow costs five seconds of a core, the modules of the project and their tables two, a fork a few
hundredths. The child behaves like any other process: it runs the script's file as `__main__`, with its own arguments,
environment, folder and output, and exits as Python does. It does not test the start itself, and all children share one
hash seed; tests of these start a new Python (`run_cold()`, `script_command()`).

Run as a program, this file is that process: `warm_start.py FD`, a listening socket. On the first request it imports
everything, without looking for devices, whose threads and contexts do not survive a fork. It ends when its standard
input is closed. `warm_start.py run PYTHON ARGUMENT...` instead is a client, which
stands in for `PYTHON ARGUMENT...` with its own standard streams.
"""

import contextlib
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import re
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import warnings

FORKED_PYTHON = "FORKED_PYTHON"  # an environment variable: the Python of the processes that a child starts
_ADDRESS = "WARM_START_ADDRESS"  # gives the server's address to the workers of a parallel run
IS_POSSIBLE = sys.platform == "linux" and hasattr(os, "pidfd_open")
_READ_AT_IMPORT = ("KERAS_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "PYTHON", "TF_", "XLA_")  # environment variables

# NumPy and pyarrow start threads when imported.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def _shaping(environment):
    """Return the variables that take effect when TensorFlow is imported and are not set again in a child."""
    others = ("PYTHONPATH", "PYTHONWARNINGS", "TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL")
    return {name: environment[name] for name in environment if name.startswith(_READ_AT_IMPORT) and name not in others}


class Server:
    """The forking process, which lives as long as the test run."""

    def __init__(self, environment):
        """Start the process; it costs little until the first request."""
        self._folder = tempfile.TemporaryDirectory(prefix="warm_start-")
        address = os.path.join(self._folder.name, "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(64)
            fd = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(fd)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, pass_fds=[fd], env={**environment, **_NO_THREADS},
            )  # fmt: skip
        os.environ[_ADDRESS] = json.dumps([address, _shaping(environment)])

    def close(self):
        del os.environ[_ADDRESS]
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def run(command, environment, timeout, stdin=0):
    """Run `[python, script, *arguments]` or `[python, "-m", module, *arguments]` in a forked child."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        connection = _request(command[1:], environment, [stdin, output.fileno(), errors.fileno()])
        if not connection:
            return None
        child, answers, connection = connection
        with connection:
            connection.settimeout(timeout)
            try:
                code = int(answers.readline())
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                raise subprocess.TimeoutExpired(command, timeout) from None
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, code, output.read(), errors.read())


class Forked:
    """A forked child, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid, answers, connection):
        self.pid, self._answers, self._connection, self._code = pid, answers, connection, None

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout=None):
        if self._code is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.pid, timeout)
            self._code = int(self._answers.readline())
            self._connection.close()
        return self._code

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)


def popen(command, environment, output):
    """Start a process, forked if possible, whose output and errors go into a file."""
    forked = _request(command[1:], environment, [0, output.fileno(), output.fileno()])
    return Forked(*forked) if forked else subprocess.Popen(command, env=environment, stdout=output, stderr=output)


def _request(arguments, environment, files):
    """Have a child forked; return its process id, a file of answers and the connection, or None."""
    if _ADDRESS not in os.environ:
        return None
    address, shaping = json.loads(os.environ[_ADDRESS])
    if _shaping(environment) != shaping:
        return None
    content = json.dumps({"command": arguments, "environment": environment, "folder": os.getcwd()}).encode()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        socket.send_fds(connection, [len(content).to_bytes(4, "big")], files)
        connection.sendall(content)
        answers = connection.makefile()
        return int(answers.readline()), answers, connection
    except (ConnectionError, ValueError):  # it has ended or is ending
        connection.close()
        return None


def stand_in(python, arguments):
    """End as a Python with these arguments does: one that is forked, or else a new one."""
    script = arguments[arguments[:1] == ["-I"] :]  # pages leave the project out; ask_export.py proves that one can
    is_script = bool(script) and (script[0] in ("-m", "-c") or not script[0].startswith("-"))
    forked = _request(script, dict(os.environ), [0, 1, 2]) if is_script else None
    if not forked:
        os.execv(python, [python, *arguments])
    child, answers, _ = forked
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(child, number))
    code = int(answers.readline())
    sys.exit(code if code >= 0 else 128 - code)


def write_stand_ins(folder):
    """Write `python` and `official-bert` into a folder for PATH, which run in forked children."""
    for name, start in (("python", ""), ("official-bert", pathlib.Path(sys.executable).with_name("official-bert"))):
        path = pathlib.Path(folder) / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {__file__} run {sys.executable} {start} "$@"\n')
        path.chmod(0o755)


def start(environment):
    return Server(environment) if IS_POSSIBLE and _ADDRESS not in os.environ else None


def _import_what_scripts_import():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # like the scripts
    from unittest import mock

    import absl.app

    peers = ("IPython", "jax", "matplotlib", "pandas", "sklearn")  # blocked, as in the scripts
    sys.modules.update(dict.fromkeys(peers))
    gc.disable()  # like the scripts
    # TensorFlow looks for GPUs through absl; scripts do that earlier, while they filter its notes.
    with mock.patch.object(absl.app, "call_after_init"):
        import keras  # noqa: F401
        import safetensors.numpy  # noqa: F401
        import tensorflow_text  # noqa: F401

        _import_project()
    for peer in peers:
        del sys.modules[peer]
    gc.collect()
    gc.enable()
    gc.freeze()  # a collection in a child would copy the pages of all these objects


def _import_project():
    import official_bert
    from official_bert.config.text_settings import TextSettings

    for module in pkgutil.walk_packages(official_bert.__path__, "official_bert."):
        if not re.search("__main__|jax|beam", module.name):
            with contextlib.suppress(Exception):  # without an extra; a child that needs the module fails itself
                importlib.import_module(module.name)
    sys.modules["official_bert.tokenization.graph_tables"].make_character_table((), TextSettings())


def _serve(listener):
    """Fork children and report how they end; return in each child, with its task, and at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the tests, which then end this process
    running = {}
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    return None
                if key.fileobj is not listener:
                    selector.unregister(key.fd)
                    pid, connection = running.pop(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with connection:
                        _tell(connection, code)
                    continue
                connection, _ = listener.accept()
                size, fds, _, _ = socket.recv_fds(connection, 4, 3)
                with connection.makefile("rb") as source:
                    request = json.loads(source.read(int.from_bytes(size, "big")))
                if "tensorflow" not in sys.modules:
                    _import_what_scripts_import()
                if len(os.listdir("/proc/self/task")) > 1:
                    return None  # a lock held by another thread would stay locked in the child
                pid = os.fork()
                if not pid:
                    for target, fd in enumerate(fds):
                        os.dup2(fd, target)
                        os.close(fd)
                    for pidfd, (_, other) in running.items():
                        os.close(pidfd)
                        other.close()
                    connection.close()
                    listener.close()
                    return request
                for fd in fds:
                    os.close(fd)
                pidfd = os.pidfd_open(pid)
                selector.register(pidfd, selectors.EVENT_READ)
                running[pidfd] = pid, connection
                _tell(connection, pid)


def _tell(connection, number):
    with contextlib.suppress(BrokenPipeError):  # the client may be gone
        connection.sendall(b"%d\n" % number)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        stand_in(sys.argv[2], sys.argv[3:])
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        wanted = _serve(requests)
    if wanted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Those of the server were made for the null device, in which one can seek, and not for a pipe.
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1, errors="backslashreplace")
        os.chdir(wanted["folder"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        sys.path = [sys.path[0], *wanted["environment"].get("PYTHONPATH", "").split(os.pathsep)] + [
            path for path in sys.path[1:] if path not in inherited
        ]
        if "PYTHONWARNINGS" in os.environ:
            warnings.simplefilter(os.environ["PYTHONWARNINGS"])
        sys.argv = wanted["command"]
        sys.executable = wanted["environment"].get(FORKED_PYTHON, sys.executable)
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        elif sys.argv[0] == "-c":
            sys.path[0] = ""
            exec(compile(sys.argv.pop(1), "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
            runpy.run_path(sys.argv[0], run_name="__main__")
