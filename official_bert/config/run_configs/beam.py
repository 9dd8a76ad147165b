"""Flags of the tools that run as Apache Beam pipelines."""

import shlex

from official_bert.config.options import MAX_AXIS, MAX_PARTS, check_options, option, options
from official_bert.support.errors import UserError

_POOLINGS = ("mean", "cls", "pooler", "second_to_last", "sum_last_four", "concat_last_four")
RECORDS_FORMAT = "tfrecord"


@options(group="devices")
class BeamOptions:
    """Flags of all tools that run as pipelines."""

    beam_args: str = option(
        "",
        "Options of the pipeline, quoted as one value, such as '--runner=FlinkRunner --flink_master=host:8081'; by "
        "default it runs in this process.",
    )

    @property
    def beam_arguments(self) -> list[str]:
        """The options that --beam_args holds, split as a shell splits them."""
        try:
            return shlex.split(self.beam_args)
        except ValueError as error:
            raise UserError(f"--beam_args={self.beam_args}: {error}") from error


@options(group="input")
class BeamPredictionConfig(BeamOptions):
    """Flags of `tools/beam_predict.py`."""

    model_dir: str | None = option(
        None,
        "Exported model, or output folder of a training run; with --pooling, such a folder or that of an encoder.",
        required=True,
        is_path=True,
    )
    input_file: str | None = option(
        None,
        "Files to read: comma-separated list of names, globs, folders (all files below) and @list.txt (a file with one "
        "of these a line). One text per line, or `text ||| text` for a pair or for question and context.",
        required=True,
        is_path=True,
    )
    output_file: str | None = option(
        None,
        "JSON lines to write; with several shards, of out.jsonl the first of 8 is out-00000-of-00008.jsonl.",
        required=True,
        is_path=True,
    )
    num_shards: int = option(1, "Number of files to write.", group="output", minimum=1, maximum=MAX_PARTS)
    text_column: str | None = option(
        None, "Read tables: name or number (from 0) of the text column; in JSON lines its key, in Parquet its name."
    )
    text_b_column: str | None = option(
        None, "With --text_column: column of the second text of a pair, or of the context of a question."
    )
    input_format: str | None = option(
        None,
        "Format of the files: with --text_column by default that of the file name's extension; tfrecord for the "
        "records that a run wrote.",
        choices=("tsv", "csv", "jsonl", "parquet", RECORDS_FORMAT),
    )
    has_header: bool = option(True, "With --text_column: the first row of TSV and CSV names the columns.")
    pooling: str | None = option(
        None,
        "Write a vector of each text instead of a prediction: the mean of the last layer over the wordpieces, the last "
        "layer at [CLS], the pooled output, or the mean of other layers.",
        group="output",
        choices=_POOLINGS,
    )
    max_seq_length: int = option(
        0,
        "With --pooling: maximum number of wordpieces per text, including [CLS] and [SEP]; 0 for the model's.",
        minimum=0,
        maximum=MAX_AXIS,
        only_with={"pooling": _POOLINGS},
    )

    def __post_init__(self):
        check_options(self)
        _ = self.beam_arguments
        if self.reads_records and self.text_column is not None:
            raise UserError("--text_column has no effect with --input_format=tfrecord; leave it out")
        if self.reads_records and self.pooling is not None:
            raise UserError("--pooling needs texts; leave it or --input_format=tfrecord out")
        if self.text_column is None:
            for name, is_given in (
                ("text_b_column", self.text_b_column is not None),
                ("input_format", self.input_format is not None and not self.reads_records),
                ("has_header", not self.has_header),
            ):
                if is_given:
                    raise UserError(f"--{name} has no effect without --text_column; leave it out")

    @property
    def reads_records(self) -> bool:
        """Whether the files hold records and not texts."""
        return self.input_format == RECORDS_FORMAT

    @property
    def text_columns(self) -> list[str] | None:
        """The columns to read of tables; None for lines."""
        return [column for column in (self.text_column, self.text_b_column) if column is not None] or None
