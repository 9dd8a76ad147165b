"""Fine-tuning for every task: `finetune()` checks, trains, evaluates, predicts and exports.

A `FinetuningJob` defines the task-specific parts: examples, records and the use of predictions. A teacher's logits are
written beside the records (knowledge distillation).
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.checkpoints.checkpoint_folder import BestCheckpoint
from official_bert.checkpoints.loading import load, open_checkpoint, open_pretrained
from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.data import record_files
from official_bert.data.batches import TokenBudget, reporting_damaged_records
from official_bert.data.record_files import RecordFile, manifest_path, write_cached
from official_bert.data.schema import RecordSchema
from official_bert.options.option import flags_affecting
from official_bert.options.training import FinetuningOptions
from official_bert.support.errors import UserError
from official_bert.support.manifest import Manifest
from official_bert.training.cluster import Cluster
from official_bert.training.devices import create_cluster
from official_bert.training.job import FinetuningJob
from official_bert.training.loop import Trainer, batches_of, check_divisible, training_batch_size
from official_bert.training.model_files import check_same_casing
from official_bert.training.run_folder import (
    check_model_files_replaceable,
    check_resumed_flags,
    check_same_model,
    check_trained_flags,
    checkpoint_folder,
    matches_vocabulary,
    read_run_config,
    teacher_label_order,
    training_folder,
    vocabulary_mismatch,
    write_evaluation_flags,
    write_labels,
    write_run_files,
)
from official_bert.training.task import TEACHER_LOGITS, DistillableTask, DistilledTask, TrainingPlan, compares_examples

_TRAINING = "train"  # the training split's record files


class Teacher(NamedTuple):
    folder: str  # the folder of its other files: output folder of its run, or a folder in another format
    is_run: bool  # whether it is the output folder of a run of this package
    head: dict[str, Any]  # flags of its head, by name; it may differ from the student's
    reader: CheckpointReader  # its weights
    bert_config: BertConfig  # its architecture
    # the number of its output for each label of the student; None for the same order
    label_order: list[int] | None = None


def finetune(
    job_class: type[FinetuningJob], config: FinetuningOptions, inputs: tuple[Any, ...], export: Callable[..., object]
) -> None:
    """Train, evaluate, predict and export; `inputs` are a job's after the flags.

    `export` takes the flags, the architecture, the tokenizer and the checkpoint.
    """
    cluster = create_cluster(config)  # before any other access to a device, as by mixed_precision=auto
    job = job_class(config, *inputs)
    if config.ensemble:
        _check_ensemble(job)
    teacher = checked_teacher(job) if config.teacher else None
    for name, batch_size in config.batch_sizes.items():
        num_parts = config.gradient_accumulation_steps if name == "train_batch_size" else 1
        check_divisible(batch_size, cluster.num_replicas, name, num_parts=num_parts)
    with cluster.reporting_lost_workers(), training_folder(config, is_written=cluster.is_chief):
        cluster.check_shared(config.output_dir)
        cluster.check_same("flags or numbers of examples", config, job.num_training_examples)
        job.check_output_folder()
        if not config.ensemble:
            _check_same_run(job)
        task = job.task
        if teacher:
            weight, temperature = config.soft_target_weight, config.distillation_temperature
            task = DistilledTask(task, soft_target_weight=weight, temperature=temperature)
        trainer = Trainer(task, cluster, seed=config.random_seed)
        if config.do_train and not _train(job, trainer, teacher):
            return  # stopped by SIGTERM
        if config.do_eval:
            job.evaluate(trainer, _loaded_step(job, trainer, "do_eval"))
        if config.do_predict:
            job.predict(trainer, 0 if config.ensemble else _loaded_step(job, trainer, "do_predict"))
        if config.do_export and cluster.is_chief:
            if job.export_warning:
                logging.warning("do_export: %s", job.export_warning)
            weights = latest_checkpoint(checkpoint_folder(config)) or config.init_checkpoint
            logging.info("do_export: using the weights of %s", weights)
            export(config, job.bert_config, job.tokenizer, weights)


def _train(job: FinetuningJob, trainer: Trainer, teacher: Teacher | None) -> bool:
    """Train; return True if training is complete."""
    config = job.config
    ids_file = job.records.ids_file(_TRAINING)
    _check_same_examples(config, ids_file.path, job.training_split.provenance(ids_file.schema))
    if has_stopped_early(config):
        return True
    # Loaded before anything is written, to raise if it does not fit; a resumed run may not need it.
    loaded = (
        [load_teacher(job, teacher, trainer.cluster)] if teacher and not latest_checkpoint(config.output_dir) else []
    )
    file = job.records.file(trainer, _TRAINING)
    batch_size = training_batch_size(config, trainer.num_replicas, file.lengths[-1] if file.lengths else 0)
    num_steps = _num_steps(job, trainer, file, batch_size)
    check_resumed_flags(config, num_steps, trainer.num_replicas)
    plan = TrainingPlan.from_config(
        config, num_train_steps=num_steps, num_warmup_steps=int(num_steps * config.warmup_proportion)
    )
    learned = teacher_file(file, job.task) if teacher else file

    def batches(start_record: int) -> Iterable:
        from official_bert.data.pipeline import training_batches  # imports TensorFlow

        if trainer.cluster.is_chief:
            write_run_files(config, job.bert_config, job.tokenizer.vocabulary, trainer.num_replicas)
        num_records = _write_training_records(job, trainer)
        if teacher:
            load_model = loaded.pop if loaded else lambda: load_teacher(job, teacher, trainer.cluster)
            write_teacher_records(job, teacher, load_model, file, num_records)
            loaded.clear()
            trainer.cluster.wait()
        return training_batches(
            [learned.path],
            learned.schema,
            batch_size=batch_size,
            num_records=num_records,
            seed=config.random_seed,
            start_record=start_record,
            lengths=file.lengths,
            is_repeated_late=compares_examples(job.task),
        )

    with reporting_damaged_records([learned.path], learned.schema):
        return trainer.train(
            plan,
            batches,
            output_dir=config.output_dir,
            init_checkpoint=config.init_checkpoint,
            evaluate=create_evaluator(config, trainer, job.primary_metric, lambda step: job.scores(trainer, step)),
        )


def _write_training_records(job: FinetuningJob, trainer: Trainer) -> int:
    """Write the training records and labels; return the number of records once all workers can read them."""
    if job.labels is not None and trainer.cluster.is_chief:
        write_labels(job.config.output_dir, job.labels)
    num_records = job.records.write(trainer, _TRAINING, job.training_split)
    trainer.cluster.wait()
    return num_records


def _loaded_step(job: FinetuningJob, trainer: Trainer, purpose: str) -> int:
    """Load the weights to evaluate or predict with: the output folder's, otherwise the initial checkpoint's."""
    config = job.config
    latest = latest_checkpoint(checkpoint_folder(config))
    logging.info("%s: using the weights of %s", purpose, latest or config.init_checkpoint)
    if latest:
        step = trainer.restore(latest)
    else:
        step = 0
        trainer.load_initial(config.init_checkpoint, is_trained_next=False)
    if trainer.cluster.is_chief:
        write_evaluation_flags(config, job.tokenizer.vocabulary)
    return step


def _check_same_run(job: FinetuningJob) -> None:
    """Compare a run with the folder's checkpoints or, without one, its model files with those it would replace."""
    config = job.config
    if latest_checkpoint(checkpoint_folder(config)):
        check_trained_flags(config.output_dir, type(config), vars(config), "use the same value, or another output_dir")
        check_same_model(config.output_dir, job.bert_config, job.tokenizer.vocabulary)
        run = read_run_config(config.output_dir)
        trained = run.flags.get("max_seq_length") if run else None
        if not config.do_train and trained not in (None, config.max_seq_length):
            message = "max_seq_length=%d, but the checkpoints in %s were trained with %d"
            logging.warning(message, config.max_seq_length, config.output_dir, trained)
    elif config.do_train:
        check_model_files_replaceable(config.output_dir, config)


