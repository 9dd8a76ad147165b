"""Runs a command until it has checked its flags and read its files: `python -m tests.prepared NAME --FLAG=VALUE...`."""

import dataclasses
import sys

from official_bert import commands
from official_bert.options.command import run_command

if __name__ == "__main__":
    command = commands.load_command(sys.argv.pop(1))
    command = dataclasses.replace(command, run=lambda *_: None, uses_tensorflow=False)
    run_command(command, commands._with_files_of_model)
