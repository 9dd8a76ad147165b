"""Files of a training run's output folder besides checkpoints: its settings and model files.

`run_config.json` holds the command line, the flags and a hash of the vocabulary. With the copies `bert_config.json` and
`vocab.txt`, the folder can be moved, evaluated, served and resumed without any other file. Needs no TensorFlow.
"""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert.checkpoints.locate import BEST_FOLDER, latest_checkpoint, model_folders, step_of
from official_bert.config import model_formats
from official_bert.config.bert_config import DROPOUT_KEYS, BertConfig
from official_bert.config.model_formats import config_format
from official_bert.families.family import label_names
from official_bert.options.option import flags_affecting
from official_bert.options.training import FinetuningOptions, TrainingOptions
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names
from official_bert.tokenization.tokenizer import read_vocabulary_file
from official_bert.tokenization.tokenizer_files import (
    content_of_copy,
    name_of_copy,
    tokenizer_kinds,
    try_find_vocabulary,
)
from official_bert.tokenization.vocab import Vocabulary

RUN_CONFIG_FILE = "run_config.json"
BERT_CONFIG_FILE = "bert_config.json"
# Names of model file copies in an output folder, and the flags for their sources.
MODEL_FILES = {
    BERT_CONFIG_FILE: "bert_config_file",
    **{name: kind.vocabulary_class.flag for name, kind in tokenizer_kinds().items()},
}
LABELS_FILE = "labels.json"
_HF_CONFIG_FILE = "config.json"
RESULTS_FILE = "eval_results.txt"
# Flags of earlier versions; a run for which they were not 0 cannot be resumed.
_REMOVED_FLAGS = ("batch_ramp_up_steps", "hidden_state_weight")


class RunConfig(NamedTuple):
    path: str  # the file that holds them
    task: str | None  # task name; None in folders of earlier versions
    flags: dict[str, Any]  # flag values by name, including defaults
    vocabulary: str | None  # `Vocabulary.fingerprint` of its vocabulary; None if unknown
    # number of devices that shared each batch; None in folders of earlier versions and without training
    num_devices: int | None

    def flags_with_defaults(self, config_class: type) -> dict[str, Any]:
        """Return the flags with the defaults of those that did not exist when the run was started."""
        return {**{field.name: field.default for field in dataclasses.fields(config_class)}, **self.flags}


def read_run_config(folder: str) -> RunConfig | None:
    """Read a folder's `run_config.json`; None if missing."""
    path = os.path.join(folder, RUN_CONFIG_FILE)
    if not files.exists(path):
        return None
    settings = text_files.read_json(path, "settings of a run", finite=False)
    types = {"task": str | None, "flags": dict, "vocabulary": str | None, "num_devices": int | None}
    if not all(isinstance(settings.get(key), kind) for key, kind in types.items()):
        raise UserError(f"{path} was not written by a run; restore it or delete the folder")
    return RunConfig(path, **{key: settings.get(key) for key in types})


def settings_folder(config: TrainingOptions) -> str:
    """Return the folder for a run's settings; an evaluation-only run does not replace those of training."""
    return config.output_dir if config.do_train else os.path.join(config.output_dir, "eval")


def write_run_config(
    folder: str, config: TrainingOptions, vocabulary: Vocabulary | None = None, num_devices: int | None = None
) -> None:
    """Write `run_config.json`: the task, command line, flags with defaults, and package versions."""
    writing.make_folders(folder)
    installed = filter(importlib.util.find_spec, ("tensorflow", "keras"))
    packages = {name: importlib.metadata.version(name) for name in installed}
    settings = {
        "task": config.task,
        "command": sys.argv,
        "flags": dataclasses.asdict(config),
        "vocabulary": vocabulary.fingerprint if vocabulary else None,
        "num_devices": num_devices,
        "versions": {"python": sys.version.split()[0], **packages},
    }
    writing.write_file(os.path.join(folder, RUN_CONFIG_FILE), json.dumps(settings, indent=2) + "\n")


