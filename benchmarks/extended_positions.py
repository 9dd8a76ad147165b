r"""Masked-LM loss on books of a model with repeated position embeddings, before and after further training.

  python benchmarks/extended_positions.py --books=books --init_checkpoint=all-MiniLM-L6-v2 --output_dir=out/extended

Each book is a text file (`.txt` or `.txt.gz`); the last tenth of each is held out. The model is trained on the rest in
windows of 512 wordpieces, then for 200 more steps with the same number of wordpieces, in windows of 512, and, extended
by `edit_checkpoint`, of 1,024. It is evaluated on held-out windows of both lengths. Finished runs in the output folder
are not repeated.
"""

import argparse
import gzip
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHORT, LONG = 512, 1024
TOKENS_PER_STEP = 8 * SHORT


def run(command: str, *flags: str) -> None:
    given = [sys.executable, "-m", "official_bert", command, *flags, "--verbosity=-1"]
    if subprocess.run(given, cwd=ROOT, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}).returncode:
        sys.exit(f"{command} failed")


def split_books(folder: str, train_file: str, heldout_file: str) -> None:
    """Write the first nine tenths and the last tenth of each book as a document, without blank lines."""
    with open(train_file, "w") as train, open(heldout_file, "w") as heldout:
        for path in sorted(pathlib.Path(folder).glob("*.txt*")):
            text = (gzip.open if path.suffix == ".gz" else open)(path, "rt").read()
            lines = [line for line in text.splitlines() if line.strip()]
            cut = len(lines) * 9 // 10
            train.write("\n".join(lines[:cut]) + "\n\n")
            heldout.write("\n".join(lines[cut:]) + "\n\n")


def make_records(options: argparse.Namespace, split: str, length: int, *flags: str) -> str:
    """Make records of whole windows; return their path."""
    path = f"{options.output_dir}/{split}_{length}.tfrecord"
    if not os.path.exists(path):
        run(
            "create_pretraining_data",
            f"--input_file={options.output_dir}/{split}.txt",
            f"--output_file={path}",
            f"--vocab_file={options.init_checkpoint}/vocab.txt",
            f"--max_seq_length={length}",
            "--nouse_next_sentence",
            "--short_seq_prob=0",
            *flags,
        )
    return path


def pretrain(options: argparse.Namespace, name: str, start: str, length: int, num_steps: int) -> str:
    """Train a model further on windows of a length; return its folder."""
    folder = f"{options.output_dir}/{name}"
    run(
        "run_pretraining",
        "--do_train",
        "--nouse_next_sentence",
        "--dynamic_masking",
        f"--input_file={make_records(options, 'train', length, '--masking=none', '--dupe_factor=1')}",
        f"--init_checkpoint={start}",
        f"--vocab_file={options.init_checkpoint}/vocab.txt",
        f"--output_dir={folder}",
        f"--max_seq_length={length}",
        f"--max_predictions_per_seq={length * 3 // 20}",
        f"--train_batch_size={TOKENS_PER_STEP // length}",
        f"--num_train_steps={num_steps}",
        f"--num_warmup_steps={num_steps // 10}",
        "--learning_rate=1e-4",
        "--mixed_precision=auto",
    )
    return folder


def score(options: argparse.Namespace, model: str, length: int) -> float:
    """Return the masked-LM loss of the held-out windows of a length."""
    folder = f"{options.output_dir}/score_{pathlib.Path(model).name}_{length}"
    records = make_records(
        options, "heldout", length, f"--max_predictions_per_seq={length * 3 // 20}", "--dupe_factor=4"
    )
    results = pathlib.Path(folder, "eval_results.txt")
    if not results.exists():
        run(
            "run_pretraining",
            "--do_eval",
            "--nouse_next_sentence",
            f"--input_file={records}",
            f"--init_checkpoint={model}",
            f"--output_dir={folder}",
            f"--max_seq_length={length}",
            f"--max_predictions_per_seq={length * 3 // 20}",
            "--eval_batch_size=8",
            f"--max_eval_steps={10**6}",
        )
    return next(float(line.split(" = ")[1]) for line in results.read_text().splitlines() if "masked_lm_loss" in line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--books", required=True, help="folder of text files")
    parser.add_argument("--init_checkpoint", required=True, help="folder of a model with 512 positions")
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--num_start_steps", type=int, default=400, help="initial steps in windows of 512")
    parser.add_argument("--num_steps", type=int, default=200, help="further steps")
    options = parser.parse_args()
    options.init_checkpoint, options.output_dir = map(os.path.abspath, (options.init_checkpoint, options.output_dir))
    os.makedirs(options.output_dir, exist_ok=True)
    split_books(options.books, f"{options.output_dir}/train.txt", f"{options.output_dir}/heldout.txt")

    start = pretrain(options, "start", options.init_checkpoint, SHORT, options.num_start_steps)
    extended = f"{options.output_dir}/extended"
    if not os.path.exists(extended):
        run(
            "edit_checkpoint",
            f"--init_checkpoint={start}",
            f"--vocab_file={options.init_checkpoint}/vocab.txt",
            f"--max_position_embeddings={LONG}",
            f"--output_dir={extended}",
        )
    models = {
        f"{options.num_start_steps} steps of {SHORT}": start,
        f"and {options.num_steps} of {SHORT}": pretrain(options, "short", start, SHORT, options.num_steps),
        f"extended to {LONG:,}": extended,
        f"and {options.num_steps} of {LONG:,}": pretrain(options, "long", extended, LONG, options.num_steps),
    }
    print(f"Masked-LM loss of held-out text in windows of {SHORT} and of {LONG:,}")
    for name, model in models.items():
        long_loss = score(options, model, LONG) if model not in list(models.values())[:2] else None
        print(f"{name:24} {score(options, model, SHORT):8.4f} {'-' if long_loss is None else f'{long_loss:8.4f}':>8}")


if __name__ == "__main__":
    main()
