r"""Gain of a small student from a teacher: scores with and without it, and texts per second.

  python benchmarks/distillation.py --task_name=MRPC --data_dir=glue/MRPC --model_dir=small_bert --num_layers=3 \
      --output_dir=out/distillation

For each seed, the model in `--model_dir` (bert_model.ckpt, bert_config.json, vocab.txt) is fine-tuned as the teacher,
then a student with some of its layers three times with the same flags: from the labels only, with the teacher, and with
the teacher and its layers (`--hidden_state_weight=1`). The speed is that of `Predictor` on the dev set. Finished runs
in the output folder are not repeated.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from common import measure_in_process

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = (1, 2, 3)
MODELS = ("teacher", "student", "student with teacher", "student with teacher and its layers")
TEACHER_FLAGS = {MODELS[2]: (), MODELS[3]: ("--hidden_state_weight=1",)}


def run(script: str, *flags: str) -> None:
    command = [sys.executable, "-m", "official_bert", script, *flags, "--verbosity=-1"]
    if subprocess.run(command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}).returncode:
        sys.exit(f"{script} failed")


def folder_of(options: argparse.Namespace, model: str, seed: int) -> str:
    return f"{options.output_dir}/{model.replace(' ', '_')}-{seed}"


def finetune(options: argparse.Namespace, model: str, seed: int) -> dict[str, float]:
    folder = folder_of(options, model, seed)
    results = pathlib.Path(folder, "eval_results.txt")
    if not results.exists():
        source = options.model_dir if model == "teacher" else f"{options.output_dir}/initial_student"
        teacher = f"--teacher={folder_of(options, 'teacher', seed)}"
        run(
            "run_classifier",
            "--do_train",
            "--do_eval",
            f"--task_name={options.task_name}",
            f"--data_dir={options.data_dir}",
            f"--output_dir={folder}",
            f"--init_checkpoint={source}/bert_model.ckpt",
            f"--bert_config_file={source}/bert_config.json",
            f"--vocab_file={options.model_dir}/vocab.txt",
            f"--learning_rate={options.learning_rate}",
            f"--num_train_epochs={options.num_train_epochs}",
            f"--random_seed={seed}",
            f"--mixed_precision={options.mixed_precision}",
            *((teacher, *TEACHER_FLAGS[model]) if model in TEACHER_FLAGS else ()),
        )
    return {name: float(value) for name, value in (line.split(" = ") for line in results.read_text().splitlines())}


def texts_per_second(folder: str, texts: list[list[str | None]]) -> float:
    from official_bert import Predictor

    predictor = Predictor(folder)
    inputs = [first if second is None else (first, second) for first, second in texts]
    predictor(inputs[:64])
    began = time.perf_counter()
    predictor(inputs)
    return len(inputs) / (time.perf_counter() - began)


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        folder, texts = sys.argv[2:]
        print(json.dumps({"texts": texts_per_second(folder, json.loads(pathlib.Path(texts).read_text()))}))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("task_name", "data_dir", "model_dir", "output_dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--num_layers", type=int, default=3)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--num_train_epochs", type=float, default=3.0)
    parser.add_argument("--mixed_precision", default="none", help="see run_classifier.py")
    options = parser.parse_args()

    if not os.path.exists(f"{options.output_dir}/initial_student"):
        os.makedirs(options.output_dir, exist_ok=True)
        run(
            "edit_checkpoint",
            f"--init_checkpoint={options.model_dir}/bert_model.ckpt",
            f"--bert_config_file={options.model_dir}/bert_config.json",
            f"--num_layers={options.num_layers}",
            f"--output_dir={options.output_dir}/initial_student",
        )
    scores = {model: [finetune(options, model, seed) for seed in SEEDS] for model in MODELS}

    from official_bert.tasks.classification.data import named_dataset

    dataset = named_dataset(options.task_name)
    examples = dataset.examples(options.data_dir, dataset.eval_splits[0])
    texts = pathlib.Path(options.output_dir, "texts.json")
    texts.write_text(json.dumps([[example.text_a, example.text_b] for example in examples]))
    speeds: dict[str, list[float]] = {model: [] for model in MODELS[:2]}
    for _ in range(3):
        for model, values in speeds.items():
            folder = folder_of(options, model, SEEDS[0])
            values.append(measure_in_process(__file__, "--measure", folder, str(texts))["texts"])

    names = [f"eval_{name}" for name in dataset.metrics]
    print("| model | " + " | ".join(names) + " | texts/s |")
    print("|---" * (2 + len(names)) + "|")
    for model in MODELS:
        cells = []
        for name in names:
            values = [of_seed[name] for of_seed in scores[model]]
            cells.append(f"{statistics.mean(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})")
        speed = statistics.median(speeds[model if model in speeds else "student"])
        print(f"| {model} | " + " | ".join(cells) + f" | {speed:.0f} |")


if __name__ == "__main__":
    main()
