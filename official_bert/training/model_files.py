"""Architecture and vocabulary files of a model, checked against each other."""

import dataclasses
import os
import typing
from collections.abc import Collection, Mapping
from typing import Any

from absl import logging

from official_bert.checkpoints.locate import locate, model_folders
from official_bert.config.bert_config import BertConfig, check_memory
from official_bert.config.sentence_modules import MODEL, MODULES_FILE, has_modules, longest_text, read_modules
from official_bert.config.text_settings import TextSettings
from official_bert.options.groups import ModelOptions
from official_bert.options.option import flags_affecting
from official_bert.options.training import TrainingOptions
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.support.text_files import check_json
from official_bert.tokenization import Tokenizer, Vocabulary, read_tokenizer, read_vocabulary, read_vocabulary_file
from official_bert.tokenization.tokenizer_files import (
    check_casing,
    find_settings,
    is_cased,
    recorded_settings,
    try_find_vocabulary,
)
from official_bert.training.run_folder import (
    MODEL_FILES,
    RunConfig,
    check_trained_flags,
    find_model_files,
    matches_vocabulary,
    read_run_config,
    vocabulary_mismatch,
)

# The effects of flags that a later evaluation, prediction or export takes from its run.
_OF_RUN = ("model", "head", "frozen", "task", "data", "selection", "use")
SENTENCE_ENCODER = "sentence_encoder"  # the task whose runs compute one vector per text


def read_model_files(
    flags: ModelOptions, *, for_training: bool = False, attention_direction: str | None = None, is_trained: bool = False
) -> tuple[BertConfig, Tokenizer]:
    """Read the architecture and vocabulary; check them against each other, the flags and the machine's memory."""
    bert_config = BertConfig.from_json_file(flags.bert_config_file, attention_direction=attention_direction)
    check_memory(bert_config, flags.bert_config_file, for_training=for_training)
    if flags.max_seq_length is not None:
        bert_config.check_length(flags.max_seq_length, flags.bert_config_file)
    tokenizer = read_tokenizer(flags)
    pretrained = None if is_trained else flags.init_checkpoint
    check_vocabulary(tokenizer.vocabulary, bert_config, flags.bert_config_file, pretrained)
    tokenizer.num_segments = bert_config.num_segments
    if pretrained:
        check_same_casing(pretrained, tokenizer, "init_checkpoint")
    check_casing(tokenizer.vocabulary, tokenizer.settings, init_checkpoint=flags.init_checkpoint)
    return bert_config, tokenizer


def read_fitting_vocabulary(flags: ModelOptions, bert_config: BertConfig) -> Vocabulary:
    """Read only the vocabulary, for a run that reads no texts."""
    vocabulary = read_vocabulary(flags)
    check_vocabulary(vocabulary, bert_config, flags.bert_config_file, flags.init_checkpoint)
    return vocabulary


def check_vocabulary(
    vocabulary: Vocabulary, bert_config: BertConfig, config_file: str, init_checkpoint: str | None
) -> None:
    """Raise if a vocabulary differs from the checkpoint's, or from the architecture's size."""
    is_known = init_checkpoint is None
    for folder in [] if is_known else model_folders(init_checkpoint):
        is_same = matches_vocabulary(folder, vocabulary)
        if is_same is False:
            whose = f"init_checkpoint={init_checkpoint} was trained with"
            raise UserError(vocabulary_mismatch(vocabulary, folder, whose))
        is_known = is_known or is_same is True
    bert_config.check_vocabulary(vocabulary, config_file, is_of_model=is_known)


def check_same_casing(checkpoint: str, tokenizer: Tokenizer, parameter: str) -> None:
    """Raise an error if lowercasing differs from the setting recorded for a checkpoint, the value of `parameter`."""
    folder, settings = model_folders(checkpoint)[-1], tokenizer.settings
    said, sources = recorded_settings(folder)
    if (trained := said.get("morphemes", settings.morphemes)) != settings.morphemes:
        raise UserError(
            f"morphemes={settings.morphemes}, but {parameter}={checkpoint} was trained with {trained} according to "
            f"{os.path.join(folder, sources['morphemes'])}; give morphemes={trained}"
        )
    trained = said.get("do_lower_case", settings.do_lower_case)
    if trained == settings.do_lower_case or not (settings.basic_tokenize and said.get("basic_tokenize", True)):
        return
    if not (trained and is_cased(tokenizer.vocabulary)):  # runs that read no text may record true
        raise UserError(
            f"do_lower_case={str(settings.do_lower_case).lower()}, but {parameter}={checkpoint} was trained with "
            f"{str(trained).lower()} according to {os.path.join(folder, sources['do_lower_case'])}; give "
            f"do_lower_case={str(trained).lower()}"
        )


