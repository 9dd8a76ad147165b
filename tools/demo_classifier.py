"""See `--help`; the text is in `official_bert/config/scripts.py`."""

from official_bert.config.run_script import run_script
from official_bert.config.scripts import SCRIPTS

if __name__ == "__main__":
    run_script(SCRIPTS["demo_classifier"])
