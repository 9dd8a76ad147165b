"""`mine_paraphrases`: find the most similar pairs of sentences in a corpus."""

from absl import logging

from official_bert.commands.shared.text_options import (
    MiningOptions,
    check_mining,
    load_sentence_encoder,
    note_long,
    passages,
    write_rows,
)
from official_bert.options.command import Command
from official_bert.options.option import option, options, redeclared
from official_bert.support.console import Progress

_COLUMNS = ("cosine", "line_1", "sentence_1", "line_2", "sentence_2")


@options(group="input")
class ParaphraseConfig(MiningOptions):
    """Flags of `mine_paraphrases`."""

    corpus_file: str | None = redeclared(MiningOptions, "corpus_file", required=True)
    min_cosine: float = option(0.8, "Minimum cosine similarity of a pair.", group="output", minimum=-1, maximum=1)
    max_pairs: int = option(
        100_000, "Maximum number of pairs; the most similar ones are kept.", group="output", minimum=1, maximum=10**8
    )


def check(config: ParaphraseConfig) -> None:
    """Check the files before TensorFlow is imported."""
    check_mining(config, [config.corpus])


def run(config: ParaphraseConfig) -> None:
    """Write the pairs, most similar first."""
    from official_bert.inference.mining import similar_pairs
    from official_bert.inference.sentence_index import SentenceSearch
    from official_bert.training.model_files import read_model_files

    check(config)
    bert_config, tokenizer = read_model_files(config)
    encoder = load_sentence_encoder(config, bert_config, tokenizer)
    search = SentenceSearch(passages(config), encoder, config.index_dir)
    note_long(search.encoder.num_long, "sentences", config.max_seq_length)
    with Progress("comparing sentences", len(search.lines), "sentences") as progress:
        found = similar_pairs(search.vectors, config.min_cosine, config.max_pairs, progress.update)
    sentences = list(search.lines.items())

    def rows():
        for first, second, cosine in zip(found.first, found.second, found.cosines, strict=True):
            cells = ((lines[0], text.text_a) for text, lines in (sentences[first], sentences[second]))
            yield (round(float(cosine), 6), *(cell for pair in cells for cell in pair))

    nothing = f"no pair among {len(sentences):,} sentences reaches min_cosine={config.min_cosine}; lower it"
    num_pairs = write_rows(config, _COLUMNS, rows(), if_empty=nothing)
    logging.info("%s: %s pairs", config.output_file, f"{num_pairs:,}")
    if not found.are_all:
        logging.info(
            "more pairs are that similar; only the --max_pairs=%d most similar ones were written", config.max_pairs
        )


COMMAND = Command(
    name="mine_paraphrases",
    config_class=ParaphraseConfig,
    summary="Finds paraphrases in a corpus: the sentence pairs with the highest cosine similarity.",
    usage=r"""
  {command} --corpus_file=sentences.txt --output_file=pairs.tsv --min_cosine=0.8 \
      --init_checkpoint=all-MiniLM-L6-v2 --index_dir=index

Duplicate sentences count once, with the number of the first line.
""",
    check=check,
    run=run,
)
