"""Texts per second of the graph tokenizer, compared with `tensorflow_text.BertTokenizer` and `FullTokenizer`; one core.

  python benchmarks/graph_tokenizer.py --text book1.txt book2.txt --vocab_file vocab.txt

Texts are tokenized in batches of 32, as on a loaded server, and one by one. Each round has a new `FullTokenizer`, so
filling its word cache is part of the measurement. Lines with wrong ids are counted first for each graph.
"""

import argparse
import os
import pathlib
import time
from collections.abc import Callable

from common import compare

BATCH_SIZE = 32
MAX_CALLS = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True, help="UTF-8 text files, one text per line")
    parser.add_argument("--vocab_file", required=True, help="an uncased vocabulary")
    flags = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # after the core is chosen: TensorFlow counts the cores at import
    import tensorflow_text

    from official_bert.tokenization import FullTokenizer
    from official_bert.tokenization.graph_tokenizer import GraphTokenizer

    texts = [pathlib.Path(path).read_text(encoding="utf-8") for path in flags.text]
    lines = [line for text in texts for line in text.split("\n") if line.strip()]
    began = time.perf_counter()
    graph_tokenizer = GraphTokenizer(FullTokenizer(flags.vocab_file))
    ours = graph_tokenizer.encode
    ours(tf.constant([""]))
    built = time.perf_counter() - began
    peer_tokenizer = tensorflow_text.BertTokenizer(flags.vocab_file, lower_case=True)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def peer(texts: tf.Tensor) -> tf.RaggedTensor:
        return peer_tokenizer.tokenize(texts).merge_dims(1, 2)

    expected = list(map(FullTokenizer(flags.vocab_file).encode, lines))
    print(f"Graph tokenizer: {len(lines):,} lines, {sum(map(len, expected)):,} wordpieces; built in {built:.1f} s")
    for name, graph in (("ours", ours), ("tensorflow_text", peer)):
        found = [row for start in range(0, len(lines), 1000) for row in graph(lines[start : start + 1000]).to_list()]
        num_wrong = sum(row != right for row, right in zip(found, expected, strict=True))
        print(f"  lines with other ids than FullTokenizer's, {name}: {num_wrong:,}")

    def texts_a_second(encode: Callable, batches: list) -> float:
        began = time.perf_counter()
        for batch in batches:
            encode(batch)
        return sum(map(len, batches)) / (time.perf_counter() - began)

    for size in (BATCH_SIZE, 1):
        batches = [lines[start : start + size] for start in range(0, len(lines), size)][:MAX_CALLS]
        tensors = list(map(tf.constant, batches))

        def our_rate(tensors: list = tensors) -> float:
            return texts_a_second(ours, tensors)

        def peer_rate(tensors: list = tensors) -> float:
            return texts_a_second(peer, tensors)

        def python_rate(batches: list = batches) -> float:
            tokenizer = FullTokenizer(flags.vocab_file)
            return texts_a_second(lambda batch: list(map(tokenizer.encode, batch)), batches)

        print(f"{size} a call, {len(batches):,} calls" if size > 1 else f"One a call, {len(batches):,} calls")
        unit = f"texts/s, {size} a call"
        compare(unit, our_rate, peer_rate, "tensorflow_text")
        compare(unit, our_rate, python_rate, "FullTokenizer")


if __name__ == "__main__":
    main()
