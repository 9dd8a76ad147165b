"""Pretraining run: train on records, save checkpoints, evaluate and export."""

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.data.batches import RECORD_INDEX, padded_lengths, reporting_damaged_records
from official_bert.data.graph_masking import GraphMasker
from official_bert.data.masking import Replacements
from official_bert.data.pipeline import evaluation_batches, training_batches
from official_bert.data.record_files import check_first_record, count_records
from official_bert.data.schema import RecordSchema
from official_bert.options.training import JAX
from official_bert.serving.exports import export_run
from official_bert.serving.text_model import TrainedModel
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.data import UNMASKED_SCHEMA, PretrainingInputs
from official_bert.tasks.pretraining.options import REPLACED_TOKENS, PretrainingConfig
from official_bert.tasks.pretraining.servable import servable_of_run
from official_bert.tasks.pretraining.task import (
    DistilledPretrainingTask,
    PretrainingTask,
    ReplacedTokenTask,
    check_teacher_vocabulary,
)
from official_bert.tokenization import Vocabulary, vocab
from official_bert.training.cluster import Cluster
from official_bert.training.devices import create_cluster, encoder_options
from official_bert.training.loop import Trainer, check_divisible, training_batch_size
from official_bert.training.monitoring import ScalarLog, write_results
from official_bert.training.run_folder import (
    RESULTS_FILE,
    check_model_files_replaceable,
    check_resumed_flags,
    check_same_model,
    training_folder,
    write_evaluation_flags,
    write_run_files,
)
from official_bert.training.task import TrainingPlan
from official_bert.visualization.report_page import by_importance


