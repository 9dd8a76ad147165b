"""Record files of a data set's splits: text ids and, with a frozen encoder, its outputs."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import keras
import numpy as np

from official_bert.data.damaged_records import reporting_damaged_records
from official_bert.data.records import RecordFile
from official_bert.data.schema import RecordSchema
from official_bert.modeling.token_model import model_fingerprint
from official_bert.options.finetuning import LabellingOptions
from official_bert.support.manifest import fingerprint
from official_bert.training.loop import Trainer
from official_bert.training.predicting import batches_of, predictions
from official_bert.training.task import RecordTask


class FrozenTask(RecordTask, Protocol):
    """A task whose encoder may be frozen, so that its outputs can be stored."""

    def feature_schema(self, model: keras.Model) -> RecordSchema:
        """Return the record schema for the outputs of a model's encoder."""


class SplitWriter(Protocol):
    """Writer of the records of a split; existing files are kept if up to date."""

    def write_ids(self, file: RecordFile) -> int:
        """Write the ids; return the number of records."""

    def write_features(self, file: RecordFile, *, encoder: str, features: Callable[[], Iterator[np.ndarray]]) -> None:
        """Write a frozen encoder's outputs.

        Args:
          file: the output file.
          encoder: fingerprint of the encoder and of the selected outputs.
          features: returns the vectors of each record; called only if needed.
        """


class SplitRecords:
    """Writer and reader of the records of a run's splits."""

    def __init__(
        self,
        config: LabellingOptions,
        task: FrozenTask,
        lengths: Sequence[int],
        *,
        feature_lengths: Sequence[int] | None = None,
    ):
        """Configure reading and writing.

        Args:
          config: the flags.
          task: provides the schemas.
          lengths: padded lengths for batches of similar records, if the flags enable them.
          feature_lengths: padded lengths for a frozen encoder's outputs; None if these have no positions.
        """
        self._config = config
        self._task = task
        self._lengths = lengths if config.pads_dynamically else None
        self._feature_lengths = feature_lengths if config.pads_dynamically else None
        self._num_records: dict[str, int] = {}  # in each file verified by this run

    def ids_file(self, name: str) -> RecordFile:
        """Return the file with the ids of a split."""
        path = os.path.join(self._config.output_dir, f"{name}.tf_record")
        return RecordFile(path, self._task.schema, self._lengths, self._config.compression)

    def file(self, trainer: Trainer, name: str) -> RecordFile:
        """Return the file that the model reads: ids or, with a frozen encoder, its outputs."""
        if self._config.trainable_encoder:
            file = self.ids_file(name)
        else:
            path = os.path.join(self._config.output_dir, f"{name}.features.tf_record")
            schema = self._task.feature_schema(trainer.model)
            file = RecordFile(path, schema, self._feature_lengths, self._config.compression)
        return file._replace(is_written=trainer.cluster.is_chief)

    def write(self, trainer: Trainer, name: str, writer: SplitWriter) -> int:
        """Write the files of a split on the first call; return the number of records."""
        if name not in self._num_records:
            ids_file = self.ids_file(name)._replace(is_written=trainer.cluster.is_chief)
            num_records = writer.write_ids(ids_file)
            if not self._config.trainable_encoder:
                encoder = fingerprint(model_fingerprint(trainer.model.encoder), self._config.feature_layers)
                writer.write_features(
                    self.file(trainer, name),
                    encoder=encoder,
                    features=lambda: self._features(trainer, ids_file, num_records),
                )
            self._num_records[name] = num_records
        return self._num_records[name]

    def predictions(
        self, trainer: Trainer, name: str, writer: SplitWriter, *, is_scored: bool
    ) -> dict[str, np.ndarray]:
        """Return the task's predictions for a split, one row per record; `is_scored` is their purpose."""
        num_records = self.write(trainer, name, writer)
        batch_size = self._config.eval_batch_size if is_scored else self._config.predict_batch_size
        label = "evaluating" if is_scored else "predicting"
        return predictions(trainer, self.file(trainer, name), num_records, batch_size=batch_size, label=label)

    def _features(self, trainer: Trainer, file: RecordFile, num_records: int) -> Iterator[np.ndarray]:
        with reporting_damaged_records([file.path], file.schema):
            yield from trainer.compute_by_record(
                trainer.model.features,
                lambda numbers: batches_of(trainer, file, self._config.eval_batch_size, numbers),
                num_records,
                bytes_per_record=self._task.feature_schema(trainer.model).num_bytes,
                label="encoding",
            )
