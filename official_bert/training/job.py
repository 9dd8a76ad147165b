"""`FinetuningJob`: the task-specific parts of a fine-tuning run, and what jobs share: records, calibration."""

import abc
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.data.batches import padded_lengths, reporting_damaged_records
from official_bert.data.record_files import RecordFile, Split, write_cached, write_split
from official_bert.data.schema import RecordSchema
from official_bert.metrics.classification import confidence_bins, expected_calibration_error
from official_bert.modeling.token_model import model_fingerprint
from official_bert.options.training import FinetuningOptions
from official_bert.support import files
from official_bert.support.manifest import fingerprint
from official_bert.tokenization import Tokenizer
from official_bert.training.loop import Keep, Trainer, batches_of
from official_bert.training.monitoring import ScalarLog
from official_bert.training.run_folder import check_label_order, check_same_labels, checkpoint_folder
from official_bert.training.task import DistillableTask, RecordTask
from official_bert.visualization.report_page import Reliability


class FinetuningJob(abc.ABC):
    """Task-specific parts of a fine-tuning run. Creating a job checks the data, its further argument."""

    config: FinetuningOptions
    task: DistillableTask
    primary_metric: str  # the score that selects the best checkpoint; higher is better
    labels: Sequence[str] | None = None  # output names in order, saved in the output folder; None without names
    label_noun = "labels"  # the term for a label in messages
    export_warning: str | None = None  # what an export does in another way than the run
    training_split: Split | None = None  # None without training
    num_training_examples: int | None = None  # None without training
    records: "SplitRecords"  # of training, and usually of evaluation and prediction

    def __init__(self, config: FinetuningOptions, bert_config: BertConfig, tokenizer: Tokenizer):
        self.config = config
        self.bert_config = bert_config
        self.tokenizer = tokenizer

    def check_output_folder(self) -> None:
        """Raise if the checkpoints to use have other labels; `finetune` checks the model's files."""
        if self.labels is not None and latest_checkpoint(checkpoint_folder(self.config)):
            check_same_labels(self.config.output_dir, self.labels, noun=self.label_noun)
        elif self.labels and self.config.init_checkpoint and not self.config.do_train:
            check_label_order(self.config.init_checkpoint, self.labels, noun=self.label_noun)

    @abc.abstractmethod
    def create_task(self, config: FinetuningOptions, bert_config: BertConfig) -> DistillableTask:
        """Return this run's task with another model, a teacher's, given its flags and architecture."""

    def evaluate(self, trainer: Trainer, step: int) -> None:
        """Score the trainer's weights at a step and write `eval_results.txt`."""
        raise NotImplementedError(f"{type(self).__name__} has no do_eval")

    @abc.abstractmethod
    def scores(self, trainer: Trainer, step: int) -> Mapping[str, float]:
        """Score the trainer's weights at a step during training, and log the scores."""

    @abc.abstractmethod
    def predict(self, trainer: Trainer, step: int) -> None:
        """Write predictions with the trainer's weights at a step."""

    def path(self, name: str) -> str:
        return os.path.join(self.config.output_dir, name)

    def warn_of_earlier(self, *names: str) -> None:
        """Warn of output files of an earlier prediction, which this one does not write."""
        for path in filter(files.exists, map(self.path, names)):
            logging.warning("%s is from an earlier prediction", path)

    def log_scores(self, trainer: Trainer, step: int, scores: Mapping[str, float]) -> None:
        """Log the scores of a step, instead of those of an earlier evaluation of it."""
        ScalarLog(self.config.output_dir, is_written=trainer.cluster.is_chief).replace("eval", step, scores)


def reliability_section(confidences: np.ndarray, is_correct: np.ndarray, note: str) -> Reliability:
    """Compare the confidences of predictions, float [N], with their accuracy, bool [N]."""
    are_numbers = np.isfinite(confidences)
    # A float32 softmax may exceed 1 by rounding.
    bins = confidence_bins(np.clip(confidences[are_numbers], 0, 1), is_correct[are_numbers])
    error = expected_calibration_error(bins)
    note = (
        f"Expected calibration error {error:.4f}: the mean distance between confidence and accuracy over {len(bins)} "
        f"intervals (Guo et al. 2017). Below the dashed line the model is overconfident. {note}"
    )
    return Reliability(title="Calibration", bins=bins, note=note)


class SplitRecords:
    """Writer and reader of the records of a run's splits; existing files are kept if up to date."""

    def __init__(
        self,
        config: FinetuningOptions,
        task: RecordTask,
        max_length: int,
        *,
        unit: int | None = None,
        cuts_features: bool = False,
        schema: RecordSchema | None = None,
    ):
        """Set the lengths to pad to: multiples of `unit`, also for features if these are cut."""
        self._config = config
        self._task = task
        self._schema = schema or task.schema
        self._lengths = padded_lengths(max_length, unit) if config.pads_dynamically else None
        self._feature_lengths = self._lengths if cuts_features else None
        self._num_records: dict[str, int] = {}  # in each file verified by this run

    def ids_file(self, name: str) -> RecordFile:
        path = os.path.join(self._config.output_dir, f"{name}.tf_record")
        return RecordFile(path, self._schema, self._lengths)

    def file(self, trainer: Trainer, name: str) -> RecordFile:
        """Return the file that the model reads: ids or, with a frozen encoder, its outputs."""
        if self._config.trainable_encoder:
            file = self.ids_file(name)
        else:
            path = os.path.join(self._config.output_dir, f"{name}.features.tf_record")
            schema = self._task.feature_schema(trainer.model)
            file = RecordFile(path, schema, self._feature_lengths)
        return file._replace(is_written=trainer.cluster.is_chief)

    def write(self, trainer: Trainer, name: str, split: Split) -> int:
        """Write the files of a split on the first call; return the number of records."""
        if name not in self._num_records:
            ids_file = self.ids_file(name)._replace(is_written=trainer.cluster.is_chief)
            num_records = write_split(ids_file, split)
            if not self._config.trainable_encoder:
                file = self.file(trainer, name)
                encoder = fingerprint(model_fingerprint(trainer.model.encoder), self._config.feature_layers)
                write_cached(
                    file,
                    {**split.provenance(file.schema), "encoder": encoder},
                    lambda: split.feature_records(file.schema, self._features(trainer, ids_file, num_records)),
                )
            self._num_records[name] = num_records
        return self._num_records[name]

    def predictions(
        self, trainer: Trainer, name: str, split: Split, *, is_scored: bool, keep: Keep | None = None
    ) -> dict[str, np.ndarray]:
        """Return the task's predictions for a split, one row per record; `is_scored` is their purpose.

        `keep` may reduce those of a batch; see `Trainer.predict`.
        """
        num_records, sizes = self.write(trainer, name, split), self._config.batch_sizes
        batch_size = sizes["eval_batch_size" if is_scored and "eval_batch_size" in sizes else "predict_batch_size"]
        file, label = self.file(trainer, name), "evaluating" if is_scored else "predicting"
        with reporting_damaged_records([file.path], file.schema):
            return trainer.predict(
                batches_of(trainer, file, batch_size), num_records=num_records, label=label, keep=keep
            )

    def _features(self, trainer: Trainer, file: RecordFile, num_records: int) -> Iterator[np.ndarray]:
        with reporting_damaged_records([file.path], file.schema):
            yield from trainer.compute_by_record(
                trainer.model.features,
                lambda numbers: batches_of(trainer, file, self._config.eval_batch_size, numbers),
                num_records,
                bytes_per_record=self._task.feature_schema(trainer.model).num_bytes,
                label="encoding",
            )
