"""Names of the files of a run's checkpoints, and their deletion; needs no TensorFlow."""

import os
import re

from official_bert.support import files, writing

STATE_FILE = "checkpoint"
BEST_FOLDER = "best"  # in the output folder: where the best checkpoint of a run lies
CHECKPOINT_NAME = re.compile(r"model\.ckpt-(\d+)")


def delete_checkpoints(folder: str) -> None:
    """Delete all checkpoints of a run, its best one included; everything else stays, other folders it links to too."""
    for entry in files.list_folder(folder):
        path = os.path.join(folder, entry)
        if files.is_folder(path):
            if not os.path.islink(path):
                delete_checkpoints(path)
        elif entry == STATE_FILE or re.match(rf"{CHECKPOINT_NAME.pattern}\.", entry):
            writing.remove(path)
