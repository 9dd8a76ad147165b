"""Groups of flags that several commands share: text, model, corpus, devices, vectors, exports, batching."""

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any, ClassVar

from official_bert.config.poolings import HEAD, pooling_help, poolings_of
from official_bert.config.sentence_modules import SPLADE
from official_bert.config.text_settings import TextSettings
from official_bert.options.option import MAX_AXIS, MAX_BATCH_SIZE, MAX_PARTS, Options, layer_numbers, option, options
from official_bert.support.errors import UserError

VECTOR_TYPES = FLOAT32, INT8, BINARY = ("float32", "int8", "binary")
# Supported values of `export_precision` for each `export_format`.
_PRECISIONS = {
    "saved_model": ("float32", "bfloat16"),
    "tflite": ("float32", "float16", "int8"),
    "onnx": ("float32", "int8"),
}
_POSITIONS_PER_EXAMPLE = 128  # average capacity of a batch


@options(group="text normalization", affects="model")
class TextOptions(Options):
    """Text normalization flags of every command that reads text."""

    do_lower_case: bool = option(True, "Lowercase the text and strip accents; true for uncased models.", group="text")
    strip_accents: bool = option(True, "With --do_lower_case: strip accents; this also decomposes Hangul syllables.")
    basic_tokenize: bool = option(
        True,
        "Clean the text and split it at punctuation and Chinese characters; otherwise split it at white space only and "
        "look the words up unchanged.",
    )
    tokenize_chinese_chars: bool = option(True, "Make each Chinese character a word.")
    strip_accents_only: bool = option(False, "Strip accents but keep capital letters.")
    morphemes: str | None = option(
        None,
        "Split texts into words first: kiwi for Korean; mecab-unidic_lite or mecab-ipadic for Japanese, with "
        "--basic_tokenize=false. By default they are split only if the model's folder says so.",
    )

    def __post_init__(self):
        super().__post_init__()
        self.text_settings.check()

    @property
    def text_settings(self) -> TextSettings:
        return TextSettings(*(getattr(self, name) for name in TextSettings._fields))


@options(group="model", affects="data")
class TokenizerOptions(TextOptions):
    """Tokenizer flags of every command that converts text to ids."""

    vocab_file: str | None = option(
        None, "Vocabulary file, one wordpiece per line.", required="spm_model_file", from_checkpoint=True, is_path=True
    )
    spm_model_file: str | None = option(
        None, "SentencePiece model, such as that of a released ALBERT, instead of --vocab_file.", is_path=True
    )

    def __post_init__(self):
        super().__post_init__()
        if self.spm_model_file:
            self.refuse("vocab_file", because="cannot be used with --spm_model_file")

    @property
    def tokenizer_file(self) -> str:
        """The SentencePiece model or the vocabulary file, whichever is given."""
        return self.spm_model_file or self.vocab_file


@options(group="model")
class ArchitectureOptions(Options):
    """Flags of every command that creates a model."""

    bert_config_file: str | None = option(
        None,
        "Model configuration (bert_config.json).",
        required=True,
        from_checkpoint=True,
        is_path=True,
        affects="data",
    )


@options(group="model")
class ModelOptions(TokenizerOptions, ArchitectureOptions):
    """Flags of commands that load a trained model."""

    max_seq_length: ClassVar[int | None] = None  # a flag in commands that do not derive the length from the texts
    init_checkpoint: str | None = option(
        None,
        "Folder of the model, which also has its vocabulary and configuration; or a checkpoint.",
        required=True,
        is_path=True,
    )


@options(group="model", affects="head")
class HeadOptions(Options):
    """Flags of commands with a choice of heads."""

    head: str = option(
        "linear",
        "Head on the encoder. linear: one linear layer; bilstm: two bidirectional LSTM layers, then a linear layer.",
        choices=("linear", "bilstm"),
    )
    lstm_units: int | None = option(
        None,
        "With --head=bilstm: number of units per direction; by default the hidden size of the encoder.",
        group="rarely needed",
        minimum=1,
        maximum=MAX_AXIS,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.head != "bilstm":
            self.refuse("lstm_units", because="needs --head=bilstm")

    @property
    def model_options(self) -> dict[str, Any]:
        """Keyword arguments of the model, from these flags."""
        return {"head": self.head, "lstm_units": self.lstm_units}


@options(group="input")
class CorpusOptions(Options):
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
        "one sentence per line of its text; wikiextractor: one document per <doc>, without its title; auto: chosen by "
        "file name, text if unknown.",
        choices=("auto", "text", "jsonl", "parquet", "wikiextractor"),
    )
    text_field: str = option("text", "JSON Lines and Parquet: key or column of the text.")
    invalid_text: str = option(
        "refuse",
        "Lines that are not UTF-8. refuse: end with their numbers; replace: read U+FFFD for each wrong byte; skip: "
        "leave them out.",
        choices=("refuse", "replace", "skip"),
    )

    def __post_init__(self):
        super().__post_init__()
        if self.input_format not in ("auto", "jsonl", "parquet"):
            self.refuse("text_field", because="needs --input_format=auto or jsonl or parquet")


