"""`run_squad.py`: questions and texts in; checkpoints, answers and scores out."""

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import files
from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.loading import check_whole, load_whole
from official_bert.checkpoints.state_file import latest_checkpoint
from official_bert.config.run_configs import SquadConfig
from official_bert.data.pipeline import evaluation_batches, padded_lengths
from official_bert.data.records import explained_damage, made_from
from official_bert.errors import UserError
from official_bert.export.saved_model import check_export_dir, write_export
from official_bert.export.trained import span_servable
from official_bert.metrics.span import (
    NORMALIZATIONS,
    best_null_thresholds,
    score_answers,
    score_answers_with_null,
    threshold_of_best_f1,
)
from official_bert.results import RESULTS_FILE
from official_bert.runs.early_checks import check_has_checkpoint, checkpoint_folder
from official_bert.runs.finetuning import (
    best_keeper,
    check_ensemble,
    check_initial_checkpoint,
    check_same_examples,
    check_same_run,
    checkpoint_to_export,
    finetuning_plan,
    has_stopped_early,
    load_weights,
)
from official_bert.runs.training import shuffled_batches, training_folder, write_evaluation_flags, write_run_files
from official_bert.tasks.model_files import read_model_files
from official_bert.tasks.squad import LOGITS, SquadTask
from official_bert.tasks.squad_answers import (
    PREDICTIONS_FILE,
    QuestionAnswers,
    find_answers,
    predicted_texts,
    write_answers,
)
from official_bert.tasks.squad_data import SquadSet, read_squad
from official_bert.tasks.squad_windows import (
    PREDICTION_SCHEMA,
    TRAINING_SCHEMA,
    TokenizedSquad,
    WindowOptions,
    training_fingerprint,
    write_prediction_records,
    write_training_records,
)
from official_bert.tokenization import FullTokenizer
from official_bert.training.loop import Trainer, check_divisible
from official_bert.training.strategy import create_strategy
from official_bert.training.summaries import ScalarLog, write_results

# Flags that a checkpoint must be used with as it was trained with, since its variables do not tell.
_MODEL_FLAGS = ("do_lower_case",)
_THRESHOLD = "null_score_diff_threshold"  # the flag, and the number in the results that stands for "auto"


def run(config: SquadConfig) -> None:
    """Trains, predicts, exports, or several of these.

    Raises:
      UserError: a flag, the data or a checkpoint is wrong.
    """
    bert_config, tokenizer = read_model_files(config, for_training=config.do_train)
    options = WindowOptions(
        max_seq_length=config.max_seq_length,
        doc_stride=config.doc_stride,
        max_query_length=config.max_query_length,
        answer_alignment=config.answer_alignment,
        drop_out_of_window=config.drop_out_of_window,
    )
    # All files are read and checked before anything is computed.
    is_2_0 = config.version_2_with_negative
    train = read_squad(config.train_file, for_training=True, version_2=is_2_0) if config.do_train else None
    is_predicted = config.do_predict or (config.do_train and config.eval_steps)
    dev = read_squad(config.predict_file, for_training=False, version_2=is_2_0) if is_predicted else None
    _check_labels(config, dev)
    if config.do_predict:
        _check_answered_before(config, dev)
    if config.ensemble:
        check_ensemble(config, _MODEL_FLAGS, bert_config, tokenizer.vocabulary)
    else:
        check_has_checkpoint(config)
        check_initial_checkpoint(config)
    if config.do_export:
        check_export_dir(config.export_dir)

    strategy = create_strategy(config)  # before anything else touches a device
    for flag in ("train_batch_size", "predict_batch_size"):
        check_divisible(getattr(config, flag), strategy, f"--{flag}")
    task = SquadTask(
        bert_config,
        TRAINING_SCHEMA,
        max_seq_length=config.max_seq_length,
        is_padding_scored=_lengths(config) is None,
        use_one_hot_embeddings=config.use_tpu,
    )
    with training_folder(config.output_dir, do_train=config.do_train):
        if not config.ensemble:
            check_same_run(config, _MODEL_FLAGS, bert_config, tokenizer.vocabulary)
        trainer = Trainer(task, strategy, seed=config.random_seed)
        answering = _Answering(config, trainer, task, tokenizer, options, dev) if dev else None
        is_complete = True
        if train:
            is_complete = _train(config, trainer, task, tokenizer, options, train, answering)
        if config.do_predict and is_complete:  # otherwise stopped by SIGTERM
            answering.predict()
        if config.do_export and is_complete:
            checkpoint = checkpoint_to_export(config)
            servable = span_servable(
                config, bert_config, tokenizer, checkpoint, "--do_export: checkpoint", top_k=config.export_top_k
            )
            write_export(config.export_dir, servable, config.vocab_file)


