"""Pretraining steps and records per second with dynamic masking, compared with records with masks.

  python benchmarks/dynamic_masking.py --text book.txt --vocab_file vocab.txt

Both sides are this project's and alternate in one process: batches of 32 x 128 tokens with up to 20 masked ones. The
step is that of a small model, 2 layers and hidden size 128, for which the input matters most. "The input alone" is the
speed of the pipeline without a model; in training it runs in parallel with the step, on the remaining cores.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from absl import logging
from common import compare

from official_bert.commands import create_pretraining_data
from official_bert.config.bert_config import BertConfig
from official_bert.data.pipeline import training_batches
from official_bert.data.record_files import count_records
from official_bert.tasks.pretraining.job import DynamicMasking
from official_bert.tasks.pretraining.options import PretrainingDataConfig
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.tokenization import Vocabulary
from official_bert.training.step import TrainingSteps
from official_bert.training.task import TrainingPlan

BATCH_SIZE, SEED = 32, 1
LENGTHS = {"max_seq_length": 128, "max_predictions_per_seq": 20}
ARCHITECTURE = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
NUM_STEPS, NUM_BATCHES = 10, 1000  # per round
NUM_WARM_UP_STEPS = 4  # compile, and fill the buffers
ROUNDS = 11  # training speed varies by more than the difference


def training(task: PretrainingTask, batches: tf.data.Dataset) -> Callable[[], float]:
    plan = TrainingPlan(train_batch_size=BATCH_SIZE, num_train_steps=1000, num_warmup_steps=100, random_seed=SEED)
    steps = TrainingSteps(task, task.build_model(), tf.distribute.get_strategy(), plan)
    iterator = iter(batches)
    steps.take(iterator, NUM_WARM_UP_STEPS)

    def measure() -> float:
        began = time.perf_counter()
        steps.take(iterator, NUM_STEPS)
        return NUM_STEPS / (time.perf_counter() - began)

    return measure


def reading(batches: tf.data.Dataset) -> Callable[[], float]:
    iterator = iter(batches)

    def measure() -> float:
        take(iterator, NUM_WARM_UP_STEPS)
        began = time.perf_counter()
        take(iterator, NUM_BATCHES)
        return NUM_BATCHES * BATCH_SIZE / (time.perf_counter() - began)

    return measure


def take(iterator: Iterator, number: int) -> None:
    for _ in range(number):
        next(iterator)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a UTF-8 text file, one sentence per line")
    parser.add_argument("--vocab_file", required=True, help="an uncased vocabulary")
    flags = parser.parse_args()
    logging.set_verbosity(logging.WARNING)
    vocabulary = Vocabulary.from_file(flags.vocab_file)
    task = PretrainingTask(
        BertConfig(vocab_size=vocabulary.size, type_vocab_size=2, **ARCHITECTURE),
        eval_batch_size=BATCH_SIZE,
        **LENGTHS,
    )
    with tempfile.TemporaryDirectory() as folder:
        selections = {}
        for masking in ("static", "none"):
            path = os.path.join(folder, masking)
            create_pretraining_data.run(
                PretrainingDataConfig(
                    input_file=flags.text, output_file=path, vocab_file=flags.vocab_file, masking=masking
                )
            )
            selections[masking] = {"paths": [path], "batch_size": BATCH_SIZE, "num_records": count_records(path)}

        def static() -> tf.data.Dataset:
            return training_batches(schema=task.schema, seed=SEED, **selections["static"])

        def dynamic(do_whole_word_mask: bool) -> tf.data.Dataset:
            masking = DynamicMasking(
                vocabulary,
                type_vocab_size=2,
                masked_lm_prob=0.15,
                whole_word=do_whole_word_mask,
                random_seed=SEED,
                **LENGTHS,
            )
            return masking.training_batches(start_record=0, **selections["none"])

        print(f"Dynamic masking: batches of {BATCH_SIZE} x {LENGTHS['max_seq_length']} tokens, {ARCHITECTURE}")
        for do_whole_word_mask in (False, True):
            unit = "words" if do_whole_word_mask else "wordpieces"
            ours = training(task, dynamic(do_whole_word_mask))
            print(f"Masking {unit}: training")
            compare("steps/s", ours, training(task, static()), "static", ROUNDS)
            print(f"Masking {unit}: the input alone")
            compare("records/s", reading(dynamic(do_whole_word_mask)), reading(static()), "static")


if __name__ == "__main__":
    main()
