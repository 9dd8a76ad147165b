"""Flags of `extract_features.py`."""

from typing import Protocol

from official_bert.config.options import MAX_AXIS, MAX_BATCH_SIZE, check_options, layer_numbers, option, options
from official_bert.config.run_configs.training import DeviceOptions, TokenizerOptions, bert_config_option
from official_bert.support.errors import UserError


class ExtractionOptions(Protocol):
    """The flags by which an encoder is loaded and computes vectors."""

    init_checkpoint: str
    max_seq_length: int
    batch_size: int
    use_tpu: bool
    mixed_precision: str


@options(group="input")
class FeatureConfig(DeviceOptions, TokenizerOptions):
    """Flags of `extract_features.py`."""

    input_file: str | None = option(
        None,
        "Text file, one text per line, or `text ||| text` for a pair; - for standard input.",
        required=True,
        is_path=True,
    )
    output_file: str | None = option(
        None, "File to write; - for standard output, with --output_format=jsonl.", required=True, is_path=True
    )
    layers: str = option("-1,-2,-3,-4", "Comma-separated list of layers: 0 is the first, -1 the last.", group="output")
    bert_config_file: str | None = bert_config_option()
    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces per sequence, including [CLS] and [SEP].",
        group="text",
        minimum=4,
        maximum=MAX_AXIS,
    )
    init_checkpoint: str | None = option(None, "Checkpoint with the weights of the model.", required=True, is_path=True)
    batch_size: int = option(
        32,
        "Number of texts of 64 wordpieces per batch and device; batches of shorter texts are larger, of longer texts "
        "smaller. On TPU, number of texts of any length.",
        group="devices",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
    )
    use_one_hot_embeddings: bool = option(
        False, "Look up embeddings by multiplying with one-hot vectors, which is faster on TPU.", group="rarely needed"
    )

    output_format: str = option(
        "jsonl",
        "jsonl: JSON lines, as Google's BERT writes them; npz, npy: NumPy files; tfrecord: one Example per text.",
        group="output",
        choices=("jsonl", "npz", "tfrecord", "npy"),
    )
    pooling: str = option(
        "none",
        "none: vectors of all wordpieces; otherwise one vector per text and layer: that of [CLS], or the mean or "
        "maximum over the wordpieces, including [CLS] and [SEP]; mean_no_special and max_no_special exclude these.",
        group="output",
        choices=("none", "cls", "mean", "max", "mean_no_special", "max_no_special"),
    )
    dtype: str = option(
        "float32",
        "With --output_format=npz or npy: data type of the stored vectors.",
        group="output",
        choices=("float32", "float16"),
        only_with={"output_format": ("npz", "npy")},
    )
    text_column: str | None = option(
        None, "Read a table: name or number (from 0) of the text column; in JSON lines and Parquet its name."
    )
    text_b_column: str | None = option(None, "With --text_column: column of the second text, for pairs.")
    input_format: str | None = option(
        None,
        "With --text_column: format of the table; by default that of the file name's extension.",
        choices=("tsv", "csv", "jsonl", "parquet"),
    )
    has_header: bool = option(True, "With --text_column: the first row of TSV and CSV names the columns.")
    long_text: str = option(
        "truncate",
        "How to handle texts longer than --max_seq_length: truncate them, or average overlapping windows.",
        group="text",
        choices=("truncate", "window"),
    )
    shard_size: int = option(
        0,
        "Number of texts per output file: NAME-00000.npz, NAME-00001.npz, ... are written, and finished ones of an "
        "earlier run are kept; 0 for one file.",
        group="output",
        minimum=0,
        maximum=10**6,
    )

    def __post_init__(self):
        check_options(self)
        layer_numbers(self.layers)
        if self.text_column is None:
            for name, default in (("text_b_column", None), ("input_format", None), ("has_header", True)):
                if getattr(self, name) != default:
                    raise UserError(f"--{name} has no effect without --text_column; leave it out")
        if self.output_format == "npy" and self.pooling == "none":
            raise UserError("--output_format=npy holds one vector per text; give --pooling, or --output_format=npz")
        if self.output_file == "-" and (self.output_format != "jsonl" or self.shard_size):
            other = "--shard_size" if self.shard_size else f"--output_format={self.output_format}"
            raise UserError(f"--output_file=-: standard output takes jsonl in one piece; leave {other} out")

    @property
    def layer_indices(self) -> list[int]:
        """The numbers that --layers lists."""
        return layer_numbers(self.layers)

    @property
    def text_columns(self) -> list[str] | None:
        """The columns to read of a table; None for lines."""
        return [column for column in (self.text_column, self.text_b_column) if column is not None] or None
