"""Fraction of answers whose text is recovered exactly if the model selects the right wordpieces.

  python benchmarks/answer_alignment.py --set "SQuAD 1.1 dev" dev-v1.1.json vocab.txt uncased squad \
      --articles data/many_scripts/questions.json multi_cased/vocab.txt cased squad

Each of the two alignments of run_squad.py converts the positions that it would train on back to text. The fraction of
texts that equal the gold answer, to the character or after the data set's normalization, is the upper limit for any
model. Nothing is trained. Only the first gold answer counts. Questions whose answer is not at its answer_start are left
out; if no window contains the whole answer, it counts as lost.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import logging

from official_bert.metrics.answer_scores import NORMALIZATIONS, score_answer
from official_bert.tasks.question_answering.answers import text_finder
from official_bert.tasks.question_answering.data import Question, SquadSet, TokenizedSquad, WindowOptions, read_squad
from official_bert.tokenization import FullTokenizer
from official_bert.tokenization.tokenizer_files import check_casing

LENGTHS = {"max_seq_length": 384, "doc_stride": 128, "max_query_length": 64}
CASINGS = {"uncased": True, "cased": False}
HEADER = """\
|  | questions | vocabulary | reference | offsets | reference, normalized | offsets, normalized |
|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    files = ("FILE", "VOCABULARY", "CASING", "NORMALIZATION")
    parser.add_argument(
        "--set",
        nargs=5,
        metavar=("LABEL", *files),
        dest="sets",
        action="append",
        help="a file in SQuAD's format; cased or uncased; squad or korquad",
    )
    parser.add_argument(
        "--articles", nargs=4, metavar=files, dest="sets", action="append", help="a row for each article of the file"
    )
    flags = parser.parse_args()
    if not flags.sets:
        parser.error("give --set or --articles")
    for *_, casing, normalization in flags.sets:
        if casing not in CASINGS or normalization not in NORMALIZATIONS:
            parser.error(f"{casing} {normalization}: cased or uncased, then {' or '.join(NORMALIZATIONS)}")

    logging.set_verbosity(logging.WARNING)
    print(HEADER)
    for *label, path, vocab_file, casing, normalization in flags.sets:
        tokenizer = FullTokenizer(vocab_file, do_lower_case=CASINGS[casing])
        check_casing(tokenizer.vocabulary, tokenizer.settings, init_checkpoint=None)
        squad = with_first_answers(read_squad(path, for_training=False, version_2=False))
        titles = label * len(squad.contexts) or titles_of_contexts(path)
        print_rows(squad, titles, tokenizer, f"{casing}, {tokenizer.vocabulary.size:,}", normalization)


def with_first_answers(squad: SquadSet) -> SquadSet:
    """Return the questions whose first gold answer is in the context, with only that answer."""
    questions = [
        question._replace(answers=question.answers[:1])
        for question in squad.questions
        if question.answers and has_its_answer(question, squad.contexts[question.context_index])
    ]
    return squad._replace(questions=questions)


def has_its_answer(question: Question, context: str) -> bool:
    answer = question.answers[0]
    return bool(answer.text) and answer.start >= 0 and context.startswith(answer.text, answer.start)


def titles_of_contexts(path: str) -> list[str]:
    """Return the article title of each context."""
    articles = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["data"]
    return [article.get("title", "untitled") for article in articles for _ in article["paragraphs"]]


def print_rows(
    squad: SquadSet, titles: Sequence[str], tokenizer: FullTokenizer, vocabulary: str, normalization: str
) -> None:
    texts = [list(texts_of_gold_positions(squad, tokenizer, alignment)) for alignment in ("reference", "offsets")]
    rows = list(zip(squad.questions, *texts, strict=True))
    for title, group in itertools.groupby(rows, key=lambda row: titles[row[0].context_index]):
        questions, *sides = zip(*group, strict=True)
        golds = [question.answers[0].text for question in questions]
        shares = [percent(text == gold for text, gold in zip(side, golds, strict=True)) for side in sides]
        for side in sides:
            scores = (
                text is not None and score_answer(text, [gold], normalization=NORMALIZATIONS[normalization]).exact
                for text, gold in zip(side, golds, strict=True)
            )
            shares.append(percent(scores))
        print(f"| {title} | {len(golds):,} | {vocabulary} | {' | '.join(shares)} |", flush=True)


def texts_of_gold_positions(squad: SquadSet, tokenizer: FullTokenizer, alignment: str) -> Iterator[str | None]:
    """Return the text at each question's training positions; None if no window contains the whole answer."""
    options = WindowOptions(**LENGTHS, answer_alignment=alignment, drop_out_of_window=True)
    tokenized = TokenizedSquad(squad, tokenizer, options)
    windows = tokenized.training_windows(range(len(squad.questions)), version_2=False)
    window_of = {window.question_index: window for window in windows}  # any window: all of them contain the answer
    text_of = text_finder(tokenized)
    for number, question in enumerate(squad.questions):
        window = window_of.get(number)
        if window:
            shift = window.first - window.offset
            yield text_of(question.context_index, window.start_position + shift, window.end_position + shift)[0]
        else:
            yield None


def percent(hits: Iterable[bool]) -> str:
    return f"{100 * statistics.mean(map(bool, hits)):.2f}"


if __name__ == "__main__":
    main()
