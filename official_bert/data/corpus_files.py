"""Files of a corpus: plain text, lines, JSON Lines or Parquet, whole or in parts for several processes.

All formats are converted to pretraining input: one sentence per line, and a blank line after each document. A JSON
Lines object or Parquet row is one document; the lines of its text are its sentences. So is an article of WikiExtractor,
between `<doc id="1" ... title="Rain">` and `</doc>`, without its title.

The parts of a file contain each document exactly once, wherever the file is split, and can be pickled.

The sentences of running text are split with blingfire, an optional package. It is by far the fastest of the well-known
splitters, and needs no language setting: see docs/inputs.md. The full stops of some scripts, which it lacks, are added.
"""

import html
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

from absl import logging

from official_bert.data.tables import KEYED_FORMATS, PARQUET_MAGIC, Columns, format_of, json_object, open_parquet
from official_bert.support import files, text_files
from official_bert.support.console import Progress
from official_bert.support.errors import UserError, install_command
from official_bert.support.text_files import INVALID_TEXT, LineReader, line_number

WIKIEXTRACTOR = "wikiextractor"
FORMATS = ("text", "lines", "jsonl", "parquet", WIKIEXTRACTOR)
AUTO = "auto"
DEFAULT_TEXT_FIELD = "text"
_LINES_BETWEEN_UPDATES = 1024
_WINDOW = 1 << 18  # characters of a long text to split at a time: blingfire takes about 15 bytes for each
PART_BYTES = 1 << 22  # bytes of text per task of a process
# Full stops that have no other use: Devanagari (Hindi, Bengali and others), Armenian, Ethiopic, Burmese, Khmer.
_MORE_FULL_STOPS = re.compile("(?<=[\u0964\u0965\u0589\u1362\u104b\u17d4]) ")


class CorpusPart(NamedTuple):
    """A file of a corpus, or a range of one, that can be read independently.

    In plain text, a document belongs to the part that contains the start of the last blank line before it, or to the
    first part. A line, or a JSON Lines object, belongs to the part that contains its start.
    """

    path: str  # the file
    file_number: int  # index of the file in the corpus, from 0
    file_format: str  # one of `FORMATS`; each line of "lines" is a document
    text_field: str | None  # the key or column of the texts; None in other formats
    start: int = 0  # the first byte, or row group in Parquet
    stop: int | None = None  # end of the range, exclusive, in bytes or row groups; None for the end of the file
    invalid_text: str = INVALID_TEXT[0]  # one of `INVALID_TEXT`


def corpus_parts(
    paths: Sequence[str],
    *,
    file_format: str = AUTO,
    text_field: str = DEFAULT_TEXT_FIELD,
    part_bytes: int | None = None,
    invalid_text: str = INVALID_TEXT[0],
) -> list[CorpusPart]:
    """Divide the files of a corpus, which may mix formats, into parts, and check the beginning of each file.

    "auto" detects the format from the file name (ignoring .gz and the like: .jsonl, .json, .parquet) and, for Parquet,
    also from the content; other files are plain text. Parts have about `part_bytes`; compressed and remote files, and
    all files without `part_bytes`, are one part.
    """
    parts = []
    for number, path in enumerate(paths):
        this_format = _format(path) if file_format == AUTO else file_format
        field = text_field if this_format in KEYED_FORMATS else None
        part = CorpusPart(path, number, this_format, field, invalid_text=invalid_text)
        if this_format == "parquet":
            starts = _group_starts(part, part_bytes)
        elif text_files.is_compressed(path) or part_bytes is None or files.is_remote(path):
            starts = [0]
        else:
            starts = range(0, max(1, files.size(path)), part_bytes)
        stops = [*starts[1:], None]
        parts += [part._replace(start=start, stop=stop) for start, stop in zip(starts, stops, strict=True)]
    if text_field != DEFAULT_TEXT_FIELD and all(part.text_field is None for part in parts):
        raise UserError(f"text_field={text_field} cannot be used with plain text; give input_format=jsonl or parquet")
    return parts