def complete_model_flags(config_class: type, values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Complete flags that are not given: those of a finished run, and those in the folder of `init_checkpoint`."""
    of_run = _find_run_flags(config_class, values, given)
    values, given, checkpoint = {**values, **of_run}, [*given, *of_run], values["init_checkpoint"]
    if not (checkpoint and checkpoint.strip()):
        return values
    if config_class.takes_several:  # models with the same files
        checkpoint = checkpoint.partition(",")[0].strip()
    fields = {field.name: field.metadata for field in dataclasses.fields(config_class)}
    supplies_config, supplies_vocabulary = (
        is_supplied(fields.get(name), values) for name in ("bert_config_file", "vocab_file")
    )
    lacks_config = supplies_config and values["bert_config_file"] is None
    lacks_vocabulary = supplies_vocabulary and values["vocab_file"] is values.get("spm_model_file") is None
    found, source = {}, locate(checkpoint, "init_checkpoint") if lacks_config or lacks_vocabulary else None
    if lacks_config and source.config_file is not None:
        logging.info("bert_config_file=%s, from the folder of init_checkpoint", source.config_file)
        found["bert_config_file"] = source.config_file
    chosen = {name: values[name] for name in TextSettings._fields if name in given}
    if lacks_vocabulary:
        found |= find_text_flags(checkpoint, chosen)
    elif supplies_vocabulary:
        folder = model_folders(checkpoint)[-1]
        said, sources = recorded_settings(folder)
        for name, value in TextSettings(**said).updated(**chosen)._asdict().items() if said else ():
            if name not in chosen and value != values[name]:
                source = os.path.join(folder, sources.get(name, ""))
                logging.info("%s=%s according to %s", name, str(value).lower(), source)
                found[name] = value
    found |= _find_sentence_flags(
        checkpoint,
        {name for name, limits in fields.items() if is_supplied(limits, values) and name not in given},
        supplies_pooling="layers" not in given,
    )
    return values | {name: value for name, value in found.items() if name in fields}


def _find_run_flags(config_class: type, values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Return the flags of the run whose weights a command evaluates, predicts with or exports, except those given."""
    run = _used_run(config_class, values)
    if run is None:
        return {}
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    types = typing.get_type_hints(config_class)
    of_model = {"init_checkpoint", *MODEL_FILES.values()}
    is_other_data = "task_name" in given and str(values["task_name"]).lower() != str(run.flags.get("task_name")).lower()
    found = {}
    of_input = () if "input_file" in given else config_class.of_input_file
    for name in (*flags_affecting(config_class, *_OF_RUN), *config_class.of_run, *of_input):
        is_unknown = name not in run.flags or (is_other_data and fields[name].metadata["group"] == "input")
        if name not in (*given, *of_model) and not is_unknown:
            check_json(run.flags[name], types[name], run.path, name)
            found[name] = run.flags[name]
    shown = [f"{name}={value}" for name, value in found.items() if value != fields[name].default]
    if shown:
        logging.info("from %s: %s", run.path, ", ".join(shown))
    if found.get("data_dir"):
        for name in {"eval_file", "predict_file"}.intersection(given):
            if files.exists(values[name]):  # otherwise it is in the run's data_dir
                found[name] = files.absolute_path(values[name])
    folder, vocabularies = os.path.dirname(run.path), {"vocab_file", "spm_model_file"}
    found |= find_model_files(folder, run, {*given, *(vocabularies if vocabularies.intersection(given) else ())})
    check_trained_flags(folder, config_class, {**values, **found}, "use the same value, or another output_dir")
    return found


def _used_run(config_class: type, values: Mapping[str, Any]) -> RunConfig | None:
    """Return the settings of the run in `output_dir`, or of `init_checkpoint`; None without one, or for training."""
    if not issubclass(config_class, TrainingOptions) or values["do_train"]:
        return None
    run, checkpoint = values["output_dir"] and read_run_config(values["output_dir"]), values["init_checkpoint"]
    if run and run.task not in (None, config_class.task):
        raise UserError(f"output_dir={values['output_dir']} has a run of the task {run.task}, not {config_class.task}")
    if not run and checkpoint and checkpoint.strip():
        run = read_run_config(model_folders(checkpoint)[-1])
    return run if run and run.task in (None, config_class.task) else None


def _find_sentence_flags(checkpoint: str, wanted: Collection[str], *, supplies_pooling: bool) -> dict[str, Any]:
    """Return pooling and length of a sentence-transformers folder or a run of `run_sentence_encoder`."""
    if wanted.isdisjoint(("pooling", "max_seq_length")):
        return {}
    folder, run = model_folders(checkpoint, of_encoder=False)[0], read_run_config(model_folders(checkpoint)[-1])
    if has_modules(folder):
        source, found = os.path.join(folder, MODULES_FILE), {"max_seq_length": longest_text(folder)}
    elif run and run.task == SENTENCE_ENCODER:
        source, found = run.path, {"max_seq_length": run.flags["max_seq_length"]}
    else:
        return {}
    if supplies_pooling and "pooling" in wanted:
        if has_modules(folder):
            read_modules(folder)  # raises if they are not supported
        found |= {"pooling": MODEL, "layers": "-1"}
    found = {name: value for name, value in found.items() if name in wanted and value is not None}
    for name, value in found.items():
        logging.info("%s=%s according to %s", name, value, source)
    return found


def is_supplied(limits: Mapping[str, Any] | None, values: Mapping[str, Any]) -> bool:
    """Return True if a folder supplies the value of a flag; see `option` for `limits`."""
    by_folder = limits["from_checkpoint"] if limits else False
    return by_folder if isinstance(by_folder, bool) else any(values[name] for name in by_folder)


def find_text_flags(init_checkpoint: str, chosen: Mapping[str, bool]) -> dict[str, Any]:
    """Return the text flags for the vocabulary in a checkpoint's folder; empty without a vocabulary."""
    folders = model_folders(init_checkpoint)
    path = next(filter(None, map(try_find_vocabulary, folders)), None)
    if path is None:
        return {}
    vocabulary = read_vocabulary_file(path)
    logging.info("%s=%s, from the folder of init_checkpoint", vocabulary.flag, path)
    return {vocabulary.flag: path, **find_settings(folders[-1], vocabulary, chosen)._asdict()}
