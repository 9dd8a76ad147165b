"""`tools/split_sentences.py`: running text in, one sentence a line out, as `create_pretraining_data.py` reads it."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from absl import logging

from official_bert.config.run_configs.corpus import SplitSentencesConfig
from official_bert.data import tfrecord
from official_bert.data.corpus_files import CorpusPart, CorpusReader, corpus_parts
from official_bert.data.sentence_splitter import load_splitter, split_sentences
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.support.input_files import find_inputs
from official_bert.support.processes import Workers, available_cores
from official_bert.support.progress import Progress

_PART_BYTES = 1 << 22  # of text that a process splits before it takes the next part


def run(config: SplitSentencesConfig) -> None:
    """Splits the text.

    Raises:
      UserError: an input is missing or unreadable, or has no text, or the output cannot be written.
    """
    load_splitter()
    paths = find_inputs(config.input_file)
    files.check_writable_folder(config.output_file, name="output_file")
    files.check_no_overwriting([config.output_file], paths, name="output_file")
    parts = corpus_parts(paths, file_format=config.input_format, text_field=config.text_field, part_bytes=_PART_BYTES)
    num_processes = min(config.num_processes or available_cores(), len(parts))
    total = sum(map(files.size, paths))
    with (
        _open_output(config.output_file) as sink,
        Workers(num_processes, config.one_document_per_file, name="splits sentences") as workers,
        Progress("splitting", total, "bytes") as progress,
    ):
        num_bytes = num_documents = num_sentences = 0
        before: CorpusPart | None = None  # the last part that has text
        for part, split in zip(parts, workers.map(_split_part, parts), strict=True):
            if split.documents:
                is_continued = config.one_document_per_file and _is_same_text(before, part)
                if before and not is_continued:
                    sink.write(b"\n")
                sink.write("\n\n".join(split.documents).encode() + b"\n")
                num_documents += len(split.documents) - is_continued
                before = part
            num_sentences += split.num_sentences
            num_bytes += split.num_bytes
            progress.update(num_bytes, f"{num_sentences:,} sentences")
        if before is None:
            raise UserError(f"no text in {', '.join(paths)}")
        seconds = progress.seconds
    logging.info(
        "wrote %s: %s sentences in %s documents, %.2f MB/s",
        config.output_file,
        f"{num_sentences:,}",
        f"{num_documents:,}",
        total / 1e6 / seconds,
    )


@contextlib.contextmanager
def _open_output(path: str) -> Iterator[IO[bytes]]:
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(files.atomic_write(path, "wb"))
        yield stack.enter_context(tfrecord.compressed_sink(sink)) if path.endswith(".gz") else sink


def _is_same_text(first: CorpusPart | None, second: CorpusPart) -> bool:
    """Whether two parts are of the same plain text."""
    return first is not None and first.file_number == second.file_number and second.file_format == "text"


class _Split(NamedTuple):
    """The documents of a part, one sentence per line, and how much of the file they were."""

    documents: Sequence[str]
    num_sentences: int
    num_bytes: int


def _split_part(part: CorpusPart, one_document_per_file: bool) -> _Split:
    """Splits a part; in plain text a blank line ends a paragraph, in the other formats each line is one."""
    is_text = part.file_format == "text"
    reader = CorpusReader(part)
    documents: list[list[str]] = [[]]
    paragraph: list[str] = []
    for _, line in itertools.chain(reader, [(0, "")]):
        paragraph.append(line)
        if not line or not is_text:
            documents[-1] += split_sentences(" ".join(paragraph))
            paragraph.clear()
        if not line and not (is_text and one_document_per_file):
            documents.append([])
    num_sentences = sum(map(len, documents))
    return _Split(["\n".join(document) for document in documents if document], num_sentences, reader.bytes_read)
