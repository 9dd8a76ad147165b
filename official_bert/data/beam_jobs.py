"""Run Apache Beam pipelines: command-line options, one clear error message for a failed job, and counters.

A pipeline's functions are pickled by name, so workers need this package at the same version and must see the same
paths as the process that starts the job.
"""

import collections
import contextlib
import io
import logging as standard_logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions, WorkerOptions
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

Items = Sequence[tuple[Any, Any]]
_SECONDS_BETWEEN_CHECKS = 0.5
_LOCAL_RUNNERS = ("directrunner", "direct")
# Their job servers support more options than Beam for Python.
_RUNNERS_WITH_OPTIONS_OF_THEIR_OWN = ("portable", "flink", "spark", "prism", "samza", "kafkastreams")
# Pattern of a worker's `UserError`: the end of a traceback in the text of another error. All exceptions defined by this
# package are user errors.
_USER_ERROR = re.compile(r"^(?:\w+: )?official_bert(?:\.\w+)+: (.*)$", re.MULTILINE)
# Beam's messages about a worker that no longer responds.
_LOST_WORKER = "Channel closed prematurely"
LOST_WORKER = (
    "the job failed: it lost a worker process, which the system kills when the memory is full; run the same command "
    "again, if need be with fewer workers"
)
_STEP = re.compile(r" \[while running '.*$")
_NAMESPACE = "official_bert"


class WriteShards(beam.PTransform):
    """Transform that writes shards; one worker holds each shard in memory, sorted.

    A shard gets its name only when complete, so a worker that dies leaves no partial shard, and a retry replaces a
    shard by an identical one. Empty shards are written, too.

    Input: pairs of a shard number and items; an item is a pair of a unique sort key and content. Output: the paths.
    """

    def __init__(self, paths: Sequence[str], write: Callable[[str, Iterable[Any]], None]):
        super().__init__()
        self._paths, self._write = list(paths), write

    def expand(self, items):
        every_shard = items.pipeline | "list the shards" >> beam.Create([(n, []) for n in range(len(self._paths))])
        return (
            (items, every_shard)
            | "add empty shards" >> beam.Flatten()
            | "gather the shards" >> beam.GroupByKey()
            | "write the shards" >> beam.Map(_write_shard, self._paths, self._write)
        )


def _write_shard(
    shard: tuple[int, Iterable[Items]], paths: Sequence[str], write: Callable[[str, Iterable[Any]], None]
) -> str:
    number, parts = shard
    items = sorted((item for part in parts for item in part), key=lambda item: item[0])
    write(paths[number], (content for _, content in items))
    return paths[number]


def write_lines(path: str, lines: Iterable[bytes]) -> None:
    with writing.atomic_write(path, "wb") as sink:
        for line in lines:
            sink.write(line + b"\n")


def counter(name: str) -> Any:
    return beam.metrics.Metrics.counter(_NAMESPACE, name)


def pipeline_options(arguments: Sequence[str]) -> PipelineOptions:
    printed = io.StringIO()
    with _quiet_beam(), contextlib.redirect_stderr(printed):
        try:
            options = PipelineOptions(list(arguments))
            runner = options.view_as(StandardOptions).runner or "DirectRunner"
            unknown = _unknown_options(options, arguments)
        except SystemExit as error:  # raised by argparse for an invalid value
            complaint = printed.getvalue().strip().rpartition("error: ")[2] or "invalid options"
            raise UserError(f"beam_args: {complaint}") from error
    if unknown and not runner.lower().startswith(_RUNNERS_WITH_OPTIONS_OF_THEIR_OWN):
        raise UserError(f"beam_args: unknown option {unknown[0]!r}; see the options of Beam's {runner}")
    workers = options.view_as(WorkerOptions)
    workers.default_sdk_harness_log_level = workers.default_sdk_harness_log_level or "WARNING"
    return options


