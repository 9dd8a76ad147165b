"""`run_squad.py` as a `FinetuningJob`: its questions, records, report and output files."""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.loading import check_fits, load, open_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.metrics.answer_scores import (
    NORMALIZATIONS,
    AnswerScores,
    Normalization,
    best_f1_threshold,
    best_null_thresholds,
    score_answer,
    score_answers,
    score_answers_with_null,
)
from official_bert.support import files, text_files
from official_bert.support.errors import UserError
from official_bert.tasks.question_answering.answers import (
    LOGITS,
    PREDICTIONS_FILE,
    QuestionAnswers,
    find_answers,
    predicted_texts,
    write_answers,
)
from official_bert.tasks.question_answering.data import (
    PREDICTION_SCHEMA,
    TRAINING_SCHEMA,
    Question,
    SquadData,
    SquadSet,
    TokenizedSquad,
    TrainingWindows,
    WindowOptions,
)
from official_bert.tasks.question_answering.options import SquadConfig
from official_bert.tasks.question_answering.task import QuestionAnsweringTask
from official_bert.tokenization import Tokenizer
from official_bert.training.devices import encoder_options
from official_bert.training.job import FinetuningJob, SplitRecords
from official_bert.training.loop import Trainer
from official_bert.training.monitoring import write_results
from official_bert.training.run_folder import RESULTS_FILE, write_evaluation_flags
from official_bert.visualization import report_page

QUESTION_WORDS = ("what", "who", "when", "where", "why", "how", "which")
_OTHER_FORMS = {"whom": "who", "whose": "who", "whats": "what", "whos": "who"}
_MOST_WORDS = {"1": 1, "2": 2, "3": 3, "4–5": 5, "6–10": 10, "11+": math.inf}  # of answers, by group
_NO_ANSWER = "(no answer)"
_THRESHOLD = "null_score_diff_threshold"  # the flag, and the result key for "auto"


class _Scored(NamedTuple):
    """A question with its prediction ("" for no answer), position if known, probability and scores."""

    question: Question
    predicted: str
    position: int | None
    probability: float
    scores: AnswerScores


def report_sections(
    squad: SquadSet,
    answers: Sequence[QuestionAnswers],
    predictions: Mapping[str, str],
    *,
    scores: Mapping[str, Any],
    normalization: Normalization,
    version_2: bool,
) -> list[report_page.Section]:
    scored = []
    for question, found in zip(squad.questions, answers, strict=True):
        text, golds = predictions[question.id], [answer.text for answer in question.answers]
        chosen = next(answer for answer in found.ranked if answer.text == text)
        score = score_answer(text, golds, normalization=normalization, has_null=version_2)
        scored.append(_Scored(question, text, chosen.position, chosen.probability, score))
    return [
        report_page.Scores(title="Scores", values=scores, note="Percentages, as in the data set's own script."),
        *_tables(scored, version_2),
        _worst(squad.contexts, scored),
    ]


def question_word(question: str) -> str:
    """Return the question word of a question: one of `QUESTION_WORDS`, or "other".

    `"In what year did ..."` gives "what"; `"Whom did ..."` gives "who".
    """
    words = (_OTHER_FORMS.get(word, word) for word in re.findall(r"\w+", question.lower().replace("'", "")))
    return next((word for word in words if word in QUESTION_WORDS), "other")


def _tables(scored: Sequence[_Scored], version_2: bool) -> Iterator[report_page.Table]:
    words = [question_word(entry.question.text) for entry in scored]
    if set(words) != {"other"}:  # a question in English
        note = "The first of these words in the question."
        yield _table("By question word", "question word", scored, words, [*QUESTION_WORDS, "other"], note)
    if version_2:
        kinds = [
            f"{'has an answer' if entry.question.answers else 'has none'}, {'' if entry.predicted else 'not '}answered"
            for entry in scored
        ]
        yield _table("With and without answer", "question", scored, kinds, sorted(set(kinds)))
    answered = [entry for entry in scored if entry.question.answers]
    lengths = [len(entry.question.answers[0].text.split()) for entry in answered]
    groups = [next(name for name, most in _MOST_WORDS.items() if length <= most) for length in lengths]
    note = "Words of the first gold answer, between spaces; questions without an answer are left out."
    yield _table("By answer length", "words", answered, groups, list(_MOST_WORDS), note)


