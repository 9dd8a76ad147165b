"""See `--help`; the text is in `official_bert/commands/run_ner.py`."""

from official_bert.commands import start

if __name__ == "__main__":
    start("run_ner")
