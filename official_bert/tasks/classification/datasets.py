"""Published data sets of classification: a row of `DATASETS` for each."""

import difflib
import functools
import itertools
import os
from collections.abc import Iterator
from typing import Any

from official_bert.data.tables import Columns, Row, read_json_array, read_nsmc, read_review_folders, read_tsv
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tasks.classification.data import ACCURACY_AND_F1, CORRELATIONS, CUSTOM, Column, Dataset, Split

_INFERENCE = ("contradiction", "entailment", "neutral")  # the reference's order
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")
_TOPICS = ("정치", "경제", "사회", "생활문화", "세계", "IT과학", "스포츠")
_ORGANIZATION = (
    *("dissolved", "founded", "place_of_headquarters", "alternate_names", "member_of", "members"),
    *("political/religious_affiliation", "product", "founded_by", "top_members/employees"),
    "number_of_employees/members",
)
_PERSON = (
    *("date_of_birth", "date_of_death", "place_of_birth", "place_of_death", "place_of_residence", "origin"),
    *("employee_of", "schools_attended", "alternate_names", "parents", "children", "siblings", "spouse"),
    *("other_family", "colleagues", "product", "religion", "title"),
)
_RELATIONS = ("no_relation", *(f"org:{name}" for name in _ORGANIZATION), *(f"per:{name}" for name in _PERSON))
_KORNLI_COLUMNS = ("sentence1", "sentence2", "gold_label")
_REVIEWS = {"read": read_review_folders, "has_header": False}


def _glue_splits(text_a: Column, text_b: Column | None = None, label: Column = "label", **layout) -> dict[str, Split]:
    return {
        "train": Split(("train.tsv",), text_a, text_b, label, **layout),
        "dev": Split(("dev.tsv",), text_a, text_b, label, **layout),
        "test": Split(("test.tsv",), text_a, text_b),
    }


def xnli(language: str = "zh", train_file: str | None = None) -> Dataset:
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


def _with_entity_markers(values: dict[str, Any]) -> dict[str, Any]:
    """Mark the entities of a relation in its sentence, as KLUE's baseline does.

    `<subj>파도회</subj>가 <obj>이슬</obj>의 노래를 불렀다.`
    """
    text, marks = values["sentence"], []
    for name, mark in (("subject_entity", "subj"), ("object_entity", "obj")):
        places = [values.get(f"{name}.{key}") for key in ("start_idx", "end_idx")]  # the first and last character
        if not all(isinstance(place, int) for place in places) or not 0 <= places[0] <= places[1] < len(text):
            raise UserError(f"start_idx and end_idx of {name} are {places}; they must be places in the sentence")
        marks += [(places[0], f"<{mark}>"), (places[1] + 1, f"</{mark}>")]
    for place, mark in sorted(marks, reverse=True):
        text = text[:place] + mark + text[place:]
    return {**values, "sentence": text}


def _klue_splits(name: str, *texts: str, label: str = "label", **layout) -> dict[str, Split]:
    """Return the splits of KLUE 1.1. Its test sets are not published; without one the texts to predict are dev's."""

    def split(*parts: str, label: str | None) -> Split:
        read = functools.partial(read_json_array, columns=Columns(texts, label, "guid"), **layout)
        names = tuple(f"{name}-v1.1_{part}.json" for part in parts)
        return Split(names, *texts, label=label, read=read, has_header=False, id_column="guid")

    return {
        "train": split("train", label=label),
        "dev": split("dev", label=label),
        "test": split("test", "dev", label=None),
    }


def _read_kornli(path: str) -> Iterator[Row]:
    """Read the translated MultiNLI and, if its file is beside it, the translated SNLI."""
    others = filter(files.exists, [os.path.join(os.path.dirname(path), "snli_1.0_train.ko.tsv")])
    rows = itertools.chain(read_tsv(path), *(itertools.islice(read_tsv(other), 1, None) for other in others))
    for number, row in enumerate(rows):
        yield row._replace(number=number)


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
                split: Split((split, f"aclImdb/{split}"), 1, label=2, guid_column=0, **_REVIEWS)
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
        Dataset("ynat", _klue_splits("ynat", "title"), _TOPICS, metrics=("macro_f1", "accuracy")),
        Dataset("klue_nli", _klue_splits("klue-nli", "premise", "hypothesis", label="gold_label"), _INFERENCE),
        Dataset(
            "klue_sts",
            _klue_splits("klue-sts", "sentence1", "sentence2", label="labels.real-label"),
            problem="regression",
            label_range=(0, 5),
            metrics=("pearson", "binary_f1"),
        ),
        Dataset(
            "klue_re",
            _klue_splits("klue-re", "sentence", convert=_with_entity_markers),
            _RELATIONS,
            metrics=("micro_f1", "auprc", "accuracy"),
        ),
        Dataset(
            "kornli",
            {
                "train": Split(("multinli.train.ko.tsv",), *_KORNLI_COLUMNS, read=_read_kornli),
                "dev": Split(("xnli.dev.ko.tsv",), *_KORNLI_COLUMNS),
                "test": Split(("xnli.test.ko.tsv",), *_KORNLI_COLUMNS),
            },
            _INFERENCE,
        ),
        Dataset(
            "korsts",
            {
                split: Split((f"sts-{split}.tsv",), "sentence1", "sentence2", "score")
                for split in ("train", "dev", "test")
            },
            problem="regression",
            label_range=(0, 5),
            metrics=("spearman", "pearson"),
        ),
    )
}


TASK_NAMES = (*DATASETS, CUSTOM)


def check_task_name(name: str) -> None:
    if name.lower() in TASK_NAMES:
        return
    similar = difflib.get_close_matches(name.lower(), TASK_NAMES)
    hint = f"did you mean {' or '.join(similar)}? All tasks:" if similar else "choose one of"
    raise UserError(f"task_name={name}: unknown task; {hint} {', '.join(TASK_NAMES)}")


def named_dataset(name: str, xnli_language: str = "zh", xnli_train_file: str | None = None) -> Dataset:
    """Return a data set by its name, ignoring case."""
    check_task_name(name)
    if name.lower() not in DATASETS:
        raise UserError(f"task_name={name}: needs further flags of run_classifier; choose one of {', '.join(DATASETS)}")
    return xnli(xnli_language, xnli_train_file) if name.lower() == "xnli" else DATASETS[name.lower()]
