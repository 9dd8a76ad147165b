"""See `--help`; the text is in `official_bert/commands/run_ner.py`."""

from official_bert.commands.run_ner import COMMAND
from official_bert.options.running import run_command

if __name__ == "__main__":
    run_command(COMMAND)
