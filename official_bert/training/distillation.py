"""Knowledge distillation: a run's teacher and its logits beside the records."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.checkpoints.loading import load, open_pretrained
from official_bert.config.bert_config import BertConfig
from official_bert.data import record_files
from official_bert.data.pipeline import reporting_damaged_records
from official_bert.data.record_files import RecordFile, manifest_path, write_cached
from official_bert.data.schema import RecordSchema
from official_bert.options.option import flags_affecting
from official_bert.options.training import FinetuningOptions
from official_bert.support.errors import UserError
from official_bert.support.manifest import Manifest
from official_bert.training.cluster import Cluster
from official_bert.training.job import FinetuningJob
from official_bert.training.loop import Trainer, batches_of
from official_bert.training.model_files import check_same_casing
from official_bert.training.run_folder import (
    check_trained_flags,
    matches_vocabulary,
    read_run_config,
    teacher_label_order,
    vocabulary_mismatch,
)
from official_bert.training.task import TEACHER_LOGITS, DistillableTask


class Teacher(NamedTuple):
    folder: str  # the folder of its other files: output folder of its run, or a folder in another format
    is_run: bool  # whether it is the output folder of a run of this package
    head: dict[str, Any]  # flags of its head, by name; it may differ from the student's
    reader: CheckpointReader  # its weights
    bert_config: BertConfig  # its architecture
    # the number of its output for each label of the student; None for the same order
    label_order: list[int] | None = None


def checked_teacher(job: FinetuningJob) -> Teacher:
    """Find the teacher of a run and check that it matches the task."""
    teacher, vocabulary = _find_teacher(job.config), job.tokenizer.vocabulary
    if matches_vocabulary(teacher.folder, vocabulary) is False:
        raise UserError(vocabulary_mismatch(vocabulary, teacher.folder, f"teacher={teacher.folder} was trained with"))
    teacher.bert_config.check_vocabulary(vocabulary, f"teacher={teacher.folder}")
    if not teacher.is_run:
        check_same_casing(teacher.folder, job.tokenizer, "teacher")
    check_trained_flags(
        *(teacher.folder, type(job.config), vars(job.config)),
        "use the same value, or another teacher",
        has_same_head=False,
    )
    if job.labels is not None:
        order = teacher_label_order(teacher.folder, job.labels, noun=job.label_noun, is_run=teacher.is_run)
        teacher = teacher._replace(label_order=order)
    return teacher


def _find_teacher(config: FinetuningOptions) -> Teacher:
    """Find the teacher given by the flags; check that it was trained on the same task."""
    path = config.teacher
    reader, bert_config = open_pretrained(path, parameter="teacher")
    folder = reader.source.folders[-1]
    run = read_run_config(folder)
    if run and run.task not in (None, config.task):
        raise UserError(
            f"teacher={path} was trained for {run.task}, not for {config.task}; use a teacher of the same task"
        )
    bert_config.check_length(config.max_seq_length, f"teacher={path}")
    names = flags_affecting(config, "head")
    defaults = {field.name: field.default for field in dataclasses.fields(config) if field.name in names}
    head = {name: run.flags[name] for name in names if name in run.flags} if run else defaults
    return Teacher(folder, run is not None, head, reader, bert_config)


def teacher_file(file: RecordFile, task: DistillableTask) -> RecordFile:
    """Return the file for the records of `file` plus the teacher's logits."""
    path = file.path.removesuffix(".tf_record") + ".teacher.tf_record"
    return file._replace(path=path, schema=file.schema.with_fields(task.teacher_field))


def load_teacher(job: FinetuningJob, teacher: Teacher, cluster: Cluster) -> Trainer:
    task = job.create_task(dataclasses.replace(job.config, **teacher.head), teacher.bert_config)
    trainer = Trainer(task, cluster, seed=job.config.random_seed)
    load(teacher.reader, trainer.model.weights)
    return trainer


def write_teacher_records(
    job: FinetuningJob, teacher: Teacher, load_model: Callable[[], Trainer], file: RecordFile, num_records: int
) -> None:
    """Write the training records with a teacher's logits, computed once, unless a file is up to date."""
    config = job.config
    target = teacher_file(file, job.task)
    schema = RecordSchema(target.schema.fields[-1])

    def records() -> Iterator[bytes]:
        logging.info("teacher: using the weights of %s", teacher.reader.prefix)
        logits = _logits(load_model(), file, num_records, config)
        for record, of_record in zip(record_files.read_records(file.path), logits, strict=True):
            # Two concatenated serialized tf.train.Examples are an Example with the features of both.
            if teacher.label_order:
                of_record = of_record[..., teacher.label_order]
            yield record + schema.encode({TEACHER_LOGITS: of_record.ravel()})

    read = Manifest.read_or_none(manifest_path(file.path))
    provenance = {
        **(read.provenance if read else {}),
        "weights of the teacher": _fingerprint(teacher.reader),
        "model of the teacher": teacher.bert_config.to_dict(),
        "head of the teacher": teacher.head,
        **({"order of the teacher's labels": teacher.label_order} if teacher.label_order else {}),
        "mixed_precision": config.mixed_precision,
    }
    write_cached(target, provenance, records)


def _fingerprint(reader: CheckpointReader) -> str:
    digest = hashlib.sha256()
    for name in sorted(name for name in reader.shapes if not is_training_state(name, reader.shapes)):
        digest.update(f"{name} ".encode())
        digest.update(np.ascontiguousarray(reader.read(name)))
    return digest.hexdigest()


def _logits(trainer: Trainer, file: RecordFile, num_records: int, config: FinetuningOptions) -> Iterator[np.ndarray]:
    with reporting_damaged_records([file.path], file.schema):
        yield from trainer.compute_by_record(
            lambda batch: trainer.task.logits(trainer.model(batch, training=False)),
            lambda numbers: batches_of(trainer, file, config.predict_batch_size, numbers),
            num_records,
            bytes_per_record=4 * trainer.task.teacher_field.length,
            label="teacher",
        )
