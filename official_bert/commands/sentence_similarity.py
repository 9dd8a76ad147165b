"""`sentence_similarity`: rank candidates by similarity to queries, or correlate similarities with scores of pairs."""

import itertools
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from absl import logging

from official_bert.commands.shared.models import (
    POOLINGS,
    ApproximateOptions,
    CandidateOptions,
    ModelFiles,
    load_sentence_encoder,
    needs_tensorflow,
    note_long,
    prepare_model,
)
from official_bert.options.command import Command
from official_bert.options.option import MAX_AXIS, option, options, redeclared
from official_bert.support.console import Progress
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.inference.sentence_index import Sentence
    from official_bert.serving.engine_model import EngineModel
    from official_bert.tokenization import Tokenizer


_SEPARATOR = "\0"  # of queries on the command line, which cannot contain it


@options(group="input")
class SimilarityConfig(ApproximateOptions):
    exports_of: ClassVar[str | None] = "sentence_encoder"

    candidates_file: str | None = option(None, "Sentences to rank, one per line.", is_path=True)
    query: str | None = option(
        None, "Sentence to compare with the candidates; the flag may be repeated.", separator=_SEPARATOR
    )
    query_file: str | None = option(None, "Queries, one per line; - for standard input.", is_path=True)
    top_k: int = option(5, "Number of candidates to print for each query.", group="output", minimum=1, maximum=MAX_AXIS)
    pooling: str = redeclared(CandidateOptions, "pooling", from_checkpoint=("candidates_file",))
    sts_file: str | None = option(
        None,
        "Instead of candidates: lines with a score and two sentences, separated by tabs, or a table with these columns "
        "(score, sentence1, sentence2), such as the STS benchmark of GLUE.",
        is_path=True,
    )
    output_format: str = option(
        "tsv",
        "tsv: columns with a header; jsonl: one JSON object per query or row.",
        group="output",
        choices=("tsv", "jsonl"),
    )

    def __post_init__(self):
        super().__post_init__()
        if (self.candidates_file is None) == (self.sts_file is None):
            raise UserError("give either --candidates_file, to rank its sentences, or --sts_file, to compare layers")
        if self.sts_file is not None:
            for_ranking = ("query", "query_file", "top_k", "layers", "pooling", "index_dir")
            self.refuse(*for_ranking, because="cannot be used with --sts_file")
            return
        if (self.query is None) == (self.query_file is None):
            raise UserError("give either --query, one sentence, or --query_file, a file of them (- for standard input)")
        if not all(query.strip() for query in self.queries):
            raise UserError("--query is empty; give a sentence")
        if self.candidates_file == self.query_file == "-":
            raise UserError("--candidates_file and --query_file cannot both be standard input; give a file for one")

    @property
    def queries(self) -> list[str]:
        return [] if self.query is None else self.query.split(_SEPARATOR)


def prepare(config: SimilarityConfig) -> "ModelFiles | EngineModel":
    from official_bert.data.text_inputs import TextSource

    for name in ("candidates_file", "query_file", "sts_file"):
        if getattr(config, name) is not None:
            TextSource(getattr(config, name), parameter=name).check()
    return prepare_model(config)


_QUERIES_AT_A_TIME = 256  # from a file; queries from standard input are answered one by one


def run(config: SimilarityConfig, model: "ModelFiles | EngineModel") -> None:
    (_rank if config.sts_file is None else _compare_layers)(config, model)


def _rank(config: SimilarityConfig, model: "ModelFiles | EngineModel") -> None:
    from official_bert.data.text_inputs import TextOrPair
    from official_bert.inference.sentence_index import Sentence, SentenceSearch, read_sentences

    candidates = list(read_sentences(config.candidates_file, "candidates_file"))
    for query in config.queries:
        _check_words(Sentence(1, TextOrPair(query)), model.tokenizer)
    search = SentenceSearch(
        candidates, load_sentence_encoder(config, model), config.index_dir, is_approximate=config.approximate
    )
    measure, num_long = "dot_product" if search.encoder.is_sparse else "cosine", search.encoder.num_long
    note_long(num_long, "candidates", config.max_seq_length)
    if config.output_format == "tsv":
        sys.stdout.write("\t".join(("query", "rank", measure, "line", "sentence")) + "\n")
    for queries in _queries(config):
        for query in queries:
            _check_words(query, model.tokenizer)
        best = search.nearest([query.text for query in queries], config.top_k)
        for query, ranked in zip(queries, best, strict=True):
            _write_ranks(config, query, ranked, measure)
        note_long(search.encoder.num_long - num_long, "queries", config.max_seq_length)
        num_long = search.encoder.num_long


