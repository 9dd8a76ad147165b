r"""Peak memory of `extract_features.py` for few lines and for many.

  python benchmarks/feature_memory.py --vocab_file vocab.txt --num_lines 1000 2000000

The lines have 2 to 10 random words of the vocabulary. The encoder is small, with random weights (two layers, hidden
size 32), so that most of the time is spent on the lines. The number of vectors (`--pooling=mean --output_format=npy`)
is checked at the end.
"""

import argparse
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "extract_features.py"


def make_model(folder: pathlib.Path, vocab_file: str) -> list[str]:
    """Save a random encoder; return the flags for its files."""
    num_wordpieces = len(pathlib.Path(vocab_file).read_text().splitlines())
    config = BertConfig(
        vocab_size=num_wordpieces, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    prefix = BertEncoder(config).save_checkpoint(folder)
    return [
        f"--init_checkpoint={prefix}",
        f"--bert_config_file={folder / 'bert_config.json'}",
        f"--vocab_file={vocab_file}",
    ]


def write_lines(path: pathlib.Path, words: list[str], num_lines: int) -> None:
    rng = random.Random(1)
    with open(path, "w") as sink:
        for _ in range(num_lines):
            sink.write(" ".join(rng.choices(words, k=rng.randint(2, 10))) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--num_lines", type=int, nargs="+", default=[1000, 2_000_000], help="from few to many")
    flags = parser.parse_args()
    words = [word for word in pathlib.Path(flags.vocab_file).read_text().split() if word.isalpha()]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = make_model(folder, flags.vocab_file)
        for num_lines in flags.num_lines:
            write_lines(folder / "lines.txt", words, num_lines)
            began = time.perf_counter()
            subprocess.run(
                [
                    *(sys.executable, SCRIPT, *model, "--layers=-1", "--output_format=npy", "--pooling=mean"),
                    *(f"--input_file={folder / 'lines.txt'}", f"--output_file={folder / 'vectors.npy'}"),
                ],
                check=True,
            )
            seconds = time.perf_counter() - began
            most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # the largest child so far
            vectors = np.load(folder / "vectors.npy", mmap_mode="r")
            print(f"{len(vectors):>9,} lines: {seconds:>5.0f} s, at most {most:,.0f} MB of memory", flush=True)


if __name__ == "__main__":
    main()
