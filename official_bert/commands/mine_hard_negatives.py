"""`mine_hard_negatives`: add hard negatives to training pairs.

A hard negative is a passage that is similar to a query, but not its answer.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import logging

from official_bert.commands.shared.models import (
    ApproximateOptions,
    ModelFiles,
    OutputTableOptions,
    load_sentence_encoder,
    note_long,
    prepare_model,
    write_rows,
)
from official_bert.options.command import Command
from official_bert.options.option import MAX_AXIS, option, options
from official_bert.support.console import Progress
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.data.text_inputs import TextSource
    from official_bert.inference.sentence_index import AnchoredPair, Sentence

_PAIR_COLUMNS = ("anchor", "positive")


@options(group="input")
class MiningConfig(OutputTableOptions, ApproximateOptions):
    pairs_file: str | None = option(
        None, "Table of pairs: .tsv, .csv, .jsonl or .parquet, possibly compressed.", required=True, is_path=True
    )
    anchor_column: str = option("anchor", "Name or number (from 0) of the column with the queries.")
    positive_column: str = option("positive", "Name or number of the column with the answers.")
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

    def __post_init__(self):
        super().__post_init__()
        if self.corpus_file is None:
            self.refuse("corpus_column", because="needs --corpus_file")
        num_passages = max(0, self.range_max - self.range_min)
        if num_passages < self.num_negatives:
            raise UserError(
                f"--range_min={self.range_min} and --range_max={self.range_max} leave {num_passages} passages for "
                f"--num_negatives={self.num_negatives}; give a larger --range_max"
            )

    def sources(self) -> "dict[str, TextSource]":
        from official_bert.data.text_inputs import TextSource

        column = None if self.corpus_column is None else [self.corpus_column]
        columns = {"pairs_file": [self.anchor_column, self.positive_column], "corpus_file": column}
        return {
            name: TextSource(
                getattr(self, name), columns[name], has_header=self.has_header, delimiter=self.delimiter, parameter=name
            )
            for name in columns
            if getattr(self, name) is not None
        }


def prepare(config: MiningConfig) -> ModelFiles:
    for source in config.sources().values():
        source.check()
    return prepare_model(config)


def run(config: MiningConfig, model_files: ModelFiles) -> None:
    from official_bert.data.text_inputs import TextOrPair
    from official_bert.inference.sentence_index import NegativeRule, Sentence, SentenceSearch, hard_negatives

    pairs = _read_pairs(config)
    encoder = load_sentence_encoder(config, model_files, prompt="")
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
    from official_bert.inference.sentence_index import AnchoredPair

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


COMMAND = Command(
    config_class=MiningConfig,
    summary="Adds hard negatives to pairs of queries and answers, to train a sentence encoder.",
    usage=r"""
  {command} --pairs_file=pairs.tsv --corpus_file=passages.txt --output_file=triplets.tsv --num_negatives=3 \
      --range_min=5 --margin=0.05 --init_checkpoint=all-MiniLM-L6-v2 --index_dir=index

The answers in the pairs are always part of the corpus, and without --corpus_file they are the whole corpus. The output
has the columns anchor, positive, negative_1, negative_2 and so on. Duplicate passages count once.
""",
    prepare=prepare,
    run=run,
)
