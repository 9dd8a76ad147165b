"""Teacher of a fine-tuning run: a finished run of the same task, whose logits are stored with the records."""

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.checkpoint_files import BEST_FOLDER
from official_bert.config.bert_config import BertConfig
from official_bert.data import tfrecord
from official_bert.data.damaged_records import reporting_damaged_records
from official_bert.data.records import RecordFile, manifest_path, write_cached
from official_bert.data.schema import RecordSchema
from official_bert.options.finetuning import FinetuningOptions
from official_bert.options.option import flags_affecting
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.support.manifest import Manifest
from official_bert.training.distillation import TEACHER_LOGITS, DistillableTask
from official_bert.training.job import FinetuningJob
from official_bert.training.loop import Trainer
from official_bert.training.predicting import batches_of
from official_bert.training.run_folder import BERT_CONFIG_FILE, RunConfig, model_file, read_run_config


class Teacher(NamedTuple):
    """A trained model.

    Attributes:
      folder: output folder of its run.
      run: settings of its run.
      checkpoint: prefix of its weights.
      bert_config: its architecture.
    """

    folder: str
    run: RunConfig
    checkpoint: str
    bert_config: BertConfig


def find_teacher(config: FinetuningOptions) -> Teacher:
    """Find the teacher given by the flags; check that it was trained on the same task and records.

    Raises:
      UserError: the folder has no finished run, or its task or vocabulary differs.
    """
    path = config.teacher
    is_best = os.path.basename(os.path.abspath(path)) == BEST_FOLDER
    folder = os.path.dirname(os.path.abspath(path)) if is_best else path
    run, architecture = read_run_config(folder), model_file(folder, BERT_CONFIG_FILE)
    if run is None or architecture is None:
        raise UserError(f"teacher={path} is not the output folder of a finished run; give that of the larger model")
    if run.task not in (None, config.task):
        raise UserError(
            f"teacher={path} was trained for {run.task}, not for {config.task}; use a teacher of the same task"
        )
    bert_config = BertConfig.from_json_file(architecture)
    bert_config.check_length(config.max_seq_length, architecture)
    return Teacher(folder, run, CheckpointReader(path, "teacher").prefix, bert_config)


def teacher_file(file: RecordFile, task: DistillableTask) -> RecordFile:
    """Return the file for the records of `file` plus the teacher's logits."""
    path = file.path.removesuffix(".tf_record") + ".teacher.tf_record"
    return file._replace(path=path, schema=file.schema.with_fields(task.teacher_field))


def write_teacher_records(
    job: FinetuningJob, teacher: Teacher, strategy: tf.distribute.Strategy, file: RecordFile, num_records: int
) -> None:
    """Write the training records with a teacher's logits, unless an existing file is up to date.

    The teacher computes each example once, without dropout; training reads the stored logits in every epoch.

    Args:
      job: the task to train.
      teacher: the teacher.
      strategy: the devices to use.
      file: the records without logits, readable by all workers.
      num_records: number of records.

    Raises:
      UserError: the checkpoint does not match the run's flags.
    """
    config = job.config
    names = flags_affecting(config, "head")  # the teacher and the student may differ in these
    head = {name: teacher.run.flags[name] for name in names if name in teacher.run.flags}
    task = job.create_task(dataclasses.replace(config, **head), teacher.bert_config)
    target = teacher_file(file, task)
    schema = RecordSchema(target.schema.fields[-1])

    def records() -> Iterator[bytes]:
        logging.info("teacher: using the weights of %s", teacher.checkpoint)
        logits = _logits(task, teacher, strategy, file, num_records, config)
        for record, of_record in zip(tfrecord.read_records(file.path), logits, strict=True):
            # Two concatenated serialized tf.train.Examples are an Example with the features of both.
            yield record + schema.encode({TEACHER_LOGITS: of_record.ravel()})

    with files.open_file(f"{teacher.checkpoint}.index", "rb") as source:  # contains a checksum of each array
        weights = hashlib.sha256(source.read()).hexdigest()
    read = Manifest.read_or_none(manifest_path(file.path))
    provenance = {
        **(read.provenance if read else {}),
        "weights of the teacher": weights,
        "model of the teacher": teacher.bert_config.to_dict(),
        "head of the teacher": head,
        "mixed_precision": config.mixed_precision,
    }
    write_cached(target, provenance, records)


def _logits(
    task: DistillableTask,
    teacher: Teacher,
    strategy: tf.distribute.Strategy,
    file: RecordFile,
    num_records: int,
    config: FinetuningOptions,
) -> Iterator[np.ndarray]:
    """Return the logits of each record, in record order."""
    trainer = Trainer(task, strategy, seed=config.random_seed)
    trainer.restore(teacher.checkpoint)
    with reporting_damaged_records([file.path], file.schema):
        yield from trainer.compute_by_record(
            lambda batch: task.logits(trainer.model(batch, training=False)),
            lambda numbers: batches_of(trainer, file, config.predict_batch_size, numbers),
            num_records,
            bytes_per_record=4 * task.teacher_field.length,
            label="teacher",
        )
