"""`score_sentences`: pseudo-log-likelihoods of texts, or next-sentence probabilities of pairs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from absl import logging

from official_bert.commands.shared.models import (
    ModelFiles,
    OutputTableOptions,
    TextFileOptions,
    needs_tensorflow,
    note_long,
    prepare_model,
    write_rows,
)
from official_bert.options.command import Command
from official_bert.options.groups import SentenceBatchOptions
from official_bert.options.option import option, options
from official_bert.support.console import Progress
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.inference.sentence_index import Sentence
    from official_bert.inference.text_scores import TextScorer
    from official_bert.serving.engine_model import EngineModel

_LIKELIHOOD, _NEXT_SENTENCE = "pseudo_log_likelihood", "next_sentence"
_COLUMNS = {
    "text": ("line", "wordpieces", "pseudo_log_likelihood", "pseudo_perplexity", "text"),
    "word": ("line", "number", "word", "wordpieces", "pseudo_log_likelihood"),
    _NEXT_SENTENCE: ("line", "probability", "text_a", "text_b"),
}
_DIGITS = 6  # after the decimal point


@options(group="output")
class ScoreConfig(TextFileOptions, OutputTableOptions, SentenceBatchOptions):
    exports_of: ClassVar[str | None] = "pretraining"

    score: str = option(
        _LIKELIHOOD,
        "pseudo_log_likelihood: the sum of the log probabilities of the wordpieces of a text, each masked in turn; "
        "next_sentence: the probability that the second text of a pair follows the first.",
        choices=(_LIKELIHOOD, _NEXT_SENTENCE),
    )
    by_word: bool = option(False, "Write a row for each word instead of each text.")
    mask_rest_of_word: bool = option(
        False,
        "Mask the later wordpieces of a word together with each wordpiece; otherwise, they make words of many "
        "wordpieces seem too likely.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.score != _LIKELIHOOD:
            self.refuse("by_word", "mask_rest_of_word", because=f"needs --score={_LIKELIHOOD}")


def run(config: ScoreConfig, model: "ModelFiles | EngineModel") -> None:
    from official_bert.inference.text_scores import TextScorer, exported_scores, model_scores

    scores_pairs = config.score == _NEXT_SENTENCE
    if isinstance(model, ModelFiles):
        compute = model_scores(config, *model, of_pairs=scores_pairs)
    elif scores_pairs:
        raise UserError(f"score={_NEXT_SENTENCE}: an export has no next-sentence head; give the run's folder")
    else:
        compute = exported_scores(model)
    sizes = {"max_seq_length": config.max_seq_length, "batch_size": config.batch_size}
    scorer = TextScorer(model.tokenizer, compute, **sizes, scores_pairs=scores_pairs)
    with Progress("scoring", config.source.count(), "texts") as progress:
        rows = _pair_rows(config, scorer, progress) if scores_pairs else _likelihood_rows(config, scorer, progress)
        kind = _NEXT_SENTENCE if scores_pairs else "word" if config.by_word else "text"
        write_rows(config, _COLUMNS[kind], rows, if_empty=f"input_file={config.input_file} has no words")
    note_long(scorer.num_long, "texts", config.max_seq_length)


def _likelihood_rows(config: ScoreConfig, scorer: "TextScorer", progress: Progress) -> Iterator[tuple]:
    from official_bert.inference.text_scores import pseudo_perplexity

    total = num_wordpieces = num_texts = 0
    for score in scorer.likelihoods(_sentences(config), masks_rest_of_word=config.mask_rest_of_word):
        line, log_likelihood = score.sentence.line, score.log_likelihood
        progress.update(line)
        num_texts, num_wordpieces, total = num_texts + 1, num_wordpieces + score.num_wordpieces, total + log_likelihood
        if config.by_word:
            for number, word in enumerate(score.words, start=1):
                yield line, number, word.word, word.num_wordpieces, round(word.log_likelihood, _DIGITS)
        else:
            perplexity = pseudo_perplexity(log_likelihood, score.num_wordpieces)
            scores = round(log_likelihood, _DIGITS), round(perplexity, _DIGITS)
            yield line, score.num_wordpieces, *scores, str(score.sentence)
    if num_texts:
        logging.info(
            "%s: %s texts of %s wordpieces, whose pseudo-perplexity is %.4f",
            config.output_file,
            f"{num_texts:,}",
            f"{num_wordpieces:,}",
            pseudo_perplexity(total, num_wordpieces),
        )


def _pair_rows(config: ScoreConfig, scorer: "TextScorer", progress: Progress) -> Iterator[tuple]:
    for (line, pair), probability in scorer.next_sentence_probabilities(_sentences(config)):
        progress.update(line)
        yield line, round(probability, _DIGITS), *pair


def _sentences(config: ScoreConfig) -> "Iterator[Sentence]":
    from official_bert.inference.sentence_index import Sentence

    for line, text in enumerate(config.source, start=1):
        if config.score == _NEXT_SENTENCE and any(text) and not all(text):
            raise UserError(
                f"input_file={config.input_file}: text {line} is not a pair; write `text ||| text`, or give both "
                "text_column and text_b_column"
            )
        yield Sentence(line, text)


COMMAND = Command(
    config_class=ScoreConfig,
    summary="Scores texts by their likelihood in a masked model, or pairs as next sentences.",
    usage=r"""
  {command} --input_file=sentences.txt --output_file=scores.tsv --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt
  {command} --input_file=pairs.tsv --text_column=first --text_b_column=second --score=next_sentence \
      --output_file=scores.tsv --init_checkpoint=uncased_L-12_H-768_A-12

A text of N wordpieces is read N times, each time with another wordpiece masked. The pseudo-perplexity is
exp(-pseudo_log_likelihood / N); lower is better.
""",
    prepare=prepare_model,
    run=run,
    uses_tensorflow=needs_tensorflow,
)
