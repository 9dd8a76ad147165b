r"""LiteRT and ONNX exports, compared with the SavedModel of the same classifier: size, time, probabilities and scores.

  python benchmarks/id_exports.py --saved_model serving/mrpc/1 --data_dir glue/MRPC --exports lite32/1 lite8/1 onnx32/1

Reads the examples of a dev set with two classes one by one, as ids without padding. Needs the `bench` extra.
"""

import argparse
import os
import pathlib
import statistics
import time
from collections.abc import Callable

import numpy as np
import onnxruntime
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from official_bert.metrics import classification
from official_bert.tasks.classification.data import DATASETS

Ids = dict[str, np.ndarray]


def engine(path: pathlib.Path) -> Callable[[Ids], np.ndarray]:
    if path.suffix == ".onnx":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = os.cpu_count()
        session = onnxruntime.InferenceSession(path, options)
        return lambda ids: session.run(["probabilities"], ids)[0]
    classify = Interpreter(str(path), num_threads=os.cpu_count()).get_signature_runner("serving_default")
    return lambda ids: classify(**ids)["probabilities"]


def saved_model_engine(export) -> Callable[[Ids], np.ndarray]:
    predict = export.signatures["serving_default"]
    return lambda ids: predict(**{name: tf.constant(values) for name, values in ids.items()})["probabilities"].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saved_model", required=True, help="a version of an exported classifier")
    parser.add_argument("--exports", nargs="+", required=True, help="versions with --export_format=tflite or onnx")
    parser.add_argument("--dataset", default="mrpc", help="a name for --task_name of run_classifier.py")
    parser.add_argument("--data_dir", required=True, help="folder of the data set")
    flags = parser.parse_args()
    examples = DATASETS[flags.dataset].examples(flags.data_dir, "dev")
    labels = [int(example.label) for example in examples]
    tf.config.threading.set_intra_op_parallelism_threads(1)  # as in official-bert serve
    export = tf.saved_model.load(flags.saved_model)
    tokenize = export.signatures["tokenize"]
    names = tokenize.structured_input_signature[1]
    rows = []
    for example in examples:
        texts = {"text_a": example.text_a, "text_b": example.text_b}
        ids = tokenize(**{name: tf.constant([texts[name]]) for name in names})
        rows.append({name: values.numpy() for name, values in ids.items()})
    variables = pathlib.Path(flags.saved_model, "variables")
    engines = {"SavedModel": (saved_model_engine(export), sum(path.stat().st_size for path in variables.iterdir()))}
    for folder in flags.exports:
        (path,) = pathlib.Path(folder).glob("model.*")
        engines[folder] = (engine(path), path.stat().st_size)
    print(f"Exports that read ids: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {len(rows)} examples")
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
