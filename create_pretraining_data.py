"""See `--help`; the text is in `official_bert/commands/create_pretraining_data.py`."""

from official_bert.commands.create_pretraining_data import COMMAND
from official_bert.options.running import run_command

if __name__ == "__main__":
    run_command(COMMAND)
