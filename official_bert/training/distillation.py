"""Knowledge distillation: a run's teacher, its logits beside the records, and tasks that learn from a teacher, too."""

import abc
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.checkpoints.loading import load, open_pretrained
from official_bert.config.bert_config import ENCODER_INPUTS, BertConfig
from official_bert.data import record_files
from official_bert.data.pipeline import reporting_damaged_records
from official_bert.data.record_files import RecordFile, manifest_path, write_cached
from official_bert.data.schema import RecordSchema
from official_bert.modeling.blocks import dense
from official_bert.modeling.encoder import BertEncoder, create_encoder
from official_bert.modeling.encoder_options import EncoderOptions
from official_bert.modeling.heads import EncoderModel
from official_bert.modeling.token_model import complete_inputs, is_needed
from official_bert.options.option import flags_affecting
from official_bert.options.training import FinetuningOptions
from official_bert.support.errors import UserError
from official_bert.support.manifest import Manifest
from official_bert.training.devices import encoder_options
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
from official_bert.training.task import DistillableTask, RecordTask, WeightedSum, compares_examples

TEACHER_LOGITS = "teacher_logits"


class OutputsAndLayers(NamedTuple):
    """Outputs of a `LayeredModel`."""

    outputs: Any  # the outputs of the wrapped model
    layers: list[Any]  # L + 1 float [B, S, D] or [B, S, projected_size]: the embeddings and each encoder layer


class LayeredModel(keras.Model):
    """A model that also returns its encoder's layers; the projections are TinyBERT's (2020), equations 8 and 9."""

    def __init__(self, model: EncoderModel, *, projected_size: int | None = None):
        super().__init__(autocast=False, dtype=model.dtype_policy, name="layered")
        self.model = model  # the wrapped model
        names, config = ("embeddings", "layers") if projected_size is not None else (), model.encoder.config
        options = {"dtype": self.dtype_policy, "use_bias": False}
        self.projections = [dense(projected_size, config.initializer_range, name=name, **options) for name in names]
        with keras.name_scope("distillation"):
            for projection in self.projections:
                projection.build((None, None, config.hidden_size))
        self.built = True

    @property
    def encoder(self):
        return self.model.encoder

    def call(self, inputs, training=False) -> OutputsAndLayers:
        """Compute outputs and layers; the inputs are those of the model, as a dict by name."""
        named = {name: inputs[name] for name in self.model.INPUTS}
        complete = complete_inputs(named)
        named.update(complete._asdict())
        encoded = self.encoder(complete, training=training)
        layers = [encoded["embedding_output"], *encoded["encoder_layers"]]
        if self.projections:
            of_embeddings, of_layers = self.projections
            layers = [of_embeddings(layers[0]), *map(of_layers, layers[1:])]
        return OutputsAndLayers(self.model.from_encoded(encoded, named, training=training), layers)