class PretrainingRecords(NamedTuple):
    """The records of a run; unmasked ones get new masks each time they are read."""

    paths: list[str]  # the files
    schema: RecordSchema  # the record schema, sized
    count: int  # number of records
    seed: int  # shuffle seed
    maskers: Mapping[str, GraphMasker] = {}  # for "training" and "evaluation" on unmasked records

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Check the first record of the first file against the vocabulary."""
        cls_id = vocabulary.require(vocab.CLS)[0]
        for batch in evaluation_batches(self.paths[:1], self.schema, batch_size=1, max_batches=1):
            first = int(batch["input_ids"][0, 0])
            if first != cls_id:
                raise UserError(
                    f"{self.paths[0]}: record 0 (counted from 0) begins with the id {first}, but {vocab.CLS} is "
                    f"{cls_id} in {vocabulary.source}; give the vocabulary that the records were made with"
                )

    @tf.autograph.experimental.do_not_convert
    def training_batches(self, *, start_record: int, **selection: Any) -> tf.data.Dataset:
        """Return shuffled batches without end; see `data.pipeline.training_batches` for arguments and order.

        New masks depend on the seed and the number of examples used since training began.
        """
        batches = training_batches(
            self.paths, self.schema, num_records=self.count, seed=self.seed, start_record=start_record, **selection
        )
        if not self.maskers:
            return batches

        def count(num_before, batch):
            num_examples = tf.shape(batch["input_ids"], tf.int64)[0]
            return num_before + num_examples, (num_before + tf.range(num_examples), batch)

        def mask(visits, batch):
            return self.maskers["training"].mask(batch, visits)

        counted = batches.scan(tf.constant(start_record, tf.int64), count)
        return counted.map(mask, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    @tf.autograph.experimental.do_not_convert
    def evaluation_batches(self, **selection: Any) -> tf.data.Dataset:
        """Return the first batches in file order; see `data.pipeline.evaluation_batches` for the arguments.

        New masks depend on the seed and record number: they are the same in every evaluation, and differ from those of
        training.
        """
        batches = evaluation_batches(self.paths, self.schema, **selection)
        if not self.maskers:
            return batches

        def mask(batch):
            return self.maskers["evaluation"].mask(batch, tf.cast(batch[RECORD_INDEX], tf.int64))

        return batches.map(mask, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def pretrain(inputs: PretrainingInputs) -> None:
    config, bert_config, vocabulary = inputs.config, inputs.bert_config, inputs.vocabulary
    if vocabulary and not config.do_export:
        logging.info("vocabulary: %s, %s", vocabulary.source, config.text_settings)
    if config.teacher and vocabulary:
        check_teacher_vocabulary(config.teacher, vocabulary)
    if latest_checkpoint(config.output_dir):
        check_same_model(config.output_dir, bert_config, vocabulary)
    elif config.do_train:
        check_model_files_replaceable(config.output_dir, config)
    cluster = create_cluster(config)  # before any other access to a device
    with cluster.reporting_lost_workers():
        if inputs.paths and not _train_and_evaluate(inputs, cluster):
            return  # stopped by SIGTERM
        if config.do_export and cluster.is_chief:
            checkpoint = latest_checkpoint(config.output_dir) or config.init_checkpoint
            logging.info("do_export: using the weights of %s", checkpoint)
            export_run(servable_of_run, TrainedModel(config, bert_config, inputs.tokenizer, checkpoint))


def _train_and_evaluate(inputs: PretrainingInputs, cluster: Cluster) -> bool:
    """Train, evaluate or both; return True if training is complete."""
    config, bert_config = inputs.config, inputs.bert_config
    options = encoder_options(config)
    settings = {
        "max_seq_length": config.max_seq_length,
        "max_predictions_per_seq": config.max_predictions_per_seq,
        "eval_batch_size": config.eval_batch_size,
        "encoder_options": options,
    }
    if config.objective == REPLACED_TOKENS:
        task = ReplacedTokenTask(bert_config, generator_size=config.generator_size, **settings)
    else:
        pairs = {"use_next_sentence": config.use_next_sentence, "sentence_order": config.sentence_order}
        task = PretrainingTask(bert_config, **pairs, **settings)
    learned = DistilledPretrainingTask(task, bert_config, config, dtype=options.dtype) if config.teacher else task
    records = _records(inputs, task.schema)
    if config.do_train and not config.train_batch_tokens:
        num_parts = config.gradient_accumulation_steps
        check_divisible(config.train_batch_size, cluster.num_replicas, "train_batch_size", num_parts=num_parts)
    if config.do_eval and (cluster.num_workers > 1 or config.backend == JAX):
        check_divisible(config.eval_batch_size, cluster.num_replicas, "eval_batch_size")
    with training_folder(config, is_written=cluster.is_chief):
        cluster.check_shared(config.output_dir)
        cluster.check_same("flags or numbers of records", config, records.count)
        trainer = Trainer(learned, cluster, seed=config.random_seed)
        with reporting_damaged_records(inputs.paths, records.schema):
            if records.maskers:
                records.check_vocabulary(inputs.vocabulary)
            if config.do_train and not _train(inputs, trainer, records):
                return False
            if config.do_eval:
                _evaluate(config, trainer, records, task)
    return True


def _records(inputs: PretrainingInputs, schema: RecordSchema) -> PretrainingRecords:
    config, paths, maskers = inputs.config, inputs.paths, {}
    if config.dynamic_masking:
        schema = UNMASKED_SCHEMA.sized(
            S=config.max_seq_length, V=inputs.vocabulary.size, T=inputs.bert_config.num_segments
        )
        for purpose in ("training", "evaluation"):
            maskers[purpose] = GraphMasker(
                inputs.vocabulary,
                max_seq_length=config.max_seq_length,
                max_predictions_per_seq=config.max_predictions_per_seq,
                masked_lm_prob=config.masked_lm_prob,
                whole_word=config.do_whole_word_mask,
                random_seed=config.random_seed,
                purpose=purpose,
                replacements=Replacements(config.mask_replace_prob, config.random_replace_prob),
            )
    for path in paths:
        check_first_record(path, schema)
    num_records = sum(count_records(path) for path in paths)
    logging.info("%s records in %d file(s)", f"{num_records:,}", len(paths))
    return PretrainingRecords(paths, schema, num_records, config.random_seed, maskers)


def _train(inputs: PretrainingInputs, trainer: Trainer, records: PretrainingRecords) -> bool:
    """Train; return True if complete."""
    config = inputs.config
    if config.num_warmup_steps >= config.num_train_steps:
        message = "num_warmup_steps=%d is not below num_train_steps=%d: the learning rate never reaches its peak"
        logging.warning(message, config.num_warmup_steps, config.num_train_steps)
    batch_size = training_batch_size(config, trainer.num_replicas, config.max_seq_length)
    lengths = padded_lengths(config.max_seq_length) if config.train_batch_tokens else None
    check_resumed_flags(config, config.num_train_steps, trainer.num_replicas)

    def batches(start_record: int) -> tf.data.Dataset:
        if trainer.cluster.is_chief:
            write_run_files(config, inputs.bert_config, inputs.vocabulary, trainer.num_replicas)
        return records.training_batches(batch_size=batch_size, lengths=lengths, start_record=start_record)

    plan = TrainingPlan.from_config(config, eval_steps=None)
    return trainer.train(plan, batches, output_dir=config.output_dir, init_checkpoint=config.init_checkpoint)


def _evaluate(config: PretrainingConfig, trainer: Trainer, records: PretrainingRecords, task: PretrainingTask) -> None:
    latest = latest_checkpoint(config.output_dir)
    if latest:
        step = trainer.restore(latest)
    else:
        trainer.load_initial(config.init_checkpoint, is_trained_next=False)
        step = 0
    if trainer.cluster.is_chief:
        write_evaluation_flags(config, None)
    num_batches = min(config.max_eval_steps, math.ceil(records.count / config.eval_batch_size))
    num_evaluated = min(records.count, num_batches * config.eval_batch_size)
    logging.info("evaluating %s on %d of %d records", latest or config.init_checkpoint, num_evaluated, records.count)
    batches = records.evaluation_batches(batch_size=config.eval_batch_size, max_batches=num_batches)
    scores = task.scores(trainer.predict(batches, num_records=num_evaluated, label="evaluating"))
    if trainer.cluster.is_chief:
        ScalarLog(config.output_dir).replace("eval", step, scores)
        results = {GLOBAL_STEP: step, **{name: np.float32(score) for name, score in scores.items()}}
        write_results(os.path.join(config.output_dir, RESULTS_FILE), by_importance(results, "masked_lm_accuracy"))
