"""Resolve the data set selected by the flags of `run_classifier.py`."""

import os

from official_bert.tasks.classification.datasets.custom import CUSTOM, custom_dataset
from official_bert.tasks.classification.datasets.labels import Dataset
from official_bert.tasks.classification.datasets.published import named_dataset, xnli
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.training.labels_file import read_trained_labels


def configured_dataset(config: ClassifierConfig) -> Dataset:
    """Return the selected data set; custom labels come from the flags, an earlier run or the training file.

    Raises:
      UserError: the data set does not exist, or its labels are unknown.
    """
    name = config.task_name.lower()
    if name == CUSTOM:
        return _custom_dataset(config)
    if name == "xnli":
        return xnli(config.xnli_language, config.train_file)
    return named_dataset(name)


def _custom_dataset(config: ClassifierConfig) -> Dataset:
    paths = {flag: os.path.join(config.data_dir, getattr(config, flag)) for flag in config.required_files}
    initial = None if config.do_train else config.init_checkpoint
    labels = config.label_names if config.labels else read_trained_labels(config.output_dir, initial)
    return custom_dataset(
        **paths,
        text_a_column=config.text_a_column,
        text_b_column=config.text_b_column,
        label_column=config.label_column,
        labels=None if config.regression else labels,
        problem=config.problem,
        has_header=config.has_header,
        is_ranking=config.ranking,
    )


def reads_pairs(config: ClassifierConfig, dataset: Dataset) -> bool:
    """Return whether an example of the data set has two texts."""
    if dataset.name == CUSTOM:
        return config.text_b_column is not None
    return any(split.text_b is not None for split in dataset.splits.values())