def differing_flags(first: Mapping[str, Any], second: Mapping[str, Any], *, ignored: Collection[str]) -> list[str]:
    """Return the sorted names of flags that differ between two runs, except the ignored ones."""
    names = (first.keys() | second.keys()) - set(ignored)
    absent = object()
    return sorted(name for name in names if first.get(name, absent) != second.get(name, absent))


def write_model_files(folder: str, bert_config: BertConfig, flags: TrainingOptions) -> None:
    """Copy the model's files into an output folder, byte for byte unless a flag changes the architecture."""
    contents = {name: content_of_copy(source) for name, source in _sources(flags).items()}
    is_foreign = model_formats.is_foreign_config(flags.bert_config_file)
    if is_foreign or BertConfig.from_json_file(flags.bert_config_file) != bert_config:
        contents[BERT_CONFIG_FILE] = bert_config.to_json_string().encode()
    for name, content in contents.items():
        target = os.path.join(folder, name)
        if not (files.exists(target) and content_of_copy(target) == content):
            writing.write_file(target, content)


def _sources(flags: TrainingOptions) -> dict[str, str]:
    """Return the names of copies and their sources, for files that exist."""
    sources = {flag: getattr(flags, flag) for flag in dict.fromkeys(MODEL_FILES.values())}
    return {
        BERT_CONFIG_FILE if flag == "bert_config_file" else name_of_copy(source, flag): source
        for flag, source in sources.items()
        if source is not None
    }


def check_model_files_replaceable(folder: str, flags: TrainingOptions) -> None:
    """Raise if `write_model_files` would overwrite a file that no run created."""
    sources = _sources(flags)
    for name, source in sources.items():
        if name != BERT_CONFIG_FILE:
            files.check_regular(source)
    if files.exists(os.path.join(folder, RUN_CONFIG_FILE)):
        return
    for name, source in sources.items():
        target = os.path.join(folder, name)
        if files.exists(target) and content_of_copy(source) != content_of_copy(target):
            raise UserError(
                f"{target} differs from {source}, which the run would copy to that name; use another output folder"
            )


def model_file(folder: str, name: str) -> str | None:
    """Return the path of a run's copy of a model file; None if missing, as in folders of earlier versions."""
    path = os.path.join(folder, name)
    return path if files.exists(path) else None


def find_model_files(path: str, run: RunConfig, given: Collection[str]) -> dict[str, str]:
    """Return the model's files, except those given: copies in the folder, else the paths used in training."""
    found = {}
    for flag in dict.fromkeys(MODEL_FILES.values()):
        if flag in given:
            continue
        copies = (model_file(path, name) for name, of in MODEL_FILES.items() if of == flag)
        place = next(filter(None, copies), None) or run.flags.get(flag)
        if isinstance(place, str):
            if not files.exists(place):
                raise UserError(
                    f"{path} was trained with {place}, which no longer exists; give its new path with {flag}=..."
                )
            found[flag] = place
    return found


def matches_vocabulary(folder: str, vocabulary: Vocabulary) -> bool | None:
    """Compare a vocabulary, which may name unused ids and go on, with that of a folder; None if it has none."""
    run, path = read_run_config(folder), try_find_vocabulary(folder)
    recorded = run.vocabulary if run else None
    if vocabulary.fingerprint == recorded:
        return True
    if path is None:
        return None if recorded is None else False
    there = read_vocabulary_file(path)
    is_same_kind = type(vocabulary) is type(there)
    return is_same_kind and recorded in (None, there.fingerprint) and vocabulary.continues(there)


def vocabulary_mismatch(vocabulary: Vocabulary, folder: str, whose: str) -> str:
    """Return the error message for a wrong vocabulary, with the file to use instead."""
    path = try_find_vocabulary(folder)
    instead = path or f"that one, whose hash is in {os.path.join(folder, RUN_CONFIG_FILE)}"
    return f"{vocabulary.source} is not the vocabulary that {whose}: the same ids would be other words; use {instead}"