class CorpusReader:
    """Reader of a part; iterating yields the lines of its documents, each with its position.

    A blank line ends a document; in JSON Lines and Parquet, one is added after each object or row. As in the reference,
    the last document of a text file may continue in the next file. A position is the byte offset of the line in the
    decompressed text; in JSON Lines, of the object's line; in Parquet, the row number. Positions increase, and lines of
    different documents have different positions. The file is opened on iteration.
    """

    def __init__(self, part: CorpusPart):
        self._part = part
        self._reader: LineReader | None = None
        self._parquet_bytes = 0

    @property
    def bytes_read(self) -> int:
        """Bytes of the part read so far, as stored on disk; all parts of a file sum to its size."""
        if self._reader is None:
            return self._parquet_bytes
        return min(self._reader.bytes_read, self._stop - self._part.start)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        if self._part.file_format in ("text", WIKIEXTRACTOR):
            return self._text_lines()
        return self._lines_of_documents()

    def _text_lines(self) -> Iterator[tuple[int, str]]:
        is_ours = self._part.start == 0
        is_repeated = False
        is_text = self._part.file_format == "text"
        for position, line in self._file_lines() if is_text else self._lines_of_articles():
            line = line.strip()
            is_ours = is_ours or not line
            if is_ours and (line or not is_repeated):
                yield position, line
            is_repeated = not line  # skip repeated blank lines
            if position >= self._stop and not (line and is_ours):
                return

    def _lines_of_articles(self) -> Iterator[tuple[int, str]]:
        """Yield a blank line for each tag, and the lines of articles that are neither blank nor the title."""
        title = ""
        for position, line in self._file_lines():
            line = line.strip()
            tag = title_of_article(line)
            if tag is not None:
                title = tag
                yield position, ""
            elif line:
                if line not in (title, html.unescape(title)):
                    yield position, line
                title = ""  # only the first line repeats it

    def _lines_of_documents(self) -> Iterator[tuple[int, str]]:
        """Yield the lines of the texts of objects or rows, with a blank line before the first and after each."""
        texts = {"lines": self._lines, "jsonl": self._jsonl_texts, "parquet": self._parquet_texts}
        is_first = True
        for position, text in texts[self._part.file_format]():
            if is_first:
                yield position, ""  # ends the last document of a preceding text file
            is_first = False
            for line in text.replace("\r", "").split("\n"):
                if line := line.strip():
                    yield position, line
            yield position, ""

    def _lines(self) -> Iterator[tuple[int, str]]:
        for position, line in self._file_lines():
            if position >= self._stop:
                return
            if line.strip():
                yield position, line

    def _jsonl_texts(self) -> Iterator[tuple[int, str]]:
        path, field = self._part.path, self._part.text_field
        for position, line in self._lines():
            try:
                yield position, json_object(line, Columns([field]))[field]
            except UserError as error:
                raise UserError(f"{path}, line {line_number(path, position)}: {error}") from error

    def _parquet_texts(self) -> Iterator[tuple[int, str]]:
        path, field = self._part.path, self._part.text_field
        with open_parquet(path) as table:
            table.check_columns(Columns([field]))
            groups = range(self._part.start, len(table.group_rows) if self._part.stop is None else self._part.stop)
            num_bytes, num_rows = files.size(path), table.num_rows
            first_row = sum(table.group_rows[: groups.start])
            end = sum(table.group_rows[: groups.stop])
            bytes_before = num_bytes * first_row // max(num_rows, 1)
            for number, (text,) in table.rows([field], groups):
                if text is None:
                    raise UserError(f"{path}, row {number}: {field!r} is null; a text must be a string")
                self._parquet_bytes = num_bytes * number // num_rows - bytes_before
                yield number, text
            self._parquet_bytes = (num_bytes * end // num_rows if num_rows else num_bytes) - bytes_before

    @property
    def _stop(self) -> float:
        return math.inf if self._part.stop is None else self._part.stop

    def _file_lines(self) -> Iterator[tuple[int, str]]:
        part = self._part
        self._reader = reader = LineReader(part.path, start=part.start, invalid_text=part.invalid_text)
        try:
            for line in reader:
                yield reader.line_start, line
        finally:
            if reader.num_invalid and part.invalid_text != INVALID_TEXT[0]:
                done = {"replace": "their bytes are replaced", "skip": "they are left out"}[part.invalid_text]
                message = "%s: from byte %d on, %d lines are not UTF-8; %s"
                logging.warning(message, part.path, part.start, reader.num_invalid, done)


def title_of_article(line: str) -> str | None:
    """Return the title in a tag of WikiExtractor, "" for `</doc>`; None for other lines."""
    if line.startswith("<doc id=") and line.endswith(">"):
        return line.partition(' title="')[2].removesuffix('">')
    return "" if line == "</doc>" else None


def read_lines(
    parts: Sequence[CorpusPart], details: Callable[[float], Sequence[str]] = lambda seconds: ()
) -> Iterator[tuple[int, str]]:
    bytes_before = 0
    with Progress("reading text", sum(files.size(part.path) for part in parts), "bytes") as progress:
        for part in parts:
            reader = CorpusReader(part)
            for number, line in enumerate(reader):
                yield line
                if number % _LINES_BETWEEN_UPDATES == 0:
                    progress.update(bytes_before + reader.bytes_read, *details(progress.seconds))
            bytes_before += reader.bytes_read
        progress.update(bytes_before, *details(progress.seconds))


def _format(path: str) -> str:
    file_format = format_of(path)
    if file_format in KEYED_FORMATS:
        return file_format
    with files.open_file(path, "rb") as source:
        is_parquet = source.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
        if is_parquet:  # plain text may begin the same way
            source.seek(files.size(path) - len(PARQUET_MAGIC))
            is_parquet = source.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    return "parquet" if is_parquet else "text"


def _group_starts(part: CorpusPart, part_bytes: int | None) -> list[int]:
    """Return the first row group of each part of a Parquet file; check its column."""
    with open_parquet(part.path) as table:
        table.check_columns(Columns([part.text_field]))
        group_bytes = table.group_bytes
    starts, num_bytes = [0], 0
    for number, this_bytes in enumerate(group_bytes):
        if part_bytes is not None and num_bytes >= part_bytes and not files.is_remote(part.path):
            starts.append(number)
            num_bytes = 0
        num_bytes += this_bytes
    return starts


def load_splitter() -> ModuleType:
    try:
        import blingfire
    except ImportError as error:
        raise UserError(f"splitting sentences needs the package blingfire: {install_command('sentences')}") from error
    except OSError as error:  # it installs anywhere, but its libraries are for x86-64 only
        raise UserError(f"the package blingfire, which splits sentences, cannot be used here: {error}") from error
    return blingfire


def split_sentences(text: str) -> list[str]:
    """Split a paragraph, in which runs of white space count as one space: `"Dr. Wu left.  Why?"` has two sentences."""
    text = " ".join(text.split())
    sentences: list[str] = []
    start, size = 0, _WINDOW
    while start + size < len(text):
        complete = _split(text[start : start + size])[:-2]  # the end of the window may affect the last two
        for sentence in complete:
            start = text.index(sentence, start) + len(sentence)
        sentences += complete
        size = _WINDOW if complete else 2 * size
    return sentences + _split(text[start:])


def _split(text: str) -> list[str]:
    """Split a text whose only white space is single spaces."""
    blingfire = load_splitter()
    text = text.strip()
    if not text:
        return []
    split = blingfire.text_to_sentences(text)
    sentences = split.split("\n")
    if "".join(split.split()) != text.replace(" ", ""):
        # It changed a character, such as NUL: split the text itself, which takes longer.
        _, ranges = blingfire.text_to_sentences_and_offsets(text)
        edges = [0, *(start for start, _ in ranges[1:]), len(text)]
        parts = (text[start:stop].strip() for start, stop in itertools.pairwise(edges))
        sentences = [part for part in parts if part]
    return [part for sentence in sentences for part in _MORE_FULL_STOPS.split(sentence)]


class Chunk(NamedTuple):
    """Text of whole documents (whole paragraphs with `one_document_per_file`), split by a process at a time."""

    part: CorpusPart  # its source
    lines: Sequence[str] | None = None  # its lines; None if the process should read the part itself
    num_bytes: int = 0  # number of bytes of the file that the lines took; 0 without lines


def read_chunks(parts: Iterable[CorpusPart]) -> Iterator[Chunk]:
    """Return the chunks of the corpus; indivisible files are read here, so that no process holds a whole one."""
    for part in parts:
        if not (part.file_format == "parquet" or files.is_remote(part.path) or text_files.is_compressed(part.path)):
            yield Chunk(part)
            continue
        reader = CorpusReader(part)
        lines: list[str] = []
        num_characters = bytes_before = 0
        for _, line in reader:
            lines.append(line)
            num_characters += len(line) + 1
            if not line and num_characters >= PART_BYTES:
                yield Chunk(part, lines, reader.bytes_read - bytes_before)
                lines, num_characters, bytes_before = [], 0, reader.bytes_read
        yield Chunk(part, lines, reader.bytes_read - bytes_before)


class SplitChunk(NamedTuple):
    """Documents of a chunk, one sentence per line, and the number of file bytes that they took."""

    part: CorpusPart
    documents: Sequence[str]
    num_sentences: int
    num_bytes: int


def split_chunk(chunk: Chunk, one_document_per_file: bool) -> SplitChunk:
    """Split a chunk; a blank line ends a paragraph in plain text, and each line is a paragraph in other formats."""
    is_text = chunk.part.file_format == "text"
    reader = CorpusReader(chunk.part)
    lines = (line for _, line in reader) if chunk.lines is None else chunk.lines
    documents: list[list[str]] = [[]]
    paragraph: list[str] = []
    for line in itertools.chain(lines, [""]):
        paragraph.append(line)
        if not line or not is_text:
            documents[-1] += split_sentences(" ".join(paragraph))
            paragraph.clear()
        if not line and not (is_text and one_document_per_file):
            documents.append([])
    num_sentences = sum(map(len, documents))
    texts = ["\n".join(document) for document in documents if document]
    return SplitChunk(chunk.part, texts, num_sentences, chunk.num_bytes or reader.bytes_read)
