"""`glue_average`: print the GLUE table and average from output folders of `run_classifier`."""

import itertools
import os
import statistics
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from official_bert.options.command import Command
from official_bert.options.option import Options, option, options
from official_bert.support import files
from official_bert.support.console import format_table, mean_and_deviation
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.tasks.classification.data import Dataset


@options(group="output")
class GlueAverageConfig(Options):
    output_dirs: str | None = option(
        None,
        "Output folders of run_classifier: comma-separated list of names and globs; averages the folders of a task.",
        required=True,
        is_path=True,
    )
    include_wnli: bool = option(
        False,
        "Include WNLI in the average, as the GLUE website does; the BERT paper leaves it out. AX is never included.",
    )
    table_format: str = option("aligned", "How to print the table.", choices=("aligned", "tsv", "markdown"))


_HEADER = ("task", "runs", "score", "std", "counts", "metrics")
_DECIMALS = 2


def run(config: GlueAverageConfig) -> None:
    from official_bert.tasks.classification.data import GLUE_NAMES
    from official_bert.training.run_folder import RESULTS_FILE

    patterns = ",".join(os.path.join(folder.strip(), RESULTS_FILE) for folder in config.output_dirs.split(","))
    runs: dict[str, list[_Run]] = {name: [] for name in GLUE_NAMES}
    for path in dict.fromkeys(files.find(patterns)):
        finished = _Run.read(os.path.dirname(path))
        runs[finished.dataset.name].append(finished)
    uncounted = ("ax",) if config.include_wnli else ("ax", "wnli")
    sys.stdout.write(format_table(_rows(runs, uncounted), config.table_format))


class _Run(NamedTuple):
    """A finished run of a GLUE task."""

    folder: str
    flags: dict[str, Any]
    dataset: "Dataset"
    results: dict[str, float]

    @classmethod
    def read(cls, folder: str) -> "_Run":
        # Training writes its flags to the folder, evaluation alone to its subfolder `eval`.
        from official_bert.tasks.classification.data import DATASETS, GLUE_NAMES
        from official_bert.training.run_folder import RESULTS_FILE, RUN_CONFIG_FILE, read_results, read_run_config

        written = [read_run_config(part) for part in (folder, os.path.join(folder, "eval"))]
        written = [run.flags for run in written if run is not None]
        if not written:
            raise UserError(f"{folder} has no {RUN_CONFIG_FILE}, which names the task")
        names = {str(flags.get("task_name")).lower() for flags in written}
        if len(names) > 1:
            raise UserError(f"{folder} has runs of {' and '.join(sorted(names))}; evaluate each in its own folder")
        name = names.pop()
        if name not in GLUE_NAMES:
            raise UserError(f"{folder}: the task {name} is not one of GLUE's: {', '.join(GLUE_NAMES)}")
        finished = cls(folder, written[0], DATASETS[name], read_results(os.path.join(folder, RESULTS_FILE)))
        for metric, suffix in itertools.product(finished.dataset.metrics, finished.suffixes):
            if f"eval_{metric}{suffix}" not in finished.results:
                path = os.path.join(folder, RESULTS_FILE)
                raise UserError(f"{path} lacks eval_{metric}{suffix}; evaluate {name} again")
        return finished

    @property
    def suffixes(self) -> list[str]:
        from official_bert.tasks.classification.data import split_suffix

        return [split_suffix(split) for split in self.dataset.eval_splits]

    def percent(self, metric: str, suffixes: Sequence[str]) -> float:
        """Return the mean of a metric over parts, times 100."""
        return 100 * statistics.mean(self.results[f"eval_{metric}{suffix}"] for suffix in suffixes)


def _rows(runs: dict[str, list[_Run]], uncounted: Sequence[str]) -> list[tuple[str, ...]]:
    from official_bert.tasks.classification.data import GLUE_NAMES

    rows, counted, missing = [_HEADER], [], []
    for name, of_task in runs.items():
        _warn_of_differences(of_task)
        scores = [finished.percent(finished.dataset.primary_metric, finished.suffixes) for finished in of_task]
        is_counted = name not in uncounted
        if is_counted and scores:
            counted.append(statistics.mean(scores))
        elif is_counted:
            missing.append(GLUE_NAMES[name])
        mean, deviation = mean_and_deviation(scores, _DECIMALS)
        counts = "yes" if is_counted else "no"
        rows.append((GLUE_NAMES[name], str(len(of_task)), mean, deviation, counts, _metrics(of_task)))
    average, _ = mean_and_deviation(counted, _DECIMALS)
    note = f"{len(counted)} of {len(counted) + len(missing)} tasks"
    if missing:
        note += f"; missing: {', '.join(missing)}"
    return [*rows, ("average", "", average, "", "", note)]


def _metrics(runs: list[_Run]) -> str:
    """Format the metrics of a score: "accuracy 81.35 (std 0.42), f1 86.70 (std 0.31)"."""
    if not runs:
        return ""
    cells = []
    metrics = [metric for metric in runs[0].dataset.metrics if not metric.endswith("_mean")]
    for metric, suffix in itertools.product(metrics, runs[0].suffixes):
        mean, deviation = mean_and_deviation([run.percent(metric, [suffix]) for run in runs], _DECIMALS)
        cells.append(f"{metric}{suffix} {mean}" + (f" (std {deviation})" if deviation else ""))
    return ", ".join(cells)


def _warn_of_differences(runs: list[_Run]) -> None:
    """Warn about runs that differ in more than their seeds; averaging them is rarely intended."""
    from official_bert.training.run_folder import differing_flags

    for other in runs[1:]:
        names = differing_flags(runs[0].flags, other.flags, ignored=("task_name", "output_dir", "random_seed"))
        if names:
            flags = ", ".join(f"--{name}" for name in names)
            logging.warning("%s and %s are averaged but differ in %s", runs[0].folder, other.folder, flags)


COMMAND = Command(
    config_class=GlueAverageConfig,
    summary="Prints the GLUE table from output folders of run_classifier.",
    usage="""
  {command} --output_dirs='out/mrpc-seed*,out/cola,out/mnli' --table_format=markdown

Each task has a row: its score is the GLUE metric times 100, averaged over the folders of the task (seeds), with their
standard deviation. The last row is the mean over the tasks that have a folder; matched and mismatched MNLI count as one
task. WNLI is included only with --include_wnli: the GLUE website includes it, the BERT paper does not. AX is never
included.
""",
    run=run,
    uses_tensorflow=False,
)
