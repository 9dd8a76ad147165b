"""Runs Apache Beam pipelines: options from the command line, one clear message where a job fails, counters.

A pipeline's functions are pickled by name, so the workers need this package at the same version, and read and write
the same paths as the process that starts the job.
"""

import collections
import contextlib
import io
import logging as standard_logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    PortableOptions,
    StandardOptions,
    WorkerOptions,
)
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    SubprocessSdkWorkerHandler,
    WorkerHandler,
)
from apache_beam.runners.portability.portable_runner import JobServiceHandle

from official_bert.support import writing
from official_bert.support.errors import UserError

_SECONDS_BETWEEN_CHECKS = 0.5
_LOCAL_RUNNERS = ("directrunner", "direct")
# Their job servers know more options than Beam for Python does.
_RUNNERS_WITH_OPTIONS_OF_THEIR_OWN = ("portable", "flink", "spark", "prism", "samza", "kafkastreams")
# How a `UserError` of a worker arrives: the end of a traceback in the text of another error. All exceptions that this
# package defines are such mistakes.
_USER_ERROR = re.compile(r"^(?:\w+: )?official_bert(?:\.\w+)+: (.*)$", re.MULTILINE)
# How Beam says that a worker does not answer any more.
_LOST_WORKER = "Channel closed prematurely"
LOST_WORKER = (
    "the job failed: it lost a worker process, which the system kills when the memory is full; run the same command "
    "again, if need be with fewer workers"
)
_STEP = re.compile(r" \[while running '.*$")
_NAMESPACE = "official_bert"


def counter(name: str) -> Any:
    """Return a number that workers add to; see `run_job`."""
    return beam.metrics.Metrics.counter(_NAMESPACE, name)


def pipeline_options(arguments: Sequence[str]) -> PipelineOptions:
    """Parse options of a pipeline.

    Raises:
      UserError: one is unknown or has an invalid value.
    """
    with _quiet_beam(), _quiet_parser() as complaint:
        try:
            options = PipelineOptions(list(arguments))
            runner = options.view_as(StandardOptions).runner or "DirectRunner"
            unknown = _unknown_options(options, arguments)
        except SystemExit as error:  # how argparse refuses a value
            raise UserError(f"beam_args: {complaint()}") from error
    if unknown and not runner.lower().startswith(_RUNNERS_WITH_OPTIONS_OF_THEIR_OWN):
        raise UserError(f"beam_args: unknown option {unknown[0]!r}; see the options of Beam's {runner}")
    workers = options.view_as(WorkerOptions)
    workers.default_sdk_harness_log_level = workers.default_sdk_harness_log_level or "WARNING"
    return options


def remove_earlier(outputs: Sequence[str]) -> None:
    """Delete files that an earlier job has written, so that none is left among those of a job that fails.

    A single file may stay: it is replaced when the new one is complete.
    """
    if len(outputs) > 1:
        for path in outputs:
            writing.remove(path)


def run_job(steps: beam.PTransform, options: PipelineOptions) -> collections.Counter[str]:
    """Run a pipeline to its end.

    Args:
      steps: the pipeline.
      options: see `pipeline_options`.

    Returns:
      What the workers counted, by name.

    Raises:
      UserError: a worker met a mistake of the user, a worker ended, or the job service reports an error.
    """
    is_local = _is_local(options)
    try:
        pipeline = beam.Pipeline(runner=_local_runner(options) if is_local else None, options=options)
    except (ValueError, ImportError) as error:  # no such runner, or one whose packages are not installed
        raise UserError(f"beam_args: {error}") from error
    with _quiet_beam():
        try:
            _ = pipeline | steps
            result = pipeline.run()
            try:
                state = result.wait_until_finish()
            except KeyboardInterrupt:
                result.cancel()
                raise
        except UserError as error:  # of this process, or of a worker that is a part of it
            raise UserError(_STEP.sub("", str(error))) from error
        except grpc.FutureTimeoutError as error:
            endpoint = options.view_as(PortableOptions).job_endpoint
            raise UserError(f"beam_args: no job service answers at {endpoint}; is it running?") from error
        except Exception as error:
            message = LOST_WORKER if _LOST_WORKER in str(error) else _user_message(str(error))
            if message is None and is_local:
                raise
            advice = "see the logs of the job service and of its workers, then run the same command again"
            raise UserError(message or f"the job failed: {_last_line(str(error))}; {advice}") from error
    if state != beam.runners.runner.PipelineState.DONE:
        raise UserError(f"the job ended in the state {state}; see the logs of the runner")
    return _counted(result)