def _check_words(query: "Sentence", tokenizer: "Tokenizer") -> None:
    if not any(map(tokenizer.encode, filter(None, query.text))):
        raise UserError(f"the query {str(query)!r} contains no words; give a sentence")


def _queries(config: SimilarityConfig) -> "Iterator[list[Sentence]]":
    from official_bert.data.text_inputs import STANDARD_STREAM, TextOrPair
    from official_bert.inference.sentence_index import Sentence, read_sentences

    if config.query is not None:
        yield [Sentence(number, TextOrPair(query.strip())) for number, query in enumerate(config.queries, start=1)]
        return
    queries = read_sentences(config.query_file, "query_file")
    size = 1 if config.query_file == STANDARD_STREAM else _QUERIES_AT_A_TIME
    while some := list(itertools.islice(queries, size)):
        yield some


def _write_ranks(
    config: SimilarityConfig, query: "Sentence", ranked: "list[tuple[Sentence, float]]", measure: str
) -> None:
    rows = [
        {"rank": rank, measure: round(similarity, 6), "line": sentence.line, "sentence": str(sentence)}
        for rank, (sentence, similarity) in enumerate(ranked, start=1)
    ]
    if config.output_format == "jsonl":
        sys.stdout.write(json.dumps({"query": str(query), "candidates": rows}, ensure_ascii=False) + "\n")
    else:
        for row in rows:
            row[measure] = f"{row[measure]:.6f}"
            sys.stdout.write("\t".join(map(str, (query, *row.values()))) + "\n")
    sys.stdout.flush()


def _compare_layers(config: SimilarityConfig, model: "ModelFiles | EngineModel") -> None:
    if not isinstance(model, ModelFiles):
        raise UserError("sts_file compares layers, and an export has only its own vectors; give the run's folder")
    from official_bert.data.text_inputs import read_scored_pairs
    from official_bert.inference.text_encoder import LayerScore, compare_layers

    pairs = read_scored_pairs(config.sts_file)
    encoder = load_sentence_encoder(config, model)
    with Progress("comparing sentences", len(pairs), "pairs") as progress:
        scores, num_long = compare_layers(pairs, encoder, POOLINGS, progress.update)
    note_long(num_long, "sentences", config.max_seq_length)
    if config.output_format == "tsv":
        rows = [f"{layer}\t{pooling}\t{spearman:.4f}\t{pearson:.4f}" for layer, pooling, spearman, pearson in scores]
        rows.insert(0, "\t".join(LayerScore._fields))
    else:
        rows = [json.dumps(score._asdict()) for score in scores]
    sys.stdout.writelines(f"{row}\n" for row in rows)
    best = max((score for score in scores if score.is_flag), key=lambda score: score.spearman)
    message = "%s: %s pairs; the best Spearman correlation, %.4f, has --layers=%s --pooling=%s"
    logging.info(message, config.sts_file, f"{len(pairs):,}", best.spearman, best.layer, best.pooling)


COMMAND = Command(
    config_class=SimilarityConfig,
    summary="Ranks sentences by their similarity to queries, or shows which layer and pooling compares best.",
    usage=r"""
  {command} --candidates_file=questions.txt --query="how do I get in" --index_dir=index --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --pooling=mean
  {command} --sts_file=STS-B/dev.tsv --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

The first command prints the candidates with the largest cosine similarity to the query. The second reads lines with a
score and two sentences, separated by tabs, and prints for each layer or combination of layers and each pooling the
correlation of the cosine similarities with the scores (Spearman and Pearson).
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=needs_tensorflow,
)
