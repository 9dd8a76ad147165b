"""Flags of the commands that compare the vectors of many sentences."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import logging

from official_bert.commands.shared.file_checks import check_model
from official_bert.commands.shared.text_options import OutputTableOptions
from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import MODEL
from official_bert.options.option import GIVEN, Options, layer_numbers, option, options
from official_bert.options.sentences import SentenceOptions
from official_bert.support import writing
from official_bert.support.extras import check_installed

if TYPE_CHECKING:
    from official_bert.data.text_inputs import TextSource
    from official_bert.inference.sentence_index import Sentence
    from official_bert.inference.text_encoder import TextEncoder
    from official_bert.tokenization import Tokenizer

# Poolings that give one vector per sentence with any model.
POOLINGS = ("cls", "mean", "mean_no_special", "max", "max_no_special", "bm25")


@options(group="model")
class CandidateOptions(SentenceOptions):
    """Flags for the vectors of sentences and the folder in which to keep them."""

    pooling: str = option(
        "mean",
        "The vector of a sentence: cls for that of [CLS]; mean or max over all wordpieces, including [CLS] and [SEP]; "
        "mean_no_special or max_no_special without them; bm25 for a mean without them that weights rare wordpieces "
        "more, by their frequency in the candidates; model for the vector of a sentence-transformers folder or of a "
        "run of run_sentence_encoder, their default.",
        choices=(*POOLINGS, MODEL),
        from_checkpoint=True,
    )
    index_dir: str | None = option(
        None,
        "Folder in which to keep the vectors of the candidates; they are recomputed only after a change.",
        group="output",
        is_path=True,
    )

    def __post_init__(self):
        super().__post_init__()
        layer_numbers(self.layers)


@options(group="output")
class ApproximateOptions(Options):
    """The flag of commands that search, in addition to those of `CandidateOptions`."""

    approximate: bool = option(
        False,
        "Approximate search with a neighbour graph (HNSW), which is kept in --index_dir: fast for millions of "
        "candidates, but it may miss some.",
        only_with={"index_dir": GIVEN},
    )


@options(group="input")
class MiningOptions(OutputTableOptions, CandidateOptions):
    """Flags of the commands that mine training examples from a corpus."""

    corpus_file: str | None = option(None, "The corpus: a sentence or passage per line, or a table.", is_path=True)
    corpus_column: str | None = option(
        None, "Name or number (from 0) of the column with the passages; by default, each line is a passage."
    )
    has_header: bool = option(True, "The first row of each TSV or CSV file names the columns.")

    @property
    def corpus(self) -> "TextSource":
        """The texts of the corpus."""
        from official_bert.data.text_inputs import TextSource

        columns = None if self.corpus_column is None else [self.corpus_column]
        return TextSource(self.corpus_file, columns, has_header=self.has_header, parameter="corpus_file")


def check_approximate(config: ApproximateOptions) -> None:
    """Check that the package for approximate search is installed if it is needed."""
    if config.approximate:
        check_installed("faiss", extra="search")


def check_mining(config: MiningOptions, sources: "Sequence[TextSource]") -> None:
    """Check the inputs and the model before TensorFlow is imported, and that the output can be written."""
    for source in sources:
        source.check()
    check_model(config).check_layers(config.layer_indices, config.bert_config_file)
    writing.check_writable_folder(config.output_file, name="output_file")
    inputs = [source.path for source in sources if not source.is_stream]
    writing.check_no_overwriting([config.output_file], inputs, name="output_file")


def passages(config: MiningOptions) -> "Iterator[Sentence]":
    """Read the corpus; blank lines are skipped."""
    from official_bert.data.text_inputs import TextOrPair
    from official_bert.inference.sentence_index import Sentence

    for number, text in enumerate(config.corpus, start=1):
        passage = " ||| ".join(filter(None, text))  # a separator does not split a passage
        if passage:
            yield Sentence(number, TextOrPair(passage))


def load_sentence_encoder(
    config: CandidateOptions, bert_config: BertConfig, tokenizer: "Tokenizer", *, prompt: str | None = None
) -> "TextEncoder":
    """Load the encoder given by the flags, which computes one vector per sentence."""
    from official_bert.inference.text_encoder import VectorSettings, load_text_encoder

    settings = VectorSettings(config.layer_indices, config.pooling, config.max_seq_length, prompt=prompt)
    return load_text_encoder(config, bert_config, tokenizer, settings)


def note_long(num_long: int, what: str, max_seq_length: int) -> None:
    """Log how many sentences were truncated, if any."""
    if num_long:
        logging.info("%s %s have more than %d wordpieces and were truncated", f"{num_long:,}", what, max_seq_length)
