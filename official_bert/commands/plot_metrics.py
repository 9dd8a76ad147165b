"""`plot_metrics`: plot the curves of runs from their output folders, as a page and an image."""

import os
from collections.abc import Sequence

from absl import logging

from official_bert.options.command import Command
from official_bert.options.option import Options, option, options
from official_bert.support import files, writing
from official_bert.support.errors import UserError, check_installed, pluralize, require
from official_bert.support.metrics_file import METRICS_FILE, Metrics, read_metrics


@options(group="output")
class CurvesConfig(Options):
    """Flags of `plot_metrics`."""

    output_dirs: str | None = option(
        None, "Output folders of runs: comma-separated list of names and globs.", required=True, is_path=True
    )
    output_file: str | None = option(None, "HTML page to write.", is_path=True)
    image_file: str | None = option(None, "PNG file to write, instead of or in addition to the page.", is_path=True)
    smoothing: float = option(
        0.6,
        "Initial smoothing of the page, and smoothing of the image: weight of each point relative to the "
        "next one, from 0 (none) to 0.99.",
        minimum=0,
        maximum=0.99,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.output_file is None and self.image_file is None:
            raise UserError("nothing to write: give --output_file, for a page, or --image_file, for a PNG, or both")


def check(config: CurvesConfig) -> None:
    """Check the files before TensorFlow is imported."""
    for name in ("output_file", "image_file"):
        if getattr(config, name) is not None:
            writing.check_writable_folder(getattr(config, name), name=name)
    if config.image_file is not None:
        check_installed("matplotlib", extra="plots")


_EVALUATION_FOLDER = "eval"  # flags of an evaluation-only run


def run(config: CurvesConfig) -> None:
    """Write the page and the image."""
    from official_bert.training.run_folder import distinct_names
    from official_bert.visualization import curves, curves_image

    if config.image_file is not None:
        require("matplotlib", extra="plots")
    metrics, notes = _read(config.output_dirs.split(","))
    names = distinct_names({folder: _flags(folder) for folder in metrics})
    runs = [curves.Run(name=names[folder], folder=folder, series=read.series) for folder, read in metrics.items()]
    curves.check_comparable(runs)
    outputs = [path for path in (config.output_file, config.image_file) if path is not None]
    inputs = [os.path.join(folder, METRICS_FILE) for folder in metrics]
    writing.check_no_overwriting(outputs, inputs, "output_file")
    num_panels = len(curves.panels(runs))
    if config.output_file is not None:
        with writing.atomic_write(config.output_file, "wb") as sink:
            sink.write(curves.page(runs, smoothing=config.smoothing, notes=notes).encode())
    if config.image_file is not None:
        with writing.atomic_write(config.image_file, "wb") as sink:
            curves_image.draw(runs, sink, smoothing=config.smoothing)
    logging.info("wrote %s: %d metrics of %d run(s)", " and ".join(outputs), num_panels, len(runs))


def _read(patterns: Sequence[str]) -> tuple[dict[str, Metrics], list[str]]:
    """Return the metrics of each folder that matches the patterns, and a note on folders without metrics."""
    from official_bert.training.run_folder import RUN_CONFIG_FILE

    metrics: dict[str, Metrics] = {}
    notes = []
    for pattern in (pattern.strip() for pattern in patterns):
        matches = [
            os.path.dirname(path)
            for name in (METRICS_FILE, RUN_CONFIG_FILE)
            for path in files.find_any(os.path.join(pattern, name))
        ]
        with_metrics = 0
        num_not_finite = 0
        for folder in dict.fromkeys(matches):
            path = os.path.join(folder, METRICS_FILE)
            read = read_metrics(path) if files.exists(path) else Metrics({}, 0, 0)
            num_not_finite += read.num_not_finite
            if read.num_damaged:
                notes.append(f"{path}: left out {pluralize(read.num_damaged, 'damaged line')}")
            if read.num_not_finite:
                notes.append(
                    f"{path}: left out {pluralize(read.num_not_finite, 'number')} that are NaN or infinite, as when "
                    "training diverges; lower learning_rate"
                )
            if read.series:
                metrics[folder] = read
                with_metrics += 1
            else:
                notes.append(f"{folder} has no {'finite ' * bool(read.num_not_finite)}metrics yet and is left out")
        if not with_metrics and num_not_finite:
            raise UserError(
                f"output_dirs: all metrics of {pattern!r} are NaN or infinite: training diverged, and there is nothing "
                "to draw; train again with a lower learning_rate"
            )
        if not with_metrics:
            raise UserError(
                f"output_dirs: no folder with metrics matches {pattern!r}; give the output folder of a run: it "
                f"writes {METRICS_FILE} every log_steps steps of training, and when it evaluates"
            )
    notes = list(dict.fromkeys(notes))
    for note in notes:
        logging.warning("%s", note)
    return metrics, notes


def _flags(folder: str) -> dict:
    from official_bert.training.run_folder import read_run_config

    written = read_run_config(folder) or read_run_config(os.path.join(folder, _EVALUATION_FOLDER))
    return written.flags if written is not None else {}


COMMAND = Command(
    name="plot_metrics",
    config_class=CurvesConfig,
    summary="Draws the losses, scores and speed of runs over their steps, as an HTML page and an image.",
    usage="""
  {command} --output_dirs='out/mrpc-*' --output_file=curves.html --image_file=curves.png

Reads the metrics.jsonl of the folders. Runs are named by the flags that differ. The page is one file that needs no
network; --image_file needs the extra "plots".
""",
    check=check,
    run=run,
    uses_tensorflow=False,
)
