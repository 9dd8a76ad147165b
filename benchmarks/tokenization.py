"""Wordpieces per second on one core, compared with Hugging Face `tokenizers` with the same vocabulary.

  python benchmarks/tokenization.py --text book1.txt book2.txt --vocab_file vocab.txt

Each round uses a new tokenizer, so filling its word cache is part of the measurement. The ids of both sides are
compared first.
"""

import argparse
import os
import pathlib
import time

os.environ["RAYON_NUM_THREADS"] = "1"  # one thread for the peer too
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from common import compare
from tokenizers import BertWordPieceTokenizer

from official_bert.tokenization import FullTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True, help="UTF-8 text files, one call per line")
    parser.add_argument("--vocab_file", required=True, help="an uncased vocabulary")
    flags = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    texts = [pathlib.Path(path).read_text(encoding="utf-8") for path in flags.text]
    lines = [line for text in texts for line in text.split("\n") if line.strip()]

    peer_tokenizer = BertWordPieceTokenizer(flags.vocab_file, lowercase=True)

    def our_ids() -> list[list[int]]:
        tokenizer = FullTokenizer(flags.vocab_file)
        return [tokenizer.encode(line) for line in lines]

    def peer_ids() -> list[list[int]]:
        return [encoding.ids for encoding in peer_tokenizer.encode_batch(lines, add_special_tokens=False)]

    expected = our_ids()
    if peer_ids() != expected:
        raise SystemExit("the ids differ: this text or vocabulary cannot be compared")
    num_wordpieces = sum(map(len, expected))

    def ours() -> float:
        tokenizer = FullTokenizer(flags.vocab_file)
        began = time.perf_counter()
        for line in lines:
            tokenizer.encode(line)
        return num_wordpieces / (time.perf_counter() - began)

    def peer() -> float:
        began = time.perf_counter()
        peer_tokenizer.encode_batch(lines, add_special_tokens=False)
        return num_wordpieces / (time.perf_counter() - began)

    print(f"Tokenization: {len(lines):,} lines, {num_wordpieces:,} wordpieces, one core; the ids agree")
    compare("wordpieces/s", ours, peer, "tokenizers")


if __name__ == "__main__":
    main()