def _check_labels(config: SquadConfig, dev: SquadSet | None) -> None:
    """Raises if the questions to answer come without the answers that a flag needs."""
    if dev is None or dev.is_labelled:
        return
    number = f"{len(dev.questions) - dev.num_labelled} of the {len(dev.questions)} questions"
    if config.do_train and config.eval_steps:
        raise UserError(f"--eval_steps needs the right answers, but {number} in {config.predict_file} have none")
    if config.null_score_diff_threshold == "auto":
        raise UserError(
            f"--null_score_diff_threshold=auto needs the right answers, but {number} in {config.predict_file} have "
            f"none; give the number that eval_results.txt of a labelled file calls {_THRESHOLD}"
        )
    if dev.num_labelled:
        hint = "" if config.version_2_with_negative else "; is it a file of version 2.0 (--version_2_with_negative)?"
        logging.warning("%s in %s have no answer: nothing is scored%s", number, config.predict_file, hint)


def _check_answered_before(config: SquadConfig, dev: SquadSet) -> None:
    """Raises if the output folder holds the answers to the questions of another file, which would be overwritten."""
    path = os.path.join(config.output_dir, PREDICTIONS_FILE)
    if not files.exists(path):
        return
    if files.read_json(path, "file of predictions").keys() != {question.id for question in dev.questions}:
        latest = latest_checkpoint(checkpoint_folder(config))
        raise UserError(
            f"{path} answers the questions of another file than --predict_file={config.predict_file} and would be "
            "overwritten; give another --output_dir"
            + (f", with --init_checkpoint={latest} for the model in this one" if latest else "")
        )


def _train(
    config: SquadConfig,
    trainer: Trainer,
    task: SquadTask,
    tokenizer: FullTokenizer,
    options: WindowOptions,
    train: SquadSet,
    answering: "_Answering | None",
) -> bool:
    """Trains; returns whether it came to its end."""
    plan = finetuning_plan(config, len(train.questions))
    path, is_2_0 = os.path.join(config.output_dir, "train.tf_record"), config.version_2_with_negative
    wanted = training_fingerprint(train, tokenizer, options, version_2=is_2_0)
    check_same_examples(config, made_from=made_from(path), wanted=wanted)
    if has_stopped_early(config):
        return True

    def batches(start_record: int) -> tf.data.Dataset:
        write_run_files(config, tokenizer.vocabulary)
        num_records = write_training_records(
            path, train, tokenizer, options, version_2=is_2_0, num_processes=config.num_processes or None
        )
        return shuffled_batches(
            config,
            [path],
            task.schema,
            num_records=num_records,
            start_record=start_record,
            lengths=_lengths(config),
        )

    with explained_damage([path], task.schema):
        return trainer.train(
            plan,
            batches,
            output_dir=config.output_dir,
            init_checkpoint=config.init_checkpoint,
            evaluate=best_keeper(config, trainer, answering.headline, answering.scores_at) if answering else None,
        )


def _lengths(config: SquadConfig) -> list[int] | None:
    return padded_lengths(config.max_seq_length) if config.dynamic_padding and not config.use_tpu else None


