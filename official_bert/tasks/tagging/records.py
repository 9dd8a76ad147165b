"""Windows and records of tagging, and the files of tags that are read and written."""

import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.config.bert_config import FEATURES
from official_bert.data.record_files import RecordFile
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.metrics.tagging import has_entities, look_like_entities
from official_bert.support import files, writing
from official_bert.support.errors import UserError, format_names
from official_bert.support.manifest import fingerprint
from official_bert.tasks.tagging.data import TaggedFile, is_document_start, read_tagged_file, split_columns
from official_bert.tasks.tagging.options import CHARACTERS, TaggingConfig
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.full_tokenizer import warn_of_unknown
from official_bert.tokenization.sequences import SlidingWindow, join_texts

_OUTSIDE = "O"

_NAMES = {
    "train_file": ("eng.train", "train.txt", "klue-ner-v1.1_train.tsv"),
    "eval_file": ("eng.testa", "dev.txt", "valid.txt", "klue-ner-v1.1_dev.tsv"),
    "predict_file": ("eng.testb", "test.txt", "klue-ner-v1.1_test.tsv", "klue-ner-v1.1_dev.tsv"),
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
    """Return the tags of a training file, `O` first; raise if its words or tags are all the same."""
    if all(len(set(sentence.words)) == 1 < len(sentence.words) for sentence in file.sentences):
        word = file.sentences[0].words[0]
        raise UserError(
            f"{file.path}: all words of a sentence are the same, as in the first {word!r}; check word_column"
        )
    tags = {tag for sentence in file.sentences for tag in sentence.tags}
    if len(tags) == 1:
        raise UserError(
            f"{file.path}: all words have the tag {tags.pop()!r}, so there is nothing to learn; check tag_column"
        )
    return sorted(tags, key=lambda tag: (tag != _OUTSIDE, tag))


def warn_of_other_notation(tags: Collection[str]) -> None:
    """Warn if tags mark entities in another notation."""
    if not has_entities(tags) and (look_like_entities(tags) or not {"O", "o"}.isdisjoint(tags)):
        names = format_names(sorted(tags))
        logging.warning(
            "F1 of entities cannot be computed: their tags are written as B-PER, I-PER and O, not %s", names
        )


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
    is_columns = tagged_file.layout != "sentences"
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
    of_characters: bool = False,
) -> Iterator[Window]:
    """Split sentences into windows: one per sentence, or several overlapping windows if it does not fit.

    A word in two windows is tagged in the one where its shorter side has more context, the first if they are equal:
    `a b c d` in windows of three has `a b c`, which tags a, b and c, and `c d`, which tags d. Given the document of
    each sentence, ascending, a window is filled with neighbours of its sentence, half of the room on each side.
    Sentences of characters are read as text; only the characters that begin a wordpiece are tagged.
    """
    max_tokens = max_seq_length - 2
    if documents is None:
        for number, words in enumerate(sentences):
            yield from own_windows(number, *_split(words, tokenizer, of_characters), max_tokens)
        return
    for _, group in itertools.groupby(range(len(documents)), key=documents.__getitem__):
        parts = [(number, *_split(sentences[number], tokenizer, of_characters)) for number in group]
        document = [piece for _, ids, _, _ in parts for piece in ids]
        start = 0
        for number, ids, words, firsts in parts:
            end = start + len(ids)
            if len(ids) > max_tokens:
                yield from own_windows(number, ids, words, firsts, max_tokens)
            else:
                begin, stop = _with_context(start, end, len(document), max_tokens)
                yield Window(number, document[begin:stop], words, [start - begin + piece for piece in firsts])
            start = end


def _split(
    words: Sequence[str], tokenizer: Tokenizer, of_characters: bool
) -> tuple[list[int], Sequence[int], list[int]]:
    """Return the wordpieces of a sentence, the words to tag, and the index of the first wordpiece of each."""
    if of_characters:
        ids, starts, _ = tokenizer.encode_with_offsets("".join(words))
        return ids, *(column.tolist() for column in np.unique(np.array(starts, int), return_index=True))
    ids, firsts = [], []
    for word in words:
        firsts.append(len(ids))
        ids += tokenizer.encode_word(word) or [tokenizer.unk_id]
    return ids, range(len(words)), firsts


def own_windows(
    number: int, ids: list[int], words: Sequence[int], firsts: list[int], max_tokens: int
) -> Iterator[Window]:
    """Return the windows of a sentence without its neighbours."""
    cut = SlidingWindow.from_lengths(len(ids), max_tokens)
    best = cut.best_windows(firsts)
    for window, own in enumerate(cut.windows()):
        places = np.flatnonzero(best == window).tolist()
        positions = [firsts[place] - own.start for place in places]
        yield Window(number, ids[own.start : own.stop], [words[place] for place in places], positions)


def tags_of_characters(characters: Sequence[str], tags: Sequence[str | None]) -> list[str]:
    """Fill in the tags of the characters that begin no wordpiece: they continue the entity of their wordpiece.

    A space continues that of the next character: `이슬 섬` with B-LC at 이 and I-LC at 섬 is B-LC I-LC I-LC I-LC.
    """
    found, last = [], _OUTSIDE
    for tag in tags:
        last = tag or (f"I-{last[2:]}" if last.startswith("B-") else last)
        found.append(last)
    following = _OUTSIDE
    for index in reversed(range(len(found))):
        if characters[index] == " ":
            found[index] = following if following.startswith("I-") else _OUTSIDE
        following = found[index]
    return found


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
    def is_of_characters(self) -> bool:
        return self.file.layout == CHARACTERS

    @property
    def _documents(self) -> list[int] | None:
        return [sentence.document for sentence in self.file.sentences] if self.document_context else None

    def windows(self) -> Iterator[Window]:
        options = {"documents": self._documents, "of_characters": self.is_of_characters}
        return make_windows(self.words, self.tokenizer, max_seq_length=self.max_seq_length, **options)

    def provenance(self, schema: RecordSchema) -> dict[str, Any]:
        del schema  # that of a tagger's ids or features depends on nothing else
        return {
            **self.tokenizer.identity,
            "max_seq_length": self.max_seq_length,
            "document_context": fingerprint(self._documents) if self.document_context else None,
            "words": fingerprint(list(map("".join, self.words)) if self.is_of_characters else self.words),
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
