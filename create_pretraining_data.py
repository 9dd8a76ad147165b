"""See `--help`; the text is in `official_bert/commands/create_pretraining_data.py`."""

from official_bert.commands import start

if __name__ == "__main__":
    start("create_pretraining_data")
