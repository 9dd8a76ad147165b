"""Questions per second from SQuAD to records, compared with the plain rules in tests/; then from logits to answers.

  python benchmarks/squad_features.py --squad dev-v1.1.json --vocab_file vocab.txt

The peer makes the same records in the way of the reference's script: in one process, tokenizing a context again for
every question and searching all windows for every wordpiece. It is slow, so it gets only every tenth paragraph, and
these records are compared. Answers are searched in 10,000 windows with random logits, for each version of SQuAD.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

from common import compare

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for tests/, which is not installed

# No TensorFlow at import: the processes that tokenize import this file, too.
LENGTHS = {"max_seq_length": 384, "doc_stride": 128, "max_query_length": 64}
ANSWERS = {"n_best_size": 20, "max_answer_length": 30}
NUM_WINDOWS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", required=True, help="a file in SQuAD's format, uncompressed")
    parser.add_argument("--vocab_file", required=True, help="an uncased vocabulary")
    parser.add_argument("--every", type=int, default=10, help="the peer gets one in this many paragraphs")
    flags = parser.parse_args()

    from absl import logging

    logging.set_verbosity(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        measure_features(flags.squad, flags.vocab_file, flags.every, folder)
        measure_answers(flags.squad, flags.vocab_file)


def measure_features(squad_file: str, vocab_file: str, every: int, folder: str) -> None:
    part = one_paragraph_of(every, json.loads(pathlib.Path(squad_file).read_text(encoding="utf-8")))
    part_file = pathlib.Path(folder) / "part.json"
    part_file.write_text(json.dumps(part))
    num_windows = write_records(str(part_file), vocab_file, f"{folder}/ours")
    write_plain_records(part, vocab_file, f"{folder}/plain")
    if not same_records(f"{folder}/ours", f"{folder}/plain"):
        raise SystemExit("the records differ")

    num_part, num_all = number_of_questions(str(part_file)), number_of_questions(squad_file)
    print(
        f"SQuAD features: {num_all:,} questions, {len(os.sched_getaffinity(0))} processors; the records of the", end=" "
    )
    print(f"{num_windows:,} windows of {num_part:,} questions agree")
    compare(
        "questions/s",
        lambda: num_all / seconds(lambda: write_records(squad_file, vocab_file, f"{folder}/all")),
        lambda: num_part / seconds(lambda: write_plain_records(part, vocab_file, f"{folder}/plain")),
        "plain",
        rounds=3,
    )


def measure_answers(squad_file: str, vocab_file: str) -> None:
    import numpy as np

    from official_bert.tasks.question_answering.answers import find_answers

    tokenized = tokenize(squad_file, vocab_file)
    windows = tokenized.windows = tokenized.windows[:NUM_WINDOWS]
    shape = 2, len(windows), LENGTHS["max_seq_length"]
    starts, ends = np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)
    print(f"SQuAD answers: {len(windows):,} windows with random logits")
    for version_2 in (False, True):
        work = functools.partial(find_answers, tokenized, starts, ends, **ANSWERS, version_2=version_2)
        print(f"  version {2 if version_2 else 1}     {seconds(work):>14,.2f} s")


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def one_paragraph_of(every: int, content: dict) -> dict:
    paragraphs = [paragraph for article in content["data"] for paragraph in article["paragraphs"]]
    return {"data": [{"paragraphs": paragraphs[::every]}]}


def number_of_questions(squad_file: str) -> int:
    from official_bert.tasks.question_answering.data import read_squad

    return len(read_squad(squad_file, for_training=False, version_2=False).questions)


def tokenize(squad_file: str, vocab_file: str):
    from official_bert.tasks.question_answering.data import TokenizedSquad, WindowOptions, read_squad
    from official_bert.tokenization import FullTokenizer

    squad = read_squad(squad_file, for_training=False, version_2=False)
    return TokenizedSquad(squad, FullTokenizer(vocab_file), WindowOptions(**LENGTHS))


def write_records(squad_file: str, vocab_file: str, path: str) -> int:
    from official_bert.data.record_files import RecordFile, write_split
    from official_bert.tasks.question_answering.data import PREDICTION_SCHEMA

    with contextlib.suppress(FileNotFoundError):
        os.remove(path)  # or it would be reused
    tokenized = tokenize(squad_file, vocab_file)
    return write_split(RecordFile(path, PREDICTION_SCHEMA.sized(S=tokenized.options.max_seq_length)), tokenized)


def write_plain_records(content: dict, vocab_file: str, path: str) -> None:
    import tensorflow as tf

    from official_bert.config.text_settings import TextSettings
    from official_bert.tasks.question_answering.data import FIRST_UNIQUE_ID
    from official_bert.tokenization import load_vocab
    from tests.tasks.question_answering.plain_squad import plain_features

    rules = {**LENGTHS, "for_training": False, "version_2": False}
    features = plain_features(content, load_vocab(vocab_file), TextSettings(), **rules)
    with tf.io.TFRecordWriter(path) as writer:
        for number, feature in enumerate(features):
            num_missing = LENGTHS["max_seq_length"] - len(feature["input_ids"])
            values = {
                "unique_ids": [FIRST_UNIQUE_ID + number],
                "input_ids": feature["input_ids"] + [0] * num_missing,
                "input_mask": [1] * len(feature["input_ids"]) + [0] * num_missing,
                "segment_ids": feature["segment_ids"] + [0] * num_missing,
            }
            lists = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=values[name])) for name in values}
            writer.write(tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString())


def same_records(first: str, second: str) -> bool:
    import tensorflow as tf

    sides = [tf.data.TFRecordDataset([path]).as_numpy_iterator() for path in (first, second)]
    parse = tf.train.Example.FromString
    return all(parse(ours) == parse(theirs) for ours, theirs in zip(*sides, strict=True))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        main()
