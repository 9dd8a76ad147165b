"""Split running text into sentences with blingfire, an optional package.

It is by far the fastest of the well-known splitters, and needs no language setting: see docs/inputs.md. The full stops
of some scripts, which it lacks, are added here.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

from official_bert.data.corpus_files import CorpusPart, CorpusReader
from official_bert.support import compression, files
from official_bert.support.errors import UserError, install_command

_WINDOW = 1 << 18  # characters of a long text to split at a time: blingfire takes about 15 bytes for each

PART_BYTES = 1 << 22  # bytes of text per task of a process
_BYTE_ORDER_MARK = "\ufeff"  # some editors put it at the beginning of a file

# Full stops that have no other use: Devanagari (Hindi, Bengali and others), Armenian, Ethiopic, Burmese, Khmer.
_MORE_FULL_STOPS = re.compile("(?<=[\u0964\u0965\u0589\u1362\u104b\u17d4]) ")


def load_splitter() -> ModuleType:
    """Import blingfire."""
    try:
        import blingfire
    except ImportError as error:
        raise UserError(f"splitting sentences needs the package blingfire: {install_command('sentences')}") from error
    except OSError as error:  # it installs anywhere, but its libraries are for x86-64 only
        raise UserError(f"the package blingfire, which splits sentences, cannot be used here: {error}") from error
    return blingfire


def split_sentences(text: str) -> list[str]:
    """Split a paragraph into sentences.

    Args:
      text: a string without lone surrogates, of any length; runs of white space, including line ends, count as one
        space.

    Returns:
      The sentences, with the text's characters except white space: `"Dr. Wu left.  Why?"` gives `"Dr. Wu left."` and
      `"Why?"`. A text without a sentence end is one sentence.
    """
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
    if "".join(split.split()) == text.replace(" ", ""):
        return _cut_at_more_full_stops(split.split("\n"))
    # It changed a character, such as NUL: split the text itself, which takes longer.
    _, ranges = blingfire.text_to_sentences_and_offsets(text)
    edges = [0, *(start for start, _ in ranges[1:]), len(text)]
    parts = (text[start:stop].strip() for start, stop in itertools.pairwise(edges))
    return _cut_at_more_full_stops([part for part in parts if part])


def _cut_at_more_full_stops(sentences: list[str]) -> list[str]:
    return [part for sentence in sentences for part in _MORE_FULL_STOPS.split(sentence)]


class Chunk(NamedTuple):
    """Text of whole documents (whole paragraphs with `one_document_per_file`), split by a process at a time."""

    part: CorpusPart  # its source
    lines: Sequence[str] | None = None  # its lines; None if the process should read the part itself
    num_bytes: int = 0  # number of bytes of the file that the lines took; 0 without lines


def read_chunks(parts: Iterable[CorpusPart]) -> Iterator[Chunk]:
    """Return the chunks of the corpus; indivisible files are read here, so that no process holds a whole file."""
    for part in parts:
        if not _is_read_here(part):
            yield Chunk(part)
            continue
        reader = CorpusReader(part)
        lines: list[str] = []
        num_characters = bytes_before = 0
        for line in _lines(reader):
            lines.append(line)
            num_characters += len(line) + 1
            if not line and num_characters >= PART_BYTES:
                yield Chunk(part, lines, reader.bytes_read - bytes_before)
                lines, num_characters, bytes_before = [], 0, reader.bytes_read
        yield Chunk(part, lines, reader.bytes_read - bytes_before)


def _is_read_here(part: CorpusPart) -> bool:
    """Return True if the writing process should read a part for the others to split.

    Otherwise one process would hold a whole compressed or remote file, or a Parquet row group.
    """
    return part.file_format == "parquet" or files.is_remote(part.path) or compression.is_compressed(part.path)


def _lines(reader: CorpusReader) -> Iterator[str]:
    for position, line in reader:
        yield line if position else line.removeprefix(_BYTE_ORDER_MARK).lstrip()


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
    lines = _lines(reader) if chunk.lines is None else chunk.lines
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
