"""`sweep`: run a fine-tuning command for a grid of settings, and select the best on the development set."""

import dataclasses
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from official_bert.commands import load_command
from official_bert.options.command import Command, from_arguments, split_command, to_arguments
from official_bert.options.option import Options, option, options
from official_bert.support import files, writing
from official_bert.support.console import format_seconds, format_table, mean_and_deviation, write_rows
from official_bert.support.errors import UserError
from official_bert.support.signals import passed_on

if TYPE_CHECKING:
    from official_bert.options.training import LabellingOptions
    from official_bert.tasks.classification.options import ClassifierConfig
    from official_bert.tasks.tagging.options import TaggingConfig


@options(group="training")
class SweepConfig(Options):
    command: str | None = option(
        None,
        "Command of each run: run_classifier, run_multiple_choice or run_ner with its flags, as one quoted value; or "
        "give it at the end, after --.",
        required=True,
    )
    output_dir: str | None = option(
        None,
        "Folder for sweep.tsv and for one folder per run with everything that the command writes.",
        required=True,
        is_path=True,
    )
    # The paper's grid.
    train_batch_size: str = option(
        "16,32", "Comma-separated list: number of examples per training step, over all devices."
    )
    learning_rate: str = option("5e-5,3e-5,2e-5", "Comma-separated list: peak learning rate.")
    num_train_epochs: str = option("2,3,4", "Comma-separated list: number of training epochs.")
    random_seed: str = option("12345", "Comma-separated list: random seeds; each combination is run with each of them.")


_SETTINGS = {"train_batch_size": int, "learning_rate": float, "num_train_epochs": float}
_DECIMALS = 4


def run(config: SweepConfig) -> None:
    """Execute unfinished runs, then print the table and the winner."""
    combinations = _combinations(config)
    trials = [trial for combination in combinations for trial in combination.trials]
    for trial in trials:
        trial.check_folder()
    pending = [trial for trial in trials if trial.score is None]
    logging.info("%d runs, %d of them finished already", len(trials), len(trials) - len(pending))
    writing.make_folders(config.output_dir)
    table = os.path.join(config.output_dir, "sweep.tsv")
    write_rows(table, _rows(combinations))
    began, num_done, num_epochs = time.monotonic(), 0.0, sum(trial.config.num_train_epochs for trial in pending)
    for trial in pending:
        name, left = os.path.basename(trial.config.output_dir), ""
        if num_done:  # the time of a run is proportional to its epochs
            seconds = (time.monotonic() - began) / num_done * (num_epochs - num_done)
            left = f", {format_seconds(seconds)} left"
        logging.info("run %d of %d%s: %s", trials.index(trial) + 1, len(trials), left, name)
        trial.run(name)
        logging.info("%s = %.*f", trial.metric, _DECIMALS, trial.score)
        num_done += trial.config.num_train_epochs
        write_rows(table, _rows(combinations))
    sys.stdout.write(format_table(_rows(combinations)))
    sys.stdout.write(f"best on dev: {_best(combinations).description}\n")


class Trial(NamedTuple):
    script: str  # the command
    config: "LabellingOptions"  # its flags
    metric: str  # the key in `eval_results.txt` to report

    @property
    def score(self) -> float | None:
        from official_bert.training.run_folder import RESULTS_FILE, read_results

        path = os.path.join(self.config.output_dir, RESULTS_FILE)
        return read_results(path).get(self.metric) if files.exists(path) else None

    def check_folder(self) -> None:
        """Raise if the folder has a run with other flags: resuming would mix two runs."""
        from official_bert.training.run_folder import differing_flags, read_run_config, settings_folder

        folder, flags = self.config.output_dir, dataclasses.asdict(self.config)
        run = read_run_config(settings_folder(self.config))
        if run is None and self.score is None:
            return
        found = run.flags_with_defaults(self.config) if run else {}
        names = differing_flags(found, flags, ignored=("output_dir",))
        if names:
            values = [flags_there.get(names[0]) for flags_there in (found, flags)]
            raise UserError(
                f"{folder} has a run with --{names[0]}={values[0]}, not {values[1]}; "
                "delete that folder or give another output_dir"
            )

    def run(self, name: str) -> None:
        """Run or resume the command quietly to its end."""
        command = [sys.executable, "-m", "official_bert", self.script, *to_arguments(self.config)]
        processes: list[subprocess.Popen] = []
        with passed_on(processes) as received:
            processes.append(subprocess.Popen([*command, "--verbosity=-1"]))  # warnings and errors
            exit_code = processes[0].wait()
        if self.score is not None and not received:
            return
        # Stopped externally: by SIGTERM, which exits with 0, another signal (negative, or over 128) or Ctrl-C (130).
        if exit_code <= 0 or exit_code > 128:
            raise UserError(f"stopped during {name}; the same command resumes from there")
        raise UserError(
            f"{name} ended with exit code {exit_code}; fix the error above and run the command again; "
            "finished runs are kept"
        )