class _Answering:
    """Answers the questions of a file, as often as weights change.

    Attributes:
      headline: the score that decides which checkpoint is best.
    """

    def __init__(
        self,
        config: SquadConfig,
        trainer: Trainer,
        task: SquadTask,
        tokenizer: FullTokenizer,
        options: WindowOptions,
        squad: SquadSet,
    ):
        self._config, self._trainer, self._squad = config, trainer, squad
        self._schema = task.sized(PREDICTION_SCHEMA)
        self._tokenized = TokenizedSquad(squad, tokenizer, options, num_processes=config.num_processes or None)
        self._windows = self._tokenized.prediction_windows()
        self._golds = squad.gold_texts
        self._normalization = NORMALIZATIONS[config.dataset]
        self._path = os.path.join(config.output_dir, "eval.tf_record")
        self._num_records: int | None = None
        self.headline = "best_f1" if config.version_2_with_negative else "f1"

    def predict(self) -> None:
        """Writes the answers of the output folder's checkpoint or of the ensemble and, where it can, their scores."""
        if self._config.ensemble:
            step, logits = self._ensemble_logits()
        else:
            step = load_weights(self._config, self._trainer, "--do_predict")
            write_evaluation_flags(self._config, self._tokenized.tokenizer.vocabulary)
            logits = self._logits("predicting")
        answers = self._answers(logits)
        threshold = self._threshold(answers)
        if self._config.null_score_diff_threshold == "auto":
            logging.info("--null_score_diff_threshold=auto: %s gives the best F1", threshold)
        scores = self._scores(answers, threshold) if self._squad.is_labelled else {}
        write_answers(self._config.output_dir, answers, predicted_texts(answers, threshold))
        logging.info("wrote the answers to %d questions to %s", len(answers), self._config.output_dir)
        for name, is_new in (("null_odds.json", threshold is not None), (RESULTS_FILE, bool(scores))):
            path = os.path.join(self._config.output_dir, name)
            if not is_new and files.exists(path):
                logging.warning("%s is of an earlier prediction", path)
        if scores:
            ScalarLog(self._config.output_dir).replace("eval", step, scores)
            write_results(os.path.join(self._config.output_dir, RESULTS_FILE), {GLOBAL_STEP: step, **scores})

    def scores_at(self, step: int) -> dict[str, float]:
        """Scores the weights as they are, those of a step in training."""
        answers = self._answers(self._logits("evaluating"))
        scores = self._scores(answers, self._threshold(answers))
        ScalarLog(self._config.output_dir).replace("eval", step, scores)
        return scores

    def _ensemble_logits(self) -> tuple[int, dict[str, np.ndarray]]:
        """The last step of the ensemble's checkpoints and the mean of their logits; float32 [N, S]."""
        paths, weights, flag = self._config.ensemble, self._trainer.model.weights, "--ensemble_checkpoints"
        for path in paths:  # all of them before hours may be spent on the first
            check_whole(path, weights, flag)
        write_evaluation_flags(self._config, self._tokenized.tokenizer.vocabulary)
        steps, sums = [], dict.fromkeys(LOGITS, np.float64(0))  # as float32 the lowest logits would overflow
        for path in paths:
            logging.info("%s: weights of %s", flag, path)
            steps.append(load_whole(path, weights, flag))
            for name, logits in self._logits("predicting").items():
                sums[name] = sums[name] + logits
        return max(steps), {name: (total / len(paths)).astype(np.float32) for name, total in sums.items()}

    def _logits(self, label: str) -> dict[str, np.ndarray]:
        """Start and end logits of every window; float32 [N, S]."""
        if self._num_records is None:
            self._num_records = write_prediction_records(self._path, self._tokenized, self._windows)
        batches = evaluation_batches(
            [self._path],
            self._schema,
            batch_size=self._config.predict_batch_size,
            lengths=_lengths(self._config),
            num_replicas=self._trainer.num_replicas,
        )
        with explained_damage([self._path], self._schema):
            logits = self._trainer.predict(batches, num_records=self._num_records, label=label)
        for name, values in logits.items():
            if not np.isfinite(values).all():
                raise UserError(f"the model's {name} are not all finite; did its training diverge?")
        return logits

    def _answers(self, logits: dict[str, np.ndarray]) -> Sequence[QuestionAnswers]:
        config = self._config
        return find_answers(
            self._tokenized,
            self._windows,
            *(logits[name] for name in LOGITS),
            n_best_size=config.n_best_size,
            max_answer_length=config.max_answer_length,
            version_2=config.version_2_with_negative,
            verbose_logging=config.verbose_logging,
        )

    def _scores(self, answers: Sequence[QuestionAnswers], threshold: float | None) -> dict[str, float]:
        predictions, rules = predicted_texts(answers, threshold), {"normalization": self._normalization}
        if threshold is None:
            return score_answers(self._golds, predictions, **rules)
        scores = score_answers_with_null(self._golds, predictions, **rules)
        best = best_null_thresholds(self._golds, *_texts_and_odds(answers), **rules)
        return {**scores, **best, _THRESHOLD: threshold}

    def _threshold(self, answers: Sequence[QuestionAnswers]) -> float | None:
        """Null odds above which no answer is predicted; None in version 1.1, where there always is one."""
        if not self._config.version_2_with_negative:
            return None
        if self._config.null_score_diff_threshold == "auto":
            return threshold_of_best_f1(self._golds, *_texts_and_odds(answers), normalization=self._normalization)
        return self._config.null_score_diff_threshold


def _texts_and_odds(answers: Sequence[QuestionAnswers]) -> tuple[dict[str, str], dict[str, float]]:
    """Of each question the best text that is an answer, and the null odds."""
    return {answer.id: answer.best_text for answer in answers}, {answer.id: answer.null_odds for answer in answers}
