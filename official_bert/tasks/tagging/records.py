"""Windows and records of tagging, and the files of tags that are read and written."""

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.config.bert_config import FEATURES
from official_bert.data.record_files import RecordFile
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.metrics.tagging import PREFIXES, has_entities
from official_bert.support import files, writing
from official_bert.support.errors import UserError, format_names
from official_bert.support.manifest import fingerprint
from official_bert.tasks.tagging.data import (
    TaggedFile,
    is_document_start,
    read_tagged_file,
    split_columns,
)
from official_bert.tasks.tagging.options import TaggingConfig
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.full_tokenizer import warn_of_unknown
from official_bert.tokenization.sequences import SlidingWindow, join_texts

_OUTSIDE = "O"
_OTHER_NOTATION = re.compile(r"(?i)^(?:[bimelsuw][^a-z0-9]+|o$)")

_NAMES = {
    "train_file": ("eng.train", "train.txt"),
    "eval_file": ("eng.testa", "dev.txt", "valid.txt"),
    "predict_file": ("eng.testb", "test.txt"),
}
PREDICTIONS_FILE = "predictions.conll"
# S: positions per window, C: number of tags, W: width of a frozen encoder's output per position. A label is 0 for
# words without a tag, otherwise the tag number plus 1.
LABELS = Field("label_ids", ("S",), "int32", below="N", is_per_position=True)
TAGGING_SCHEMA = RecordSchema(*ENCODER_FIELDS, LABELS)
FEATURE_SCHEMA = RecordSchema(
    Field(FEATURES, ("S", "W"), "float32", is_per_position=True, is_trimmed=True),
    Field("input_mask", ("S",), "int32", below=2, is_per_position=True),
    LABELS,
)


def configured_file(config: TaggingConfig, name: str) -> str:
    """Return the file given by a flag or, without the flag, the one in the data folder."""
    given = getattr(config, name)
    if given is not None:
        if not files.exists(given):
            raise UserError(f"{name}: there is no file {given}; check the path")
        return given
    for candidate in _NAMES[name]:
        path = os.path.join(config.data_dir, candidate)
        if files.exists(path):
            return path
    raise UserError(
        f"data_dir={config.data_dir} contains neither {' nor '.join(_NAMES[name])}; check the folder, or give {name}"
    )


def read_configured(config: TaggingConfig, name: str) -> TaggedFile:
    """Read the file given by a flag; only the prediction file may lack tags."""
    return read_tagged_file(
        configured_file(config, name),
        word_column=config.word_column,
        tag_column=config.tag_column,
        file_layout=config.file_layout,
        is_tagged=name != "predict_file",
    )


def tags_of(file: TaggedFile) -> list[str]:
    """Return the tags of a training file, `O` first."""
    tags = {tag for sentence in file.sentences for tag in sentence.tags}
    if len(tags) == 1:
        raise UserError(
            f"{file.path}: all words have the tag {tags.pop()!r}, so there is nothing to learn; check tag_column"
        )
    return sorted(tags, key=lambda tag: (tag != _OUTSIDE, tag))


def warn_of_other_notation(tags: Collection[str]) -> None:
    """Warn if the tags would be entities, were they written as `B-PER` and `O`."""
    usual = set(map(_usual, tags))
    if has_entities(usual) and not has_entities(tags):
        logging.warning(
            "the tags %s look like IOB2 in another notation, so F1 of entities cannot be computed; "
            "write a capital prefix, a hyphen and the type, and O outside: %s",
            format_names(sorted(tags)),
            format_names(sorted(usual)),
        )


def _usual(tag: str) -> str:
    kind, _, prefix = tag.rpartition("-")
    if kind and prefix in PREFIXES:  # PER-B
        return f"{prefix}-{kind}"
    return _OTHER_NOTATION.sub(lambda match: match[0][0].upper() + "-" * (len(match[0]) > 1), tag)


def primary_metric(tags: Collection[str]) -> str:
    """Return the name of the primary metric: F1 for entities, accuracy for other tags."""
    return "f1" if has_entities(tags) else "accuracy"


def write_predictions(path: str, tagged_file: TaggedFile, tags: Sequence[Sequence[str]]) -> None:
    r"""Write the lines of a file with the predicted tags as an extra column.

    In the layout "columns", the conlleval script can read the result if the last column contains the gold tags; runs
    of blanks are written as one blank. A `-DOCSTART-` line gets `O` in the new column and in any column that it lacks.
    In the layout "sentences", a tab and the tags are appended to each line. Blank lines and comments are
    kept.
    """
    if list(map(len, tags)) != [len(sentence.words) for sentence in tagged_file.sentences]:
        raise ValueError(f"the predicted tags are not one for each word of {tagged_file.path}")
    with writing.atomic_write(path) as sink:
        sink.writelines(line + "\n" for line in _lines(tagged_file, tags))


def _lines(tagged_file: TaggedFile, tags: Sequence[Sequence[str]]) -> Iterator[str]:
    is_columns = tagged_file.layout == "columns"
    cells_to_add = itertools.chain.from_iterable(tags) if is_columns else map(" ".join, tags)
    for number, line in enumerate(tagged_file.lines, start=1):
        if number in tagged_file.comments:
            yield line
            continue
        cells = split_columns(line, tagged_file.separator) if line else []
        if is_document_start(line):
            cells += ["O"] * max(1, tagged_file.num_columns + 1 - len(cells))
        elif line:
            cells.append(next(cells_to_add))
        yield tagged_file.separator.join(cells)


