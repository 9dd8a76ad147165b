"""Flags for the texts that a command reads, and for the table that it writes."""

import dataclasses
import functools
import importlib
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import MODEL, SPLADE
from official_bert.config.text_settings import TextSettings
from official_bert.data.tables import FORMATS
from official_bert.options.groups import CorpusOptions, ModelOptions, SentenceOptions, TableOptions, check_export
from official_bert.options.option import Options, option, options
from official_bert.options.training import FinetuningOptions
from official_bert.support import files
from official_bert.support.errors import UserError, check_installed
from official_bert.support.manifest import find_inputs
from official_bert.tasks.pretraining.options import RecordOptions

if TYPE_CHECKING:
    from official_bert.data.corpus_files import CorpusPart
    from official_bert.data.text_inputs import TextSource
    from official_bert.inference.text_encoder import TextEncoder
    from official_bert.tokenization import Tokenizer, Vocabulary
    from official_bert.training.job import FinetuningJob

_FIRST_LINES = 100  # of a corpus that tell what it is
_SYLLABLE = re.compile("[가-힣]")
_SHARE_OF_KOREAN = 0.2  # of the letters of a Korean text
# Poolings that give one vector per sentence with any model.
POOLINGS = ("cls", "mean", "mean_no_special", "max", "max_no_special", "bm25")


def check_pretraining_data(config: RecordOptions) -> None:
    from official_bert.tokenization import read_tokenizer

    check_corpus(config)
    read_tokenizer(config)


def check_model(config: ModelOptions) -> BertConfig:
    """Check the files of a model; return its architecture."""
    from official_bert.checkpoints.locate import locate
    from official_bert.training.model_files import read_model_files

    bert_config, _ = read_model_files(config)
    locate(config.init_checkpoint, "init_checkpoint")
    return bert_config


def check_corpus(config: CorpusOptions) -> "list[CorpusPart]":
    """Check that the files of a corpus exist and have a known format."""
    from official_bert.data.corpus_files import corpus_parts

    paths = find_inputs(config.input_file)
    return corpus_parts(paths, file_format=config.input_format, text_field=config.text_field)


def warn_of_text(
    config: CorpusOptions, settings: TextSettings | None = None, vocabulary: "Vocabulary | None" = None
) -> None:
    """Warn if the first lines of a corpus need other flags; `vocabulary` is that of the model, if there is one."""
    from official_bert.data.corpus_files import WIKIEXTRACTOR, CorpusReader, title_of_article

    first = check_corpus(config)[0]
    if files.is_remote(first.path):
        return
    lines = [line for _, line in itertools.islice(CorpusReader(first), _FIRST_LINES)]
    if config.input_format == "auto" and any(title_of_article(line) is not None for line in lines):
        message = "%s has the tags <doc id=...> of WikiExtractor, which are read as text; give --input_format=%s"
        logging.warning(message, first.path, WIKIEXTRACTOR)
    text = "".join(lines)
    is_korean = len(_SYLLABLE.findall(text)) > _SHARE_OF_KOREAN * sum(map(str.isalpha, text))
    # Other vocabularies are of letters.
    has_syllables = vocabulary is None or _SYLLABLE.search("".join(vocabulary.token_to_id))
    if is_korean and settings and settings.strips_accents and has_syllables:
        flag = "--strip_accents=false" if settings.do_lower_case else "--strip_accents_only=false"
        logging.warning(
            "the text is Korean: stripping accents splits syllables into letters; give %s to keep them", flag
        )


@options(group="output")
class LearnerOptions(Options):
    """Flags of the commands that learn wordpieces from text."""

    min_frequency: int = option(
        2, "Minimum number of times a new wordpiece must occur; single characters are exempt.", minimum=1
    )
    max_characters: int = option(
        1000, "Maximum number of distinct characters of new wordpieces; raise it for Chinese.", minimum=1
    )
    max_word_length: int = option(
        50,
        "Maximum number of characters of a word that is learned as a whole; longer words, as in languages without "
        "spaces, are learned in parts of up to 12 characters. Time and memory grow with its square.",
        minimum=1,
        maximum=200,  # a tokenizer knows no longer word
    )

    @property
    def learner_flags(self) -> dict[str, int]:
        """The flags, which are also the keyword arguments of `learn_vocab`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(LearnerOptions)}


def run_finetuning(job_class: "type[FinetuningJob]", config: FinetuningOptions) -> None:
    """Train, evaluate, predict and export a model of a task, depending on its flags."""
    from official_bert.serving.exports import check_export_dir, export_run
    from official_bert.training.finetuning import finetune

    if config.do_export:
        check_export_dir(config.export_dir)
    servable_module = importlib.import_module(f"official_bert.tasks.{config.task}.servable")
    finetune(job_class, config, functools.partial(export_run, servable_module.servable_of_run))


def check_finetuning(config: FinetuningOptions) -> None:
    """Check the files of the model, the checkpoint and the teacher of a fine-tuning run."""
    from official_bert.checkpoints.locate import locate
    from official_bert.training.model_files import read_model_files
    from official_bert.training.run_folder import check_has_checkpoint

    bert_config, _ = read_model_files(config)
    check_export(config, bert_config)
    if config.init_checkpoint:
        locate(config.init_checkpoint, "init_checkpoint")
    if config.teacher:
        locate(config.teacher, "teacher")
    check_has_checkpoint(config)


def check_file(path: str, flag: str) -> None:
    """Raise if a flag's file does not exist."""
    if not files.exists(path):
        raise UserError(f"--{flag}: there is no file {path}; check the path")


def check_folder(path: str, flag: str) -> None:
    """Raise if a flag's folder does not exist."""
    if not files.is_folder(path):
        raise UserError(f"--{flag}: there is no folder {path}; check the path")


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
    """Flags of the commands that write a table."""

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
        "The vector of a sentence: cls for that of [CLS]; mean or max over all wordpieces, including [CLS] and [SEP]; "
        "mean_no_special or max_no_special without them; bm25 for a mean without them that weights rare wordpieces "
        "more, by their frequency in the candidates; model for the vector of a sentence-transformers folder or of a "
        "run of run_sentence_encoder, their default; splade for the weights of the vocabulary that the masked-LM head "
        "gives, which are compared by their dot product.",
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


def check_approximate(config: ApproximateOptions) -> None:
    """Check that the package for approximate search is installed if it is needed."""
    if config.approximate:
        check_installed("faiss", extra="search")


def load_sentence_encoder(
    config: CandidateOptions, bert_config: BertConfig, tokenizer: "Tokenizer", *, prompt: str | None = None
) -> "TextEncoder":
    """Load the encoder given by the flags, which computes one vector per sentence."""
    from official_bert.inference.text_encoder import VectorSettings, load_text_encoder

    settings = VectorSettings(config.layer_indices, config.pooling, config.max_seq_length, prompt=prompt)
    return load_text_encoder(config, bert_config, tokenizer, settings)


def note_long(num_long: int, what: str, max_seq_length: int, how: str = "truncated") -> None:
    """Log how many sentences were truncated, if any."""
    if num_long:
        logging.info("%s %s have more than %d wordpieces and were %s", f"{num_long:,}", what, max_seq_length, how)
