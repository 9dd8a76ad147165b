"""Flags for the corpus and for record files."""

from official_bert.options.option import Options, option, options


@options(group="input")
class CorpusOptions(Options):
    """Flags for the files of a corpus."""

    input_file: str | None = option(
        None,
        "Text files, which may be compressed: comma-separated list of names, globs, folders (all files below them) and "
        "@list.txt (a file with one of these per line).",
        required=True,
        is_path=True,
    )
    input_format: str = option(
        "auto",
        "text: one sentence per line, blank lines between documents; jsonl, parquet: one document per object or row, "
        "one sentence per line of its text; auto: chosen by file name, text if unknown.",
        choices=("auto", "text", "jsonl", "parquet"),
    )
    text_field: str = option(
        "text",
        "JSON Lines and Parquet: key or column of the text.",
        only_with={"input_format": ("auto", "jsonl", "parquet")},
    )


@options(group="output")
class RecordFileOptions(Options):
    """Flags of every command that writes TFRecord files."""

    compression: str = option(
        "none",
        "Compression of the TFRecord files.",
        choices=("none", "gzip"),
        affects="nothing",
    )