@options(group="input", affects="data")
class TableOptions(Options):
    has_header: bool = option(True, "The first row of a TSV or CSV file names its columns.")
    delimiter: str = option(
        ",", "CSV: character between columns, such as ; in the files of Excel in German and other languages."
    )

    def __post_init__(self):
        super().__post_init__()
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise UserError(f"--delimiter={self.delimiter}: must be one character, and no quote or line break")


@options(group="input")
class IdOptions(TableOptions):
    """Flags of every command that reports the rows of a table."""

    id_column: str | None = option(
        None,
        "Name or number (from 0) of the column whose values are written with the predictions; by default id, if there "
        "is one.",
        affects="nothing",
    )


@options(group="devices")
class BeamOptions(Options):
    beam_args: str = option(
        "",
        "Beam pipeline options, quoted as one value, such as '--runner=FlinkRunner --flink_master=host:8081'; by "
        "default the pipeline runs in this process.",
    )

    @property
    def beam_arguments(self) -> list[str]:
        try:
            return shlex.split(self.beam_args)
        except ValueError as error:
            raise UserError(f"--beam_args={self.beam_args}: {error}") from error


@options(group="devices", affects="nothing")
class DeviceOptions(Options):
    """Flags of every command that runs a model."""

    # Flags of commands that also run on a TPU, and of those that train.
    use_tpu: ClassVar[bool] = False
    master: ClassVar[str | None] = None
    distribution: ClassVar[str] = "auto"
    num_replicas: int | None = option(
        None,
        "Number of devices to use: GPUs, or virtual CPU devices if there are no GPUs; 0 for all GPUs. By default one, "
        "and all with --backend=jax.",
        minimum=0,
        maximum=MAX_PARTS,
    )
    mixed_precision: str = option(
        "none",
        "Number format of activations and gradients; weights, softmax, normalization and losses stay float32. auto "
        "chooses the fastest format for the devices; none computes everything in float32.",
        choices=("none", "bfloat16", "float16", "auto"),
        affects="learning",
    )


@options(group="devices", affects="nothing")
class TpuOptions(DeviceOptions):
    use_tpu: bool = option(False, "Train on a TPU.", affects="learning")
    tpu_name: str | None = option(None, "Name or grpc:// address of the TPU, with --use_tpu.")
    tpu_zone: str | None = option(None, "Google Cloud zone of the TPU, with --use_tpu.")
    gcp_project: str | None = option(None, "Google Cloud project of the TPU, with --use_tpu.")
    master: str | None = option(None, "Address of the TPU, if --tpu_name is not given.")
    num_tpu_cores: int = option(8, "Required number of TPU cores, with --use_tpu.", minimum=1)


@options(group="model")
class SentenceBatchOptions(DeviceOptions, ModelOptions):
    """Flags of the commands that run a model on sentences."""

    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces per text, including [CLS] and [SEP]; longer ones are truncated.",
        group="text",
        from_checkpoint=True,
        minimum=4,
        maximum=MAX_AXIS,
    )
    batch_size: int = option(
        32,
        "Number of texts of 64 wordpieces per batch and device; batches of shorter texts are larger, of longer texts "
        "smaller. On TPU, number of texts of any length.",
        group="devices",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
    )


@options(group="model")
class SentenceOptions(SentenceBatchOptions):
    """Flags of the commands that compare sentences."""

    layers: str = option(
        "-1", "Layer whose vectors are compared: 0 is the first, -1 the last. Several, as in -1,-2, are averaged."
    )

    def __post_init__(self):
        super().__post_init__()
        _ = self.layer_indices  # raises if they are not numbers

    @property
    def layer_indices(self) -> list[int]:
        return layer_numbers(self.layers)


def listed_pooling_help(names: Sequence[str]) -> str:
    return f"{pooling_help(names)} The vectors of a comma-separated list are concatenated."


