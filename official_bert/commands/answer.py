"""`answer`: print the best answers to questions about a text, with their positions."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import logging

from official_bert.commands.shared.text_options import check_file, check_model
from official_bert.options.command import Command
from official_bert.options.groups import HeadOptions, ModelOptions
from official_bert.options.option import MAX_AXIS, option, options, redeclared
from official_bert.support import text_files
from official_bert.support.errors import UserError
from official_bert.tasks.question_answering.options import AnswerOptions

if TYPE_CHECKING:
    from official_bert.tasks.question_answering.servable import Answer


@options(group="text")
class AnswerConfig(AnswerOptions, ModelOptions, HeadOptions):
    doc_stride: int | None = option(
        None,
        "Number of wordpieces between the starts of windows of a long text; by default 128, less for short windows.",
        minimum=1,
        maximum=MAX_AXIS,
    )
    init_checkpoint: str | None = redeclared(ModelOptions, "init_checkpoint", help="Checkpoint trained by run_squad.")
    context_file: str | None = option(None, "Text file to find answers in.", required=True, is_path=True)
    question: str | None = option(
        None, "The question; by default questions are read from standard input, one per line.", group="input"
    )
    top_k: int = option(5, "Number of answers to print.", group="output", minimum=1, maximum=MAX_AXIS)

    @property
    def export_top_k(self) -> int:
        return self.top_k


def check(config: AnswerConfig) -> None:
    check_file(config.context_file, "context_file")
    check_model(config)


_NO_ANSWER = "(no answer)"
_STANDARD_INPUT = "standard input"


def run(config: AnswerConfig) -> None:
    """Print the best answers to one question, or to each question from standard input as it arrives."""
    from official_bert.inference.predictor import Predictor
    from official_bert.tasks.question_answering.servable import servable_of_run
    from official_bert.training.model_files import read_model_files

    if config.question is not None and not config.question.strip():
        raise UserError("--question is empty; ask a question, or leave the flag out to type questions")
    config = _with_fitting_stride(config)
    context = text_files.read_text(config.context_file)
    if not context.strip():
        raise UserError(f"--context_file={config.context_file} is empty; there is nothing to find answers in")
    bert_config, tokenizer = read_model_files(config)
    if not tokenizer.encode(context):
        raise UserError(f"--context_file={config.context_file} contains no words; there is nothing to find answers in")
    servable = servable_of_run(config, bert_config, tokenizer, config.init_checkpoint)
    predict = Predictor.from_servable(servable)
    for question in _questions_from_input() if config.question is None else [config.question]:
        num_wordpieces = len(tokenizer.encode(question))
        if not num_wordpieces:
            raise UserError(f"the question {question!r} contains no words; ask a question")
        if num_wordpieces > config.max_query_length:
            logging.info(
                "the question has %d wordpieces and was truncated to --max_query_length=%d",
                num_wordpieces,
                config.max_query_length,
            )
        _write(question, predict((question, context)))


def _with_fitting_stride(config: AnswerConfig) -> AnswerConfig:
    """Reduce the stride for windows that are too short for the default, so that they overlap; a given flag is kept."""
    from official_bert.tasks.question_answering.data import half_stride

    if config.doc_stride is not None:
        return config
    stride = AnswerOptions.doc_stride
    if stride >= config.max_seq_length - 4:  # as WindowOptions requires
        stride = half_stride(config.max_seq_length, config.max_query_length)
        logging.info(
            "windows of %d wordpieces are too short for the default --doc_stride=%d; using %d, half of the context "
            "that fits beside the longest question",
            config.max_seq_length,
            AnswerOptions.doc_stride,
            stride,
        )
    return dataclasses.replace(config, doc_stride=stride)


def _questions_from_input() -> Iterator[str]:
    """Yield the nonblank lines of standard input as they arrive."""
    if sys.stdin.isatty():
        logging.info("type questions, one per line; Ctrl-D ends")
    num_questions = 0
    for line in text_files.LineReader(_STANDARD_INPUT, sys.stdin.buffer):
        if line.strip():
            num_questions += 1
            yield line
    if not num_questions:
        raise UserError(f"no question: give --question, or questions on {_STANDARD_INPUT}, one per line")


def _write(question: str, answers: "Sequence[Answer]") -> None:
    sys.stdout.write(f"{question}\n")
    for rank, answer in enumerate(answers, start=1):
        place = f"{answer.start}-{answer.end}" if answer.text else "-"
        on_one_line = " ".join(answer.text.split()) or _NO_ANSWER
        sys.stdout.write(f"  {rank:>3}  {answer.probability:.4f}  {place:>13}  {on_one_line}\n")
    sys.stdout.flush()


COMMAND = Command(
    config_class=AnswerConfig,
    summary="Answers questions about a text with a model that run_squad trained.",
    usage=r"""
  {command} --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=out/squad \
      --context_file=letters.txt --question="Who keeps the bees?"

Without --question, questions are read from standard input, one per line, and answered one at a time.
""",
    check=check,
    run=run,
)
