"""`run_classifier.py` as a `FinetuningJob`: its examples, records and output files."""

import os
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.data.record_files import ExampleSplit
from official_bert.metrics.retrieval import RERANKING_METRICS, check_relevant, reranking_scores
from official_bert.support.console import format_table
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.classification.data import CUSTOM, Dataset, split_suffix
from official_bert.tasks.classification.options import BALANCED, ClassifierConfig
from official_bert.tasks.classification.records import (
    CLASS_SCORES,
    ClassificationData,
    LabelledSplit,
    LabelledText,
    TextJoiner,
    class_score_names,
    class_scores,
    submission_name,
    write_bare_table,
    write_confusion_matrix,
    write_glue_submission,
    write_readable_table,
)
from official_bert.tasks.classification.report import (
    check_tunable,
    report_sections,
    with_stored_thresholds,
    with_tuned_thresholds,
    write_thresholds,
)
from official_bert.tasks.classification.task import ClassificationTask, ClassLoss, balanced_weights
from official_bert.tokenization import Tokenizer
from official_bert.training.devices import encoder_options
from official_bert.training.job import FinetuningJob, SplitRecords
from official_bert.training.loop import Trainer
from official_bert.training.monitoring import write_results
from official_bert.training.run_folder import RESULTS_FILE, checkpoint_folder, selecting_metric
from official_bert.visualization.report_page import by_importance, rounded, write_report

_MOST_LABELS_OF_A_LOG = 20  # with more labels, per-class scores are written but not logged


class ClassificationJob(FinetuningJob):
    config: ClassifierConfig

    def __init__(
        self, config: ClassifierConfig, bert_config: BertConfig, tokenizer: Tokenizer, data: ClassificationData
    ):
        super().__init__(config, bert_config, tokenizer)
        dataset, self._train, self._dev, self._test = data
        self._dataset = dataset
        self.labels = dataset.labels
        if config.tune_thresholds:
            check_tunable(dataset)
            if not config.do_train and not latest_checkpoint(checkpoint_folder(config)):
                raise UserError(f"tune_thresholds needs a checkpoint in output_dir={config.output_dir}; train first")
        for split in self._dev if config.ranking else ():
            judged: dict[str, list[float]] = {}
            for (query, _), gain in zip(split.texts, split.labels, strict=True):
                judged.setdefault(query, []).append(gain)
            check_relevant(judged, config.eval_file)
        self._joiner = TextJoiner(
            tokenizer,
            max_seq_length=config.max_seq_length,
            max_windows=config.max_windows if config.long_text == "window" else 1,
            doc_stride=config.doc_stride,
        )
        self._training_loss = _training_loss(config, dataset, self._train) if self._train else None
        self.task = self.create_task(config, bert_config)
        self.primary_metric = selecting_metric(config.primary_metric, dataset.primary_metric, _metric_names(dataset))
        if self._train:
            self.training_split, self.num_training_examples = self._split_of(self._train), len(self._train.examples)
        self.records = SplitRecords(
            config,
            self.task,
            self._joiner.max_length,
            unit=config.max_seq_length if self._joiner.max_windows > 1 else None,  # whole windows
        )

    def create_task(self, config: ClassifierConfig, bert_config: BertConfig) -> ClassificationTask:
        dataset = self._dataset
        return ClassificationTask(
            bert_config,
            problem=dataset.problem,
            num_labels=len(dataset.labels) or 1,
            metric_names=tuple(name for name in _overall_metrics(dataset) if name not in RERANKING_METRICS),
            max_length=self._joiner.max_length,
            eval_batch_size=config.eval_batch_size,
            training_loss=self._training_loss,
            trainable_encoder=config.trainable_encoder,
            encoder_options=encoder_options(config),
            **config.model_options,
        )

    def scores(self, trainer: Trainer, step: int) -> dict[str, float]:
        """Evaluate and log all evaluation splits; the scores of a second split carry a suffix."""
        overall, of_classes = self._scored(self._predicted_dev(trainer), self._dataset)
        self.log_scores(trainer, step, overall)
        if self.primary_metric not in overall:  # a score of one class
            overall[self.primary_metric] = float(of_classes[self.primary_metric])
        return overall

    def evaluate(self, trainer: Trainer, step: int) -> None:
        """Write `eval_results.txt`, confusion matrices and reports; on request, `thresholds.json`."""
        predicted = self._predicted_dev(trainer)
        if not trainer.cluster.is_chief:
            return
        dataset = self._dataset
        if self.config.tune_thresholds:
            dataset = with_tuned_thresholds(dataset, predicted[0])
            write_thresholds(latest_checkpoint(checkpoint_folder(self.config)), dataset)
        else:
            dataset = self._with_stored_thresholds()
        overall, of_classes = self._scored(predicted, dataset)
        self.log_scores(trainer, step, overall)
        results = {GLOBAL_STEP: step, **{name: np.float32(score) for name, score in overall.items()}}
        primary = self.primary_metric
        results |= {name: of_classes[name] for name in of_classes.keys() & {primary}}
        for split, predictions in zip(self._dev, predicted, strict=True):
            if dataset.problem == "single_label":
                write_confusion_matrix(self.path(f"confusion_matrix{split.suffix}.tsv"), dataset, predictions)
            of_split = {name: results[name] for name in results if split_suffix(name) == split.suffix}
            scores = by_importance({**of_split, GLOBAL_STEP: step}, primary + split.suffix)
            lengths = [sum(len(self.tokenizer.encode(text or "")) for text in pair) for pair in split.texts]
            sections = report_sections(dataset, split.examples, predictions, scores=scores, lengths=lengths)
            file = os.path.basename(dataset.splits[split.name].names[0])
            title = f"{dataset.name}: {file}, {len(split.examples):,} examples".removeprefix(f"{CUSTOM}: ")
            write_report(self.path(f"report{split.suffix}.html"), title, sections)
            self._log_classes(dataset, of_classes, split.suffix)
        results = by_importance({**results, **of_classes}, primary)
        write_results(self.path(RESULTS_FILE), results, unlogged=of_classes.keys() - {primary})

    def _log_classes(self, dataset: Dataset, of_classes: Mapping[str, np.float32 | int], suffix: str) -> None:
        if len(self.labels) > _MOST_LABELS_OF_A_LOG:
            file = self.path(RESULTS_FILE)
            logging.info("precision, recall and F1 of each of the %d labels are in %s", len(self.labels), file)
        elif of_classes:
            rows = [[rounded(of_classes[name]) for name in names] for names in class_score_names(dataset, suffix)]
            named = [[label, *row] for label, row in zip(dataset.labels, rows, strict=True)]
            for line in format_table([("label", *CLASS_SCORES), *named]).splitlines():
                logging.info("%s", line)

    def predict(self, trainer: Trainer, step: int) -> None:
        del step
        dataset = self._with_stored_thresholds()
        for split in self._test:
            predicted = self._predictions(trainer, split, "predict")
            if not trainer.cluster.is_chief:
                continue
            probabilities = predicted["probabilities"]
            write_bare_table(self.path(f"test_results{split.suffix}.tsv"), probabilities)
            readable = self.path(f"predictions{split.suffix}.tsv")
            write_readable_table(readable, dataset, split.examples, probabilities)
            logging.info("wrote %d predictions to %s", len(probabilities), readable)
            if self.config.glue_submission:
                submission = self.path(submission_name(dataset, split.name))
                write_glue_submission(submission, dataset, probabilities)
                logging.info("wrote %s", submission)

    def _with_stored_thresholds(self) -> Dataset:
        """Return the data set with the thresholds beside the weights of the run, if there are any."""
        weights = latest_checkpoint(checkpoint_folder(self.config)) or self.config.init_checkpoint
        return with_stored_thresholds(self._dataset, weights)

    def _predicted_dev(self, trainer: Trainer) -> list[dict[str, np.ndarray]]:
        return [self._predictions(trainer, split, "eval") for split in self._dev]

    def _scored(
        self, predicted_dev: Sequence[dict[str, np.ndarray]], dataset: Dataset
    ) -> tuple[dict[str, float], dict[str, np.float32 | int]]:
        """Score all evaluation splits, and each class, by the thresholds of a data set."""
        overall, of_classes = {}, {}
        for split, predicted in zip(self._dev, predicted_dev, strict=True):
            scores = self.task.scores(predicted, dataset.thresholds)
            if self.config.ranking:  # by the number, or by the probability of the second label
                texts = [example.text_a for example in split.examples]
                ranked = reranking_scores(texts, predicted["label_ids"], predicted["probabilities"][:, -1])
                scores |= {f"eval_{name}": score for name, score in ranked.items()}
            overall |= {f"{name}{split.suffix}": score for name, score in scores.items()}
            of_classes |= class_scores(dataset, predicted, split.suffix)
        return overall, of_classes

    def _split_of(self, split: LabelledSplit) -> ExampleSplit:
        return ExampleSplit(self._joiner, list(map(LabelledText, split.texts, split.labels)))

    def _predictions(self, trainer: Trainer, split: LabelledSplit, purpose: str) -> dict[str, np.ndarray]:
        """Return the predictions of a split; `purpose` is "eval" or "predict"."""
        name, is_scored = purpose + split.suffix, purpose == "eval"
        return self.records.predictions(trainer, name, self._split_of(split), is_scored=is_scored)


