r"""Training of sentence encoders, compared with sentence-transformers: scores and speed.

  python benchmarks/sentence_encoders.py --task=sts-b --data_dir=glue/STS-B --init_checkpoint=all-MiniLM-L6-v2
  python benchmarks/sentence_encoders.py --task=squad --data_dir=squad --init_checkpoint=all-MiniLM-L6-v2

Both sides train the same encoder for the same number of steps of 32 examples with the same AdamW: on the scored
pairs of STS-B with the CoSENT loss, or on questions and paragraphs of SQuAD (`train.json`, `dev.json`) with in-batch
negatives. The peer is `SentenceTransformerTrainer` with our learning rates and default settings otherwise, except that
it samples batches without duplicates for SQuAD. The vectors of both sides are scored by our evaluation on the dev set,
the peer's always in float32. Speed is that of the whole training, without loading. `--peer_python` is a Python with
sentence-transformers, datasets and accelerate.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from common import with_reference_schedule

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH_SIZE, TEMPERATURE, WARMUP = 32, 0.05, 0.1
SETTINGS = {"sts-b": ("cosent", 2e-5, "eval_spearman"), "squad": ("contrastive", 2e-5, "eval_mrr@10")}


def write_squad(data_dir: str, folder: str) -> None:
    """Write the questions and their paragraphs as TSV files."""
    for split in ("train", "dev"):
        articles = json.loads(pathlib.Path(data_dir, f"{split}.json").read_text())["data"]
        rows = [
            (question["question"], paragraph["context"])
            for article in articles
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
        lines = ["\t".join(" ".join(text.split()) for text in row) for row in rows]
        pathlib.Path(folder, f"{split}.tsv").write_text("question\tparagraph\n" + "\n".join(lines) + "\n")


def our_run(options: argparse.Namespace, folder: str, seed: int) -> dict[str, float]:
    """Train with `run_sentence_encoder`; return the scores and examples/s."""
    loss, learning_rate, _ = SETTINGS[options.task]
    columns = ["--task_name=sts-b"] if options.task == "sts-b" else ["--text_columns=question,paragraph"]
    files = [] if options.task == "sts-b" else ["--train_file=train.tsv", "--eval_file=dev.tsv"]
    output_dir = f"{folder}/ours{seed}"
    command = [
        sys.executable, "-m", "official_bert", "run_sentence_encoder", *columns, *files,
        f"--data_dir={options.data_dir}", f"--init_checkpoint={options.init_checkpoint}", f"--output_dir={output_dir}",
        f"--loss={loss}", f"--learning_rate={learning_rate}", f"--temperature={TEMPERATURE}",
        f"--train_batch_size={BATCH_SIZE}", f"--num_train_epochs={options.num_train_epochs}", f"--random_seed={seed}",
        f"--max_seq_length={options.max_seq_length}", f"--warmup_proportion={WARMUP}", "--do_train", "--do_eval",
        "--eval_batch_size=64", "--verbosity=-1", f"--mixed_precision={options.mixed_precision}",
        "--nonormalize", "--adam_bias_correction", *options.our_flags.split(),
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    lines = [json.loads(line) for line in pathlib.Path(output_dir, "metrics.jsonl").read_text().splitlines()]
    speeds = [line["examples_per_second"] for line in lines if "examples_per_second" in line]
    results = (line.split(" = ") for line in pathlib.Path(output_dir, "eval_results.txt").read_text().splitlines())
    # Even the first line excludes the time of compilation.
    return {**{name: float(value) for name, value in results}, "examples/s": statistics.harmonic_mean(speeds)}


def peer_run(options: argparse.Namespace, folder: str, seed: int) -> dict[str, float]:
    """Train with sentence-transformers in a process of its own; return the scores of its vectors and examples/s."""
    import numpy as np

    from official_bert.tasks.sentence_encoder import job
    from official_bert.tasks.sentence_encoder.data import ExampleReader
    from official_bert.tasks.sentence_encoder.options import LAYOUTS, Layout

    layout = LAYOUTS["sts-b"] if options.task == "sts-b" else Layout(("question", "paragraph"))
    train, dev = (ExampleReader(layout).read(f"{options.data_dir}/{split}.tsv") for split in ("train", "dev"))
    texts = list({text: None for example in dev for text in example.texts})
    given = {
        **{name: getattr(options, name) for name in ("init_checkpoint", "max_seq_length", "num_train_epochs", "task")},
        "seed": seed,
        "bf16": options.mixed_precision == "bfloat16",
        "columns": [list(column) for column in zip(*(example.texts for example in train), strict=True)],
        "scores": [example.scores[0] for example in train if example.scores],
        "texts": texts,
        "vectors": f"{folder}/vectors{seed}.npy",
    }
    pathlib.Path(folder, "peer.json").write_text(json.dumps(given))
    command = [options.peer_python, __file__, f"--peer={folder}/peer.json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    table = dict(zip(texts, np.load(given["vectors"]), strict=True))
    scores = job.scores_of_examples(dev, lambda texts: np.stack([table[text] for text in texts]), None)
    return {**{f"eval_{name}": score for name, score in scores.items()}, **json.loads(output.splitlines()[-1])}


def measure_peer(path: str) -> None:
    """Train with sentence-transformers, write vectors, and print examples/s."""
    import numpy as np
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.losses import CoSENTLoss, MultipleNegativesRankingLoss
    from sentence_transformers.training_args import BatchSamplers, SentenceTransformerTrainingArguments

    given = json.loads(pathlib.Path(path).read_text())
    is_scored = given["task"] == "sts-b"
    model = SentenceTransformer(given["init_checkpoint"], device="cpu")
    model.max_seq_length = given["max_seq_length"]
    columns = dict(zip(("anchor", "positive"), given["columns"], strict=True))
    data = Dataset.from_dict({**columns, "score": given["scores"]} if is_scored else columns)
    loss = CoSENTLoss(model) if is_scored else MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            seed=given["seed"],
            num_train_epochs=given["num_train_epochs"],
            per_device_train_batch_size=BATCH_SIZE,
            learning_rate=SETTINGS[given["task"]][1],
            weight_decay=0.01,
            adam_epsilon=1e-6,
            bf16=given["bf16"],
            batch_sampler=BatchSamplers.BATCH_SAMPLER if is_scored else BatchSamplers.NO_DUPLICATES,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = with_reference_schedule(SentenceTransformerTrainer, WARMUP)(
            model, arguments, train_dataset=data, loss=loss
        )
        started = time.perf_counter()
        steps = trainer.train().global_step
        seconds = time.perf_counter() - started
    np.save(given["vectors"], model.encode(given["texts"], batch_size=64))
    print(json.dumps({"examples/s": steps * BATCH_SIZE / seconds, "global_step": steps}))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=SETTINGS, default="sts-b")
    parser.add_argument("--data_dir")
    parser.add_argument("--init_checkpoint")
    parser.add_argument("--num_train_epochs", type=float, default=1.0)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--mixed_precision", choices=("none", "bfloat16"), default="none")
    parser.add_argument("--num_seeds", type=int, default=3)
    parser.add_argument("--our_flags", default="", help="more flags of run_sentence_encoder")
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    if options.peer:
        measure_peer(options.peer)
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.task == "squad":
            write_squad(options.data_dir, folder)
            options.data_dir = folder
        runs: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
        for seed in range(1, options.num_seeds + 1):
            runs["ours"].append(our_run(options, folder, seed))
            runs["peer"].append(peer_run(options, folder, seed))
            for side in runs:
                shown = ", ".join(f"{name} {value:.4f}" for name, value in sorted(runs[side][-1].items()))
                print(f"  seed {seed}: {side:6} {shown}", flush=True)
    for name in (SETTINGS[options.task][2], "examples/s"):
        ours, peer = (statistics.mean(run[name] for run in runs[side]) for side in ("ours", "peer"))
        print(f"  {name}: ours {ours:.4f}, sentence-transformers {peer:.4f}, ratio {ours / peer:.2f}")


if __name__ == "__main__":
    main()
