"""Commands that a tool runs one after another, each in its own folder."""

import dataclasses
import os
import signal
import subprocess
import sys
from typing import NamedTuple

from official_bert.options.command import to_arguments
from official_bert.options.training import TrainingOptions
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.training.run_folder import (
    RESULTS_FILE,
    differing_flags,
    read_results,
    read_run_config,
    settings_folder,
)


class Trial(NamedTuple):
    """One run of a command that trains and evaluates."""

    script: str  # the command
    config: TrainingOptions  # its flags
    metric: str  # the key in `eval_results.txt` to report

    @property
    def score(self) -> float | None:
        path = os.path.join(self.config.output_dir, RESULTS_FILE)
        return read_results(path).get(self.metric) if files.exists(path) else None

    def check_folder(self) -> None:
        """Raise if the folder has a run with other flags: resuming would mix two runs."""
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
        exit_code = run_script(self.script, self.config)
        if self.score is None:
            raise unfinished(name, exit_code)


def run_script(script: str, config: object) -> int:
    """Run a command quietly to its end; pass SIGTERM on, after which it saves a checkpoint."""
    command = [sys.executable, "-m", "official_bert", script, *to_arguments(config)]
    command.append("--verbosity=-1")  # warnings and errors
    with subprocess.Popen(command) as process:
        previous = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGTERM, previous)


def unfinished(name: str, exit_code: int) -> UserError:
    """Return the error for a command that did not complete."""
    # Stopped externally: by SIGTERM, which exits with 0, another signal (negative, or over 128) or Ctrl-C (130).
    if exit_code <= 0 or exit_code > 128:
        return UserError(f"stopped during {name}; the same command resumes from there")
    return UserError(
        f"{name} ended with exit code {exit_code}; fix the error above and run the command again; "
        "finished runs are kept"
    )
