r"""LiteRT exports, compared with the SavedModel of the same classifier: size, time, probabilities and scores.

  python benchmarks/lite.py --saved_model serving/mrpc/1 --data_dir glue/MRPC --lite lite32/1 lite16/1 lite8/1

Reads the pairs of MRPC's dev set one by one, as ids without padding. Needs the `bench` extra.
"""

import argparse
import os
import pathlib
import statistics
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from official_bert.metrics import classification
from official_bert.serving.versions import LITE_FILE
from official_bert.tasks.classification.datasets.published import DATASETS

Ids = dict[str, np.ndarray]


def lite_engine(path: pathlib.Path) -> Callable[[Ids], np.ndarray]:
    classify = Interpreter(str(path), num_threads=os.cpu_count()).get_signature_runner("serving_default")
    return lambda ids: classify(**ids)["probabilities"]


def saved_model_engine(export) -> Callable[[Ids], np.ndarray]:
    predict = export.signatures["serving_default"]
    return lambda ids: predict(**{name: tf.constant(values) for name, values in ids.items()})["probabilities"].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saved_model", required=True, help="a version of an exported classifier of pairs")
    parser.add_argument("--lite", nargs="+", required=True, help="versions exported with --export_format=tflite")
    parser.add_argument("--data_dir", required=True, help="MRPC")
    flags = parser.parse_args()
    examples = DATASETS["mrpc"].examples(flags.data_dir, "dev")
    labels = [int(example.label) for example in examples]
    tf.config.threading.set_intra_op_parallelism_threads(1)  # as in official-bert serve
    export = tf.saved_model.load(flags.saved_model)
    tokenize = export.signatures["tokenize"]
    rows = [
        {
            name: values.numpy()
            for name, values in tokenize(
                text_a=tf.constant([example.text_a]), text_b=tf.constant([example.text_b])
            ).items()
        }
        for example in examples
    ]
    variables = pathlib.Path(flags.saved_model, "variables")
    engines = {"SavedModel": (saved_model_engine(export), sum(path.stat().st_size for path in variables.iterdir()))}
    for folder in flags.lite:
        path = pathlib.Path(folder, LITE_FILE)
        engines[folder] = (lite_engine(path), path.stat().st_size)
    print(f"LiteRT: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {len(rows)} pairs")
    expected = None
    for name, (run, size) in engines.items():
        run(rows[0])
        seconds, answers = [], []
        for row in rows:
            began = time.perf_counter()
            answers.append(run(row))
            seconds.append(time.perf_counter() - began)
        found = np.concatenate(answers)
        expected = found if expected is None else expected
        predicted = found.argmax(axis=1)
        print(
            f"  {name:<24} {size / 1e6:6.1f} MB  {1000 * statistics.median(seconds):6.2f} ms  "
            f"accuracy {100 * classification.accuracy(labels, predicted):.1f}  "
            f"F1 {100 * classification.f1(labels, predicted):.1f}  "
            f"probabilities differ by at most {np.abs(found - expected).max():.1e}"
        )


if __name__ == "__main__":
    main()
