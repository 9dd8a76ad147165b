r"""Fine-tuning compared with `Trainer` of PyTorch's `transformers`: scores and speed.

  python benchmarks/finetuning.py --task=mrpc --data_dir=glue/MRPC --model=all-MiniLM-L6-v2 --peer_python=hf/bin/python
  python benchmarks/finetuning.py --task=next_sentence --data_dir=books --model=all-MiniLM-L6-v2

Both sides train the same encoder on the same records, in batches of similar lengths, with the same batch size, learning
rates and AdamW with bias correction, in bfloat16 on a CPU that has it. The script of the task scores both models. Speed
is that of the whole training, without loading; with `--torch_compile` the peer's includes compilation. `--data_dir` has
the task's usual file names; for SQuAD `train.json` and `dev.json`. For `next_sentence` it has UTF-8 books, `*.txt`: the
next sentence is to be chosen among four, the others being from elsewhere in the same book, whose last fifth is for
evaluation. `--peer_python` is a Python with transformers and accelerate.
"""

import argparse
import inspect
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from common import report, with_reference_schedule

WARMUP, NOT_SCORED = 0.1, -100  # the label that PyTorch's loss ignores
EPSILON = 1e-8  # of Adam; larger ones have more effect on our side, which adds them before the bias correction
NUM_CHOICES, NUM_TRAIN, NUM_DEV = 4, 2000, 1000  # of next_sentence, from all books together


class Setting(NamedTuple):
    """Settings of a task; `score` is a name in `results`, a file that `flags` for prediction write."""

    script: str
    head: str
    data: tuple[str, ...]
    prediction: str
    results: str
    score: str
    batch_size: int
    max_seq_length: int
    learning_rate: float
    num_epochs: float


SETTINGS = {
    "mrpc": Setting(
        "run_classifier", "AutoModelForSequenceClassification", ("--task_name=mrpc", "--data_dir={0}"),
        "--do_eval", "eval_results.txt", "eval_accuracy", 32, 128, 1e-4, 3.0,
    ),
    "conll": Setting(
        "run_ner", "AutoModelForTokenClassification", ("--data_dir={0}",),
        "--do_predict", "test_results.txt", "test_f1", 32, 128, 2e-4, 2.0,
    ),
    "squad": Setting(
        "run_squad", "AutoModelForQuestionAnswering", ("--train_file={0}/train.json", "--predict_file={0}/dev.json"),
        "--do_predict", "eval_results.txt", "f1", 16, 384, 1e-4, 2.0,
    ),
    "next_sentence": Setting(
        "run_multiple_choice", "AutoModelForMultipleChoice",
        ("--data_dir={0}", "--train_file=train.jsonl", "--eval_file=dev.jsonl", "--context_column=context",
         "--choice_columns=choices", "--label_column=label"),
        "--do_eval", "eval_results.txt", "eval_accuracy", 16, 80, 5e-5, 1.0,
    ),
}  # fmt: skip


