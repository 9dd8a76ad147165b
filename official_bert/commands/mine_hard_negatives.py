"""`mine_hard_negatives`: add hard negatives to training pairs, or find the paraphrases in a corpus.

A hard negative is a passage that is similar to a query, but not its answer.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from official_bert.commands.shared.text_options import (
    ApproximateOptions,
    OutputTableOptions,
    check_approximate,
    check_model,
    load_sentence_encoder,
    note_long,
    write_rows,
)
from official_bert.config.bert_config import BertConfig
from official_bert.options.command import Command
from official_bert.options.option import MAX_AXIS, option, options
from official_bert.support.console import Progress
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.data.text_inputs import TextSource
    from official_bert.inference.mining import AnchoredPair
    from official_bert.inference.sentence_index import Sentence
    from official_bert.tokenization import Tokenizer

_PAIR_COLUMNS = ("anchor", "positive")
_PARAPHRASE_COLUMNS = ("cosine", "line_1", "sentence_1", "line_2", "sentence_2")
# Flags for one of the two kinds of examples only.
_OF_NEGATIVES = (
    *("pairs_file", "anchor_column", "positive_column", "query_prefix", "passage_prefix"),
    *("num_negatives", "range_min", "range_max", "margin", "approximate"),
)
_OF_PARAPHRASES = ("min_cosine", "max_pairs")


@options(group="input")
class MiningConfig(OutputTableOptions, ApproximateOptions):
    """Flags of `mine_hard_negatives`."""

    pairs_file: str | None = option(
        None, "Table of pairs: .tsv, .csv, .jsonl or .parquet, possibly compressed.", is_path=True
    )
    anchor_column: str = option("anchor", "Name or number (from 0) of the column with the queries.")
    positive_column: str = option("positive", "Name or number of the column with the answers.")
    paraphrases: bool = option(
        False, "Instead of hard negatives for --pairs_file: the most similar pairs of sentences of --corpus_file."
    )
    corpus_file: str | None = option(None, "The corpus: a sentence or passage per line, or a table.", is_path=True)
    corpus_column: str | None = option(
        None, "Name or number (from 0) of the column with the passages; by default, each line is a passage."
    )
    query_prefix: str | None = option(
        None, 'Prefix of each query, such as "query: ". Default: the prompt "query" of the model, or its default.'
    )
    passage_prefix: str | None = option(
        None,
        'Prefix of each passage, such as "passage: ". Default: the prompt "document" of the model, or its default.',
    )
    num_negatives: int = option(
        1,
        "Number of negatives per pair; pairs with fewer negatives are dropped.",
        group="output",
        minimum=1,
        maximum=1000,
    )
    range_min: int = option(
        0, "Number of nearest passages to skip, since they may be answers.", group="output", minimum=0, maximum=MAX_AXIS
    )
    range_max: int = option(100, "Number of nearest passages to consider.", group="output", minimum=1, maximum=MAX_AXIS)
    margin: float | None = option(
        None,
        "Minimum margin by which the positive must be more similar to the query (in cosine) than a negative.",
        group="output",
        minimum=-2,
        maximum=2,
    )
    min_cosine: float = option(
        0.8, "With --paraphrases: minimum cosine similarity of a pair.", group="output", minimum=-1, maximum=1
    )
    max_pairs: int = option(
        100_000,
        "With --paraphrases: maximum number of pairs; the most similar ones are kept.",
        group="output",
        minimum=1,
        maximum=10**8,
    )

    def __post_init__(self):
        super().__post_init__()
        for name in _OF_NEGATIVES if self.paraphrases else _OF_PARAPHRASES:
            if getattr(self, name) != getattr(MiningConfig, name):
                raise UserError(f"--{name} {'cannot be used with' if self.paraphrases else 'needs'} --paraphrases")
        if self.corpus_file is None and (self.paraphrases or self.corpus_column is not None):
            raise UserError(f"--{'paraphrases' if self.paraphrases else 'corpus_column'} needs --corpus_file")
        if self.pairs_file is None and not self.paraphrases:
            raise UserError("give --pairs_file, the pairs that need negatives, or --paraphrases, to find pairs")
        num_passages = max(0, self.range_max - self.range_min)
        if num_passages < self.num_negatives:
            raise UserError(
                f"--range_min={self.range_min} and --range_max={self.range_max} leave {num_passages} passages for "
                f"--num_negatives={self.num_negatives}; give a larger --range_max"
            )

    def sources(self) -> "dict[str, TextSource]":
        """Return the tables to read, by flag."""
        from official_bert.data.text_inputs import TextSource

        column = None if self.corpus_column is None else [self.corpus_column]
        columns = {"pairs_file": [self.anchor_column, self.positive_column], "corpus_file": column}
        return {
            name: TextSource(
                getattr(self, name),
                columns[name],
                has_header=self.has_header,
                delimiter=self.delimiter,
                parameter=name,
            )
            for name in columns
            if getattr(self, name) is not None
        }


def check(config: MiningConfig) -> None:
    """Check the files before TensorFlow is imported."""
    check_approximate(config)
    for source in config.sources().values():
        source.check()
    check_model(config).check_layers(config.layer_indices, config.bert_config_file)


def run(config: MiningConfig) -> None:
    """Write the pairs with their negatives, or the paraphrases, most similar first."""
    from official_bert.training.model_files import read_model_files

    (_paraphrases if config.paraphrases else _hard_negatives)(config, *read_model_files(config))


def _hard_negatives(config: MiningConfig, bert_config: BertConfig, tokenizer: "Tokenizer") -> None:
    from official_bert.data.text_inputs import TextOrPair
    from official_bert.inference.mining import NegativeRule, hard_negatives
    from official_bert.inference.sentence_index import Sentence, SentenceSearch

    pairs = _read_pairs(config)
    encoder = load_sentence_encoder(config, bert_config, tokenizer, prompt="")
    names = {"query_prefix": "query", "passage_prefix": "document"}
    prompts = encoder.prompts
    prefixes = {
        flag: prompts.by_name.get(name, prompts.default) if getattr(config, flag) is None else getattr(config, flag)
        for flag, name in names.items()
    }
    if not prompts.are_pooled and any(prefixes.values()):
        raise UserError(
            "mining is not supported for a model that leaves the prompt out of its vectors (include_prompt); without "
            "prompts, it works with --query_prefix= --passage_prefix="
        )
    positives = (Sentence(0, TextOrPair(pair.positive)) for pair in pairs)
    texts = (
        Sentence(number, TextOrPair(prefixes["passage_prefix"] + text.text_a))
        for number, text in itertools.chain(_passages(config), positives)
    )
    search = SentenceSearch(texts, encoder, config.index_dir, is_approximate=config.approximate)
    num_long = search.encoder.num_long
    note_long(num_long, "passages", config.max_seq_length)
    rule = NegativeRule(config.num_negatives, config.range_min, config.range_max, config.margin)

    def rows() -> Iterator[Sequence[str]]:
        mined = hard_negatives(pairs, search, rule, **prefixes)
        with Progress("mining negatives", len(pairs), "pairs") as progress:
            for number, (pair, negatives) in enumerate(zip(pairs, mined, strict=True), start=1):
                progress.update(number)
                if len(negatives) == config.num_negatives:
                    yield (*pair, *negatives)
        note_long(search.encoder.num_long - num_long, "queries", config.max_seq_length)

    columns = (*_PAIR_COLUMNS, *(f"negative_{number + 1}" for number in range(config.num_negatives)))
    nothing = (
        f"no pair has enough negatives among {len(search.lines):,} passages; add passages with --corpus_file, raise "
        "--range_max, or lower --margin"
    )
    num_written = write_rows(config, columns, rows(), if_empty=nothing)
    logging.info("%s: %s of %s pairs", config.output_file, f"{num_written:,}", f"{len(pairs):,}")
    if num_written < len(pairs):
        logging.info("the other pairs have fewer than %d negatives among the passages considered", config.num_negatives)


def _read_pairs(config: MiningConfig) -> "list[AnchoredPair]":
    from official_bert.inference.mining import AnchoredPair

    pairs = []
    for number, (anchor, positive) in enumerate(config.sources()["pairs_file"], start=1):
        if anchor and positive:
            pairs.append(AnchoredPair(anchor, positive))
        elif anchor or positive:
            missing = config.positive_column if anchor else config.anchor_column
            raise UserError(f"pairs_file={config.pairs_file}: pair {number} has no text in column {missing!r}")
    if not pairs:
        raise UserError(f"pairs_file={config.pairs_file} has no pairs")
    return pairs


def _passages(config: MiningConfig) -> "Iterator[Sentence]":
    """Read the corpus, if there is one; blank lines are skipped."""
    from official_bert.data.text_inputs import TextOrPair
    from official_bert.inference.sentence_index import Sentence

    for number, text in enumerate(config.sources().get("corpus_file", ()), start=1):
        passage = " ||| ".join(filter(None, text))  # a separator does not split a passage
        if passage:
            yield Sentence(number, TextOrPair(passage))


def _paraphrases(config: MiningConfig, bert_config: BertConfig, tokenizer: "Tokenizer") -> None:
    from official_bert.inference.mining import similar_pairs
    from official_bert.inference.sentence_index import SentenceSearch

    encoder = load_sentence_encoder(config, bert_config, tokenizer)
    if encoder.is_sparse:
        raise UserError("--paraphrases compares dense vectors; give another --pooling")
    search = SentenceSearch(_passages(config), encoder, config.index_dir)
    note_long(search.encoder.num_long, "sentences", config.max_seq_length)
    with Progress("comparing sentences", len(search.lines), "sentences") as progress:
        found = similar_pairs(search.vectors, config.min_cosine, config.max_pairs, progress.update)
    sentences = [(lines[0], text.text_a) for text, lines in search.lines.items()]

    def rows() -> Iterator[Sequence[Any]]:
        for first, second, cosine in zip(found.first, found.second, found.cosines, strict=True):
            yield (round(float(cosine), 6), *sentences[first], *sentences[second])

    nothing = f"no pair among {len(sentences):,} sentences reaches min_cosine={config.min_cosine}; lower it"
    num_pairs = write_rows(config, _PARAPHRASE_COLUMNS, rows(), if_empty=nothing)
    logging.info("%s: %s pairs", config.output_file, f"{num_pairs:,}")
    if not found.are_all:
        logging.info(
            "more pairs are that similar; only the --max_pairs=%d most similar ones were written", config.max_pairs
        )


COMMAND = Command(
    config_class=MiningConfig,
    summary="Adds hard negatives to pairs of queries and answers, or finds paraphrases, to train a sentence encoder.",
    usage=r"""
  {command} --pairs_file=pairs.tsv --corpus_file=passages.txt --output_file=triplets.tsv --num_negatives=3 \
      --range_min=5 --margin=0.05 --init_checkpoint=all-MiniLM-L6-v2 --index_dir=index
  {command} --paraphrases --corpus_file=sentences.txt --output_file=pairs.tsv --min_cosine=0.8 \
      --init_checkpoint=all-MiniLM-L6-v2 --index_dir=index

The answers in the pairs are always part of the corpus, and without --corpus_file they are the whole corpus. The output
has the columns anchor, positive, negative_1, negative_2 and so on; with --paraphrases cosine, line_1, sentence_1,
line_2 and sentence_2, most similar first. Duplicate sentences count once, with the number of the first line.
""",
    check=check,
    run=run,
)
