"""See `--help`; the text is in `official_bert/commands/extract_features.py`."""

from official_bert.commands import start

if __name__ == "__main__":
    start("extract_features")
