"""`sweep` and `sweep_ner`: a grid of settings in; a run of a script for each, and the best ones on dev."""

import dataclasses
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from absl import logging

from official_bert.options.command import Command
from official_bert.options.finetuning import LabellingOptions
from official_bert.options.option import option, options
from official_bert.support import writing
from official_bert.support.errors import UserError
from official_bert.support.progress import format_seconds
from official_bert.support.text_tables import format_table, mean_and_deviation
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.tagging.options import TaggingConfig

if TYPE_CHECKING:
    from official_bert.commands.trials import Trial


@options(group="training")
class SweepOptions(LabellingOptions):
    """Flags of every sweep: those of the script that it runs, of which four take a list.

    Attributes:
      script: the script that it runs.
      run_config: the flags of that script.
    """

    script: ClassVar[str]
    run_config: ClassVar[type]

    output_dir: str | None = option(
        None,
        "Folder for sweep.tsv and for one folder per run with everything that the script writes.",
        required=True,
        is_path=True,
        affects="run",
    )
    do_train: bool = option(True, "Run training; a sweep always does.", affects="run")
    do_eval: bool = option(
        True, "Run evaluation on the dev set; a sweep always does.", group="evaluation", affects="run"
    )
    # The paper's grid.
    train_batch_size: str = option(
        "16,32",
        "Comma-separated list: number of examples per training step, over all devices.",
        affects="order",
        sizes_run_with="do_train",
    )
    learning_rate: str = option("5e-5,3e-5,2e-5", "Comma-separated list: peak learning rate.", affects="learning")
    num_train_epochs: str = option("2,3,4", "Comma-separated list: number of training epochs.", affects="learning")
    random_seed: str = option(
        "12345", "Comma-separated list: random seeds; each combination is run with each of them.", affects="order"
    )

    keep_only_winner: bool = option(
        False,
        "Delete the checkpoints of a combination as soon as another one scores better; keep its other files.",
        group="output",
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train and self.do_eval):
            raise UserError("a sweep trains and evaluates; leave --nodo_train and --nodo_eval out")
        if self.train_batch_tokens:
            raise UserError("a sweep tries the sizes of --train_batch_size; leave --train_batch_tokens out")
        if self.do_export:
            raise UserError(f"a sweep does not export; export the winner with {self.script}.py --do_export")


@options(group="training")
class SweepConfig(SweepOptions, ClassifierConfig):
    """Flags of `sweep`."""

    script: ClassVar[str] = "run_classifier"
    run_config: ClassVar[type] = ClassifierConfig


@options(group="training")
class NerSweepConfig(SweepOptions, TaggingConfig):
    """Flags of `sweep_ner`."""

    script: ClassVar[str] = "run_ner"
    run_config: ClassVar[type] = TaggingConfig


_SETTINGS = {"train_batch_size": int, "learning_rate": float, "num_train_epochs": float}
_DECIMALS = 4


def run(config: SweepOptions) -> None:
    """Makes the runs that are not finished, then prints the table and the winner.

    Raises:
      UserError: a setting is wrong, a folder holds a run with other settings, or a run fails.
    """
    combinations = _combinations(config)
    trials = [trial for combination in combinations for trial in combination.trials]
    for trial in trials:
        trial.check_folder()
    pending = [trial for trial in trials if trial.score is None]
    logging.info("%d runs, %d of them finished already", len(trials), len(trials) - len(pending))
    writing.make_folders(config.output_dir)
    _record_progress(config, combinations)
    clock = _Clock(sum(trial.config.num_train_epochs for trial in pending))
    for trial in pending:
        name = os.path.basename(trial.config.output_dir)
        logging.info("run %d of %d%s: %s", trials.index(trial) + 1, len(trials), clock.time_left(), name)
        trial.run(name)
        logging.info("%s = %.*f", trial.metric, _DECIMALS, trial.score)
        clock.add(trial.config.num_train_epochs)
        _record_progress(config, combinations)
    sys.stdout.write(format_table(_rows(combinations)))
    sys.stdout.write(f"best on dev: {_best(combinations).description}\n")


class _Combination(NamedTuple):
    """Settings, as they stand in the table, and a run with each seed."""

    settings: dict[str, str]
    trials: "list[Trial]"

    @property
    def scores(self) -> list[float]:
        """Those that are known."""
        return [score for trial in self.trials if (score := trial.score) is not None]

    @property
    def is_finished(self) -> bool:
        return len(self.scores) == len(self.trials)

    @property
    def description(self) -> str:
        flags = " ".join(f"--{name}={value}" for name, value in self.settings.items())
        mean, deviation = mean_and_deviation(self.scores, _DECIMALS)
        return f"{flags}, {self.trials[0].metric} {mean}" + (f" (std {deviation})" if deviation else "")