class Window(NamedTuple):
    """A window: the wordpieces that the model reads at once."""

    sentence: int  # index of the sentence whose words it tags
    ids: list[int]  # wordpiece ids, without [CLS] and [SEP]
    words: Sequence[int]  # indices of the words tagged in this window
    positions: Sequence[int]  # index in `ids` of the first wordpiece of each of these words


def make_windows(
    sentences: Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    documents: Sequence[int] | None = None,
) -> Iterator[Window]:
    """Split sentences into windows: one per sentence, or several overlapping windows if it does not fit.

    A word in two windows is tagged in the one where its shorter side has more context, the first if they are equal:
    `a b c d` in windows of three has `a b c`, which tags a, b and c, and `c d`, which tags d. Given the document of
    each sentence, ascending, a window is filled with neighbours of its sentence, half of the room on each side.
    """
    max_tokens = max_seq_length - 2
    if documents is None:
        for number, words in enumerate(sentences):
            yield from _own_windows(number, *_split(words, tokenizer), max_tokens)
        return
    for _, group in itertools.groupby(range(len(documents)), key=documents.__getitem__):
        parts = [(number, *_split(sentences[number], tokenizer)) for number in group]
        document = [piece for _, ids, _ in parts for piece in ids]
        start = 0
        for number, ids, firsts in parts:
            end = start + len(ids)
            if len(ids) > max_tokens:
                yield from _own_windows(number, ids, firsts, max_tokens)
            else:
                begin, stop = _with_context(start, end, len(document), max_tokens)
                positions = [start - begin + piece for piece in firsts]
                yield Window(number, document[begin:stop], range(len(positions)), positions)
            start = end


def _split(words: Sequence[str], tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the wordpieces of a sentence, and the index of each word's first wordpiece."""
    ids, firsts = [], []
    for word in words:
        firsts.append(len(ids))
        ids += tokenizer.encode_word(word) or [tokenizer.unk_id]
    return ids, firsts


def _own_windows(number: int, ids: list[int], firsts: list[int], max_tokens: int) -> Iterator[Window]:
    """Return the windows of a sentence without its neighbours."""
    cut = SlidingWindow.from_lengths(len(ids), max_tokens)
    best = cut.best_windows(firsts)
    for window, own in enumerate(cut.windows()):
        words = np.flatnonzero(best == window).tolist()
        yield Window(number, ids[own.start : own.stop], words, [firsts[word] - own.start for word in words])


def _with_context(start: int, end: int, num_wordpieces: int, max_tokens: int) -> tuple[int, int]:
    """Extend a range of a document's wordpieces to both sides; room unused on one side goes to the other."""
    spare = max_tokens - (end - start)
    before = min(start, max(spare // 2, spare - (num_wordpieces - end)))
    return start - before, min(num_wordpieces, end + spare - before)


class TaggedSplit(NamedTuple):
    """The sentences of a file, cut into windows that are written as one record each; a `Split`."""

    file: TaggedFile
    tags: Sequence[str]  # the tags of the model
    labels: Sequence[Sequence[int]]  # of each sentence's words: the number of the tag plus 1; 0 if it is unknown
    tokenizer: Tokenizer
    max_seq_length: int
    document_context: bool

    @property
    def words(self) -> list[tuple[str, ...]]:
        return [sentence.words for sentence in self.file.sentences]

    @property
    def is_tagged(self) -> bool:
        return self.file.sentences[0].tags is not None

    @property
    def _documents(self) -> list[int] | None:
        return [sentence.document for sentence in self.file.sentences] if self.document_context else None

    def windows(self) -> Iterator[Window]:
        return make_windows(self.words, self.tokenizer, max_seq_length=self.max_seq_length, documents=self._documents)

    def provenance(self, schema: RecordSchema) -> dict[str, Any]:
        del schema  # that of a tagger's ids or features depends on nothing else
        return {
            **self.tokenizer.identity,
            "max_seq_length": self.max_seq_length,
            "document_context": fingerprint(self._documents) if self.document_context else None,
            "words": fingerprint(self.words),
            "labels": fingerprint(self.labels, self.tags),
        }

    def records(self, file: RecordFile) -> Iterator[bytes]:
        tokenizer, num_wordpieces, num_unknown = self.tokenizer, 0, 0
        for window in self.windows():
            num_wordpieces += len(window.ids)
            num_unknown += window.ids.count(tokenizer.unk_id)
            sequence = join_texts(window.ids, (), tokenizer.specials)
            yield file.schema.encode({**sequence.inputs, LABELS.name: self._labels_by_position(window)})
        warn_of_unknown(file.path, tokenizer, num_unknown=num_unknown, num_wordpieces=num_wordpieces)

    def feature_records(self, schema: RecordSchema, features: Iterable[np.ndarray]) -> Iterator[bytes]:
        """See `Split`; the features of a window are float32 [S, W]."""
        for window, vectors in zip(self.windows(), features, strict=True):
            num_positions = len(window.ids) + 2  # [CLS] and [SEP]
            values = {
                FEATURES: vectors[:num_positions].ravel(),
                "input_mask": b"\x01" * num_positions,
                LABELS.name: self._labels_by_position(window),
            }
            yield schema.encode(values)

    def _labels_by_position(self, window: Window) -> list[int]:
        by_position = [0] * (len(window.ids) + 2)
        for word, position in zip(window.words, window.positions, strict=True):
            by_position[position + 1] = self.labels[window.sentence][word]  # after [CLS]
        return by_position