def _check_ensemble(job: FinetuningJob) -> None:
    """Check the checkpoints of an ensemble before any long computation: all must match the flags' model."""
    for path in job.config.ensemble:
        folder = open_checkpoint(path, "ensemble_checkpoints").source.folders[-1]
        advice = "use the same value, or leave them out of ensemble_checkpoints"
        check_trained_flags(folder, type(job.config), vars(job.config), advice)
        check_same_model(folder, job.bert_config, job.tokenizer.vocabulary)


def _check_same_examples(config: FinetuningOptions, path: str, provenance: Mapping[str, Any]) -> None:
    """Raise if the output folder's checkpoints were trained on other examples than this run."""
    latest = latest_checkpoint(config.output_dir)
    known = Manifest.read_or_none(manifest_path(path)) if latest else None
    names = known.find_differences(provenance) if known else []
    if names:
        raise UserError(
            f"{latest} was trained on examples with other {', '.join(names)}; use what it was trained with, or another "
            "output_dir"
        )


def _num_steps(job: FinetuningJob, trainer: Trainer, file: RecordFile, batch_size: int | TokenBudget) -> int:
    """Return the number of steps in all epochs; as in the reference, long examples count once even if split."""
    config, num_examples = job.config, job.num_training_examples
    if isinstance(batch_size, TokenBudget):
        num_steps = _num_steps_within(batch_size, job, trainer, file)
        step = f"train_batch_tokens={config.train_batch_tokens}"
    else:
        num_steps = int(num_examples / batch_size * config.num_train_epochs)
        step = f"train_batch_size={batch_size}"
    if num_steps < 1:
        raise UserError(
            f"{num_examples} examples for num_train_epochs={config.num_train_epochs:g} make less than one "
            f"step of {step}"
        )
    logging.info("%d training examples, %d steps", num_examples, num_steps)
    return num_steps


