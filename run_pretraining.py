"""See `--help`; the text is in `official_bert/commands/run_pretraining.py`."""

from official_bert.commands import start

if __name__ == "__main__":
    start("run_pretraining")