def check_same_model(folder: str, config: BertConfig, vocabulary: Vocabulary | None) -> None:
    """Refuse what would load without an error but compute wrong results; warn of other dropout rates."""
    run = read_run_config(folder)
    if run and vocabulary and run.vocabulary not in (None, vocabulary.fingerprint):
        raise UserError(vocabulary_mismatch(vocabulary, folder, f"the checkpoints in {folder} were trained with"))
    copy = model_file(folder, BERT_CONFIG_FILE)
    if not run or not copy:
        return
    trained = BertConfig.from_json_file(copy)
    if decisive := _differences(config.identity_values(), trained.identity_values(), folder):
        raise UserError(f"{decisive}; use {copy}")
    here, there = ({name: getattr(of, name) for name in DROPOUT_KEYS} for of in (config, trained))
    if in_training := _differences(here, there, folder):
        logging.warning("%s", in_training)


def _differences(config: Mapping[str, Any], trained: Mapping[str, Any], folder: str) -> str:
    """Describe the model config keys that differ from those of a folder; empty if none do."""
    names = [name for name in config | trained if config.get(name) != trained.get(name)]
    here = ", ".join(f"{name} is {config.get(name)!r}" for name in names)
    there = ", ".join(f"{name} {trained.get(name)!r}" for name in names)
    return f"{here}, but the checkpoints in {folder} were trained with {there}" if names else ""


def checkpoint_folder(config: TrainingOptions) -> str:
    """Return the folder whose last checkpoint is evaluated, predicted with and exported."""
    is_best = isinstance(config, FinetuningOptions) and config.use_best_checkpoint
    return os.path.join(config.output_dir, BEST_FOLDER) if is_best else config.output_dir


def check_has_checkpoint(config: TrainingOptions) -> None:
    folder = checkpoint_folder(config)
    if config.do_train or latest_checkpoint(folder):
        return
    if folder != config.output_dir:
        raise UserError(f"use_best_checkpoint: no checkpoint in {folder}; train with eval_steps first")
    if not config.init_checkpoint:
        raise UserError(f"no checkpoint in output_dir={config.output_dir} and no init_checkpoint; give one")


def write_labels(output_dir: str, labels: Iterable[str]) -> None:
    """Write `labels.json`, the label names in the order of the model's outputs."""
    writing.write_file(os.path.join(output_dir, LABELS_FILE), json.dumps(list(labels), ensure_ascii=False))


def read_labels(output_dir: str) -> list[str] | None:
    """Read `labels.json`, or the labels of a Hugging Face `config.json`; None if neither exists."""
    path, hf_path = (os.path.join(output_dir, name) for name in (LABELS_FILE, _HF_CONFIG_FILE))
    if not files.exists(path):
        if not files.exists(hf_path) or config_format(hf_path) is not None:
            return None
        return label_names(text_files.read_json(hf_path, "model config"), hf_path)
    labels = text_files.read_json_list(path, "list of labels")
    if not all(isinstance(label, str) for label in labels):
        raise UserError(f"{path} is damaged: it must be a JSON list of labels; restore it")
    return labels


def check_same_labels(
    output_dir: str, labels: Sequence[str], *, noun: str = "labels", other: str = "another output_dir"
) -> None:
    trained = read_labels(output_dir)
    if trained is not None and trained != list(labels):
        raise UserError(
            f"the {noun} are {format_names(labels)}, but the checkpoints in {output_dir} were trained with "
            f"{format_names(trained)} ({LABELS_FILE}); use those, or {other}"
        )


