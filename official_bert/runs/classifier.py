"""`run_classifier.py`: texts and labels in; checkpoints, scores and predictions out."""

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.state_file import latest_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.config.run_configs import ClassifierConfig
from official_bert.data.pipeline import evaluation_batches
from official_bert.data.records import explained_damage, fingerprint, made_from
from official_bert.data.schema import RecordSchema
from official_bert.errors import UserError, listed
from official_bert.export.saved_model import check_export_dir, write_export
from official_bert.export.trained import classifier_servable
from official_bert.modeling.classifier import FEATURES
from official_bert.results import RESULTS_FILE
from official_bert.runs.early_checks import check_has_checkpoint, checkpoint_folder
from official_bert.runs.finetuning import (
    best_keeper,
    check_initial_checkpoint,
    check_same_examples,
    check_same_run,
    checkpoint_to_export,
    finetuning_plan,
    has_stopped_early,
    load_weights,
)
from official_bert.runs.training import shuffled_batches, training_folder, write_evaluation_flags, write_run_files
from official_bert.tasks.classification import ClassificationTask, encoder_fingerprint
from official_bert.tasks.classification_data import ExamplePacker, write_feature_records, write_records
from official_bert.tasks.classification_output import (
    LABELS_FILE,
    check_submission,
    read_labels,
    submission_name,
    write_bare_table,
    write_confusion_matrix,
    write_glue_submission,
    write_labels,
    write_readable_table,
)
from official_bert.tasks.dataset_choice import configured_dataset
from official_bert.tasks.datasets import (
    CUSTOM,
    Dataset,
    TextExample,
    part_suffix,
)
from official_bert.tasks.model_files import read_model_files
from official_bert.tokenization import Vocabulary
from official_bert.training.loop import Trainer, check_divisible
from official_bert.training.strategy import create_strategy
from official_bert.training.summaries import ScalarLog, write_results

# Flags that a checkpoint must be used with as it was trained with, since its variables do not tell.
_MODEL_FLAGS = (
    "do_lower_case",
    "multi_label",
    "regression",
    "feature_layers",
    "trainable_encoder",
    "long_text",
    "window_pooling",
)
# What checkpoints are evaluated on may differ (`ax` judges models of `mnli`), but an exported model is one for good.
_TEXT_FLAGS = ("task_name", "text_a_column", "text_b_column")


def run(config: ClassifierConfig) -> None:
    """Trains, evaluates, predicts, exports, or several of these.

    Raises:
      UserError: a flag, the data or a checkpoint is wrong.
    """
    bert_config, tokenizer = read_model_files(config, for_training=config.do_train and config.trainable_encoder)
    dataset = configured_dataset(config)
    if config.glue_submission:
        check_submission(dataset)
    # All files are read and all labels checked before anything is computed.
    train_splits = ("train",) if config.do_train else ()
    dev_splits = dataset.eval_splits if config.is_evaluated else ()
    test_splits = dataset.test_splits if config.do_predict else ()
    data_dir = None if dataset.name == CUSTOM else config.data_dir
    splits = dict.fromkeys((*train_splits, *dev_splits, *test_splits))  # IMDB's test part is in two, but read once
    examples = {split: dataset.examples(data_dir, split) for split in splits}
    train = [_Part.labelled(dataset, split, examples[split]) for split in train_splits]
    dev = [_Part.labelled(dataset, split, examples[split]) for split in dev_splits]
    test = [_Part.unlabelled(dataset, split, examples[split]) for split in test_splits]

    check_has_checkpoint(config)
    check_initial_checkpoint(config)
    if config.do_export:
        check_export_dir(config.export_dir)
    strategy = create_strategy(config)  # before anything else touches a device
    for flag in ("train_batch_size", "eval_batch_size", "predict_batch_size"):
        check_divisible(getattr(config, flag), strategy, f"--{flag}")
    packer = ExamplePacker(
        tokenizer,
        max_seq_length=config.max_seq_length,
        max_windows=config.max_windows if config.long_text == "window" else 1,
        doc_stride=config.doc_stride,
    )
    task = _task(config, bert_config, dataset, packer)
    with training_folder(config.output_dir, do_train=config.do_train):
        _check_same_model(config, dataset, bert_config, tokenizer.vocabulary)
        trainer = Trainer(task, strategy, seed=config.random_seed)
        job = _Job(config, dataset, task, trainer, packer, tokenizer.vocabulary)
        for part in train:
            if not job.train(part, dev):
                return  # stopped by SIGTERM
        if config.do_eval:
            job.evaluate(dev)
        for part in test:
            job.predict(part)
        if config.do_export:
            servable = classifier_servable(
                config, bert_config, tokenizer, dataset, checkpoint_to_export(config), "--do_export: checkpoint"
            )
            write_export(config.export_dir, servable, config.vocab_file)


