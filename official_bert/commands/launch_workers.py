"""`launch_workers`: start the workers of a run, or print the settings for each machine."""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from absl import logging

from official_bert.options.command import Command, split_command
from official_bert.options.option import Options, option, options
from official_bert.support.errors import UserError
from official_bert.support.processes import is_address
from official_bert.support.signals import passed_on


@options(group="devices")
class LaunchConfig(Options):
    num_workers: int = option(2, "Number of workers to start on this machine.", minimum=1, maximum=64)
    hosts: str | None = option(
        None, "Instead of workers on this machine: comma-separated host:port of each worker; the first is the chief."
    )
    worker_index: int | None = option(
        None, "With --hosts: index of this machine, from 0; starts the command as this worker.", minimum=0
    )
    command: str | None = option(
        None, "Command that each worker runs, as one quoted value; or give it at the end, after --.", group="input"
    )

    def __post_init__(self):
        super().__post_init__()
        addresses = self.addresses
        wrong = next((address for address in addresses if not is_address(address)), None)
        if wrong is not None:
            raise UserError(f"--hosts: {wrong!r} is not host:port, as in worker0.example.com:2222")
        if len(set(addresses)) < len(addresses):
            raise UserError("--hosts names a worker twice; on one machine, each needs its own port")
        if not addresses:
            self.refuse("worker_index", because="needs --hosts, the host:port of all workers")
        if self.worker_index is not None and self.worker_index >= len(addresses):
            raise UserError(f"--worker_index={self.worker_index}, but --hosts names {len(addresses)} workers")
        if (self.worker_index is None) == bool(addresses and self.command):
            raise UserError("a command with --hosts needs --worker_index, and --worker_index a command, after --")
        if not addresses and not self.command:
            raise UserError("nothing to start: give the command at the end, after --, or --hosts to see each TF_CONFIG")

    @property
    def addresses(self) -> list[str]:
        """The host:port of each worker in a cluster; empty for workers on this machine."""
        return [address.strip() for address in self.hosts.split(",")] if self.hosts is not None else []


_SECONDS_TO_END = 60  # after a worker fails, for the others to detect and report it
_SECONDS_OF_OUTPUT = 5  # after a worker exits, because its child processes may keep its output open
_SECONDS_BETWEEN_LOOKS = 0.2


def run(config: LaunchConfig) -> None:
    hosts = config.addresses
    if hosts and config.worker_index is None:
        for index, host in enumerate(hosts):
            sys.stdout.write(f"# worker {index}, on {host.rpartition(':')[0]}\n")
            sys.stdout.write(f"export TF_CONFIG={shlex.quote(tf_config(hosts, index))}\n")
        return
    command = split_command(config.command)
    if hosts:
        os.environ["TF_CONFIG"] = tf_config(hosts, config.worker_index)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            raise UserError(f"{command[0]}: {error.strerror}") from error
    _run_here(command, [f"localhost:{port}" for port in free_ports(config.num_workers)])


def tf_config(hosts: Sequence[str], index: int) -> str:
    return json.dumps({"cluster": {"worker": list(hosts)}, "task": {"type": "worker", "index": index}})


def _run_here(command: Sequence[str], hosts: Sequence[str]) -> None:
    """Run a command as all workers until the last exits; prefix their output lines with worker numbers."""
    workers: list[subprocess.Popen] = []
    with passed_on(workers) as received:
        for index in range(len(hosts)):
            settings = {**os.environ, "TF_CONFIG": tf_config(hosts, index)}
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            workers.append(subprocess.Popen(command, **streams, env=settings))
        threads = [
            threading.Thread(target=_print_lines, args=(worker.stdout, f"[{index}] ".encode()), daemon=True)
            for index, worker in enumerate(workers)
        ]
        for thread in threads:
            thread.start()
        failed = _wait(workers)
        for thread in threads:
            thread.join(_SECONDS_OF_OUTPUT)
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    if failed is not None:
        code = workers[failed].returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
        raise UserError(f"worker {failed} {how}; see its output lines, which begin with [{failed}]")


def _wait(workers: Sequence[subprocess.Popen]) -> int | None:
    """Wait for all workers; return the first that failed, after which the others have limited time."""
    failed, deadline = None, 0.0
    while True:
        codes = [worker.poll() for worker in workers]
        if failed is None and any(codes):
            failed, deadline = codes.index(next(filter(None, codes))), time.monotonic() + _SECONDS_TO_END
        if None not in codes:
            return failed
        if failed is not None and time.monotonic() > deadline:
            logging.warning("worker %d failed; ending the others", failed)
            for worker in workers:
                worker.kill()
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _print_lines(source: IO[bytes], prefix: bytes) -> None:
    for line in source:
        sys.stdout.buffer.write(prefix + line.rstrip(b"\n") + b"\n")
        sys.stdout.buffer.flush()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]


COMMAND = Command(
    config_class=LaunchConfig,
    summary="Starts a training script as several workers, or prints the settings for each machine of a cluster.",
    usage="""
  {command} --num_workers=2 -- python run_pretraining --do_train ...
  {command} --hosts=host0:2222,host1:2222
  {command} --hosts=host0:2222,host1:2222 --worker_index=1 -- python run_pretraining --do_train ...

The first command starts two workers on this machine, to try it. The second prints the variable TF_CONFIG of each
machine of a cluster. The third starts the second worker of that cluster here. See docs/devices.md.
""",
    run=run,
    uses_tensorflow=False,
)
