"""Records per second and memory per record of making pretraining data, compared with the plain rules in tests/.

  python benchmarks/record_making.py --text book.txt --vocab_file vocab.txt

Speed is that of one process after start-up, from text to files, with dupe_factor 10 and 128 tokens. The peer makes the
same records in the way of the reference's script, with token strings, lists and `tf.train.Example`; both outputs are
compared. Memory is the growth of the peak of `create_pretraining_data.py` when it makes three times as many records.
"""

import argparse
import contextlib
import os
import pathlib
import sys
import tempfile
import time

from common import compare, run_watched

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for tests/, which is not installed

import tensorflow as tf  # noqa: E402
from absl import logging  # noqa: E402

from official_bert.commands import create_pretraining_data  # noqa: E402
from official_bert.support.text_files import LineReader  # noqa: E402
from official_bert.tasks.pretraining.options import PretrainingDataConfig  # noqa: E402
from official_bert.tokenization import load_vocab  # noqa: E402
from tests.tasks.pretraining.plain_records import plain_records  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a UTF-8 text file, one sentence per line")
    parser.add_argument("--vocab_file", required=True, help="an uncased vocabulary")
    flags = parser.parse_args()
    logging.set_verbosity(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        config = PretrainingDataConfig(
            input_file=flags.text, output_file=f"{folder}/ours.tfrecord", vocab_file=flags.vocab_file
        )
        measure_speed(config, f"{folder}/peer.tfrecord")
        measure_memory(config)


def measure_speed(config: PretrainingDataConfig, peer_file: str) -> None:
    lines = list(LineReader(config.input_file))
    vocab = load_vocab(config.vocab_file)

    def write_plain() -> None:
        with tf.io.TFRecordWriter(peer_file) as writer:
            for record in plain_records(lines, vocab, vars(config)):
                writer.write(record)

    def write_ours() -> None:
        create_pretraining_data.run(config, create_pretraining_data.prepare(config))

    write_ours()
    write_plain()
    records = zip(read(config.output_file), read(peer_file), strict=True)
    num_records = sum(tf.train.Example.FromString(a) == tf.train.Example.FromString(b) for a, b in records)
    if num_records != sum(1 for _ in read(peer_file)):
        raise SystemExit("the records differ")

    def rate(make) -> float:
        began = time.perf_counter()
        make()
        return num_records / (time.perf_counter() - began)

    print(f"Record making: {num_records:,} records of {config.max_seq_length} tokens, one process; the records agree")
    compare("records/s", lambda: rate(write_ours), lambda: rate(write_plain), "plain", rounds=3)


def read(path: str):
    return tf.data.TFRecordDataset([path]).as_numpy_iterator()


def measure_memory(config: PretrainingDataConfig) -> None:
    peaks = []
    for dupe_factor in (10, 30):
        command = [sys.executable, str(ROOT / "create_pretraining_data.py"), f"--dupe_factor={dupe_factor}"]
        command += [f"--{name}={getattr(config, name)}" for name in ("input_file", "output_file", "vocab_file")]
        peaks.append(run_watched(command)[1])
    num_added = sum(1 for _ in read(config.output_file)) * 2 // 3
    growth = (peaks[1] - peaks[0]) / num_added
    print(f"  peak memory   {peaks[0] / 2**20:>14,.0f} MiB, and {growth:,.0f} bytes for each further record")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        main()