def _is_local(options: PipelineOptions) -> bool:
    runner = options.view_as(StandardOptions).runner
    return runner is None or runner.lower() in _LOCAL_RUNNERS


def _local_runner(options: PipelineOptions) -> FnApiRunner:
    """Return the runner that Beam's DirectRunner chooses for pipelines like ours, without its download from GitHub.

    It also notices when a worker process ends that has not begun to compute, or does not at the moment.
    """
    WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)(_WatchedWorkerHandler)
    for_workers = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision = beam_provision_api_pb2.ProvisionInfo(pipeline_options=for_workers)
    return FnApiRunner(provision_info=ExtendedProvisionInfo(provision))


class _WatchedWorkerHandler(SubprocessSdkWorkerHandler):
    """A worker process of a local job; what waits for its answers fails when it ends before the job does."""

    def start_worker(self) -> None:
        """Start the process."""
        self._is_closed = threading.Event()
        super().start_worker()
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._is_closed.set()
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)  # ends a process that will connect only now, too
        super().close()

    def _watch(self) -> None:
        self.worker_thread.join()
        while not self._is_closed.wait(_SECONDS_BETWEEN_CHECKS):
            for future in list(self.control_conn._futures_by_id.values()):  # `abort` ends only some ways of waiting
                number = future.instruction_id
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=number, error=_LOST_WORKER))


def _unknown_options(options: PipelineOptions, arguments: Sequence[str]) -> list[str]:
    known = options.get_all_options(retain_unknown_options=False)
    everything = options.get_all_options(retain_unknown_options=True)
    unknown = sorted(set(everything) - set(known))
    stray = [argument for argument in arguments[:1] if not argument.startswith("--")]
    return stray + [f"--{name}" for name in unknown]


@contextlib.contextmanager
def _quiet_parser() -> Iterator[Callable[[], str]]:
    """Keep what argparse prints in the block; give a function that returns the last line of it."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        yield lambda: (printed.getvalue().strip().splitlines() or ["invalid options"])[-1].rpartition("error: ")[2]


def _user_message(text: str) -> str | None:
    """Return the message for the user about an error of a job; None if it is a mistake in the program."""
    found = _USER_ERROR.findall(text)
    return _STEP.sub("", found[-1]) if found else None


def _last_line(text: str) -> str:
    return _STEP.sub("", (text.strip().splitlines() or ["no reason was given"])[-1])


@contextlib.contextmanager
def _quiet_beam() -> Iterator[None]:
    """Drop what Beam logs in the block, and the errors of its threads: what fails is an exception as well."""
    logger, root, show = standard_logging.getLogger("apache_beam"), standard_logging.getLogger(), threading.excepthook
    level = logger.level

    def is_other(record: standard_logging.LogRecord) -> bool:
        return record.module != "portable_runner"  # which logs what a job service reports

    def show_other(arguments: threading.ExceptHookArgs) -> None:
        is_lost_worker = isinstance(arguments.exc_value, grpc.RpcError) or "exited" in str(arguments.exc_value)
        if not is_lost_worker:
            show(arguments)

    logger.setLevel(standard_logging.CRITICAL)
    root.addFilter(is_other)
    threading.excepthook = show_other
    try:
        yield
    finally:
        logger.setLevel(level)
        root.removeFilter(is_other)
        threading.excepthook = show


def _counted(result: beam.runners.runner.PipelineResult) -> collections.Counter[str]:
    found = result.metrics().query(beam.metrics.MetricsFilter().with_namespace(_NAMESPACE))
    # Runners know committed or attempted values or both; 0 may be neither, and a counter of 0 may be left out.
    values = {metric.key.metric.name: metric.committed or metric.attempted or 0 for metric in found["counters"]}
    return collections.Counter(values)