@options(group="model", affects="nothing")
class VectorOptions(Options):
    """Flags for the vector of a text, and for its export."""

    known_poolings: ClassVar[Sequence[str]] = poolings_of(HEAD)  # the poolings that the command knows

    pooling: str = option("mean", listed_pooling_help(known_poolings), affects="model")
    normalize: bool = option(False, "Scale the vectors to length 1.", affects="model")
    vector_size: int = option(
        0,
        "Number of leading components of each vector to export, for models trained for shorter vectors "
        "(--matryoshka_sizes of run_sentence_encoder); 0 for all. If the model normalizes, truncated vectors are "
        "normalized again.",
        group="export",
        minimum=0,
        maximum=MAX_AXIS,
    )
    vector_types: str = option(
        FLOAT32,
        "Comma-separated types of the vectors that the export returns: float32, which is always included; int8, scaled "
        "by the largest component of each vector; binary, one bit per component.",
        group="export",
    )
    prefix: str | None = option(
        None,
        'Prefix that the export adds to every text, such as "query: "; empty for none. Default: --query_prefix of a '
        "run of run_sentence_encoder, or the default prompt of a sentence-transformers folder.",
        group="export",
    )

    def __post_init__(self):
        super().__post_init__()
        check_listed("pooling", self.poolings, self.known_poolings)
        check_listed("vector_types", self.listed_vector_types, VECTOR_TYPES)
        if SPLADE in self.poolings:  # its weights are exported whole, in float32, by a signature that reads texts
            names = ("vector_size", "vector_types")
            self.refuse(*names, because=f"cannot be used with --pooling={SPLADE}")

    @property
    def poolings(self) -> list[str]:
        return self.pooling.split(",")

    @property
    def listed_vector_types(self) -> list[str]:
        return self.vector_types.split(",")


def check_vector_size(size: int, width: int) -> None:
    """Raise an error if a model's vectors are shorter than the size to truncate them to."""
    if size > width:
        raise UserError(f"vector_size={size} exceeds the {width} components of the model's vectors")


def check_listed(name: str, values: Sequence[str], known: Sequence[str]) -> None:
    unknown = next((value for value in values if value not in known), None)
    if unknown is not None:
        raise UserError(f"--{name}: {unknown!r:.80} is unknown; choose from {', '.join(known)}")
    if len(set(values)) < len(values):
        raise UserError(f"--{name} lists a value twice")


@options(group="evaluation")
class EvaluationOptions(Options):
    do_eval: bool = option(False, "Run evaluation on the dev set.", affects="run")
    eval_batch_size: int = option(
        8,
        "Number of examples per evaluation batch, over all devices.",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        affects="use",
    )


ENGINES = ("onnxruntime", "openvino")  # that compute an export for ONNX, the default first


def engine_option() -> Any:
    return option(
        None,
        f"Program that computes an export for ONNX; by default {ENGINES[0]}.",
        choices=ENGINES,
        group="rarely needed",
    )


@options(group="export", affects="nothing")
class VersionOptions(Options):
    """Flags for the next version of an exported model."""

    export_dir: str | None = option(
        None, "Folder for the versions of the exported model.", required=True, is_path=True, affects="run"
    )
    export_format: str = option(
        "saved_model",
        "saved_model for TensorFlow and TensorFlow Serving; tflite for LiteRT and onnx for ONNX Runtime and OpenVINO, "
        "which `serve` and `predict` use without TensorFlow. The model of these reads ids; its tokenizer is beside it.",
        choices=tuple(_PRECISIONS),
    )
    export_precision: str = option(
        "float32",
        "Number format of the exported weights and the activations they are multiplied with; outputs stay float32. "
        "bfloat16 is for saved_model, and fast on CPUs with AVX512-BF16 or AMX; float16 is for tflite, int8 for tflite "
        "and onnx.",
        choices=("float32", "bfloat16", "float16", "int8"),
    )
    export_parallelism: int = option(
        0,
        "Number of parts that each layer of a saved_model is split into, for different cores to compute at the same "
        "time; must divide the number of attention heads and intermediate_size. 0 means 2, or 1 if 2 does not divide "
        "them. 1 is best for GPUs.",
        group="rarely needed",
        minimum=0,
        maximum=MAX_PARTS,
    )

    def __post_init__(self):
        super().__post_init__()
        precisions = _PRECISIONS[self.export_format]
        if self.export_precision not in precisions:
            raise UserError(
                f"--export_format={self.export_format} does not support --export_precision={self.export_precision}; "
                f"choose one of {', '.join(precisions)}"
            )
        if self.export_format != "saved_model":
            self.refuse("export_parallelism", because="needs --export_format=saved_model")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchingSettings:
    """Batching parameters, named as in TensorFlow Serving's `batching_parameters.txt`."""

    max_batch_size: int = 1024  # maximum number of examples per request
    max_execution_batch_size: int = 32  # maximum number of examples per call of the model
    batch_timeout_micros: int = 1000  # maximum time, in microseconds, that a request waits for others to join its batch
    max_enqueued_batches: int = 1000  # maximum number of full batches in the queue; further requests are rejected
    num_batch_threads: int  # maximum number of batches that are computed at the same time

    @property
    def is_batching(self) -> bool:
        """True unless each example is computed alone."""
        return self.max_execution_batch_size > 1

    @property
    def max_positions(self) -> int:
        """Maximum number of positions that the model computes together, unless a single example has more."""
        return self.max_execution_batch_size * _POSITIONS_PER_EXAMPLE