def teacher_label_order(folder: str, labels: Sequence[str], *, noun: str, is_run: bool) -> list[int] | None:
    """Return the teacher's output for each label; None in the same order, also for other names (with a warning)."""
    trained = read_labels(folder)
    if trained is None or trained == list(labels):
        return None
    if sorted(trained) == sorted(labels):
        return [trained.index(label) for label in labels]
    if is_run:
        check_same_labels(folder, labels, noun=noun, other="another teacher")
    if len(trained) == len(labels):
        pairs = format_names(f"{theirs} for {ours}" for theirs, ours in zip(trained, labels, strict=True))
        logging.warning("the teacher in %s names its %s otherwise; they are taken in order: %s", folder, noun, pairs)
    return None  # another number of them does not fit the weights


def folder_of_labels(output_dir: str, init_checkpoint: str | None) -> str | None:
    """Return the folder with the labels of the weights used without training: the run's, or that of the checkpoint."""
    folders = [output_dir, *([model_folders(init_checkpoint)[-1]] if init_checkpoint else [])]
    return next(filter(read_labels, folders), None)


def read_trained_labels(output_dir: str, init_checkpoint: str | None) -> list[str] | None:
    folder = folder_of_labels(output_dir, init_checkpoint)
    return read_labels(folder) if folder else None


def check_label_order(init_checkpoint: str, labels: Sequence[str], *, noun: str = "labels") -> None:
    """Raise if a checkpoint was trained with the same labels in another order: its outputs would be mislabelled."""
    trained = read_labels(model_folders(init_checkpoint)[-1]) or []
    if trained != list(labels) and sorted(trained) == sorted(labels):
        raise UserError(
            f"the {noun} are {format_names(labels)}, but init_checkpoint={init_checkpoint} was trained with them in "
            f"the order {format_names(trained)}; give them in that order, or train"
        )


def read_results(path: str) -> dict[str, float]:
    """Read the `key = value` lines of an `eval_results.txt`."""
    results = {}
    for number, line in enumerate(text_files.LineReader(path), start=1):
        *name, value = line.rsplit(" = ", maxsplit=1)  # label names may contain the separator, too
        try:
            (key,) = name
            results[key] = float(value)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {line[:80]!r} is not of the form 'key = number'") from error
    return results


def selecting_metric(given: str | None, default: str, names: Iterable[str]) -> str:
    """Return the key of the score that selects the best checkpoint."""
    names = list(names)
    if given and given not in names:
        raise UserError(f"primary_metric={given} is not one of the scores of this run: {format_names(names)}")
    return f"eval_{given or default}"


@contextlib.contextmanager
def training_folder(config: TrainingOptions, *, is_written: bool) -> Iterator[None]:
    """Create and lock the output folder of a run; drop damaged checkpoints at its end."""
    from official_bert.checkpoints.checkpoint_folder import CheckpointFolder  # needs TensorFlow

    if is_written:
        writing.make_folders(config.output_dir)
    if not (config.do_train and is_written):
        yield
        return
    with writing.exclusive_lock(config.output_dir, "trains into"):
        # All workers continue from the state that the chief finds.
        CheckpointFolder(config.output_dir, keep_max=config.keep_checkpoint_max).drop_damaged()
        yield


def write_run_files(
    config: TrainingOptions, bert_config: BertConfig, vocabulary: Vocabulary | None, num_devices: int
) -> None:
    """Write the model files and flags of a training run, once all flags and files have been validated."""
    write_run_config(config.output_dir, config, vocabulary, num_devices)
    write_model_files(config.output_dir, bert_config, config)


def write_evaluation_flags(config: TrainingOptions, vocabulary: Vocabulary | None) -> None:
    """Write the flags of an evaluation-only run; the training flags beside the checkpoints are kept."""
    if not config.do_train:
        write_run_config(settings_folder(config), config, vocabulary)


