r"""Exports of a model in other formats and precisions: speed, size, probabilities and scores.

  python benchmarks/export_precision.py --exports serving/mrpc16/1 lite/mrpc/1 serving/mrpc/1 --data_dir glue/MRPC
  python benchmarks/export_precision.py --exports lite/stsb/1 serving/stsb/1 --data_dir glue/STS-B --task_name sts-b
  python benchmarks/export_precision.py --exports serving/squad16/1 serving/squad/1 --predict_file squad/dev.json
  python benchmarks/export_precision.py --exports lite/conll/1 serving/conll/1 --tagged_file conll2003/dev.txt

Each export is compared with the last. All are called with the raw texts of the dev set of a task of GLUE, the questions
of a SQuAD file, or the sentences of a file of tagged words, in batches of 32 and the first 100 one by one, alternating
in separate processes. bfloat16 is fast on CPUs with AMX or AVX512-BF16.
"""

import argparse
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable

import numpy as np
from common import measure_in_process

from official_bert.metrics import classification
from official_bert.metrics.answer_scores import NORMALIZATIONS, score_answers
from official_bert.metrics.tagging import score_tags
from official_bert.serving.engine_model import load_engine_model
from official_bert.serving.versions import SAVED_MODEL_FILE, model_file
from official_bert.tasks.classification.datasets import DATASETS
from official_bert.tasks.question_answering.data import read_squad
from official_bert.tasks.tagging.data import read_tagged_file

BATCH_SIZE, NUM_SINGLE = 32, 100


def read_texts(flags: argparse.Namespace) -> tuple[tuple[str, str], list[tuple[str, ...]]]:
    """Return the names of the export's inputs, and the texts."""
    if flags.data_dir:
        examples = DATASETS[flags.task_name].examples(flags.data_dir, "dev")
        pairs = [(example.text_a, example.text_b) for example in examples]
        return ("text_a", "text_b"), pairs if pairs[0][1] else [pair[:1] for pair in pairs]
    if flags.tagged_file:
        return ("text",), [(" ".join(row.words),) for row in read_tagged_file(flags.tagged_file).sentences]
    squad = read_squad(flags.predict_file, for_training=False, version_2=False)
    return ("question", "context"), [
        (question.text, squad.contexts[question.context_index]) for question in squad.questions
    ]


def scores(flags: argparse.Namespace, outputs: dict[str, list[np.ndarray]]) -> dict[str, float]:
    if flags.data_dir:
        labels = [example.label for example in DATASETS[flags.task_name].examples(flags.data_dir, "dev")]
        if "scores" in outputs:
            correlations = classification.pearson, classification.spearman
            return {each.__name__: 100 * each(labels, outputs["scores"]) for each in correlations}
        predicted = np.argmax(outputs["probabilities"], axis=1)
        return {
            "accuracy": 100 * classification.accuracy(labels, predicted),
            "F1": 100 * classification.f1(labels, predicted),
        }
    if flags.tagged_file:
        gold = [sentence.tags for sentence in read_tagged_file(flags.tagged_file).sentences]
        found = [[tag.decode() for tag in row[: len(tags)]] for row, tags in zip(outputs["tags"], gold, strict=True)]
        return {"entity F1": 100 * score_tags(gold, found).total.f1}
    squad = read_squad(flags.predict_file, for_training=False, version_2=False)
    answers = {
        question.id: answers[0].decode() for question, answers in zip(squad.questions, outputs["answers"], strict=True)
    }
    found = score_answers(squad.gold_texts, answers, normalization=NORMALIZATIONS["squad"])
    return {"exact match": found["exact_match"], "F1": found["f1"]}


def open_export(folder: str) -> Callable[[dict[str, tuple[str, ...]]], dict[str, np.ndarray]]:
    if model_file(folder) != SAVED_MODEL_FILE:
        return load_engine_model(folder).answer
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)  # as in official-bert serve
    signature = tf.saved_model.load(folder).signatures["text"]

    def answer(texts: dict[str, tuple[str, ...]]) -> dict[str, np.ndarray]:
        inputs = {name: tf.constant(column) for name, column in texts.items()}
        return {name: values.numpy() for name, values in signature(**inputs).items()}

    return answer


def measure(flags: argparse.Namespace) -> dict:
    """Call one export with all texts, after a warm-up."""
    names, texts = read_texts(flags)
    answer = open_export(flags.export)

    def ask(part: list[tuple[str, ...]]) -> dict[str, np.ndarray]:
        return answer(dict(zip(names, zip(*part, strict=True), strict=False)))

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
    joined = {name: [row for part in outputs for row in part[name]] for name in outputs[0]}  # [B, W] of tags differ
    rows = joined["scores"] if "scores" in joined else joined["probabilities"]
    if flags.tagged_file or flags.predict_file:
        rows = [row[row > 0] if flags.tagged_file else row[:1] for row in rows]  # without padding; the best answer
    return {
        "rate": rate,
        "p50": statistics.median(latencies[len(latencies) // 2 :]),
        "megabytes": sum(path.stat().st_size for path in pathlib.Path(flags.export).rglob("*")) / 1e6,
        "probabilities": np.hstack(rows).tolist(),
        **scores(flags, joined),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exports", nargs="+", required=True, help="versions")
    texts = parser.add_mutually_exclusive_group(required=True)
    texts.add_argument("--data_dir", help="of the task")
    texts.add_argument("--predict_file", help="questions in SQuAD's format, version 1.1")
    texts.add_argument("--tagged_file", help="sentences as run_ner reads them")
    parser.add_argument("--task_name", choices=("mrpc", "sst-2", "sts-b"), default="mrpc")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--export", help=argparse.SUPPRESS)  # for the processes that measure one export
    flags = parser.parse_args()
    if flags.export:
        print(json.dumps(measure(flags)))
        return
    source = ["--predict_file", flags.predict_file]
    if flags.tagged_file:
        source = ["--tagged_file", flags.tagged_file]
    if flags.data_dir:
        source = ["--data_dir", flags.data_dir, "--task_name", flags.task_name]
    arguments = ["--exports", *flags.exports, *source]
    print(f"Export precision: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {flags.rounds} rounds", flush=True)
    rounds = [
        [measure_in_process(__file__, *arguments, "--export", export) for export in flags.exports]
        for _ in range(flags.rounds)
    ]
    width, last = max(map(len, flags.exports)), list(zip(*rounds, strict=True))[-1]
    for name, side in zip(flags.exports, zip(*rounds, strict=True), strict=True):
        values = {key: statistics.median(row[key] for row in side) for key in side[0] if key != "probabilities"}
        rate, latency, size = (values.pop(key) for key in ("rate", "p50", "megabytes"))
        rates = [row["rate"] / other["rate"] for row, other in zip(side, last, strict=True)]
        latencies = [other["p50"] / row["p50"] for row, other in zip(side, last, strict=True)]
        print(
            f"  {name:<{width}}  {rate:7.1f} examples/s, {shown(rates)}  {latency:6.2f} ms one by one, "
            f"{shown(latencies)}  {size:6.1f} MB  " + "   ".join(f"{key} {value:.2f}" for key, value in values.items())
        )
        difference = np.abs(np.subtract(side[0]["probabilities"], last[0]["probabilities"]))
        print(f"  {'':<{width}}  probabilities differ by {difference.mean():.5f}, at most {difference.max():.4f}")


def shown(ratios: list[float]) -> str:
    """Format how many times as fast."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
