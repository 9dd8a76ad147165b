"""A process that imports TensorFlow once and forks a child for each script that the tests run to its end.

Importing TensorFlow costs five seconds of a core, a fork a few hundredths. The child behaves like any other process: it
runs the script's file as `__main__`, with its own arguments, environment, folder and output, and exits as Python does.
It does not test the start itself, and all children share one hash seed; tests of these start a new Python
(`run_cold()`, `script_command()`).

Run as a program, this file is that process: `warm_start.py FD`, a listening socket. On the first request it imports
TensorFlow, before any module of this project and without looking for devices, whose threads and contexts do not survive
a fork. It ends when its standard input is closed.
"""

import contextlib
import gc
import json
import os
import pathlib
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from unittest import mock

_ADDRESS = "WARM_START_ADDRESS"  # gives the server's address to the workers of a parallel run
IS_POSSIBLE = sys.platform == "linux" and hasattr(os, "pidfd_open")
_READ_AT_IMPORT = ("KERAS_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "PYTHON", "TF_", "XLA_")  # environment variables

# NumPy and pyarrow start threads when imported.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def _shaping(environment):
    """Return the variables that take effect when TensorFlow is imported, including those set by scripts."""
    found = {name: value for name, value in environment.items() if name.startswith(_READ_AT_IMPORT)}
    return {"TF_CPP_MIN_LOG_LEVEL": "1", **found}


class Server:
    """The forking process, which lives as long as the test run."""

    def __init__(self, environment):
        """Start the process; it costs little until the first request.

        Args:
          environment: environment of the scripts, at least the variables read by TensorFlow's import.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="warm_start-")
        address = os.path.join(self._folder.name, "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(64)
            fd = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(fd)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[fd],
                env={**environment, **_NO_THREADS},
            )
        os.environ[_ADDRESS] = json.dumps([address, _shaping(environment)])

    def close(self):
        del os.environ[_ADDRESS]
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def run(command, environment, timeout, stdin=0):
    """Run `[python, script, *arguments]` or `[python, "-m", module, *arguments]` in a forked child.

    Args:
      command: list of strings.
      environment: dict of the variables.
      timeout: seconds after which the child is killed.
      stdin: descriptor of the child's standard input.
    Returns:
      A `subprocess.CompletedProcess` with text, or None if no server can run this.
    Raises:
      subprocess.TimeoutExpired: the child was killed.
    """
    if _ADDRESS not in os.environ:
        return None
    address, shaping = json.loads(os.environ[_ADDRESS])
    if _shaping(environment) != shaping:
        return None
    request = {"command": command[1:], "environment": environment, "folder": os.getcwd()}
    content = json.dumps(request).encode()
    with (
        socket.socket(socket.AF_UNIX) as connection,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        try:
            connection.connect(address)
            files = [stdin, output.fileno(), errors.fileno()]
            socket.send_fds(connection, [len(content).to_bytes(4, "big")], files)
            connection.sendall(content)
            answers = connection.makefile()
            child = int(answers.readline())
        except (ConnectionError, ValueError):  # it has ended or is ending
            return None
        connection.settimeout(timeout)
        try:
            code = int(answers.readline())
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, timeout) from None
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, code, output.read(), errors.read())


def start(environment):
    """Return a `Server` if the platform supports it and none is running; None otherwise."""
    return Server(environment) if IS_POSSIBLE and _ADDRESS not in os.environ else None


def _import_what_scripts_import():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # like the scripts
    import absl.app

    peers = ("IPython", "jax", "matplotlib", "pandas", "sklearn")  # blocked, as in the scripts
    sys.modules.update(dict.fromkeys(peers))
    # TensorFlow looks for GPUs through absl; scripts do that earlier, while they filter its notes.
    with mock.patch.object(absl.app, "call_after_init"):
        import keras  # noqa: F401
        import safetensors.numpy  # noqa: F401
        import tensorflow_text  # noqa: F401
    for peer in peers:
        del sys.modules[peer]
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of all these objects


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
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        wanted = _serve(requests)
    if wanted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(wanted["folder"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        sys.argv = wanted["command"]
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
            runpy.run_path(sys.argv[0], run_name="__main__")