class _Combination(NamedTuple):
    """Settings as shown in the table, and a run per seed."""

    settings: dict[str, str]
    trials: list[Trial]

    @property
    def scores(self) -> list[float]:
        return [score for trial in self.trials if (score := trial.score) is not None]

    @property
    def is_finished(self) -> bool:
        return len(self.scores) == len(self.trials)

    @property
    def description(self) -> str:
        flags = " ".join(f"--{name}={value}" for name, value in self.settings.items())
        mean, deviation = mean_and_deviation(self.scores, _DECIMALS)
        return f"{flags}, {self.trials[0].metric} {mean}" + (f" (std {deviation})" if deviation else "")


def _combinations(config: SweepConfig) -> list[_Combination]:
    grid = [_parse_list(config, name, kind) for name, kind in _SETTINGS.items()]
    seeds = _parse_list(config, "random_seed", int)
    values = {name: values[0] for name, values in zip(_SETTINGS, grid, strict=True)}
    script, run_config = _read_command(config, {**values, "random_seed": seeds[0]})
    primary_metric = f"eval_{run_config.primary_metric or _METRICS[script](run_config)}"
    combinations = []
    for values in itertools.product(*grid):
        settings = dict(zip(_SETTINGS, values, strict=True))
        trials = []
        for seed in seeds:
            batch_size, rate, epochs = map(_show, values)
            folder = f"batch_{batch_size}-rate_{rate}-epochs_{epochs}-seed_{seed}"
            changes = {**settings, "random_seed": seed, "output_dir": os.path.join(config.output_dir, folder)}
            trials.append(Trial(script, dataclasses.replace(run_config, **changes), primary_metric))
        combinations.append(_Combination({name: _show(value) for name, value in settings.items()}, trials))
    return combinations


def _read_command(config: SweepConfig, settings: Mapping[str, float]) -> "tuple[str, LabellingOptions]":
    from official_bert.training.model_files import complete_model_flags

    name, *arguments = split_command(config.command)
    name = os.path.basename(name).removesuffix(".py")
    if name not in _METRICS:
        raise UserError(f"the command to sweep must be one of {', '.join(_METRICS)} with its flags, not {name!r}")
    config_class = load_command(name).config_class

    def complete(_: type, values: Mapping[str, Any], given: Collection[str]) -> Mapping[str, Any]:
        for flag in ("output_dir", *settings):
            if flag in given:
                raise UserError(f"--{flag} is set by the sweep; give it before --, not to {name}")
        for flag in ("do_train", "do_eval"):
            if flag in given and not values[flag]:
                raise UserError(f"a sweep trains and evaluates; leave --no{flag} out")
        if values["train_batch_tokens"]:
            raise UserError("a sweep tries the sizes of --train_batch_size; leave --train_batch_tokens out")
        swept = {**settings, "output_dir": config.output_dir, "do_train": True, "do_eval": True}
        return complete_model_flags(config_class, {**values, **swept}, given)

    try:
        run_config = from_arguments(config_class, arguments, complete)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    if run_config.do_export:
        raise UserError(f"a sweep does not export; export the winner with {name} --do_export")
    return name, run_config


def _classifier_metric(config: "ClassifierConfig") -> str:
    from official_bert.tasks.classification.data import CUSTOM
    from official_bert.tasks.classification.datasets import named_dataset
    from official_bert.tasks.classification.records import custom_metrics

    if config.task_name.lower() == CUSTOM:
        return custom_metrics(config.problem, config.ranking)[0]
    return named_dataset(config.task_name).primary_metric


def _tagger_metric(config: "TaggingConfig") -> str:
    from official_bert.tasks.tagging.records import primary_metric, read_configured, tags_of

    return primary_metric(tags_of(read_configured(config, "train_file")))


# Primary metric of each command.
_METRICS = {
    "run_classifier": _classifier_metric,
    "run_multiple_choice": lambda config: "accuracy",
    "run_ner": _tagger_metric,
}


def _parse_list(config: SweepConfig, name: str, kind: Callable[[str], Any]) -> list[Any]:
    given = getattr(config, name)
    try:
        values = [kind(text) for text in given.split(",")]
    except ValueError as error:
        raise UserError(f"--{name}={given}: must be a comma-separated list of numbers") from error
    if len(set(map(_show, values))) < len(values):
        raise UserError(f"--{name}={given} contains a number twice")
    return values


def _show(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


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
    """Return the combination with the highest mean; the first if tied."""
    return max(combinations, key=lambda combination: statistics.mean(combination.scores))


COMMAND = Command(
    config_class=SweepConfig,
    summary="Runs a fine-tuning command with every combination of some settings, and reports the best.",
    usage=r"""
  {command} --output_dir=sweep --random_seed=1,2,3 -- run_classifier --task_name=mrpc --data_dir=MRPC \
      --init_checkpoint=uncased_L-12_H-768_A-12
  {command} --output_dir=sweep --learning_rate=5e-5,3e-5 -- run_ner --data_dir=conll2003 \
      --init_checkpoint=cased_L-12_H-768_A-12

--train_batch_size, --learning_rate, --num_train_epochs and --random_seed take lists, by default the values in the BERT
paper and one seed. The command after -- takes all its other flags; --do_train and --do_eval are added.
Each run is a process of that command with its own folder in --output_dir; sweep.tsv there lists the dev scores so far.
The same command resumes an unfinished sweep; finished runs are not repeated. If a run fails, the sweep ends. Taggers
are compared by entity F1, or by accuracy if the tags do not mark entities.
""",
    run=run,
    uses_tensorflow=False,
)