class _Part(NamedTuple):
    """A split of the data set: its name, examples and what is learnt of each (zeros where it is not known)."""

    split: str
    examples: list[TextExample]
    labels: list[int | float | tuple[int, ...]]

    @classmethod
    def labelled(cls, dataset: Dataset, split: str, examples: list[TextExample]) -> "_Part":
        return cls(split, examples, dataset.check_labels(examples))

    @classmethod
    def unlabelled(cls, dataset: Dataset, split: str, examples: list[TextExample]) -> "_Part":
        nothing = (0,) * len(dataset.labels) if dataset.problem == "multi_label" else 0
        return cls(split, examples, [nothing] * len(examples))

    @property
    def texts(self) -> list[tuple[str, str | None]]:
        """The texts or pairs of the examples."""
        return [(example.text_a, example.text_b) for example in self.examples]

    @property
    def suffix(self) -> str:
        """What tells its files and scores from those of another part."""
        return part_suffix(self.split)


class _RecordFile(NamedTuple):
    """A TFRecord file with what is needed to read it; `lengths` as `padded_lengths` gives them, or None."""

    path: str
    schema: RecordSchema
    num_records: int
    lengths: list[int] | None


class _Job:
    """What training, evaluation and prediction share."""

    def __init__(
        self,
        config: ClassifierConfig,
        dataset: Dataset,
        task: ClassificationTask,
        trainer: Trainer,
        packer: ExamplePacker,
        vocabulary: Vocabulary,
    ):
        self._config, self._dataset, self._task = config, dataset, task
        self._trainer, self._packer, self._vocabulary = trainer, packer, vocabulary
        self._record_files: dict[str, _RecordFile] = {}

    def train(self, part: _Part, dev: list[_Part]) -> bool:
        """Trains; returns whether it came to its end."""
        config = self._config
        plan = finetuning_plan(config, len(part.examples))
        wanted = self._packer.fingerprint(self._task.schema, part.texts, part.labels)
        check_same_examples(config, made_from=made_from(self._path(part, "train")), wanted=wanted)
        if has_stopped_early(config):
            return True

        def batches(start_record: int) -> tf.data.Dataset:
            write_run_files(config, self._vocabulary)
            write_labels(config.output_dir, self._dataset)
            records = self._records(part, "train")
            return shuffled_batches(
                config,
                [records.path],
                records.schema,
                num_records=records.num_records,
                start_record=start_record,
                lengths=records.lengths,
            )

        with explained_damage(*self._read_in_training(part)):
            return self._trainer.train(
                plan,
                batches,
                output_dir=config.output_dir,
                init_checkpoint=config.init_checkpoint,
                evaluate=best_keeper(
                    config, self._trainer, f"eval_{self._dataset.headline}", lambda step: self._scores(dev, step)
                ),
            )

    def evaluate(self, dev: list[_Part]) -> None:
        """Evaluates a checkpoint and writes `eval_results.txt`."""
        step = load_weights(self._config, self._trainer, "--do_eval")
        write_evaluation_flags(self._config, self._vocabulary)
        scores = self._scores(dev, step, confusion_folder=self._config.output_dir)
        results = {GLOBAL_STEP: step, **{name: np.float32(score) for name, score in scores.items()}}
        write_results(os.path.join(self._config.output_dir, RESULTS_FILE), results)
        if results["loss"] != results["eval_loss"]:
            logging.info(
                "eval_loss is the mean over all examples; loss, as in the reference, is the mean over the means of "
                "batches of --eval_batch_size=%d, so that the examples of a smaller last batch count for more",
                self._config.eval_batch_size,
            )

    def predict(self, part: _Part) -> None:
        """Predicts a part of the set and writes its tables."""
        load_weights(self._config, self._trainer, "--do_predict")
        write_evaluation_flags(self._config, self._vocabulary)
        probabilities = self._predictions(part, "predict", self._config.predict_batch_size)["probabilities"]

        def path(name: str) -> str:
            return os.path.join(self._config.output_dir, name)

        write_bare_table(path(f"test_results{part.suffix}.tsv"), probabilities)
        readable = path(f"predictions{part.suffix}.tsv")
        write_readable_table(readable, self._dataset, part.examples, probabilities)
        logging.info("wrote %d predictions to %s", len(probabilities), readable)
        if self._config.glue_submission:
            submission = path(submission_name(self._dataset, part.split))
            write_glue_submission(submission, self._dataset, probabilities)
            logging.info("wrote %s", submission)

    def _scores(self, dev: list[_Part], step: int, confusion_folder: str | None = None) -> dict[str, float]:
        """Scores all parts, those of a second one with a suffix, and logs them."""
        scores = {}
        for part in dev:
            predictions = self._predictions(part, "eval", self._config.eval_batch_size)
            scores |= {f"{name}{part.suffix}": score for name, score in self._task.scores(predictions).items()}
            if confusion_folder and self._dataset.problem == "single_label":
                path = os.path.join(confusion_folder, f"confusion_matrix{part.suffix}.tsv")
                write_confusion_matrix(path, self._dataset, predictions)
        ScalarLog(self._config.output_dir).replace("eval", step, scores)
        return scores

    def _predictions(self, part: _Part, purpose: str, batch_size: int) -> dict[str, np.ndarray]:
        records = self._records(part, purpose)
        batches = self._batches(records, batch_size)
        with explained_damage([records.path], records.schema):
            label = "evaluating" if purpose == "eval" else "predicting"
            return self._trainer.predict(batches, num_records=records.num_records, label=label)

    def _records(self, part: _Part, purpose: str) -> _RecordFile:
        """The records of a part, made at the first call; with a frozen encoder, of what it computes."""
        path = self._path(part, purpose)
        if path not in self._record_files:
            schema = self._task.schema
            num_records = write_records(path, schema, self._packer, part.texts, part.labels)
            is_dynamic = self._config.dynamic_padding and not self._config.use_tpu
            records = _RecordFile(path, schema, num_records, self._packer.padded_lengths() if is_dynamic else None)
            self._record_files[path] = records if self._config.trainable_encoder else self._features(records, part)
        return self._record_files[path]

    def _read_in_training(self, part: _Part) -> tuple[list[str], RecordSchema]:
        """The file that training reads and its schema, before it is made: with a frozen encoder, what that computes."""
        path = self._path(part, "train")
        if self._config.trainable_encoder:
            return [path], self._task.schema
        return [_features_path(path)], self._task.feature_schema(self._trainer.model)

    def _path(self, part: _Part, purpose: str) -> str:
        return os.path.join(self._config.output_dir, f"{purpose}{part.suffix}.tf_record")

    def _features(self, records: _RecordFile, part: _Part) -> _RecordFile:
        model = self._trainer.model
        path, schema = _features_path(records.path), self._task.feature_schema(model)

        def features() -> np.ndarray:
            batches = self._batches(records, self._config.eval_batch_size)
            with explained_damage([records.path], records.schema):
                return self._trainer.compute(
                    lambda batch: {FEATURES: model.features(batch)},
                    batches,
                    num_records=records.num_records,
                    label="encoding",
                )[FEATURES]

        num_records = write_feature_records(
            path,
            schema,
            self._packer,
            part.texts,
            part.labels,
            encoder=fingerprint(encoder_fingerprint(model), self._config.feature_layers),
            features=features,
        )
        return _RecordFile(path, schema, num_records, lengths=None)

    def _batches(self, records: _RecordFile, batch_size: int) -> tf.data.Dataset:
        return evaluation_batches(
            [records.path],
            records.schema,
            batch_size=batch_size,
            lengths=records.lengths,
            num_replicas=self._trainer.num_replicas,
        )