def _table(
    title: str, name: str, scored: Sequence[_Scored], groups: Sequence[str], order: Sequence[str], note: str = ""
) -> report_page.Table:
    """Return a row per group that has questions, given the group of each."""
    rows = []
    for group in order:
        scores = [entry.scores for entry, own in zip(scored, groups, strict=True) if own == group]
        if scores:
            rows.append(
                (group, len(scores), *(100 * sum(column) / len(scores) for column in zip(*scores, strict=True)))
            )
    return report_page.Table(
        title=title, columns=(name, "questions", "exact match", "F1"), rows=rows, decimals=2, note=note
    )


def _worst(contexts: Sequence[str], scored: Sequence[_Scored]) -> report_page.Mistakes:
    wrong = [entry for entry in scored if not entry.scores.exact]
    worst = sorted(wrong, key=lambda entry: (entry.scores.f1, -entry.probability))[: report_page.NUM_MISTAKES]
    note = f"{len(wrong):,} of {len(scored):,} answers are not an exact match."
    if len(wrong) > len(worst):
        note += f" These are the {len(worst)} with the lowest F1, the most confident first."
    if any(entry.predicted and entry.position is None for entry in worst):
        note += " A predicted text that occurs several times in the context is marked at its first occurrence."
    note += (
        " Gold answers are shaded, predicted ones underlined; probabilities are among the best answers of a question."
    )
    mistakes = [_mistake(contexts[entry.question.context_index], entry) for entry in worst]
    return report_page.Mistakes(title="Worst mistakes", mistakes=mistakes, note=note)


def _mistake(context: str, entry: _Scored) -> report_page.Mistake:
    golds = dict.fromkeys(answer.text for answer in entry.question.answers)
    spans = [_span(context, answer.text, answer.start, "gold") for answer in entry.question.answers]
    spans.append(_span(context, entry.predicted, entry.position, "predicted"))
    facts = {
        "gold": " | ".join(golds) or _NO_ANSWER,
        "predicted": entry.predicted or _NO_ANSWER,
        "probability": f"{entry.probability:.4f}",
        "F1": f"{100 * entry.scores.f1:.1f}",
        "id": entry.question.id,
    }
    texts = [
        report_page.Text("question", [report_page.Part(entry.question.text)]),
        report_page.Text("context", report_page.marked(context, list(filter(None, spans)))),
    ]
    return report_page.Mistake(facts, texts)


def _span(context: str, text: str, position: int | None, mark: str) -> report_page.Span | None:
    """Return the position of a text in its context: the given one if it matches, else the first; None if not found.

    The reference's alignment joins words with single spaces, so spaces may differ in the context.
    """
    if not text.strip():
        return None
    if position is not None and position >= 0 and context.startswith(text, position):
        return report_page.Span(position, position + len(text), mark)
    found = re.search(r"\s+".join(map(re.escape, text.split())), context)
    return report_page.Span(*found.span(), mark) if found else None


