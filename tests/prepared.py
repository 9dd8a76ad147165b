"""Runs a command until it has checked its flags and read its files: `python -m tests.prepared NAME --FLAG=VALUE...`."""

import dataclasses
import sys
from unittest import mock

from official_bert import commands

if __name__ == "__main__":
    command = commands.load_command(name := sys.argv.pop(1))
    command = dataclasses.replace(command, run=lambda *_: None, uses_tensorflow=False)
    with mock.patch.object(commands, "load_command", lambda _: command):
        commands.start(name)
