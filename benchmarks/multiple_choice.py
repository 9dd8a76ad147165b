r"""Accuracy and training speed of `run_multiple_choice`, compared with PyTorch's `transformers` at equal settings.

  python benchmarks/multiple_choice.py --hf_dir encoder_hf --output_dir out/next --seeds 1,2,3 book1.txt book2.txt

The task is to choose the next sentence of a book among four; the other three are from elsewhere in the same book. The
last fifth of each book is for evaluation. Both train the same encoder on the same examples: AdamW with bias correction,
16 examples in a batch, at most 80 wordpieces. The peer pads each batch to its longest sequence, as in `transformers`'
example. Examples per second are measured over training steps, without start-up and compilation.
Needs the `bench` extra.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time

import torch
from torch_finetuning import fine_tune
from transformers import AutoModelForMultipleChoice, AutoTokenizer

from official_bert.support.text_files import read_text
from official_bert.training.results import read_results

BATCH_SIZE, WARMUP_PROPORTION, MAX_SEQ_LENGTH, NUM_CHOICES = 16, 0.1, 80, 4


def make_examples(books: list[str], num_train: int, num_dev: int) -> tuple[list[dict], list[dict]]:
    """Make examples for training and evaluation, in equal numbers from each book."""
    rng, train, dev = random.Random(1), [], []
    for path in books:
        sentences = re.split(r"(?<=[.!?])\s+", " ".join(read_text(path).split()))
        sentences = [sentence for sentence in sentences if 30 < len(sentence) < 200]
        held_out = len(sentences) * 4 // 5
        for examples, part, number in (
            (train, sentences[:held_out], num_train),
            (dev, sentences[held_out:], num_dev),
        ):
            for place in rng.sample(range(len(part) - 1), number // len(books)):
                choices = [part[place + 1], *rng.sample(part, NUM_CHOICES - 1)]
                rng.shuffle(choices)
                examples.append({"context": part[place], "choices": choices, "label": choices.index(part[place + 1])})
    rng.shuffle(train)
    return train, dev


def ours(flags: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Return the accuracy and examples per second of `run_multiple_choice`, in a separate process."""
    folder = f"{flags.output_dir}/seed_{seed}"
    arguments = {
        "data_dir": flags.output_dir,
        "train_file": "train.jsonl",
        "eval_file": "dev.jsonl",
        "context_column": "context",
        "choice_columns": "choices",
        "label_column": "label",
        "output_dir": folder,
        "init_checkpoint": flags.hf_dir,
        "train_batch_size": BATCH_SIZE,
        "max_seq_length": MAX_SEQ_LENGTH,
        "num_train_epochs": flags.num_epochs,
        "learning_rate": flags.learning_rate,
        "warmup_proportion": WARMUP_PROPORTION,
        "random_seed": seed,
    }
    command = [sys.executable, "-m", "official_bert", "run_multiple_choice", "--do_train", "--do_eval"]
    command += ["--adam_bias_correction", "--log_steps=10", "--verbosity=-1"]
    subprocess.run([*command, *(f"--{name}={value}" for name, value in arguments.items())], check=True)
    with open(f"{folder}/metrics.jsonl", encoding="utf-8") as source:
        speeds = [row["examples_per_second"] for row in map(json.loads, source) if "examples_per_second" in row]
    speed = len(speeds) / sum(1 / speed for speed in speeds)  # each line covers the same number of steps
    return read_results(f"{folder}/eval_results.txt")["eval_accuracy"], speed


def peers(flags: argparse.Namespace, seed: int, train: list[dict], dev: list[dict]) -> tuple[float, float]:
    """Return the accuracy and examples per second of `transformers`."""
    tokenizer = AutoTokenizer.from_pretrained(flags.hf_dir)
    torch.manual_seed(seed)
    model = AutoModelForMultipleChoice.from_pretrained(flags.hf_dir)

    def outputs(examples: list[dict]):
        contexts = [example["context"] for example in examples for _ in example["choices"]]
        choices = [choice for example in examples for choice in example["choices"]]
        encoding = tokenizer(
            contexts, choices, truncation="only_first", max_length=MAX_SEQ_LENGTH, padding=True, return_tensors="pt"
        )
        rows = {name: tensor.reshape(len(examples), NUM_CHOICES, -1) for name, tensor in encoding.items()}
        return model(**rows, labels=torch.tensor([example["label"] for example in examples]))

    began = time.perf_counter()
    num_steps = fine_tune(
        model,
        train,
        lambda examples: outputs(examples).loss,
        batch_size=BATCH_SIZE,
        num_epochs=flags.num_epochs,
        learning_rate=flags.learning_rate,
        warmup_proportion=WARMUP_PROPORTION,
        seed=seed,
    )
    speed = num_steps * BATCH_SIZE / (time.perf_counter() - began)
    model.eval()
    hits = 0
    with torch.inference_mode():
        for start in range(0, len(dev), BATCH_SIZE):
            batch = dev[start : start + BATCH_SIZE]
            found = outputs(batch).logits.argmax(-1).tolist()
            hits += sum(number == example["label"] for number, example in zip(found, batch, strict=True))
    return hits / len(dev), speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", nargs="+")
    parser.add_argument("--hf_dir", required=True, help="config.json, model.safetensors, vocab.txt")
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--num_train", type=int, default=2000)
    parser.add_argument("--num_dev", type=int, default=1000)
    parser.add_argument("--num_epochs", type=float, default=1.0)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seeds", default="1", help="comma-separated list")
    flags = parser.parse_args()
    train, dev = make_examples(flags.books, flags.num_train, flags.num_dev)
    os.makedirs(flags.output_dir, exist_ok=True)
    for name, examples in (("train", train), ("dev", dev)):
        with open(f"{flags.output_dir}/{name}.jsonl", "w", encoding="utf-8") as sink:
            sink.writelines(json.dumps(example) + "\n" for example in examples)
    for seed in map(int, flags.seeds.split(",")):
        for name, (accuracy, speed) in (("ours", ours(flags, seed)), ("transformers", peers(flags, seed, train, dev))):
            print(f"  seed {seed}  {name:<12}  accuracy {accuracy:.3f}  {speed:8.1f} examples/s", flush=True)


if __name__ == "__main__":
    main()
