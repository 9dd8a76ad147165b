"""Monitoring of a training run: averages for the log, failed steps, and the files of metrics."""

import itertools
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import UNLOGGED_STEPS, CheckpointReader
from official_bert.data.record_files import frame
from official_bert.data.schema import VARINTS, delimited
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.training.step import OVERFLOW_STEPS, SKIPPED_STEPS
from official_bert.visualization.report_page import rounded

# On CPU and GPU a compiled call is limited to about this long, so that progress is shown and SIGTERM handled in time.
_SECONDS_PER_CALL = 1.0
METRICS_FILE = "metrics.jsonl"
# Fields of an Event, a protocol buffer, and a number for each file of events.
_EVENT, _WALL_TIME, _STEP, _VERSION, _SUMMARY = struct.Struct("<Bd"), 0x09, b"\x10", b"\x1a", b"\x2a"
_NUMBERS = itertools.count()
_MAX_STEP = 10**12  # as for flags that count steps
_MOST_SKIPPED = 20  # consecutive steps that nan_policy=skip tolerates


def parse_line(line: bytes) -> dict | None:
    """Parse a line to a dict of `split`, `step` and numbers; None if damaged, like the last line of a killed run."""
    try:
        scalars = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
        return None
    if not line.endswith(b"\n") or not isinstance(scalars, dict):
        return None
    split, step = scalars.get("split"), scalars.get("step")
    is_whole = isinstance(split, str) and type(step) is int and 0 <= step <= _MAX_STEP
    return scalars if is_whole and all(_is_number(scalars[name]) for name in scalars.keys() - {"split"}) else None


def _is_number(value: object) -> bool:
    """Return True for a number that fits a float, including NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**1023


class ScalarLog:
    """Scalars of a run: lines of `metrics.jsonl`, and events as the reference's, in `eval` for evaluations."""

    def __init__(self, output_dir: str, *, is_written: bool = True):
        """Open the log of an output folder, unless another worker writes it; writes nothing yet."""
        self._is_written = is_written
        self._output_dir = output_dir
        self._path = os.path.join(output_dir, METRICS_FILE)
        self._event_files: dict[str, str] = {}  # by split

    def discard_after(self, step: int) -> None:
        """Drop lines of `metrics.jsonl` after a step, for a run that resumes there."""
        self._drop(lambda line: line["step"] > step)

    def replace(self, split: str, step: int, scalars: Mapping[str, float]) -> None:
        """Write a line like `write`, replacing one from an earlier evaluation of the step."""
        self._drop(lambda line: line["split"] == split and line["step"] == step)
        self.write(split, step, scalars)

    def _drop(self, is_dropped: Callable[[dict], bool]) -> None:
        if not self._is_written or not files.exists(self._path):
            return
        with files.open_file(self._path, "rb") as source:
            lines = source.read().splitlines(keepends=True)
        whole = [(line, scalars) for line in lines if (scalars := parse_line(line))]
        if len(whole) < len(lines):
            logging.warning("%s: dropped %d damaged lines", self._path, len(lines) - len(whole))
        with writing.atomic_write(self._path, "wb") as sink:
            sink.writelines(line for line, scalars in whole if not is_dropped(scalars))

    def write(self, split: str, step: int, scalars: Mapping[str, float]) -> None:
        if not self._is_written:
            return
        event = _EVENT.pack(_WALL_TIME, time.time()) + _STEP + VARINTS[int(step)]
        with files.open_file(self._event_file(split), "ab") as sink:
            sink.write(frame(event + delimited(_SUMMARY, b"".join(map(_scalar, scalars, scalars.values())))))
        with files.open_file(self._path, "a") as sink:
            sink.write(json.dumps({"split": split, "step": step, **scalars}) + "\n")
        writing.flush(self._path)  # a checkpoint saved later guarantees that the line exists

    def _event_file(self, split: str) -> str:
        """Return the path of this log's events of a split; begin it first if needed."""
        if split not in self._event_files:
            folder = self._output_dir if split == "train" else os.path.join(self._output_dir, split)
            now, number = time.time(), next(_NUMBERS)
            name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}.{number}.v2"
            writing.make_folders(folder)
            self._event_files[split] = os.path.join(folder, name)
            with files.open_file(self._event_files[split], "wb") as sink:
                sink.write(frame(_EVENT.pack(_WALL_TIME, now) + delimited(_VERSION, b"brain.Event:2")))
        return self._event_files[split]


def _scalar(name: str, value: float) -> bytes:
    """Return a value of a summary, as `simple_value`: the reference's format."""
    return delimited(b"\x0a", delimited(b"\x0a", name.encode()) + b"\x15" + np.float32(value).tobytes())


def write_results(path: str, results: Mapping[str, Any], unlogged: Collection[str] = ()) -> None:
    """Write `eval_results.txt` as the reference does, and log a table of the scores that ends with the first."""
    with writing.atomic_write(path) as sink:
        sink.writelines(f"{name} = {results[name]!s}\n" for name in sorted(results))
    shown = [name for name in results if name not in unlogged]
    for name in reversed(shown):
        logging.info("%s = %s", name.ljust(max(map(len, shown))), rounded(results[name]))


