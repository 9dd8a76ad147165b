"""Shared by commands with a model: flags of texts, tables and vectors, the model's files, and a run of fine-tuning."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from official_bert.config.bert_config import BertConfig
from official_bert.config.poolings import BM25, LAYER, pooling_help, poolings_of
from official_bert.config.sentence_modules import MODEL, SPLADE
from official_bert.data.tables import FORMATS
from official_bert.options.groups import ModelOptions, SentenceOptions, TableOptions
from official_bert.options.option import option, options
from official_bert.options.training import TENSORFLOW, FinetuningOptions, TrainingOptions
from official_bert.serving.versions import description, engine_version
from official_bert.support.errors import UserError, check_installed, format_names

if TYPE_CHECKING:
    from official_bert.data.text_inputs import TextSource
    from official_bert.inference.text_encoder import TextEncoder
    from official_bert.serving.engine_model import EngineModel
    from official_bert.tasks.sentence_encoder.reader import ExportedEncoder
    from official_bert.tokenization import Tokenizer
    from official_bert.training.job import FinetuningJob

# Poolings that give one vector per sentence with any model.
POOLINGS = (*poolings_of(LAYER), BM25)


@options(group="input")
class TextFileOptions(TableOptions):
    """Flags of the commands that read texts or pairs of texts from lines or a table."""

    input_file: str | None = option(
        None,
        "Text file, one text per line, or `text ||| text` for a pair; - for standard input.",
        required=True,
        is_path=True,
    )
    text_column: str | None = option(
        None, "Read a table: name or number (from 0) of the text column; in JSON Lines and Parquet its name."
    )
    text_b_column: str | None = option(None, "With --text_column: column of the second text, for pairs.")
    input_format: str | None = option(
        None, "With --text_column: format of the table; by default that of the file name's extension.", choices=FORMATS
    )

    def __post_init__(self):
        super().__post_init__()
        if self.text_column is None:
            self.refuse("text_b_column", "input_format", "has_header", "delimiter", because="needs --text_column")

    @property
    def source(self) -> "TextSource":
        from official_bert.data.text_inputs import TextSource

        columns = [column for column in (self.text_column, self.text_b_column) if column is not None] or None
        return TextSource(self.input_file, columns, self.input_format, self.has_header, self.delimiter)


@options(group="output")
class OutputTableOptions(TableOptions):
    output_file: str | None = option(None, "File to write.", required=True, is_output=True)
    output_format: str | None = option(
        None,
        "tsv or csv: a table with a header; jsonl: one JSON object per row; parquet. By default that of the extension "
        "of --output_file, or tsv.",
        choices=FORMATS,
    )

    def __post_init__(self):
        super().__post_init__()
        _ = self.table_format

    @property
    def table_format(self) -> str:
        from official_bert.data.table_writers import written_format

        return written_format(self.output_file, self.output_format)


def write_rows(
    config: OutputTableOptions, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, if_empty: str
) -> int:
    """Write a table, white space in the texts of TSV as blanks; an error leaves no partial file."""
    from official_bert.data.table_writers import table_writer

    number = 0
    with table_writer(config.output_file, config.table_format, config.delimiter) as write:
        for row in rows:
            number += 1
            if config.table_format == "tsv":
                row = [" ".join(str(cell).split()) for cell in row]
            write(columns, row)
        if not number:
            raise UserError(if_empty)
    return number


@options(group="model")
class CandidateOptions(SentenceOptions):
    """Flags for the vectors of sentences and the folder in which to keep them."""

    pooling: str = option(
        "mean",
        f"{pooling_help((*POOLINGS, MODEL, SPLADE))} {MODEL} is the default of such a folder or run; {BM25} counts "
        f"wordpieces in the candidates; the vectors of {SPLADE} are compared by their dot product.",
        choices=(*POOLINGS, MODEL, SPLADE),
        from_checkpoint=True,
    )
    index_dir: str | None = option(
        None,
        "Folder in which to keep the vectors of the candidates; they are recomputed only after a change.",
        group="output",
        is_path=True,
    )


@options(group="output")
class ApproximateOptions(CandidateOptions):
    """Flags of commands that search among the candidates."""

    approximate: bool = option(
        False,
        "Approximate search with a neighbour graph (HNSW), which is kept in --index_dir: fast for millions of "
        "candidates, but it may miss some.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.index_dir is None:
            self.refuse("approximate", because="needs --index_dir")
        if self.approximate:
            check_installed("faiss", extra="search")


def load_sentence_encoder(
    config: SentenceOptions,
    model: "ModelFiles | EngineModel",
    *,
    use_windows: bool = False,
    dtype: str = "float32",
    prompt: str | None = None,
    **options: Any,
) -> "TextEncoder | ExportedEncoder":
    """Load the encoder of the flags; see `VectorSettings`, and `load_text_encoder` for the options."""
    if isinstance(model, ModelFiles):
        from official_bert.inference.text_encoder import VectorSettings, load_text_encoder

        sizes = config.layer_indices, config.pooling, config.max_seq_length
        return load_text_encoder(config, *model, VectorSettings(*sizes, use_windows, dtype, prompt), **options)
    from official_bert.tasks.sentence_encoder.reader import ExportedEncoder

    if config.pooling not in ("none", MODEL, model.said["pooling"]):
        raise UserError(
            f"pooling={config.pooling}: an export has its own vectors, pooling={MODEL}, and those of its last layer; "
            "give the run's folder for others"
        )
    return ExportedEncoder(model, of_wordpieces=config.pooling == "none", dtype=dtype)


def note_long(num_long: int, what: str, max_seq_length: int, how: str = "truncated") -> None:
    if num_long:
        logging.info("%s %s have more than %d wordpieces and were %s", f"{num_long:,}", what, max_seq_length, how)


class ModelFiles(NamedTuple):
    bert_config: BertConfig
    tokenizer: "Tokenizer"


def find_export(config: ModelOptions) -> str | None:
    """Return the version that LiteRT or ONNX Runtime computes, if the command reads such exports."""
    return engine_version(config.init_checkpoint) if config.exports_of else None


def needs_tensorflow(config: ModelOptions) -> bool:
    return find_export(config) is None


_EXPORTED = ("model", "text", "text normalization", "devices")  # groups of flags that an export determines


def complete_export_flags(
    config_class: type, values: Mapping[str, Any], given: Collection[str]
) -> dict[str, Any] | None:
    """Complete the flags of a command for the export in `init_checkpoint`; None if it reads no export."""
    from official_bert.training.model_files import is_supplied

    version = config_class.exports_of and values["init_checkpoint"] and engine_version(values["init_checkpoint"])
    if not version:
        return None
    fields = {field.name: field.metadata for field in dataclasses.fields(config_class)}
    own = {"layers", *(name for name, limits in fields.items() if limits["group"] in _EXPORTED)}
    if unused := own.intersection(given) - {"init_checkpoint", "pooling"}:
        raise UserError(f"{version} is an export, which decides {format_names(sorted(unused))}; leave it out")
    found = {"bert_config_file": version, "vocab_file": version, "layers": "-1", "pooling": MODEL}
    found["max_seq_length"] = description(version).get("max_seq_length")
    wanted = [name for name in found if name not in given and is_supplied(fields.get(name), values)]
    return {**values, **{name: found[name] for name in wanted}}


def prepare_model(config: ModelOptions) -> "ModelFiles | EngineModel":
    """Read the files of the model; check first that the texts to read, if there are some, are there."""
    from official_bert.checkpoints.locate import locate
    from official_bert.training.model_files import read_model_files

    if isinstance(config, TextFileOptions):
        config.source.check()
    if version := find_export(config):
        from official_bert.serving.engine_model import load_engine_model

        exported = load_engine_model(version)
        if exported.task != config.exports_of:
            raise UserError(
                f"init_checkpoint={config.init_checkpoint} is an export of {exported.task}; of exports, this command "
                f"reads those of {config.exports_of}"
            )
        return exported
    model = ModelFiles(*read_model_files(config))
    if isinstance(config, SentenceOptions):
        model.bert_config.check_layers(config.layer_indices, config.bert_config_file)
    locate(config.init_checkpoint, "init_checkpoint")
    return model


def prepare_finetuning(config: FinetuningOptions, *, reads_pairs: bool = False) -> ModelFiles:
    """Read the files of the model, which must read pairs if the task does; check that checkpoints and teacher exist."""
    from official_bert.checkpoints.locate import latest_checkpoint, locate
    from official_bert.serving.versions import check_export
    from official_bert.training.model_files import read_model_files
    from official_bert.training.run_folder import checkpoint_folder

    direction = config.attention_direction
    model = ModelFiles(*read_model_files(config, for_training=config.trains_encoder, attention_direction=direction))
    if reads_pairs:
        model.tokenizer.specials.check_pairs()
    if config.do_export:
        check_export(config, model.bert_config)
    for path in config.ensemble:
        locate(path, "ensemble_checkpoints")
    if not config.ensemble:
        check_checkpoints(config, model.bert_config)
        if not (config.init_checkpoint or latest_checkpoint(checkpoint_folder(config))):
            logging.warning(
                "no init_checkpoint: all weights are newly initialized, and fine-tuning alone is rarely enough; "
                "give a pretrained checkpoint"
            )
    return model


def finetuning_needs_tensorflow(config: FinetuningOptions) -> bool:
    return config.backend == TENSORFLOW or config.do_train or config.do_export


def check_checkpoints(config: TrainingOptions, bert_config: BertConfig) -> None:
    """Check that the weights to read exist; warn if the initial ones have another attention direction."""
    from official_bert.checkpoints.locate import locate
    from official_bert.training.run_folder import check_has_checkpoint

    if config.teacher:
        locate(config.teacher, "teacher")
    path = locate(config.init_checkpoint, "init_checkpoint").config_file if config.init_checkpoint else None
    if path and (pretrained := BertConfig.from_json_file(path).attention_direction) != bert_config.attention_direction:
        message = "%s was trained with attention_direction=%s, but this run uses %s"
        logging.warning(message, config.init_checkpoint, pretrained, bert_config.attention_direction)
    check_has_checkpoint(config)


def run_finetuning(job_class: "type[FinetuningJob]", config: FinetuningOptions, inputs: tuple[Any, ...]) -> None:
    """Train, evaluate, predict and export; `inputs` are those of `prepare_finetuning` and the data of the task."""
    from official_bert.training.finetuning import finetune

    def export(*run: Any) -> None:
        from official_bert.serving.exports import export_run  # imports TensorFlow
        from official_bert.serving.text_model import TrainedModel
        from official_bert.tasks.task_registry import TASKS

        export_run(TASKS[config.task].servable_module.servable_of_run, TrainedModel(*run))

    finetune(job_class, config, inputs, export)
