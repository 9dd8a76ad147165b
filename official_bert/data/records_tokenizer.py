"""The tokenizer of pretraining records, stored with them, so that models trained on them have its vocabulary.

`out.tfrecord`, or its shards `out.tfrecord-00000-of-00016` and so on, are accompanied by a copy of the vocabulary,
`out.tfrecord.vocab.txt` or `out.tfrecord.spiece.model`, and by the `Manifest` `out.tfrecord.tokenizer.json`: text
settings, and the sizes of the record files, which reveal later replacements.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from official_bert.config.text_settings import TextSettings
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.manifest import Manifest
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.tokenizer_files import tokenizer_kinds

_NOTE = ".tokenizer.json"
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


class RecordsTokenizer(NamedTuple):
    """The tokenizer that created the records.

    Attributes:
      note: path of its manifest.
      flag: flag for such a file, `vocab_file` or `spm_model_file`.
      path: the copy of the vocabulary.
      fingerprint: `Vocabulary.fingerprint`.
      settings: text preprocessing settings.
      sizes: record file names and sizes in bytes.
    """

    note: str
    flag: str
    path: str
    fingerprint: str
    settings: TextSettings
    sizes: Mapping[str, int]


@contextlib.contextmanager
def keeping_tokenizer(outputs: Sequence[str], tokenizer: Tokenizer, inputs: Iterable[str]) -> Iterator[None]:
    """Store the tokenizer of the records that the block writes; nothing is written after an error.

    Args:
      outputs: the record files.
      tokenizer: the tokenizer that creates them.
      inputs: files that must not be overwritten.

    Raises:
      UserError: a file cannot be written, or would overwrite an input.
    """
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
    """Find the tokenizer that created record files; None if there is no manifest.

    Raises:
      UserError: the files were created with different tokenizers, or a manifest is corrupt.
    """
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
