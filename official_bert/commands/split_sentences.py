"""`split_sentences`: split running text into one sentence per line, the input of `create_pretraining_data`."""

import contextlib
from collections.abc import Iterator
from typing import IO

from absl import logging

from official_bert.commands.shared.corpora import find_parts, warn_of_text
from official_bert.data import corpus_files
from official_bert.data.corpus_files import CorpusPart
from official_bert.options.command import Command
from official_bert.options.groups import CorpusOptions
from official_bert.options.option import MAX_PARTS, option, options
from official_bert.support import files, writing
from official_bert.support.console import Progress
from official_bert.support.errors import UserError, pluralize
from official_bert.support.processes import Workers, available_cores


@options(group="input")
class SplitSentencesConfig(CorpusOptions):
    input_format: str = option(
        "auto",
        "text: paragraphs, blank lines between documents; lines: one document per line; jsonl, parquet: one document "
        "per object or row, one paragraph per line of its text; wikiextractor: one document per <doc>, without its "
        "title; auto: chosen by file name, text if unknown.",
        choices=("auto", "text", "lines", "jsonl", "parquet", "wikiextractor"),
    )
    one_document_per_file: bool = option(
        False, "Plain text: blank lines only end paragraphs, and each file is one document, such as a book."
    )
    output_file: str | None = option(
        None, "Text file to write; compressed with gzip if its name ends in .gz.", required=True, is_output=True
    )
    num_processes: int = option(
        0, "Number of processes; 0 for one per CPU core.", group="rarely needed", minimum=0, maximum=MAX_PARTS
    )

    def __post_init__(self):
        super().__post_init__()
        if self.input_format not in ("auto", "text"):
            self.refuse("one_document_per_file", because="needs --input_format=auto or text")


def prepare(config: SplitSentencesConfig) -> list[CorpusPart]:
    return find_parts(config, corpus_files.PART_BYTES)


def run(config: SplitSentencesConfig, parts: list[CorpusPart]) -> None:
    corpus_files.load_splitter()
    warn_of_text(parts[0], config)
    if config.one_document_per_file and all(part.file_format != "text" for part in parts):
        raise UserError(
            "one_document_per_file cannot be used with JSON lines and Parquet, where each object or row is a document"
        )
    paths = {part.file_number: part.path for part in parts}.values()  # each is in several parts
    sizes = [files.size(path) for path in paths]
    num_processes = min(
        config.num_processes or available_cores(), sum(1 + size // corpus_files.PART_BYTES for size in sizes)
    )
    total = sum(sizes)
    with (
        _open_output(config.output_file) as sink,
        Workers(
            num_processes, config.one_document_per_file, name="splits sentences", advice="lower num_processes"
        ) as workers,
        Progress("splitting", total, "bytes") as progress,
    ):
        num_bytes = num_documents = num_sentences = 0
        before: CorpusPart | None = None  # source of the last text written
        for split in workers.map(corpus_files.split_chunk, corpus_files.read_chunks(parts)):
            if split.documents:
                is_same = before is not None and before.file_number == split.part.file_number
                is_continued = config.one_document_per_file and is_same and split.part.file_format == "text"
                if before and not is_continued:
                    sink.write(b"\n")
                sink.write("\n\n".join(split.documents).encode() + b"\n")
                num_documents += len(split.documents) - is_continued
                before = split.part
            num_sentences += split.num_sentences
            num_bytes += split.num_bytes
            progress.update(num_bytes, pluralize(num_sentences, "sentence"))
        if before is None:
            raise UserError(f"no text in {', '.join(paths)}")
        seconds = progress.seconds
    logging.info(
        "wrote %s: %s in %s, %.2f MB/s",
        config.output_file,
        pluralize(num_sentences, "sentence"),
        pluralize(num_documents, "document"),
        total / 1e6 / seconds,
    )


@contextlib.contextmanager
def _open_output(path: str) -> Iterator[IO[bytes]]:
    from official_bert.data import record_files

    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(writing.atomic_write(path, "wb"))
        yield stack.enter_context(record_files.compressed_sink(sink)) if path.endswith(".gz") else sink


COMMAND = Command(
    config_class=SplitSentencesConfig,
    summary="Splits running text into sentences: the input of create_pretraining_data.",
    usage=r"""
The sentences are written one per line, with a blank line between documents.

  {command} --input_file=books/*.txt --one_document_per_file --output_file=corpus.txt
  {command} --input_file=articles.jsonl.gz --text_field=body --output_file=corpus.txt.gz
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=False,
)
