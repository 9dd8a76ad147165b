"""The flags that name a corpus."""

from official_bert.options.option import Options, option, options


@options(group="input")
class CorpusOptions(Options):
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


@options(group="output")
class RecordFileOptions(Options):
    """Flags of every command that writes TFRecord files."""

    compression: str = option(
        "none",
        "Compression of the TFRecord files that are written.",
        choices=("none", "gzip"),
        affects="nothing",
    )
