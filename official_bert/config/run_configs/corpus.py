"""Flags of the scripts that read a corpus: which files, and how they hold their text."""

from official_bert.config.options import MAX_PARTS, check_options, option, options


@options(group="input")
class CorpusOptions:
    """Flags that name the files of a corpus."""

    input_file: str | None = option(
        None,
        "Files with the text, which may be compressed: comma-separated list of names, globs, folders (all files below) "
        "and @list.txt (a file with one of these a line).",
        required=True,
        is_path=True,
    )
    input_format: str = option(
        "auto",
        "text: one sentence per line, blank lines between documents; jsonl, parquet: one document per object or row, "
        "one sentence per line of its text; auto: by the file names, otherwise text.",
        choices=("auto", "text", "jsonl", "parquet"),
    )
    text_field: str = option(
        "text",
        "JSON lines and Parquet: key or column of the text.",
        only_with={"input_format": ("auto", "jsonl", "parquet")},
    )


@options(group="input")
class SplitSentencesConfig(CorpusOptions):
    """Flags of `tools/split_sentences.py`."""

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

    def __post_init__(self):
        check_options(self)