def remove_earlier(outputs: Sequence[str]) -> None:
    """Delete the files of an earlier job, so that they cannot mix with those of a job that fails.

    A single file may stay: it is replaced when the new one is complete.
    """
    if len(outputs) > 1:
        for path in outputs:
            writing.remove(path)


def run_job(steps: beam.PTransform, options: PipelineOptions) -> collections.Counter[str]:
    runner = options.view_as(StandardOptions).runner
    is_local = runner is None or runner.lower() in _LOCAL_RUNNERS
    try:
        pipeline = beam.Pipeline(runner=_local_runner(options) if is_local else None, options=options)
    except (ValueError, ImportError) as error:  # unknown runner, or its packages are not installed
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
        except UserError as error:  # from this process, or from a worker in it
            raise UserError(_STEP.sub("", str(error))) from error
        except grpc.FutureTimeoutError as error:
            endpoint = options.view_as(PortableOptions).job_endpoint
            raise UserError(f"beam_args: no job service answers at {endpoint}; is it running?") from error
        except Exception as error:
            mistakes = _USER_ERROR.findall(str(error))
            if _LOST_WORKER in str(error):
                message = LOST_WORKER
            elif mistakes:
                message = _STEP.sub("", mistakes[-1])
            elif is_local:
                raise
            else:
                last_line = _STEP.sub("", (str(error).strip().splitlines() or ["no reason was given"])[-1])
                advice = "see the logs of the job service and of its workers, then run the same command again"
                message = f"the job failed: {last_line}; {advice}"
            raise UserError(message) from error
    if state != beam.runners.runner.PipelineState.DONE:
        raise UserError(f"the job ended in the state {state}; see the logs of the runner")
    found = result.metrics().query(beam.metrics.MetricsFilter().with_namespace(_NAMESPACE))
    # Runners report committed or attempted values, or both; 0 may mean neither, and zero counters may be missing.
    values = {metric.key.metric.name: metric.committed or metric.attempted or 0 for metric in found["counters"]}
    return collections.Counter(values)


def _local_runner(options: PipelineOptions) -> FnApiRunner:
    """Return the runner that Beam's DirectRunner would choose for our pipelines, without its download from GitHub.

    It also detects worker processes that die before they start computing or while idle.
    """
    WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)(_WatchedWorkerHandler)
    for_workers = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision = beam_provision_api_pb2.ProvisionInfo(pipeline_options=for_workers)
    return FnApiRunner(provision_info=ExtendedProvisionInfo(provision))


class _WatchedWorkerHandler(SubprocessSdkWorkerHandler):
    """A worker process of a local job; if it dies early, everything waiting for it fails."""

    def start_worker(self) -> None:
        self._is_closed = threading.Event()
        super().start_worker()
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        self._is_closed.set()
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)  # also stops a process that has yet to connect
        super().close()

    def _watch(self) -> None:
        self.worker_thread.join()
        while not self._is_closed.wait(_SECONDS_BETWEEN_CHECKS):
            for future in list(self.control_conn._futures_by_id.values()):  # `abort` ends only some kinds of waiting
                number = future.instruction_id
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=number, error=_LOST_WORKER))


def _unknown_options(options: PipelineOptions, arguments: Sequence[str]) -> list[str]:
    known = options.get_all_options(retain_unknown_options=False)
    everything = options.get_all_options(retain_unknown_options=True)
    unknown = sorted(set(everything) - set(known))
    stray = [argument for argument in arguments[:1] if not argument.startswith("--")]
    return stray + [f"--{name}" for name in unknown]


@contextlib.contextmanager
def _quiet_beam() -> Iterator[None]:
    """Suppress Beam's log and thread errors in the block; failures also raise exceptions."""
    logger, root, show = standard_logging.getLogger("apache_beam"), standard_logging.getLogger(), threading.excepthook
    level = logger.level

    def is_other(record: standard_logging.LogRecord) -> bool:
        return record.module != "portable_runner"  # this module logs the reports of a job service

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
