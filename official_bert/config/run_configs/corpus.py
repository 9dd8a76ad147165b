"""Flags of the scripts that read a corpus: which files, and how they hold their text."""

import dataclasses

from official_bert.config.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
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