def _combinations(config: SweepOptions) -> list[_Combination]:
    from official_bert.commands.trials import Trial

    primary_metric = f"eval_{_primary_metric(config)}"
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config.run_config)}
    grid = [_parse_list(config, name, kind) for name, kind in _SETTINGS.items()]
    seeds = _parse_list(config, "random_seed", int)
    combinations = []
    for values in itertools.product(*grid):
        settings = dict(zip(_SETTINGS, values, strict=True))
        trials = []
        for seed in seeds:
            batch_size, rate, epochs = map(_show, values)
            folder = f"batch_{batch_size}-rate_{rate}-epochs_{epochs}-seed_{seed}"
            changes = {**settings, "random_seed": seed, "output_dir": os.path.join(config.output_dir, folder)}
            trials.append(Trial(config.script, config.run_config(**{**fields, **changes}), primary_metric))
        combinations.append(_Combination({name: _show(value) for name, value in settings.items()}, trials))
    return combinations


def _primary_metric(config: SweepOptions) -> str:
    from official_bert.tasks.classification.datasets.custom import CUSTOM, CUSTOM_METRICS
    from official_bert.tasks.classification.datasets.published import named_dataset
    from official_bert.tasks.tagging.files import primary_metric, read_configured, tags_of

    if isinstance(config, NerSweepConfig):
        return primary_metric(tags_of(read_configured(config, "train_file")))
    if config.task_name.lower() == CUSTOM:
        return CUSTOM_METRICS[config.problem][0]
    return named_dataset(config.task_name).primary_metric


def _parse_list(config: SweepOptions, name: str, kind: Callable[[str], Any]) -> list[Any]:
    given = getattr(config, name)
    try:
        values = [kind(text) for text in given.split(",")]
    except ValueError as error:
        raise UserError(f"--{name}={given}: must be a comma-separated list of numbers") from error
    if len(set(map(_show, values))) < len(values):
        raise UserError(f"--{name}={given} contains a number twice")
    return values


def _show(value: float) -> str:
    return f"{value:g}"


class _Clock:
    """Estimates the time left; a run takes about as long as it has epochs."""

    def __init__(self, num_epochs: float):
        self._num_epochs = num_epochs
        self._num_done = 0.0
        self._began = time.monotonic()

    def add(self, num_epochs: float) -> None:
        self._num_done += num_epochs

    def time_left(self) -> str:
        if not self._num_done:
            return ""
        seconds = (time.monotonic() - self._began) / self._num_done * (self._num_epochs - self._num_done)
        return f", {format_seconds(seconds)} left"


def _record_progress(config: SweepOptions, combinations: Sequence[_Combination]) -> None:
    """Writes `sweep.tsv`; if asked to, deletes the checkpoints of combinations that can no longer win."""
    from official_bert.checkpoints.names import delete_checkpoints

    with writing.atomic_write(os.path.join(config.output_dir, "sweep.tsv")) as sink:
        sink.write(format_table(_rows(combinations), "tsv"))
    finished = [combination for combination in combinations if combination.is_finished]
    if config.keep_only_winner and finished:
        best = _best(finished)
        for combination in finished:
            if combination is not best:
                for trial in combination.trials:
                    delete_checkpoints(trial.config.output_dir)


def _rows(combinations: Sequence[_Combination]) -> list[list[str]]:
    first = combinations[0].trials
    rows = [[*_SETTINGS, *(f"seed_{trial.config.random_seed}" for trial in first), f"mean_{first[0].metric}", "std"]]
    for combination in combinations:
        scores = [trial.score for trial in combination.trials]
        cells = ["" if score is None else f"{score:.{_DECIMALS}f}" for score in scores]
        summary = mean_and_deviation(combination.scores, _DECIMALS) if combination.is_finished else ("", "")
        rows.append([*combination.settings.values(), *cells, *summary])
    return rows


def _best(combinations: Sequence[_Combination]) -> _Combination:
    """The one with the highest mean, the first of equals."""
    return max(combinations, key=lambda combination: statistics.mean(combination.scores))


COMMAND = Command(
    name="sweep",
    config_class=SweepConfig,
    summary="Runs run_classifier with every combination of some settings, and names the best.",
    usage=r"""
  {command} --task_name=mrpc --data_dir=MRPC --output_dir=sweep --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --random_seed=1,2,3

Takes all flags of run_classifier; --train_batch_size, --learning_rate, --num_train_epochs and --random_seed take lists,
by default the values in the BERT paper and one seed.
Each run is a process of run_classifier with its own folder in --output_dir; sweep.tsv there lists the dev scores so
far. The same command resumes an unfinished sweep; finished runs are not repeated. A run that fails ends the sweep.
""",
    run=run,
    uses_tensorflow=False,
)