def _num_steps_within(budget: TokenBudget, job: FinetuningJob, trainer: Trainer, file: RecordFile) -> int:
    """Count the batches of all epochs under a token budget, from the record lengths; log their utilization."""
    from official_bert.data.pipeline import batch_sizes  # imports TensorFlow

    config = job.config
    num_left = int(job.num_training_examples * config.num_train_epochs)
    sizes = []
    for size in batch_sizes(
        [file.path],
        file.schema,
        budget,
        num_records=_write_training_records(job, trainer),
        seed=config.random_seed,
        lengths=file.lengths,
    ):
        num_left -= size.num_examples
        if num_left < 0:
            break
        sizes.append(size)
    if sizes:
        num_examples, num_positions, num_tokens = (sum(column) for column in zip(*sizes, strict=True))
        message = "train_batch_tokens=%d: %.1f examples per step on average; padding is %.1f%% of all positions"
        logging.info(message, budget.num_tokens, num_examples / len(sizes), 100 * (1 - num_tokens / num_positions))
    return len(sizes)


def has_stopped_early(config: FinetuningOptions) -> bool:
    """Return True if an earlier run in the output folder stopped early; also warn."""
    patience = config.early_stopping_patience
    if patience and BestCheckpoint(config.output_dir).num_since_best >= patience:
        logging.warning(
            "an earlier run in %s stopped early; raise early_stopping_patience to train further", config.output_dir
        )
        return True
    return False


def create_evaluator(
    config: FinetuningOptions, trainer: Trainer, primary_metric: str, scores_at: Callable[[int], Mapping[str, float]]
) -> Callable[[int], bool] | None:
    """Return an evaluation callback for the Trainer that keeps the best checkpoint and decides on early stopping."""
    if not config.eval_steps:
        return None
    best = BestCheckpoint(config.output_dir, is_written=trainer.cluster.is_chief)
    patience = config.early_stopping_patience

    def evaluate(step: int) -> bool:
        if not best.has(step):  # otherwise the run was interrupted right after it
            scores = scores_at(step)
            logging.info("step %d: %s", step, ", ".join(f"{name} {score:.4f}" for name, score in scores.items()))
            folder = best.folder
            trainer.cluster.wait()  # until all workers have read it
            saved = best.add(step, scores[primary_metric], lambda: trainer.save_weights(folder, step))
            if saved:
                logging.info("best %s so far; saved %s", primary_metric, saved)
        if patience and best.num_since_best >= patience:
            logging.info("stopping early: %d evaluations without a better %s", patience, primary_metric)
            return True
        return False

    return evaluate


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