class StepsPerCall:
    """Controller of the number of steps per compiled call."""

    def __init__(self, limit: int, *, is_cut_short: bool):
        self._limit = limit
        self._is_cut_short = is_cut_short
        self.num_steps = 1 if is_cut_short else limit  # number of steps
        self.is_first_call = True  # whether the next call compiles, so that its time does not measure the speed

    def add(self, num_steps: int, seconds: float) -> None:
        """Update from the timing of a call; increase slowly."""
        self.is_first_call = False
        if self._is_cut_short:
            fitting = int(_SECONDS_PER_CALL * num_steps / seconds)
            self.num_steps = max(1, min(self._limit, fitting, 2 * self.num_steps))


class FailedSteps:
    """Counter of consecutive steps that were skipped, because their loss or gradients were not finite."""

    def __init__(self):
        self._num_skipped = 0

    def check(self, step: int, history: dict[str, np.ndarray], latest: str) -> None:
        """Raise if the last step of a call was not finite and not skipped, or after too many skipped steps."""
        if history.get(OVERFLOW_STEPS, [0])[-1]:
            return  # the loss scale is lowered next
        is_skipped = history.get(SKIPPED_STEPS, np.zeros(1)) > 0
        taken = np.flatnonzero(~is_skipped)
        before = -1 - taken[-1] if len(taken) else self._num_skipped
        self._num_skipped = int(before) + len(is_skipped)
        is_finite = all(np.isfinite(values[-1]) for values in history.values())
        if self._num_skipped <= _MOST_SKIPPED and (is_finite or is_skipped[-1]):
            return
        times = f", for the {self._num_skipped}th time in a row" if self._num_skipped else ""
        advice = "" if self._num_skipped else ", nan_policy=skip"
        raise UserError(
            f"loss {history['loss'][-1]} and gradient norm {history['gradient_norm'][-1]} at step {step}{times}; the "
            f"last good checkpoint is {latest}; try a lower learning_rate, a longer warm-up{advice} or another "
            "mixed_precision"
        )


class StepWindow:
    """Averages over the steps since the last log line."""

    def __init__(self, batch_size: int | None):
        self._batch_size = batch_size
        self._histories: list[dict[str, np.ndarray]] = []
        self._timed_examples = 0.0
        self._timed_tokens = 0.0
        self._seconds = 0.0

    @property
    def num_steps(self) -> int:
        return sum(len(history["tokens"]) for history in self._histories)

    def restore(self, reader: CheckpointReader) -> None:
        """Restore the steps stored with a checkpoint that was saved between two log lines."""
        columns = {name: reader.read(name) for name in reader.shapes if name.startswith(UNLOGGED_STEPS)}
        if columns:
            self._histories = [{name.removeprefix(UNLOGGED_STEPS): values for name, values in columns.items()}]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the steps to store with a checkpoint; none right after a log line, as is usual."""
        return {f"{UNLOGGED_STEPS}{name}": values for name, values in self._columns().items()}

    def _columns(self) -> dict[str, np.ndarray]:
        names = self._histories[-1] if self._histories else {}
        # After resuming with another precision, a scalar may be missing.
        return {name: np.concatenate([part[name] for part in self._histories if name in part]) for name in names}

    def add(self, history: dict[str, np.ndarray], seconds: float | None) -> None:
        """Add the steps of a call; `seconds` is None if its time should not count."""
        self._histories.append(history)
        if seconds is not None:
            num_steps = len(history["tokens"])
            self._timed_examples += self._batch_size * num_steps if self._batch_size else np.sum(history["examples"])
            self._timed_tokens += float(np.sum(history["tokens"]))
            self._seconds += seconds

    def scalars(self) -> dict[str, float]:
        """Return the means of finite numbers, the last rates, counts of steps without effect, speed and padding."""
        columns = self._columns()
        tokens, positions = columns.pop("tokens"), columns.pop("positions", np.zeros(0))
        columns.pop("examples", None)
        last = {name: float(columns.pop(name)[-1]) for name in ("learning_rate", "loss_scale") if name in columns}
        names = (OVERFLOW_STEPS, SKIPPED_STEPS)
        counts = {name: float(np.sum(columns.pop(name))) for name in names if name in columns}
        finite = {name: values[np.isfinite(values)] for name, values in columns.items()}
        scalars = {name: float(np.mean(values)) for name, values in finite.items() if len(values)} | last | counts
        if num_positions := float(np.sum(positions)):
            # Steps restored from a checkpoint of an earlier version lack it.
            scalars["padding"] = 1 - float(np.sum(tokens[-len(positions) :])) / num_positions
        if self._timed_examples:
            scalars["examples_per_second"] = float(self._timed_examples) / self._seconds
            if self._timed_tokens:  # precomputed features of a frozen encoder have none
                scalars["tokens_per_second"] = self._timed_tokens / self._seconds
        return scalars


def describe_scalars(step: int, scalars: dict[str, float]) -> list[str]:
    """Return the details of the progress line, most important first."""
    texts = {
        "loss": "step {step:,}: loss {value:.4f}",
        "examples_per_second": "{value:,.0f} examples/s",
        "learning_rate": "learning rate {value:.2e}",
        "gradient_norm": "gradient norm {value:.2f}",
        "tokens_per_second": "{value:,.0f} tokens/s",
        "loss_scale": "loss scale {value:,.0f}",
    }
    shown = [text.format(step=step, value=scalars[name]) for name, text in texts.items() if name in scalars]
    losses = [(name.removesuffix("_loss"), value) for name, value in scalars.items() if name.endswith("_loss")]
    if len(losses) == 1:  # the same as the loss shown already
        return shown
    return shown + [f"{name} {value:.4f}" for name, value in losses]