class DistilledTask:
    """A task learned from labels and from a teacher's logits: Hinton et al. (2015), section 2."""

    def __init__(self, task: DistillableTask, *, soft_target_weight: float, temperature: float):
        self._task = task
        self._soft_target_weight, self._temperature = soft_target_weight, temperature
        self.schema = task.schema.with_fields(task.teacher_field)  # the records of the task, with the teacher's logits
        self.compares_examples = compares_examples(task)

    def build_model(self) -> keras.Model:
        return self._task.build_model()

    def losses(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """Return the losses of the task and `soft_target`, each multiplied by its weight."""
        soft_target = self._task.soft_target_loss(outputs, batch[TEACHER_LOGITS], batch, self._temperature)
        losses = {**self._task.losses(outputs, batch), "soft_target": soft_target}
        return weighted(losses, {"soft_target": self._soft_target_weight}, others=1 - self._soft_target_weight)

    def predictions(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return self._task.predictions(outputs, batch)


class TaskWithTeacher(abc.ABC):
    """A task whose student learns from a teacher that runs on the same batches, in training only."""

    def __init__(self, task: RecordTask, *, weights: Mapping[str, float], projected_size: int | None = None):
        self._task = task
        self._weights = weights
        self._projected_size = projected_size
        self.schema = task.schema  # the records of the task
        self._teacher: keras.Model | None = None

    def build_model(self) -> keras.Model:
        """Create the student and its projections, variables included, and load the teacher."""
        student = LayeredModel(self._task.build_model(), projected_size=self._projected_size)
        self._teacher = self._load_teacher()
        self._teacher.trainable = False
        return student

    def losses(self, outputs: OutputsAndLayers, batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """Return the losses of the task and those against the teacher, each multiplied by its weight."""
        losses = {**self._task.losses(outputs.outputs, batch), **self._taught_losses(outputs, batch)}
        return weighted(losses, self._weights)

    def predictions(self, outputs: OutputsAndLayers, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return self._task.predictions(outputs.outputs, batch)

    @abc.abstractmethod
    def _load_teacher(self) -> keras.Model:
        """Create the teacher, with its weights."""

    @abc.abstractmethod
    def _taught_losses(self, outputs: OutputsAndLayers, batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """Run the teacher; return the losses of the student against it."""


class HiddenStateTask(TaskWithTeacher):
    """A distilled task that also learns hidden states: Jiao et al., "TinyBERT" (2020), section 3.1."""

    def __init__(
        self,
        task: DistilledTask,
        *,
        teacher: CheckpointReader,
        teacher_config: BertConfig,
        teacher_layers: Sequence[int],
        weight: float,
        dtype: str | None = None,
    ):
        super().__init__(task, weights={"hidden_state": weight}, projected_size=teacher_config.hidden_size)
        self._reader, self._teacher_config = teacher, teacher_config
        self._teacher_layers = teacher_layers
        self._dtype = dtype

    def _load_teacher(self) -> BertEncoder:
        teacher = create_encoder(self._teacher_config, EncoderOptions(dtype=self._dtype))
        load(self._reader, teacher.checkpoint_variables(), required=is_needed).log()
        return teacher

    def _taught_losses(self, outputs: OutputsAndLayers, batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        encoded = self._teacher({name: batch[name] for name in ENCODER_INPUTS}, training=False)
        layers = encoded["encoder_layers"]
        taught = [encoded["embedding_output"], *(layers[layer] for layer in self._teacher_layers)]
        return {"hidden_state": hidden_state_loss(outputs.layers, taught, batch["input_mask"])}


def hidden_state_loss(student: Sequence[tf.Tensor], teacher: Sequence[tf.Tensor], input_mask: tf.Tensor) -> WeightedSum:
    """Return TinyBERT's loss: squared errors of float [B, S, D], summed over layers, at unpadded positions."""
    is_real = tf.cast(input_mask, tf.float32)
    differences = tf.add_n(
        [
            tf.reduce_mean(tf.math.squared_difference(*(tf.cast(layer, tf.float32) for layer in pair)), axis=-1)
            for pair in zip(student, teacher, strict=True)
        ]
    )  # [B, S]
    return WeightedSum(tf.reduce_sum(differences * is_real), tf.reduce_sum(is_real))


def cosine_loss(student: tf.Tensor, teacher: tf.Tensor, input_mask: tf.Tensor) -> WeightedSum:
    """Return 1 - the cosine similarity of two layers, float [B, S, D], averaged over unpadded positions."""
    student, teacher = (tf.math.l2_normalize(tf.cast(layer, tf.float32), axis=-1) for layer in (student, teacher))
    distances = 1 - tf.reduce_sum(student * teacher, axis=-1)  # [B, S]
    is_real = tf.cast(input_mask, tf.float32)
    return WeightedSum(tf.reduce_sum(distances * is_real), tf.reduce_sum(is_real))


def matched_layers(num_student: int, num_teacher: int) -> list[int]:
    """Choose the teacher layer that each student layer learns: evenly spaced, up to the last."""
    if num_student > num_teacher:
        raise UserError(
            f"hidden_state_weight needs a teacher with at least as many layers: the student has {num_student} and its "
            f"teacher {num_teacher}"
        )
    return [num_teacher * (layer + 1) // num_student - 1 for layer in range(num_student)]


def weighted(
    losses: Mapping[str, WeightedSum], weights: Mapping[str, float], others: float = 1.0
) -> dict[str, WeightedSum]:
    """Return losses whose means are multiplied by weights, by name; `others` is the weight of unnamed losses."""
    return {name: loss._replace(total=loss.total * weights.get(name, others)) for name, loss in losses.items()}


def soft_cross_entropy(
    logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float, *, axis: int = -1
) -> tf.Tensor:
    """KL divergence of float [...] from a teacher's, times temperature^2, which keeps the gradients' scale."""
    student = tf.nn.log_softmax(tf.cast(logits, tf.float32) / temperature, axis=axis)
    teacher = tf.nn.log_softmax(tf.cast(teacher_logits, tf.float32) / temperature, axis=axis)
    return tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=axis) * temperature**2


def soft_binary_cross_entropy(logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float) -> tf.Tensor:
    """Compute `soft_cross_entropy` for independent labels: the mean over the last axis."""
    pairs = [tf.stack([values, tf.zeros_like(values)], axis=-1) for values in (logits, teacher_logits)]
    return tf.reduce_mean(soft_cross_entropy(*pairs, temperature), axis=-1)


class Teacher(NamedTuple):
    """A trained model."""

    folder: str  # the folder of its other files: output folder of its run, or a folder in another format
    is_run: bool  # whether it is the output folder of a run of this package
    head: dict[str, Any]  # flags of its head, by name; it may differ from the student's
    reader: CheckpointReader  # its weights
    bert_config: BertConfig  # its architecture
    # the number of its output for each label of the student; None for the same order
    label_order: list[int] | None = None
    layers: Sequence[int] = ()  # its layer that each layer of the student learns, if it learns hidden states


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
    if job.config.hidden_state_weight:
        layers = matched_layers(job.bert_config.num_layers, teacher.bert_config.num_layers)
        teacher = teacher._replace(layers=layers)
    return teacher


def distilled_task(job: FinetuningJob, teacher: Teacher) -> DistilledTask | HiddenStateTask:
    config = job.config
    task = DistilledTask(
        job.task, soft_target_weight=config.soft_target_weight, temperature=config.distillation_temperature
    )
    if not config.hidden_state_weight:
        return task
    return HiddenStateTask(
        task,
        teacher=teacher.reader,
        teacher_config=teacher.bert_config,
        teacher_layers=teacher.layers,
        weight=config.hidden_state_weight,
        dtype=encoder_options(config).dtype,
    )


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


def load_teacher(job: FinetuningJob, teacher: Teacher, strategy: tf.distribute.Strategy) -> Trainer:
    task = job.create_task(dataclasses.replace(job.config, **teacher.head), teacher.bert_config)
    trainer = Trainer(task, strategy, seed=job.config.random_seed)
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
