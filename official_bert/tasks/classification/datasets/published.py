"""Published data sets: each row of `DATASETS` gives the files, columns and metrics of one.

Files are read in their published form.
"""

import difflib

from official_bert.data.tables import read_nsmc, read_review_folders
from official_bert.support.errors import UserError
from official_bert.tasks.classification.datasets.custom import CUSTOM
from official_bert.tasks.classification.datasets.labels import ACCURACY_AND_F1, CORRELATIONS, Dataset
from official_bert.tasks.classification.datasets.layouts import Column, Split

_INFERENCE = ("contradiction", "entailment", "neutral")  # the reference's order
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")


def _glue_splits(text_a: Column, text_b: Column | None = None, label: Column = "label", **layout) -> dict[str, Split]:
    return {
        "train": Split(("train.tsv",), text_a, text_b, label, **layout),
        "dev": Split(("dev.tsv",), text_a, text_b, label, **layout),
        "test": Split(("test.tsv",), text_a, text_b),
    }


def xnli(language: str = "zh", train_file: str | None = None) -> Dataset:
    """Return the XNLI data set for a language.

    Args:
      language: language of the evaluation rows.
      train_file: a path, or a file in the data folder; by default the training texts translated into the language.
    """
    train_file = train_file or f"multinli/multinli.train.{language}.tsv"
    return Dataset(
        "xnli",
        {
            "train": Split((train_file,), 0, 1, 2, renamed_labels={"contradictory": "contradiction"}),
            "dev": Split(("xnli.dev.tsv",), 6, 7, 1, language=language),
            "test": Split(("xnli.test.tsv",), 6, 7, 1, language=language),
        },
        _INFERENCE,
    )


# Columns are numbers where the reference reads by number (ignoring the header), names otherwise.
DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "cola",
            {
                "train": Split(("train.tsv",), 3, label=1, has_header=False),
                "dev": Split(("dev.tsv",), 3, label=1, has_header=False),
                "test": Split(("test.tsv",), 1),
            },
            _BINARY,
            metrics=("matthews_correlation", "accuracy"),
            glue_name="CoLA",
        ),
        Dataset("sst-2", _glue_splits("sentence"), _BINARY, glue_name="SST-2"),
        Dataset("mrpc", _glue_splits(3, 4, 0), _BINARY, metrics=ACCURACY_AND_F1, glue_name="MRPC"),
        Dataset(
            "sts-b",
            _glue_splits("sentence1", "sentence2", "score"),
            problem="regression",
            label_range=(0, 5),
            metrics=CORRELATIONS,
            glue_name="STS-B",
        ),
        # In the published file, line breaks inside questions split some rows; GLUE's counts exclude these.
        Dataset(
            "qqp",
            _glue_splits("question1", "question2", "is_duplicate", skip_short_rows=True),
            _BINARY,
            metrics=ACCURACY_AND_F1,
            glue_name="QQP",
        ),
        Dataset(
            "mnli",
            {
                "train": Split(("train.tsv",), 8, 9, -1, guid_column=0),
                "dev_matched": Split(("dev_matched.tsv",), 8, 9, -1, guid_column=0),
                "dev_mismatched": Split(("dev_mismatched.tsv",), 8, 9, -1, guid_column=0),
                "test_matched": Split(("test_matched.tsv",), 8, 9, guid_column=0, guid_prefix="test"),
                "test_mismatched": Split(("test_mismatched.tsv",), 8, 9, guid_column=0),
            },
            _INFERENCE,
            glue_name="MNLI",
        ),
        Dataset("qnli", _glue_splits("question", "sentence"), _ENTAILMENT, glue_name="QNLI"),
        Dataset("rte", _glue_splits("sentence1", "sentence2"), _ENTAILMENT, glue_name="RTE"),
        Dataset("wnli", _glue_splits("sentence1", "sentence2"), _BINARY, glue_name="WNLI"),
        # GLUE's diagnostic set, for models trained on MNLI.
        Dataset(
            "ax",
            {
                "dev": Split(("diagnostic-full.tsv",), "Premise", "Hypothesis", "Label"),
                "test": Split(("diagnostic.tsv", "AX.tsv"), "sentence1", "sentence2"),
            },
            _INFERENCE,
            metrics=("matthews_correlation", "accuracy"),
            glue_name="AX",
        ),
        xnli(),
        Dataset(
            "imdb",
            {
                split: Split(
                    (split, f"aclImdb/{split}"),
                    text_a=1,
                    label=2,
                    read=read_review_folders,
                    has_header=False,
                    guid_column=0,
                )
                for split in ("train", "test")
            },
            ("neg", "pos"),
        ),
        Dataset(
            "nsmc",
            {
                split: Split((f"ratings_{split}.txt",), "document", label="label", read=read_nsmc)
                for split in ("train", "test")
            },
            _BINARY,
        ),
    )
}


TASK_NAMES = (*DATASETS, CUSTOM)
GLUE_NAMES = {name: dataset.glue_name for name, dataset in DATASETS.items() if dataset.glue_name}  # in GLUE's order


def check_task_name(name: str) -> None:
    """Raise unless a data set has this name, ignoring case.

    Raises:
      UserError: the name is unknown; the message suggests similar ones.
    """
    if name.lower() in TASK_NAMES:
        return
    similar = difflib.get_close_matches(name.lower(), TASK_NAMES)
    hint = f"did you mean {' or '.join(similar)}? All tasks:" if similar else "choose one of"
    raise UserError(f"task_name={name}: unknown task; {hint} {', '.join(TASK_NAMES)}")


def named_dataset(name: str) -> Dataset:
    """Return a data set by its name, ignoring case.

    Raises:
      UserError: there is no such data set.
    """
    check_task_name(name)
    if name.lower() not in DATASETS:
        raise UserError(f"task_name={name}: needs further flags of run_classifier; choose one of {', '.join(DATASETS)}")
    return DATASETS[name.lower()]
