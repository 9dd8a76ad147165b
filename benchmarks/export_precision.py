r"""Export in bfloat16, compared with the same model in float32: speed, size, probabilities and scores.

  python benchmarks/export_precision.py --exports serving/mrpc16/1 serving/mrpc32/1 --data_dir glue/MRPC
  python benchmarks/export_precision.py --exports serving/squad16/1 serving/squad32/1 --predict_file squad/dev.json

The first folder was written with `--export_precision=bfloat16`, the second without. Both are called with the raw texts
of MRPC's dev set, or the questions of a SQuAD file, in batches of 32 and the first 100 one by one, alternating in
separate processes. The CPU should have AMX or AVX512-BF16.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

import numpy as np
from common import measure_in_process

from official_bert.metrics import classification
from official_bert.metrics.answer_scores import NORMALIZATIONS, score_answers
from official_bert.tasks.classification.datasets import DATASETS
from official_bert.tasks.question_answering.data import read_squad

BATCH_SIZE, NUM_SINGLE = 32, 100


def read_texts(flags: argparse.Namespace) -> tuple[tuple[str, str], list[tuple[str, str]]]:
    """Return the names of the export's inputs, and the texts."""
    if flags.data_dir:
        examples = DATASETS["mrpc"].examples(flags.data_dir, "dev")
        return ("text_a", "text_b"), [(example.text_a, example.text_b) for example in examples]
    squad = read_squad(flags.predict_file, for_training=False, version_2=False)
    return ("question", "context"), [
        (question.text, squad.contexts[question.context_index]) for question in squad.questions
    ]


def scores(flags: argparse.Namespace, outputs: dict[str, np.ndarray]) -> dict[str, float]:
    if flags.data_dir:
        labels = [int(example.label) for example in DATASETS["mrpc"].examples(flags.data_dir, "dev")]
        predicted = outputs["probabilities"].argmax(axis=1)
        return {
            "accuracy": 100 * classification.accuracy(labels, predicted),
            "F1": 100 * classification.f1(labels, predicted),
        }
    squad = read_squad(flags.predict_file, for_training=False, version_2=False)
    answers = {
        question.id: answer.decode() for question, answer in zip(squad.questions, outputs["answers"][:, 0], strict=True)
    }
    found = score_answers(squad.gold_texts, answers, normalization=NORMALIZATIONS["squad"])
    return {"exact match": found["exact_match"], "F1": found["f1"]}


def measure(flags: argparse.Namespace) -> dict:
    """Call one export with all texts, after a warm-up."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)  # as in official-bert serve
    names, texts = read_texts(flags)
    signature = tf.saved_model.load(flags.export).signatures["text"]

    def ask(part: list[tuple[str, str]]) -> dict[str, np.ndarray]:
        values = map(tf.constant, zip(*part, strict=True))
        return {name: value.numpy() for name, value in signature(**dict(zip(names, values, strict=True))).items()}

    batches = [texts[start : start + BATCH_SIZE] for start in range(0, len(texts), BATCH_SIZE)]
    for batch in batches[:4]:
        ask(batch)
    began = time.perf_counter()
    outputs = [ask(batch) for batch in batches]
    rate = len(texts) / (time.perf_counter() - began)
    latencies = []
    for text in [*texts[:NUM_SINGLE], *texts[:NUM_SINGLE]]:
        began = time.perf_counter()
        ask([text])
        latencies.append(1000 * (time.perf_counter() - began))
    joined = {name: np.concatenate([part[name] for part in outputs]) for name in outputs[0]}
    best = joined["probabilities"] if flags.data_dir else joined["probabilities"][:, 0]
    return {
        "rate": rate,
        "p50": statistics.median(latencies[len(latencies) // 2 :]),
        "megabytes": sum(path.stat().st_size for path in pathlib.Path(flags.export, "variables").iterdir()) / 1e6,
        "probabilities": best.tolist(),
        **scores(flags, joined),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exports", nargs=2, required=True, metavar=("BFLOAT16", "FLOAT32"), help="versions")
    texts = parser.add_mutually_exclusive_group(required=True)
    texts.add_argument("--data_dir", help="MRPC")
    texts.add_argument("--predict_file", help="questions in SQuAD's format, version 1.1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--export", help=argparse.SUPPRESS)  # for the processes that measure one export
    flags = parser.parse_args()
    if flags.export:
        print(json.dumps(measure(flags)))
        return
    source = ["--data_dir", flags.data_dir] if flags.data_dir else ["--predict_file", flags.predict_file]
    arguments = ["--exports", *flags.exports, *source]
    print(f"Export precision: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {flags.rounds} rounds", flush=True)
    rounds = [
        [measure_in_process(__file__, *arguments, "--export", export) for export in flags.exports]
        for _ in range(flags.rounds)
    ]
    for name, side in zip(("bfloat16", "float32"), zip(*rounds, strict=True), strict=True):
        values = {key: statistics.median(row[key] for row in side) for key in side[0] if key != "probabilities"}
        print(
            f"  {name:<9} {values.pop('rate'):7.1f} examples/s   {values.pop('p50'):6.2f} ms one by one   "
            f"{values.pop('megabytes'):6.1f} MB   " + "   ".join(f"{key} {value:.2f}" for key, value in values.items())
        )
    for key, text, over in (("rate", "examples/s", (0, 1)), ("p50", "one by one", (1, 0))):
        ratios = sorted(row[over[0]][key] / row[over[1]][key] for row in rounds)
        print(f"  {text}: {statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    narrow, wide = (np.array(row["probabilities"]) for row in rounds[0])
    difference = np.abs(narrow - wide)
    print(f"  probabilities differ by {difference.mean():.5f} on average, by {difference.max():.4f} at most")


if __name__ == "__main__":
    main()