class QuestionAnsweringJob(FinetuningJob):
    config: SquadConfig

    def __init__(self, config: SquadConfig, bert_config: BertConfig, tokenizer: Tokenizer, data: SquadData):
        super().__init__(config, bert_config, tokenizer)
        self._options = WindowOptions.from_config(config, tokenizer)
        self._version_2 = config.version_2_with_negative
        self._train, self._dev = data
        if self._dev:
            self._check_labels(self._dev)
            if config.do_predict:
                self._check_answered_before(self._dev)
        if self._options.answer_alignment != "offsets":
            self.export_warning = (
                "the export cuts answers out of the context by offsets, so its best answer differs from that in "
                f"{PREDICTIONS_FILE} for some questions; to make them equal, train, predict and export with "
                "answer_alignment=offsets"
            )
        self.task = self.create_task(config, bert_config)
        self._normalization = NORMALIZATIONS[config.dataset]
        self.primary_metric = "best_" * self._version_2 + self._normalization.overlap
        length = config.max_seq_length
        self.records = SplitRecords(config, self.task, length)
        self._prediction_records = SplitRecords(config, self.task, length, schema=self.task.sized(PREDICTION_SCHEMA))
        if self._train:
            self.training_split = TrainingWindows(
                self._train, tokenizer, self._options, self._version_2, config.num_processes
            )
            self.num_training_examples = len(self._train.questions)

    def create_task(self, config: SquadConfig, bert_config: BertConfig) -> QuestionAnsweringTask:
        return QuestionAnsweringTask(
            bert_config,
            TRAINING_SCHEMA,
            max_seq_length=config.max_seq_length,
            is_padding_scored=not config.pads_dynamically,
            encoder_options=encoder_options(config),
            **config.model_options,
        )

    def scores(self, trainer: Trainer, step: int) -> dict[str, float]:
        answers = self._answers(self._logits(trainer, is_scored=True))
        scores = self._score(answers, self._threshold(answers))
        self.log_scores(trainer, step, scores)
        return scores

    def predict(self, trainer: Trainer, step: int) -> None:
        """Write the answers of the output folder's checkpoint or of the ensemble and, if possible, their scores."""
        if self.config.ensemble:
            step, logits = self._ensemble_logits(trainer)
        else:
            logits = self._logits(trainer)
        if not trainer.cluster.is_chief:
            return
        answers = self._answers(logits)
        threshold = self._threshold(answers)
        if self.config.null_score_diff_threshold == "auto":
            logging.info("null_score_diff_threshold=auto: %s gives the best F1", threshold)
        scores = self._score(answers, threshold) if self._dev.is_labelled else {}
        output_dir = self.config.output_dir
        write_answers(output_dir, answers, predicted_texts(answers, threshold))
        logging.info("wrote the answers to %d questions to %s", len(answers), output_dir)
        self.warn_of_earlier(*([] if self._version_2 else ["null_odds.json"]))
        if scores:
            self.log_scores(trainer, step, scores)
            results = report_page.by_importance({GLOBAL_STEP: step, **scores}, self.primary_metric)
            self._write_report(answers, threshold, results)
            write_results(self.path(RESULTS_FILE), results)
        else:
            self.warn_of_earlier(RESULTS_FILE, report_page.REPORT_FILE)

    def _check_labels(self, dev: SquadSet) -> None:
        """Raise if the prediction file lacks answers that a flag needs."""
        if dev.is_labelled:
            return
        config = self.config
        number = f"{len(dev.questions) - dev.num_labelled} of the {len(dev.questions)} questions"
        if config.is_evaluated or config.null_score_diff_threshold == "auto":
            flag = "eval_steps" if config.is_evaluated else f"{_THRESHOLD}=auto"
            raise UserError(f"{flag} needs the correct answers, but {number} in {config.predict_file} have none")
        if dev.num_labelled:
            hint = "" if self._version_2 else "; is it a file of version 2.0 (version_2_with_negative)?"
            logging.warning("%s in %s have no answer: nothing is scored%s", number, config.predict_file, hint)

    def _check_answered_before(self, dev: SquadSet) -> None:
        """Raise if the output folder contains answers to another file's questions, which would be overwritten."""
        config = self.config
        path = self.path(PREDICTIONS_FILE)
        if not files.exists(path):
            return
        predicted = text_files.read_json(path, "file of predictions", max_bytes=None).keys()
        if predicted != {question.id for question in dev.questions}:
            raise UserError(
                f"{path} has the answers to another file than predict_file={config.predict_file} and would be "
                f"overwritten; use another output_dir, with init_checkpoint={config.output_dir} for the same model"
            )

    @cached_property
    def _tokenized(self) -> TokenizedSquad:
        """The prediction questions and their contexts as wordpieces."""
        return TokenizedSquad(self._dev, self.tokenizer, self._options, num_processes=self.config.num_processes)

    def _ensemble_logits(self, trainer: Trainer) -> tuple[int, dict[str, np.ndarray]]:
        """Return the last step and the mean logits of the ensemble's checkpoints; float32 [N, S]."""
        weights, name = trainer.model.weights, "ensemble_checkpoints"
        for path in self.config.ensemble:  # check all of them before spending hours on the first
            check_fits(open_checkpoint(path, name), weights)
        if trainer.cluster.is_chief:
            write_evaluation_flags(self.config, self.tokenizer.vocabulary)
        steps, sums = [], dict.fromkeys(LOGITS, np.float64(0))  # the lowest logits would overflow float32
        for path in self.config.ensemble:
            logging.info("%s: using the weights of %s", name, path)
            reader = open_checkpoint(path, name)
            load(reader, weights)
            steps.append(reader.step)
            for logits_name, logits in self._logits(trainer).items():
                sums[logits_name] = sums[logits_name] + logits
        return max(steps), {
            name: (total / len(self.config.ensemble)).astype(np.float32) for name, total in sums.items()
        }

    def _logits(self, trainer: Trainer, *, is_scored: bool = False) -> dict[str, np.ndarray]:
        """Start and end logits of every window; float32 [N, S]."""
        logits = self._prediction_records.predictions(trainer, "eval", self._tokenized, is_scored=is_scored)
        for name, values in logits.items():
            if not np.isfinite(values).all():
                raise UserError(f"the model's {name} are not all finite; did its training diverge?")
        return logits

    def _answers(self, logits: dict[str, np.ndarray]) -> Sequence[QuestionAnswers]:
        config = self.config
        return find_answers(
            self._tokenized,
            *(logits[name] for name in LOGITS),
            n_best_size=config.n_best_size,
            max_answer_length=config.max_answer_length,
            version_2=self._version_2,
            verbose_logging=config.verbose_logging,
        )

    def _score(self, answers: Sequence[QuestionAnswers], threshold: float | None) -> dict[str, float]:
        predicted, rules = predicted_texts(answers, threshold), {"normalization": self._normalization}
        golds = self._dev.gold_texts
        if threshold is None:
            return score_answers(golds, predicted, **rules)
        scores = score_answers_with_null(golds, predicted, **rules)
        best = best_null_thresholds(golds, *_texts_and_odds(answers), **rules)
        return {**scores, **best, _THRESHOLD: threshold}

    def _write_report(
        self, answers: Sequence[QuestionAnswers], threshold: float | None, results: Mapping[str, Any]
    ) -> None:
        sections = report_sections(
            self._dev,
            answers,
            predicted_texts(answers, threshold),
            scores=results,
            normalization=self._normalization,
            version_2=self._version_2,
        )
        title = f"{os.path.basename(self.config.predict_file)}: {len(answers):,} questions"
        report_page.write_report(self.path(report_page.REPORT_FILE), title, sections)

    def _threshold(self, answers: Sequence[QuestionAnswers]) -> float | None:
        """Null odds above which no answer is predicted; None in version 1.1, which always has an answer."""
        if not self._version_2:
            return None
        if self.config.null_score_diff_threshold == "auto":
            golds = self._dev.gold_texts
            return best_f1_threshold(golds, *_texts_and_odds(answers), normalization=self._normalization)
        return self.config.null_score_diff_threshold


def _texts_and_odds(answers: Sequence[QuestionAnswers]) -> tuple[dict[str, str], dict[str, float]]:
    """Return the best answer and the null odds of each question."""
    return {answer.id: answer.best_text for answer in answers}, {answer.id: answer.null_odds for answer in answers}
