r"""Examples per second of fine-tuning and prediction in batches of similar lengths, compared with padding to 128.

  python benchmarks/length_buckets.py --task_name cola --data_dir CoLA --vocab_file vocab.txt \
      --bert_config_file bert_config.json --init_checkpoint bert_model.ckpt

Both sides are this project's, with and without --dynamic_padding, and alternate in one process after compilation.
Batches of similar lengths come in random order, so a training round needs enough of them; padded to 128 all batches
cost the same, so a few are enough. A prediction round is the whole test set, read from its records.
"""

import argparse
import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from common import compare

from official_bert.config.bert_config import BertConfig
from official_bert.data.pipeline import evaluation_batches, training_batches
from official_bert.data.record_files import ExampleSplit, RecordFile, write_split
from official_bert.data.schema import RecordSchema
from official_bert.tasks.classification.data import DATASETS
from official_bert.tasks.classification.records import LabelledText, TextJoiner
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tokenization import FullTokenizer
from official_bert.training.loop import Trainer
from official_bert.training.step import TrainingSteps
from official_bert.training.task import TrainingPlan

MAX_SEQ_LENGTH, TRAIN_BATCH_SIZE, PREDICT_BATCH_SIZE, SEED = 128, 32, 8, 1
NUM_STEPS = {"buckets": 16, "fixed": 4}  # per training round
NUM_WARM_UP_STEPS = 4  # compile, and warm the caches
PREDICTION_ROUNDS = 3


class Records(NamedTuple):
    """The records of a split, and the lengths that a side pads them to."""

    path: str
    schema: RecordSchema
    num_records: int
    lengths: dict[str, list[int] | None]


def training(task: ClassificationTask, trainer: Trainer, records: Records, side: str) -> Callable[[], float]:
    plan = TrainingPlan(train_batch_size=TRAIN_BATCH_SIZE, num_train_steps=1000, num_warmup_steps=100, random_seed=SEED)
    steps = TrainingSteps(task, trainer.model, tf.distribute.get_strategy(), plan)
    batches = training_batches(
        [records.path],
        records.schema,
        batch_size=TRAIN_BATCH_SIZE,
        num_records=records.num_records,
        seed=SEED,
        lengths=records.lengths[side],
    )
    iterator = iter(batches)
    steps.take(iterator, NUM_WARM_UP_STEPS)

    def measure() -> float:
        began = time.perf_counter()
        steps.take(iterator, NUM_STEPS[side])
        return NUM_STEPS[side] * TRAIN_BATCH_SIZE / (time.perf_counter() - began)

    return measure


def prediction_batches(records: Records, side: str) -> tf.data.Dataset:
    return evaluation_batches(
        [records.path], records.schema, batch_size=PREDICT_BATCH_SIZE, lengths=records.lengths[side]
    )


def prediction(trainer: Trainer, records: Records, side: str) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        trainer.predict(prediction_batches(records, side), num_records=records.num_records)
        return records.num_records / (time.perf_counter() - began)

    measure()
    return measure


def describe(records: Records) -> str:
    masks = [batch["input_mask"].numpy() for batch in prediction_batches(records, "buckets")]
    num_wordpieces = sum(int(mask.sum()) for mask in masks) / records.num_records
    sizes = [len(mask) for mask in masks]
    return (
        f"{records.num_records:,} examples of {num_wordpieces:.0f} wordpieces; batch size {PREDICT_BATCH_SIZE}, in "
        f"buckets {min(sizes)} to {max(sizes)}, {np.mean(sizes):.0f} on average"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task_name", required=True, choices=("cola", "mrpc"))
    for name in ("data_dir", "vocab_file", "bert_config_file", "init_checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    flags = parser.parse_args()
    dataset = DATASETS[flags.task_name]
    config = BertConfig.from_json_file(flags.bert_config_file)
    joiner = TextJoiner(FullTokenizer(flags.vocab_file), max_seq_length=MAX_SEQ_LENGTH)
    task = ClassificationTask(
        config,
        problem=dataset.problem,
        num_labels=len(dataset.labels),
        metric_names=dataset.metrics,
        max_length=joiner.max_length,
        eval_batch_size=PREDICT_BATCH_SIZE,
    )

    def make_records(split: str) -> Records:
        examples = dataset.examples(flags.data_dir, split)
        texts = [(example.text_a, example.text_b) for example in examples]
        labels = dataset.check_labels(examples) if split == "train" else [0] * len(texts)
        path = os.path.join(folder, f"{split}.tf_record")
        num_records = write_split(
            RecordFile(path, task.schema), ExampleSplit(joiner, list(map(LabelledText, texts, labels)))
        )
        return Records(path, task.schema, num_records, {"buckets": joiner.padded_lengths(), "fixed": None})

    with tempfile.TemporaryDirectory() as folder:
        train, test = make_records("train"), make_records("test")
        trainers = {side: Trainer(task, tf.distribute.get_strategy(), seed=SEED) for side in NUM_STEPS}
        for trainer in trainers.values():
            trainer.load_initial(flags.init_checkpoint)
        print(f"Length buckets: {flags.task_name}, {pathlib.Path(flags.bert_config_file).resolve().parent.name}")
        print(f"Training: {train.num_records:,} examples, batch size {TRAIN_BATCH_SIZE}")
        compare(
            "examples/s",
            *(training(task, trainer, train, side) for side, trainer in trainers.items()),
            f"fixed {MAX_SEQ_LENGTH}",
        )
        print(f"Prediction: {describe(test)}")
        compare(
            "examples/s",
            *(prediction(trainer, test, side) for side, trainer in trainers.items()),
            f"fixed {MAX_SEQ_LENGTH}",
            rounds=PREDICTION_ROUNDS,
        )


if __name__ == "__main__":
    main()