def check_trained_flags(
    folder: str, config_class: type, values: Mapping[str, Any], advice: str, *, has_same_head: bool = True
) -> None:
    """Raise if a model was trained with incompatible flags; its export is tied to one data set."""
    kinds = ("model", *(("head", "frozen") if has_same_head else ()), *(("task",) if values["do_export"] else ()))
    run = read_run_config(folder)
    if not run:
        return
    trained = run.flags_with_defaults(config_class)
    changed = {
        name: (given, trained[name])
        for name in flags_affecting(config_class, *kinds)
        # Without a default, the behaviour of runs of earlier versions is unknown.
        if (name in run.flags or trained[name] is not None) and _plain(trained[name]) != _plain(given := values[name])
    }
    if changed:
        here, there = ([f"{name}={values[side]}" for name, values in changed.items()] for side in (0, 1))
        raise UserError(
            f"{', '.join(here)}, but the checkpoints in {folder} were trained with {', '.join(there)}; {advice}"
        )


def _plain(value: object) -> object:
    return value.lower() if isinstance(value, str) else value  # task_name=MRPC means mrpc


def check_resumed_flags(config: TrainingOptions, num_train_steps: int, num_devices: int) -> None:
    """Compare the flags of a resumed run with the original ones; warn about changes that affect it."""
    latest, run = latest_checkpoint(config.output_dir), read_run_config(config.output_dir)
    if not latest or not run:
        return
    flags = run.flags_with_defaults(type(config))
    changes = {
        name: f"{name}={getattr(config, name)}, but {latest} was trained with {name}={flags[name]}"
        for name in flags_affecting(config, "slots", "selection", "order", "learning", "frozen")
        if flags[name] != getattr(config, name)
    }
    for name in filter(changes.get, flags_affecting(config, "slots")):  # the checkpoint could not be read
        raise UserError(
            f"{changes[name]}, and its checkpoint holds the slots of that optimizer and of the weights trained then; "
            "use the same value, or another output_dir"
        )
    step = step_of(latest)
    if step and step >= num_train_steps and changes:
        differing = [f"{name}={getattr(config, name)} (the run: {flags[name]})" for name in changes]
        message = "nothing is trained with %s, since %s has all %d steps; use another output_dir, or more steps"
        logging.warning(message, ", ".join(differing), latest, num_train_steps)
    if step == 0 or (step is not None and step >= num_train_steps):
        return
    if removed := [f"{name}={flags[name]}" for name in _REMOVED_FLAGS if flags.get(name)]:
        raise UserError(
            f"{latest} was trained with {', '.join(removed)}, which this version no longer has; start another "
            f"output_dir from its weights, with init_checkpoint={config.output_dir}"
        )
    selection, order_flags = flags_affecting(config, "selection"), set(flags_affecting(config, "order"))
    if run.num_devices not in (None, num_devices):
        changes["num_devices"] = (
            f"each batch is shared by {num_devices} device(s), but {latest} was trained with {run.num_devices}"
        )
    if config.train_batch_tokens:  # variable batch sizes also depend on the number of devices and accumulation steps
        order_flags |= {"gradient_accumulation_steps", "num_devices"}
    if config.train_batch_tokens or flags["train_batch_tokens"]:
        changes.pop("train_batch_size", None)  # not in use
    has_best = bool(selection) and flags["eval_steps"] and config.eval_steps
    for name, change in changes.items():
        if name in selection:
            if has_best:
                raise UserError(
                    f"{change}: the best checkpoint so far was chosen by another evaluation, whose scores cannot be "
                    "compared; use the same value, or another output_dir"
                )
        elif name == "train_batch_tokens" and not flags[name]:
            raise UserError(f"{change}, which did not count examples; leave it out, or use another output_dir")
        elif name in order_flags and not config.allow_inexact_resume:
            raise UserError(
                f"{change}: with another value, the resumed run would see some examples of this epoch twice and others "
                "not at all; use the old value, allow_inexact_resume or another output_dir"
            )
        else:
            logging.warning("%s: the resumed run differs from an uninterrupted one", change)
