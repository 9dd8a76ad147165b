"""Names of the files of a run's checkpoints, and their deletion; does not need TensorFlow."""

import os
import re

from official_bert.support import files, writing

STATE_FILE = "checkpoint"
BEST_FOLDER = "best"  # subfolder of the output folder for a run's best checkpoint
CHECKPOINT_NAME = re.compile(r"model\.ckpt-(\d+)")


def delete_checkpoints(folder: str) -> None:
    """Delete all checkpoints of a run, including its best one; linked folders and other files are kept."""
    for entry in files.list_folder(folder):
        path = os.path.join(folder, entry)
        if files.is_folder(path):
            if not os.path.islink(path):
                delete_checkpoints(path)
        elif entry == STATE_FILE or re.match(rf"{CHECKPOINT_NAME.pattern}\.", entry):
            writing.remove(path)
