"""Vocabulary of a pretraining run: from its flags, records, output folder or initial checkpoint."""

import dataclasses
from collections.abc import Sequence

from official_bert.config.text_settings import TextSettings
from official_bert.data.records_tokenizer import RecordsTokenizer, find_tokenizer
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tokenization import read_vocabulary
from official_bert.training.model_files import find_text_flags
from official_bert.training.run_folder import MODEL_FILES, model_file, read_run_config


def with_vocabulary(config: PretrainingConfig, paths: Sequence[str]) -> PretrainingConfig:
    """Complete the flags of a run with the vocabulary and text settings of its records.

    If the records do not specify them, use those of the model in the output folder or, if required, those in the folder
    of the initial checkpoint.

    Args:
      config: the flags.
      paths: the records; empty when only exporting a finished run.

    Returns:
      The completed flags. They specify a vocabulary, unless none is known and the run does not need one.

    Raises:
      UserError: the flags contradict the records, or a vocabulary is required but not known.
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