def _features_path(path: str) -> str:
    return path.replace(".tf_record", ".features.tf_record")


def _check_same_model(
    config: ClassifierConfig, dataset: Dataset, bert_config: BertConfig, vocabulary: Vocabulary
) -> None:
    """Raises if the checkpoints of the output folder are of a model that computes something else."""
    labels = read_labels(config.output_dir) if latest_checkpoint(checkpoint_folder(config)) else None
    if labels is not None and labels != list(dataset.labels):
        raise UserError(
            f"the labels are {listed(dataset.labels)}, but the checkpoints in {config.output_dir} were trained with "
            f"{listed(labels)} ({LABELS_FILE}); give these, or use another --output_dir"
        )
    check_same_run(config, _MODEL_FLAGS + (_TEXT_FLAGS if config.do_export else ()), bert_config, vocabulary)


def _task(
    config: ClassifierConfig, bert_config: BertConfig, dataset: Dataset, packer: ExamplePacker
) -> ClassificationTask:
    return ClassificationTask(
        bert_config,
        problem=dataset.problem,
        num_labels=len(dataset.labels) or 1,
        metric_names=dataset.metrics,
        max_length=packer.max_length,
        eval_batch_size=config.eval_batch_size,
        window_length=config.max_seq_length if packer.max_windows > 1 else None,
        window_pooling=config.window_pooling,
        trainable_encoder=config.trainable_encoder,
        feature_layers=config.feature_layers,
        use_one_hot_embeddings=config.use_tpu,
    )
