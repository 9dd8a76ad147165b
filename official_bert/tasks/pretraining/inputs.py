"""Input files of a pretraining run, read and checked without TensorFlow."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from official_bert.config.bert_config import BertConfig, check_memory
from official_bert.config.text_settings import TextSettings
from official_bert.options.groups import check_export
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.input_files import find_inputs, is_no_sidecar
from official_bert.support.manifest import Manifest
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tokenization import Tokenizer, Vocabulary, read_vocabulary
from official_bert.tokenization.tokenizer_files import tokenizer_kinds
from official_bert.training.model_files import find_text_flags, read_fitting_vocabulary, read_model_files
from official_bert.training.run_folder import MODEL_FILES, model_file, read_run_config

_NOTE = ".tokenizer.json"
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


class RecordsTokenizer(NamedTuple):
    """The tokenizer that created the records."""

    note: str  # path of its manifest
    flag: str  # flag for such a file, `vocab_file` or `spm_model_file`
    path: str  # the copy of the vocabulary
    fingerprint: str  # `Vocabulary.fingerprint`
    settings: TextSettings  # text preprocessing settings
    sizes: Mapping[str, int]  # record file names and sizes in bytes


@contextlib.contextmanager
def keeping_tokenizer(outputs: Sequence[str], tokenizer: Tokenizer, inputs: Iterable[str]) -> Iterator[None]:
    """Store the tokenizer of the records that the block writes; nothing is written after an error."""
    name_in_folder = tokenizer.vocabulary.file_name
    groups: dict[str, list[str]] = {}
    for path in outputs:
        groups.setdefault(_SHARD.sub("", path), []).append(path)
    copies = {base: f"{base}.{name_in_folder}" for base in groups}
    notes = [base + _NOTE for base in groups]
    writing.check_no_overwriting([*copies.values(), *notes], inputs, name="output_file")
    yield
    for (base, paths), note in zip(groups.items(), notes, strict=True):
        with writing.atomic_write(copies[base], "wb") as sink:
            sink.write(tokenizer.vocabulary.file_content)
        provenance = {"file": name_in_folder, **tokenizer.identity}
        Manifest.write(note, provenance, [os.path.basename(path) for path in paths], is_checked=False)


def find_tokenizer(paths: Iterable[str]) -> RecordsTokenizer | None:
    """Find the tokenizer that created record files; None if there is no manifest."""
    found: dict[str, RecordsTokenizer | None] = {}
    made_with: list[RecordsTokenizer] = []
    for path in paths:
        base = _SHARD.sub("", path)
        if base not in found:
            found[base] = _read(base)
        known = found[base]
        if known is None:
            continue
        if known.sizes.get(os.path.basename(path)) != files.size(path):
            message = "%s is not the file described by %s, so the vocabulary is not taken from there"
            logging.log_first_n(logging.WARNING, message, 1, path, known.note)
        elif made_with and made_with[0][3:5] != known[3:5]:
            raise UserError(
                f"{known.note} records another vocabulary or other text settings than {made_with[0].note}; give "
                "records with the same vocabulary"
            )
        else:
            made_with.append(known)
    return made_with[0] if made_with else None


def _read(base: str) -> RecordsTokenizer | None:
    note = base + _NOTE
    manifest = Manifest.read(note)
    if manifest is None:
        return None
    known = {
        "tokenize_chinese_chars": True,
        "strip_accents_only": False,
        **manifest.provenance,
    }  # newer than the others
    kind = tokenizer_kinds().get(str(known.get("file")))
    settings = [known.get(name) for name in TextSettings._fields]
    if not (kind and isinstance(known.get("vocabulary"), str) and all(isinstance(value, bool) for value in settings)):
        raise UserError(f"{note} does not say what vocabulary records were made with; restore or delete it")
    path = f"{base}.{known['file']}"
    if not files.exists(path):
        return None
    return RecordsTokenizer(
        note, kind.vocabulary_class.flag, path, known["vocabulary"], TextSettings(*settings), manifest.num_bytes
    )


def with_vocabulary(config: PretrainingConfig, paths: Sequence[str]) -> PretrainingConfig:
    """Complete the flags of a run with the vocabulary and text settings of its records.

    If the records do not specify them, use those of the model in the output folder or, if required, those in the folder
    of the initial checkpoint.
    """
    kept = find_tokenizer(paths)
    if kept:
        return _with_tokenizer_of_records(config, kept)
    if config.vocab_file or config.spm_model_file:
        return config
    run = read_run_config(config.output_dir)
    for name, flag in MODEL_FILES.items():
        path = model_file(config.output_dir, name)
        if run and path and flag != "bert_config_file":
            settings = {name: run.flags[name] for name in TextSettings._fields if name in run.flags}
            return dataclasses.replace(config, **{flag: path, **settings})
    if config.init_checkpoint and (config.dynamic_masking or config.do_export):
        settings = config.text_settings._asdict().items()
        chosen = {name: value for name, value in settings if value != getattr(TextSettings(), name)}
        found = find_text_flags(config.init_checkpoint, chosen)
        if found:
            return dataclasses.replace(config, **found)
    if config.dynamic_masking:
        raise UserError("dynamic_masking needs the vocab_file that the records were made with")
    if config.do_export:
        raise UserError("do_export needs vocab_file, so that the exported model can tokenize text")
    return config


def _with_tokenizer_of_records(config: PretrainingConfig, kept: RecordsTokenizer) -> PretrainingConfig:
    named = {}
    if not (config.vocab_file or config.spm_model_file):
        named = {kept.flag: kept.path}
    completed = dataclasses.replace(config, **named, **kept.settings._asdict())
    vocabulary = read_vocabulary(completed)
    if vocabulary.fingerprint != kept.fingerprint:
        advice = f"restore it or delete {kept.note}" if named else f"leave {kept.flag} out"
        raise UserError(f"{vocabulary.source} is not the vocabulary that the records were made with; {advice}")
    for name, value in kept.settings._asdict().items():
        given = getattr(config, name)
        if given != value and given != getattr(TextSettings(), name):
            raise UserError(
                f"{name}={str(given).lower()}, but {kept.note} says that the records were made with "
                f"{name}={str(value).lower()}; leave it out"
            )
    return completed


class PretrainingInputs(NamedTuple):
    """Input files and settings of a run."""

    config: PretrainingConfig  # the flags, completed from the records' vocabulary settings
    bert_config: BertConfig  # the architecture
    paths: list[str]  # the record files; empty when only exporting a finished run
    vocabulary: Vocabulary | None = None  # None if unknown
    tokenizer: Tokenizer | None = None  # None unless the model is exported


def read_inputs(config: PretrainingConfig) -> PretrainingInputs:
    """Read the files given by flags, except records and weights, and check that they match."""
    direction = config.attention_direction
    bert_config = BertConfig.from_json_file(config.bert_config_file, attention_direction=direction)
    check_memory(bert_config, config.bert_config_file, for_training=config.do_train and config.trains_all_weights)
    bert_config.check_length(config.max_seq_length, config.bert_config_file)
    paths = find_inputs(config.input_file, is_input=is_no_sidecar) if config.do_train or config.do_eval else []
    config = with_vocabulary(config, paths)
    inputs = PretrainingInputs(config, bert_config, paths)
    if config.do_export:
        check_export(config, bert_config)
        _, tokenizer = read_model_files(config, attention_direction=direction)
        return inputs._replace(vocabulary=tokenizer.vocabulary, tokenizer=tokenizer)
    if config.vocab_file or config.spm_model_file:
        return inputs._replace(vocabulary=read_fitting_vocabulary(config, bert_config))
    return inputs
