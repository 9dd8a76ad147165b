"""Time and memory of making pretraining records of a large corpus, with one process and with several.

  python benchmarks/sharded_sampling.py --text books/*.txt --vocab_file vocab.txt --corpus_mb 2000

The corpus is made by repeating the given books with some words replaced. The records are made with
`--sampling=sharded` and a `dupe_factor` of 1; those of one process and of several are compared. Memory is the maximum,
over samples taken five times per second, of the PSS of all processes together.
"""

import argparse
import contextlib
import filecmp
import os
import pathlib
import random
import sys
import tempfile

from common import run_watched

ROOT = pathlib.Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, nargs="+", help="UTF-8 text files, blank lines between documents")
    parser.add_argument("--vocab_file", required=True, help="an uncased vocabulary")
    parser.add_argument("--corpus_mb", type=int, default=2000, help="size of the corpus")
    parser.add_argument("--num_processes", type=int, nargs="+", default=[1, 2], help="numbers of processes to compare")
    parser.add_argument("--flags", nargs="*", default=[], help="further flags of create_pretraining_data.py")
    parser.add_argument("--folder", help="folder for the files; by default a new temporary folder")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=flags.folder) as folder:
        corpus = f"{folder}/corpus.txt"
        num_bytes = make_corpus(corpus, flags.text, flags.corpus_mb * 10**6)
        print(f"Sharded sampling: {num_bytes / 1e6:,.0f} MB of text, 128 tokens, dupe_factor 1")
        seconds = {}
        for number in flags.num_processes:
            output = f"{folder}/{number}.tfrecord"
            seconds[number], peak = measure(corpus, output, flags.vocab_file, number, flags.flags)
            speed = num_bytes / 1e6 / seconds[number]
            print(
                f"  {number} processes  {seconds[number]:>10,.1f} s  {speed:>8.2f} MB/s  {peak / 1e9:>6.2f} GB",
                flush=True,
            )
            if number != flags.num_processes[0]:
                first = f"{folder}/{flags.num_processes[0]}.tfrecord"
                if not filecmp.cmp(first, output, shallow=False):
                    raise SystemExit("the records differ")
                print(f"  {seconds[flags.num_processes[0]] / seconds[number]:.2f} times as fast, the same records")
                os.remove(output)


def make_corpus(path: str, texts: list[str], size: int) -> int:
    """Write a corpus of about `size` bytes; return its size."""
    lines = [line for text in texts for line in [*pathlib.Path(text).read_text().splitlines(), ""]]
    words = " ".join(lines).split()
    rng = random.Random(0)
    num_bytes = 0
    with open(path, "w") as sink:
        while num_bytes < size:
            for line in lines:
                if line and rng.random() < 0.5:
                    parts = line.split(" ")
                    parts[int(rng.random() * len(parts))] = words[int(rng.random() * len(words))]
                    line = " ".join(parts)
                num_bytes += sink.write(line + "\n")
                if num_bytes >= size:
                    break
    return os.path.getsize(path)


def measure(corpus: str, output: str, vocab_file: str, num_processes: int, flags: list[str]) -> tuple[float, int]:
    """Run the script; return its seconds and peak memory in bytes."""
    command = [sys.executable, str(ROOT / "create_pretraining_data.py"), "--sampling=sharded", "--dupe_factor=1"]
    command += [f"--input_file={corpus}", f"--output_file={output}", f"--vocab_file={vocab_file}"]
    command += [f"--num_processes={num_processes}", *flags]
    seconds, peak, _ = run_watched(command)
    return seconds, peak


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
