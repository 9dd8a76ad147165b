"""Wordpieces per second on one core, compared with other WordPiece tokenizers with the same vocabulary.

  python benchmarks/tokenization.py --text book1.txt book2.txt --vocab_file vocab.txt

Each round uses new tokenizers, so filling their caches is part of the measurement. Lines with other ids than ours are
counted first for each peer. BlingFire brings its own vocabularies, and is compared if `--vocab_file` is the released
uncased one. `--characters` counts, instead, the code points with which words get other ids than ours.
"""

import argparse
import collections
import os
import pathlib
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable

os.environ["RAYON_NUM_THREADS"] = "1"  # one thread for the peers too
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import blingfire
import nanotoken
from common import compare
from tokenizers import BertWordPieceTokenizer

from official_bert.tokenization import FullTokenizer

# A function makes a new tokenizer, and returns a function of lines that gives the ids of each.
Encode = Callable[[list[str]], Iterable]


def ours(vocab_file: str) -> Encode:
    tokenizer = FullTokenizer(vocab_file)
    return lambda lines: map(tokenizer.encode, lines)


def tokenizers(vocab_file: str) -> Encode:
    tokenizer = BertWordPieceTokenizer(vocab_file, lowercase=True)
    return lambda lines: (encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False))


def nano(vocab_file: str) -> Encode:
    tokenizer = nanotoken.Tokenizer(vocab_file)
    return lambda lines: tokenizer.encode_batch(lines, add_special_tokens=False, parallel=False)


def bling(vocab_file: str) -> Encode:
    model = blingfire.load_model(str(pathlib.Path(blingfire.__file__).parent / "bert_base_tok.bin"))
    return lambda lines: (blingfire.text_to_ids(model, line, len(line.encode()), 100, True) for line in lines)


PEERS = (("tokenizers", tokenizers), ("blingfire", bling), ("nanotoken", nano))


def count_characters(vocab_file: str) -> None:
    """Print the number of code points, by Unicode category, that a peer treats in another way."""
    characters = [char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(char) != "Cs"]
    lines = [f"{char} a{char}b {char}c d{char}" for char in characters]
    expected = list(ours(vocab_file)(lines))
    for name, make in PEERS:
        found = map(list, make(vocab_file)(lines))
        others = [char for char, ids, right in zip(characters, found, expected, strict=True) if ids != right]
        categories = collections.Counter(map(unicodedata.category, others)).most_common()
        print(f"  {len(others):,} of {len(characters):,} code points with other ids than ours, {name}:", *categories)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--text", nargs="+", help="UTF-8 text files, one call per line")
    kind.add_argument("--characters", action="store_true", help="compare all characters")
    parser.add_argument("--vocab_file", required=True, help="an uncased vocabulary")
    flags = parser.parse_args()
    if flags.characters:
        count_characters(flags.vocab_file)
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    texts = [pathlib.Path(path).read_text(encoding="utf-8") for path in flags.text]
    lines = [line for text in texts for line in text.split("\n") if line.strip()]
    expected = list(ours(flags.vocab_file)(lines))
    num_wordpieces = sum(map(len, expected))

    def rate(make: Callable[[str], Encode]) -> float:
        encode = make(flags.vocab_file)
        began = time.perf_counter()
        collections.deque(encode(lines), maxlen=0)
        return num_wordpieces / (time.perf_counter() - began)

    print(f"Tokenization: {len(lines):,} lines, {num_wordpieces:,} wordpieces, one core")
    for name, make in PEERS:
        found = map(list, make(flags.vocab_file)(lines))
        num_other = sum(ids != right for ids, right in zip(found, expected, strict=True))
        print(f"  lines with other ids than ours, {name}: {num_other:,}")
        if num_other < len(lines) / 100:
            compare("wordpieces/s", lambda: rate(ours), lambda make=make: rate(make), name)


if __name__ == "__main__":
    main()
