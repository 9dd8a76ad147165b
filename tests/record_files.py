"""Reads TFRecord files with TensorFlow's parser, and whole checkpoints."""

import numpy as np
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader


def read_records(path):
    """Return all records of a file, in order: one array [records, length] per feature."""
    columns = {}
    for record in tf.data.TFRecordDataset([str(path)]).as_numpy_iterator():
        for name, feature in tf.train.Example.FromString(record).features.feature.items():
            values = feature.float_list.value or feature.int64_list.value
            columns.setdefault(name, []).append(list(values))
    return {name: np.array(rows) for name, rows in columns.items()}


def arrays_of(path):
    """Return the arrays of a checkpoint, or of the last one in a folder, by name."""
    reader = CheckpointReader(str(path))
    return {name: reader.read(name) for name in reader.shapes}