def write_next_sentences(data_dir: str, folder: str) -> None:
    """Write `train.jsonl` and `dev.jsonl`, with equal numbers of examples from each long book of a folder."""
    rng, books = random.Random(1), sorted(pathlib.Path(data_dir).glob("*.txt"))
    lines: dict[str, list[str]] = {"train": [], "dev": []}
    for path in books:
        sentences = re.split(r"(?<=[.!?])\s+", " ".join(path.read_text(encoding="utf-8").split()))
        sentences = [sentence for sentence in sentences if 30 < len(sentence) < 200]
        held_out = len(sentences) * 4 // 5
        for name, part, number in (("train", sentences[:held_out], NUM_TRAIN), ("dev", sentences[held_out:], NUM_DEV)):
            for place in rng.sample(range(len(part) - 1), min(number // len(books), len(part) - 1)):
                choices = [part[place + 1], *rng.sample(part, NUM_CHOICES - 1)]
                rng.shuffle(choices)
                example = {"context": part[place], "choices": choices, "label": choices.index(part[place + 1])}
                lines[name].append(json.dumps(example) + "\n")
    for name, examples in lines.items():
        pathlib.Path(folder, f"{name}.jsonl").write_text("".join(examples))


def run_script(flags: argparse.Namespace, model: str, output_dir: str, *actions: str) -> None:
    task = SETTINGS[flags.task]
    data = [value.format(flags.data_dir) for value in task.data]
    command = [
        sys.executable, "-m", "official_bert", task.script, *data, f"--init_checkpoint={model}",
        f"--output_dir={output_dir}",
        f"--max_seq_length={task.max_seq_length}", "--mixed_precision=auto", "--verbosity=-1", *actions,
    ]  # fmt: skip
    subprocess.run(command, check=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})


def score(flags: argparse.Namespace, output_dir: str) -> float:
    from official_bert.training.run_folder import read_results

    task = SETTINGS[flags.task]
    found = read_results(f"{output_dir}/{task.results}")[task.score]
    return found if flags.task == "squad" else 100 * found  # SQuAD's scores are percentages


def our_run(flags: argparse.Namespace, output_dir: str, seed: int) -> tuple[float, float]:
    """Return the score and examples/s of the task's script."""
    task = SETTINGS[flags.task]
    training = {
        "train_batch_size": task.batch_size,
        "learning_rate": task.learning_rate,
        "num_train_epochs": flags.num_train_epochs or task.num_epochs,
        "warmup_proportion": WARMUP,
        "random_seed": seed,
        "adam_epsilon": EPSILON,
    }
    given = [f"--{name}={value}" for name, value in training.items()]
    run_script(flags, flags.model, output_dir, "--do_train", task.prediction, "--adam_bias_correction", *given)
    lines = map(json.loads, pathlib.Path(output_dir, "metrics.jsonl").read_text().splitlines())
    speeds = [line["examples_per_second"] for line in lines if "examples_per_second" in line]
    return score(flags, output_dir), statistics.harmonic_mean(speeds)  # each line covers the same number of steps


def training_examples(path: str) -> list[dict]:
    """Read the records of our run as the inputs of `transformers`, without padding."""
    import tensorflow as tf

    examples = []
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        values = {name: list(feature.int64_list.value) for name, feature in features.items()}
        length = sum(values["input_mask"])  # of all choices together
        example = {
            "input_ids": values["input_ids"][:length],
            "token_type_ids": values["segment_ids"][:length],
            "attention_mask": [1] * length,
        }
        if "text_lengths" in values:  # of the choices
            example["text_lengths"] = values["text_lengths"]
        if "start_positions" in values:
            example |= {name: values[name][0] for name in ("start_positions", "end_positions")}
        elif len(values["label_ids"]) == 1:
            example["labels"] = values["label_ids"][0]
        else:  # tags; 0 stands for none
            example["labels"] = [label - 1 if label else NOT_SCORED for label in values["label_ids"][:length]]
        examples.append(example)
    return examples


def peer_run(flags: argparse.Namespace, our_dir: str, folder: str, seed: int) -> tuple[float, float]:
    """Return the score and examples/s of `transformers`, trained on the records of our run."""
    from official_bert.training.devices import dtype_policy

    labels = pathlib.Path(our_dir, "labels.json")
    given = {
        "model": flags.model,
        "task": flags.task,
        "num_epochs": flags.num_train_epochs or SETTINGS[flags.task].num_epochs,
        "torch_compile": flags.torch_compile,
        "bf16": dtype_policy("auto") != "float32",  # as ours: PyTorch's products in bfloat16 are slow without it
        "seed": seed,
        "labels": json.loads(labels.read_text()) if labels.exists() else None,
        "examples": training_examples(f"{our_dir}/train.tf_record"),
        "output": f"{folder}/peer{seed}",
    }
    job = pathlib.Path(folder, "peer.json")
    job.write_text(json.dumps(given))
    output = subprocess.run([flags.peer_python, __file__, f"--peer={job}"], check=True, stdout=subprocess.PIPE).stdout
    run_script(flags, given["output"], f"{folder}/scored{seed}", SETTINGS[flags.task].prediction)
    return score(flags, f"{folder}/scored{seed}"), json.loads(output.splitlines()[-1])


def train_peer(path: str) -> None:
    """Train with `Trainer`, save the model, and print examples/s."""
    import torch
    import transformers

    given = json.loads(pathlib.Path(path).read_text())
    task, named = SETTINGS[given["task"]], {}
    if labels := given["labels"]:
        named = {"id2label": dict(enumerate(labels)), "label2id": {name: id_ for id_, name in enumerate(labels)}}
    transformers.set_seed(given["seed"])
    model = getattr(transformers, task.head).from_pretrained(given["model"], **named)
    accepted = inspect.signature(model.forward).parameters  # a DistilBERT has no token_type_ids

    def collate(examples: list[dict]) -> dict:
        batch = {}
        for name in accepted.keys() & examples[0].keys():
            rows = [torch.tensor(example[name]) for example in examples]
            if not rows[0].dim():
                batch[name] = torch.stack(rows)
                continue
            if "text_lengths" in examples[0]:
                parts = zip(rows, (example["text_lengths"] for example in examples), strict=True)
                rows = [choice for row, lengths in parts for choice in row.split(lengths)]
            padding = NOT_SCORED if name == "labels" else 0
            batch[name] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
            if len(rows) > len(examples):
                batch[name] = batch[name].unflatten(0, (len(examples), -1))
        return batch

    arguments = transformers.TrainingArguments(
        given["output"],
        seed=given["seed"],
        num_train_epochs=given["num_epochs"],
        per_device_train_batch_size=task.batch_size,
        learning_rate=task.learning_rate,
        weight_decay=0.01,
        adam_epsilon=EPSILON,
        bf16=given["bf16"],
        torch_compile=given["torch_compile"],
        train_sampling_strategy="group_by_length",
        remove_unused_columns=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    examples = given["examples"]
    trainer = with_reference_schedule(transformers.Trainer, WARMUP)(
        model, arguments, data_collator=collate, train_dataset=examples
    )
    began = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - began
    trainer.save_model()
    pathlib.Path(given["output"], "vocab.txt").write_bytes(pathlib.Path(given["model"], "vocab.txt").read_bytes())
    print(json.dumps(given["num_epochs"] * len(examples) / seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=SETTINGS, default="mrpc")
    parser.add_argument("--data_dir")
    parser.add_argument("--model", help="a Hugging Face folder of an uncased BERT or DistilBERT")
    parser.add_argument("--num_train_epochs", type=float, help="default: of the task")
    parser.add_argument("--num_seeds", type=int, default=3)
    parser.add_argument("--torch_compile", action="store_true")
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.peer:
        train_peer(flags.peer)
        return
    print(f"Fine-tuning: {flags.task}, {os.cpu_count()} cores, {flags.num_seeds} seeds", flush=True)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        if flags.task == "next_sentence":
            write_next_sentences(flags.data_dir, folder)
            flags.data_dir = folder
        for seed in range(1, flags.num_seeds + 1):
            our_dir = f"{folder}/ours{seed}"
            runs.append((our_run(flags, our_dir, seed), peer_run(flags, our_dir, folder, seed)))
            (our_score, our_speed), (peer_score, peer_speed) = runs[-1]
            print(f"  seed {seed}: {SETTINGS[flags.task].score} {our_score:.2f} and {peer_score:.2f}", flush=True)
            print(f"          examples/s {our_speed:.1f} and {peer_speed:.1f}", flush=True)
    means = [statistics.mean(run[side][0] for run in runs) for side in (0, 1)]
    print(f"  {SETTINGS[flags.task].score}: ours {means[0]:.2f}, transformers {means[1]:.2f}")
    report("examples/s", [(ours[1], peer[1]) for ours, peer in runs], "transformers")


if __name__ == "__main__":
    main()
