"""`split_sentences`: running text in, one sentence a line out, as `create_pretraining_data` reads it."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

from absl import logging

from official_bert.commands.shared.file_checks import check_corpus
from official_bert.options.command import Command
from official_bert.options.corpus import CorpusOptions
from official_bert.options.option import MAX_PARTS, option, options
from official_bert.support import compression, files, writing
from official_bert.support.errors import UserError, counted
from official_bert.support.input_files import find_inputs
from official_bert.support.processes import Workers, available_cores
from official_bert.support.progress import Progress

if TYPE_CHECKING:
    from official_bert.data.corpus_files import CorpusPart, CorpusReader


@options(group="input")
class SplitSentencesConfig(CorpusOptions):
    """Flags of `split_sentences`."""

    input_format: str = option(
        "auto",
        "text: paragraphs, blank lines between documents; lines: one document per line; jsonl, parquet: one document "
        "per object or row, one paragraph per line of its text; auto: by the file names, otherwise text.",
        choices=("auto", "text", "lines", "jsonl", "parquet"),
    )
    one_document_per_file: bool = option(
        False,
        "Plain text: blank lines only end paragraphs, and each file is one document, such as a book.",
        only_with={"input_format": ("auto", "text")},
    )
    output_file: str | None = option(
        None, "Text file to write; compressed with gzip if its name ends in .gz.", required=True, is_path=True
    )
    num_processes: int = option(
        0, "Number of processes; 0 for one per processor core.", group="rarely needed", minimum=0, maximum=MAX_PARTS
    )


_PART_BYTES = 1 << 22  # of text that a process splits before it takes the next part
_BYTE_ORDER_MARK = "\ufeff"  # with which some editors begin a file


def run(config: SplitSentencesConfig) -> None:
    """Splits the text.

    Raises:
      UserError: an input is missing or unreadable, or has no text, the output cannot be written, or
        `one_document_per_file` would have no effect.
    """
    from official_bert.data.corpus_files import corpus_parts
    from official_bert.data.sentence_splitter import load_splitter

    load_splitter()
    paths = find_inputs(config.input_file)
    writing.check_writable_folder(config.output_file, name="output_file")
    writing.check_no_overwriting([config.output_file], paths, name="output_file")
    parts = corpus_parts(paths, file_format=config.input_format, text_field=config.text_field, part_bytes=_PART_BYTES)
    if config.one_document_per_file and all(part.file_format != "text" for part in parts):
        raise UserError(
            "one_document_per_file has no effect on JSON lines and Parquet, where each object or row is a document; "
            "leave it out"
        )
    sizes = [files.size(path) for path in paths]
    num_processes = min(config.num_processes or available_cores(), sum(1 + size // _PART_BYTES for size in sizes))
    total = sum(sizes)
    with (
        _open_output(config.output_file) as sink,
        Workers(
            num_processes, config.one_document_per_file, name="splits sentences", advice="lower num_processes"
        ) as workers,
        Progress("splitting", total, "bytes") as progress,
    ):
        num_bytes = num_documents = num_sentences = 0
        before: CorpusPart | None = None  # where the last text that was written is from
        for split in workers.map(_split, _pieces(parts)):
            if split.documents:
                is_continued = config.one_document_per_file and _is_same_text(before, split.part)
                if before and not is_continued:
                    sink.write(b"\n")
                sink.write("\n\n".join(split.documents).encode() + b"\n")
                num_documents += len(split.documents) - is_continued
                before = split.part
            num_sentences += split.num_sentences
            num_bytes += split.num_bytes
            progress.update(num_bytes, counted(num_sentences, "sentence"))
        if before is None:
            raise UserError(f"no text in {', '.join(paths)}")
        seconds = progress.seconds
    logging.info(
        "wrote %s: %s in %s, %.2f MB/s",
        config.output_file,
        counted(num_sentences, "sentence"),
        counted(num_documents, "document"),
        total / 1e6 / seconds,
    )


@contextlib.contextmanager
def _open_output(path: str) -> Iterator[IO[bytes]]:
    from official_bert.data import tfrecord

    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(writing.atomic_write(path, "wb"))
        yield stack.enter_context(tfrecord.compressed_sink(sink)) if path.endswith(".gz") else sink


def _is_same_text(first: "CorpusPart | None", second: "CorpusPart") -> bool:
    """Whether two parts are of the same plain text."""
    return first is not None and first.file_number == second.file_number and second.file_format == "text"


class _Piece(NamedTuple):
    """Text of whole documents (of whole paragraphs with `one_document_per_file`) that a process splits at a time.

    Attributes:
      part: where it is from.
      lines: its lines; None if the process is to read the part itself.
      num_bytes: how much of the file the lines were; 0 if there are none.
    """

    part: "CorpusPart"
    lines: Sequence[str] | None = None
    num_bytes: int = 0


def _pieces(parts: "Iterable[CorpusPart]") -> Iterator[_Piece]:
    """The pieces of the corpus; what has no small parts is read here, so that no process holds a whole file."""
    from official_bert.data.corpus_files import CorpusReader

    for part in parts:
        if not _is_read_here(part):
            yield _Piece(part)
            continue
        reader = CorpusReader(part)
        lines: list[str] = []
        num_characters = bytes_before = 0
        for line in _lines(reader):
            lines.append(line)
            num_characters += len(line) + 1
            if not line and num_characters >= _PART_BYTES:
                yield _Piece(part, lines, reader.bytes_read - bytes_before)
                lines, num_characters, bytes_before = [], 0, reader.bytes_read
        yield _Piece(part, lines, reader.bytes_read - bytes_before)


def _is_read_here(part: "CorpusPart") -> bool:
    """Whether the process that writes the output reads a part too, for the others to split.

    Otherwise one process would hold the whole of a compressed or remote file, or a row group of Parquet.
    """
    return part.file_format == "parquet" or files.is_remote(part.path) or compression.is_compressed(part.path)


def _lines(reader: "CorpusReader") -> Iterator[str]:
    for position, line in reader:
        yield line if position else line.removeprefix(_BYTE_ORDER_MARK).lstrip()


class _Split(NamedTuple):
    """The documents of a piece, one sentence per line, and how much of the file they were."""

    part: "CorpusPart"
    documents: Sequence[str]
    num_sentences: int
    num_bytes: int


def _split(piece: _Piece, one_document_per_file: bool) -> _Split:
    """Splits a piece; in plain text a blank line ends a paragraph, in the other formats each line is one."""
    from official_bert.data.corpus_files import CorpusReader
    from official_bert.data.sentence_splitter import split_sentences

    is_text = piece.part.file_format == "text"
    reader = CorpusReader(piece.part)
    lines = _lines(reader) if piece.lines is None else piece.lines
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
    return _Split(piece.part, texts, num_sentences, piece.num_bytes or reader.bytes_read)


COMMAND = Command(
    name="split_sentences",
    config_class=SplitSentencesConfig,
    summary="Splits running text into sentences: the input of create_pretraining_data.",
    usage=r"""
The sentences are written one per line, with a blank line between documents.

  {command} --input_file=books/*.txt --one_document_per_file --output_file=corpus.txt
  {command} --input_file=articles.jsonl.gz --text_field=body --output_file=corpus.txt.gz
""",
    check=check_corpus,
    run=run,
    uses_tensorflow=False,
)