def _training_loss(config: ClassifierConfig, dataset: Dataset, train: LabelledSplit) -> ClassLoss | None:
    """Return the loss that the flags ask for; None for the usual one."""
    if not (config.class_weights or config.label_smoothing or config.focal_gamma):
        return None
    if dataset.problem != "single_label":  # --task_name=custom is checked with the flags
        raise UserError(
            f"class_weights, label_smoothing and focal_gamma need classes; the labels of {dataset.name} are numbers"
        )
    weights = config.weights_of_classes
    if config.class_weights == BALANCED:
        weights = balanced_weights(train.labels, dataset.labels)
        (least, least_label), *_, (most, label) = sorted(zip(weights, dataset.labels, strict=True))
        logging.info("class weights from %.4g (%s) to %.4g (%s)", least, least_label, most, label)
    elif weights and len(weights) != len(dataset.labels):
        raise UserError(
            f"class_weights={config.class_weights} has {len(weights)} weights for the {len(dataset.labels)} labels "
            f"{format_names(dataset.labels)}; give one for each, in this order"
        )
    return ClassLoss(weights, config.label_smoothing, config.focal_gamma)


def _overall_metrics(dataset: Dataset) -> list[str]:
    """Return the names of the metrics to report, without those of a single class."""
    return list(dict.fromkeys((*dataset.metrics, *(("macro_f1",) if dataset.labels else ()))))


def _metric_names(dataset: Dataset) -> list[str]:
    """Return the names of all metrics in `eval_results.txt`, for the first split."""
    of_classes = [name.removeprefix("eval_") for *names, _ in class_score_names(dataset) for name in names]
    return [*_overall_metrics(dataset), *of_classes]
