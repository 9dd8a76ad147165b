"""`tools/answer.py`: a text and questions in, the best answers and where they stand out, on standard output."""

import sys
from collections.abc import Iterable, Iterator, Sequence

from absl import logging

from official_bert import files
from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load_initial
from official_bert.config.run_configs import AnswerConfig, AnswerModelConfig
from official_bert.errors import UserError
from official_bert.modeling.span import SpanModel
from official_bert.runs.finetuning import read_model_files
from official_bert.tasks.question_answering import FoundAnswer, QuestionAnswerer

_NO_ANSWER = "(no answer)"
_STANDARD_INPUT = "standard input"


def run(config: AnswerConfig) -> None:
    """Prints the best answers to one question, or to each that standard input brings, as soon as it comes.

    Raises:
      UserError: a file does not fit the others, or the text or a question is empty.
    """
    if config.question is not None:
        _check_question(config.question)
    context = files.read_text(config.context_file)
    if not context.strip():
        raise UserError(f"--context_file={config.context_file} is empty; there is nothing to find answers in")
    answerer = load_answerer(config)
    for question in _questions_from_input() if config.question is None else [config.question]:
        _write(question, answerer.answer(question, context, top_k=config.top_k))


def load_answerer(config: AnswerModelConfig) -> QuestionAnswerer:
    """Reads the model and its vocabulary.

    Raises:
      UserError: a file is missing or does not fit the others, or the checkpoint has no question-answering head.
    """
    bert_config, tokenizer = read_model_files(config)
    model = SpanModel(bert_config)
    _check_head(config, [variable.path for variable in model.head.trainable_variables])
    load_initial(config.init_checkpoint, model.trainable_variables, required=lambda name: True)
    return QuestionAnswerer(
        model,
        tokenizer,
        max_seq_length=config.max_seq_length,
        doc_stride=config.doc_stride,
        max_query_length=config.max_query_length,
        max_answer_length=config.max_answer_length,
        version_2=config.version_2_with_negative,
    )


def _check_head(config: AnswerModelConfig, names: Iterable[str]) -> None:
    reader = CheckpointReader(config.init_checkpoint, "--init_checkpoint")
    missing = [name for name in names if name not in reader.shapes]
    if missing:
        raise UserError(
            f"--init_checkpoint {reader.prefix} has no question-answering head ({', '.join(missing)}); "
            "train one with run_squad.py and give its checkpoint"
        )


def _check_question(question: str) -> None:
    if not question.strip():
        raise UserError("--question is empty; ask something, or leave the flag out to type questions")
    try:
        question.encode("utf-8")
    except UnicodeEncodeError as error:  # Python lets bytes of the command line that it cannot decode pass
        raise UserError(f"--question={question!a} is not UTF-8; check the terminal's encoding") from error


def _questions_from_input() -> Iterator[str]:
    """The lines of standard input that are not blank, each as soon as it is there.

    Raises:
      UserError: there is none.
    """
    if sys.stdin.isatty():
        logging.info("type questions, one a line; Ctrl-D ends")
    num_questions = 0
    for line in files.LineReader(_STANDARD_INPUT, sys.stdin.buffer):
        if line.strip():
            num_questions += 1
            yield line
    if not num_questions:
        raise UserError(f"no question: give --question, or questions on {_STANDARD_INPUT}, one a line")


def _write(question: str, answers: Sequence[FoundAnswer]) -> None:
    sys.stdout.write(f"{question}\n")
    for answer in answers:
        place = f"{answer.start}-{answer.end}" if answer.text else "-"
        on_one_line = " ".join(answer.text.split()) or _NO_ANSWER
        sys.stdout.write(f"  {answer.rank:>3}  {answer.probability:.4f}  {place:>13}  {on_one_line}\n")
    sys.stdout.flush()
