r"""Accuracy with few labels: the recipe `few_labels`, plain fine-tuning, and setfit.

  python benchmarks/few_labels.py --data_dir=glue/SST-2 --init_checkpoint=all-MiniLM-L6-v2
  python benchmarks/few_labels.py --data_dir=nsmc --columns document label --train_file=ratings_train.txt \
      --eval_file=ratings_test.txt --num_eval_texts=1000 --init_checkpoint=ko-sroberta-multitask

Each seed samples so many texts per class of the training file, a TSV with a header, for all sides. Plain fine-tuning
takes as many steps as the first step of the recipe, at BERT's usual learning rate. setfit has its default settings and
one epoch of pairs. `--peer_python` is a Python with setfit; without it, only our sides run.
"""

import argparse
import csv
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLAIN = {"learning_rate": "5e-5", "num_train_epochs": 20, "train_batch_size": 16, "max_seq_length": 64}
PEER = """
import json, sys
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
given = json.load(open(sys.argv[1]))
texts, labels = zip(*given["train"])
arguments = TrainingArguments(batch_size=16, num_epochs=1, seed=given["seed"], report_to="none", save_strategy="no")
model = SetFitModel.from_pretrained(given["model"])
Trainer(model, arguments, train_dataset=Dataset.from_dict({"text": texts, "label": labels})).train()
texts, labels = zip(*given["dev"])
print(sum(map(str.__eq__, model.predict(list(texts)), labels)) / len(labels))
"""


def read(path: pathlib.Path, columns: list[str]) -> list[list[str]]:
    """Return the text and the label of each row with a text."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [[row[name] for name in columns] for row in rows if row[columns[0]].strip()]


def sample(rows: list[list[str]], size: int, seed: int) -> list[list[str]]:
    by_label: dict[str, list[list[str]]] = {}
    for row in random.Random(seed).sample(rows, len(rows)):
        by_label.setdefault(row[1], []).append(row)
    return [row for label in sorted(by_label) for row in by_label[label][:size]]


def ours(command: str, folder: pathlib.Path, output: str, **flags: object) -> None:
    flags = {"data_dir": folder, "output_dir": folder / output, "verbosity": -1, **flags}
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    subprocess.run([sys.executable, "-m", "official_bert", command, *arguments], check=True, cwd=ROOT)


def accuracies(
    options: argparse.Namespace, folder: pathlib.Path, seed: int, train: list, dev: list
) -> dict[str, float]:
    """Return the accuracy of each side."""
    for name, rows in (("train", train), ("dev", dev)):
        lines = ["sentence\tlabel", *("\t".join(row) for row in rows)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = {"init_checkpoint": options.init_checkpoint, "random_seed": seed}
    recipes = ROOT / "recipes"
    ours("run_sentence_encoder", folder, "encoder", flagfile=recipes / "few_labels_encoder.flags", **model)
    model["init_checkpoint"] = folder / "encoder"
    ours("run_classifier", folder, "recipe", flagfile=recipes / "few_labels.flags", **model)
    model["init_checkpoint"] = options.init_checkpoint
    table = {"task_name": "custom", "train_file": "train.tsv", "eval_file": "dev.tsv", "text_a_column": "sentence"}
    table |= {"label_column": "label", "do_train": True, "do_eval": True}
    ours("run_classifier", folder, "plain", **table, **PLAIN, **model)
    found = {}
    for name in ("recipe", "plain"):
        lines = (folder / name / "eval_results.txt").read_text().splitlines()
        found[name] = float(dict(line.split(" = ") for line in lines)["eval_accuracy"])
    if options.peer_python:
        given = {"train": train, "dev": dev, "seed": seed, "model": options.init_checkpoint}
        (folder / "peer.json").write_text(json.dumps(given))
        command = [options.peer_python, "-c", PEER, folder / "peer.json"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
        found["setfit"] = float(output.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=pathlib.Path, required=True)
    parser.add_argument("--columns", nargs=2, default=["sentence", "label"], help="of the text and the label")
    parser.add_argument("--train_file", default="train.tsv")
    parser.add_argument("--eval_file", default="dev.tsv")
    parser.add_argument("--num_eval_texts", type=int, default=1000, help="the first of the evaluation file")
    parser.add_argument("--init_checkpoint", required=True)
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 16, 64], help="texts per class")
    parser.add_argument("--num_seeds", type=int, default=3)
    parser.add_argument("--peer_python")
    options = parser.parse_args()
    train, dev = (read(options.data_dir / name, options.columns) for name in (options.train_file, options.eval_file))
    dev = dev[: options.num_eval_texts]
    for size in options.sizes:
        by_side: dict[str, list[float]] = {}
        for seed in range(1, options.num_seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                found = accuracies(options, pathlib.Path(folder), seed, sample(train, size, seed), dev)
            print(f"  {size} per class, seed {seed}: {found}", flush=True)
            for side, accuracy in found.items():
                by_side.setdefault(side, []).append(accuracy)
        means = (
            f"{side} {statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"
            for side, values in by_side.items()
        )
        print(f"{size} per class, {options.num_seeds} seeds: {', '.join(means)}", flush=True)


if __name__ == "__main__":
    main()
