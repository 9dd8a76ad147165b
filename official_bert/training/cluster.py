"""The devices of a run as the Trainer sees them, whichever library computes, and the agreement of its processes."""

import abc
import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypedDict

import keras
import numpy as np
from absl import logging

from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError
from official_bert.support.processes import is_address
from official_bert.training.step import TrainingSteps
from official_bert.training.task import Task, TrainingPlan

_CHIEF = 0
_TF_CONFIG_ADVICE = (
    'it must look like {"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)


class _Workers(TypedDict):
    worker: list[str]


class _Worker(TypedDict):
    type: Literal["worker"]
    index: int


class _TfConfig(TypedDict):
    cluster: _Workers
    task: _Worker


def configured_workers() -> tuple[list[str], int]:
    """Return the host:port of each worker in TF_CONFIG, and the index of this one; no workers if it is not set."""
    text = os.environ.get("TF_CONFIG")
    if not text:
        return [], _CHIEF
    try:
        config = text_files.parse_json(text, "it")
        text_files.check_json(config, _TfConfig, "it")
        workers, index = config["cluster"]["worker"], config["task"]["index"]
        wrong = next((worker for worker in workers if not is_address(worker)), None)
        if wrong is not None:
            raise UserError(f"{wrong!r} is not host:port")
        if config["cluster"].keys() != {"worker"} or not 0 <= index < len(workers):
            raise UserError("this process must be one of its workers, and nothing else is known here")
    except UserError as error:
        raise UserError(f"the variable TF_CONFIG cannot be used: {error}; {_TF_CONFIG_ADVICE}") from error
    return workers, index


class Cluster(abc.ABC):
    """The workers of a run, which all compute the same in the same order; only the chief writes files."""

    num_workers = 1  # number of processes that train together
    index = _CHIEF  # index of this process among them, from 0
    num_replicas: int  # number of devices that share a batch, over all workers
    is_cut_short = True  # whether a call of several steps may be ended early at no cost, as for signals

    @abc.abstractmethod
    def scope(self) -> contextlib.AbstractContextManager:
        """Return the scope in which variables are created."""

    @abc.abstractmethod
    def training_steps(self, task: Task, model: keras.Model, plan: TrainingPlan) -> TrainingSteps:
        """Create the steps of a training, optimizer included."""

    @abc.abstractmethod
    def distribute(self, batches: Iterable[Mapping[str, Any]]) -> Iterable[Any]:
        """Give each device its part of every batch; B is a multiple of the number of devices."""

    @abc.abstractmethod
    def compiled(
        self, function: Callable[[Any], Mapping[str, Any]], model: keras.Model
    ) -> Callable[[Iterable[Mapping[str, Any]]], Iterator[dict[str, np.ndarray]]]:
        """Compile a function of a batch, which calls a model, into one of many batches that are not distributed yet.

        It yields for each batch the results of all devices, [B, ...] by name.
        """

    @abc.abstractmethod
    def sums(self, *numbers: int) -> list[int]:
        """Sum numbers over all workers; blocks until every worker has called it."""

    @abc.abstractmethod
    def _is_lost_worker(self, error: Exception) -> bool:
        """Return whether an error means that another process has ended."""

    @property
    def is_chief(self) -> bool:
        """True if this process is the chief, which writes the files."""
        return self.index == _CHIEF

    def from_chief(self, number: int) -> int:
        """Return the chief's number on every worker."""
        return self.sums(number if self.is_chief else 0)[0]

    def any_worker(self, condition: bool) -> bool:
        return self.sums(int(condition))[0] > 0

    def wait(self) -> None:
        """Wait for all workers, so that they can read what the chief has written."""
        self.sums(0)

    def check_shared(self, folder: str) -> None:
        """Raise unless all workers see the files that the chief writes to a folder, which must exist on the chief."""
        if self.num_workers == 1:
            return
        path = os.path.join(folder, f".workers-{self.from_chief(secrets.randbits(48))}")
        if self.is_chief:
            writing.write_file(path, "All workers of a run look for this file to check that they share the folder.\n")
        self.wait()
        is_missing = self.any_worker(not files.exists(path))
        if self.is_chief:
            writing.remove(path)
        if is_missing:
            raise UserError(
                f"the {self.num_workers} workers do not share output_dir={folder}: all machines must see the same "
                f"folder at this path, for example on a network file system"
            )

    def check_same(self, what: str, *values: Any) -> None:
        """Raise unless all workers have equal values, compared as strings."""
        own = int(hashlib.sha256(repr(values).encode()).hexdigest()[:12], 16)
        if self.any_worker(own != self.from_chief(own)):
            raise UserError(f"the {self.num_workers} workers differ in their {what}; start the same command on all")

    @contextlib.contextmanager
    def reporting_lost_workers(self) -> Iterator[None]:
        """Run the block as one of the workers; report the loss of another worker as a user error."""
        if self.num_workers == 1:
            yield
            return
        if not self.is_chief:
            logging.info(
                "worker %d of %d: worker 0 writes the files and logs the progress", self.index, self.num_workers
            )
            logging.set_verbosity(logging.WARNING)
        try:
            yield
            self.wait()
        except Exception as error:
            if not self._is_lost_worker(error):
                raise
            raise UserError(
                f"worker {self.index} of {self.num_workers} lost contact with another worker; see that worker's log "
                f"for the reason. Start all workers again: the same command resumes from the last checkpoint"
            ) from error
