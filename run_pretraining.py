"""See `--help`; the text is in `official_bert/config/scripts.py`."""

from official_bert.config.scripts import SCRIPTS
from official_bert.script import run_script

if __name__ == "__main__":
    run_script(SCRIPTS["run_pretraining"])
