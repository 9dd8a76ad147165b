"""Seconds from the start of a process to its first result: help, a first step, a first prediction, a first answer.

  python benchmarks/start_up.py

The model has the depth of BERT-Base, since tracing takes time for each layer, but small layers and the demo's
vocabulary, so that little computing and reading is measured. `--help` has a limit of one second. The CPU time of a
training step's parts is printed last.
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
import urllib.request
from collections.abc import Callable

from common import free_port, running_server

ROOT = pathlib.Path(__file__).parent.parent
VOCAB_FILE = ROOT / "vocab" / "demo_uncased.txt"
ARCHITECTURE = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
PREDICTION = "import sys, official_bert; official_bert.Predictor(sys.argv[1])('a good book')"


# Runs a training command and prints the CPU seconds of its parts.
PARTS = """
import atexit, time
from official_bert.options import command

import_tensorflow, seconds, last = command._import_tensorflow, {}, [0.0]

@atexit.register
def report():
    mark("the rest")
    for part, value in seconds.items():
        print(f"  {part:<30} {value:6.2f}")

def mark(part):
    now = time.process_time()
    seconds[part] = seconds.get(part, 0.0) + now - last[0]
    last[0] = now

def marking(owner, name, part):
    function = getattr(owner, name)
    def marked(*arguments, **options):
        mark("the rest")
        result = function(*arguments, **options)
        mark(part)
        return result
    setattr(owner, name, marked)

def importing():
    mark("Python and flags")
    import_tensorflow()
    from official_bert.training.loop import Trainer
    from official_bert.training.tensorflow_step import TensorFlowSteps
    mark("import of TensorFlow")
    marking(Trainer, "__init__", "model")
    marking(TensorFlowSteps, "__init__", "optimizer")
    marking(TensorFlowSteps, "compile", "tracing")
    marking(TensorFlowSteps, "take", "first run, with optimization")

command._import_tensorflow = importing
from official_bert.__main__ import main
main()
"""


def run(*command: object) -> float:
    """Run a command with this Python; return its seconds."""
    began = time.perf_counter()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, env=environment, capture_output=True)
    if process.returncode:
        sys.exit(process.stderr.decode())
    return time.perf_counter() - began


def first_answer(export_dir: pathlib.Path) -> float:
    port = free_port()
    command = [sys.executable, "-m", "official_bert", "serve", f"--export_dir={export_dir}", "--verbosity=-1"]
    address = f"http://127.0.0.1:{port}/v1/models/export"
    content = json.dumps({"signature_name": "text", "instances": [{"text_a": "a good book"}]}).encode()
    began = time.perf_counter()
    with running_server([*command, f"--port={port}", "--grpc_port=0"], address):
        urllib.request.urlopen(f"{address}:predict", content).read()
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num_layers", type=int, default=12)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config_file = folder / "bert_config.json"
        vocab_size = len(VOCAB_FILE.read_text(encoding="utf-8").splitlines())
        sizes = {"vocab_size": vocab_size, "type_vocab_size": 2, "num_hidden_layers": flags.num_layers}
        config_file.write_text(json.dumps({**sizes, **ARCHITECTURE}))
        training = [
            "run_classifier.py", "--task_name=custom", "--data_dir=data/demo_reviews", "--train_file=train.tsv",
            "--text_a_column=sentence", "--label_column=label", f"--bert_config_file={config_file}",
            f"--vocab_file={VOCAB_FILE}", "--max_seq_length=32", "--train_batch_size=16",
        ]  # fmt: skip
        one_step = [*training, "--do_train", "--num_train_epochs=0.04"]
        run(*one_step, "--do_export", f"--export_dir={folder / 'export'}", f"--output_dir={folder / 'run'}")
        lite = folder / "lite" / "export"
        run("-m", "official_bert", "export", folder / "run", lite, "--export_format=tflite")
        measured: dict[str, Callable[[], float]] = {
            "python -c pass": lambda: run("-c", "pass"),
            "run_pretraining.py --help": lambda: run("run_pretraining.py", "--help"),
            "import tensorflow": lambda: run("-c", "import tensorflow"),
            "one training step, saved": lambda: run(*one_step, f"--output_dir={tempfile.mkdtemp(dir=folder)}"),
            "first prediction": lambda: run("-c", PREDICTION, folder / "run"),
            "first prediction, LiteRT": lambda: run("-c", PREDICTION, lite),
            "first answer of a server": lambda: first_answer(folder / "export"),
            "first answer, LiteRT": lambda: first_answer(lite),
        }
        print(f"Start-up: median of {flags.rounds}, seconds")
        times: dict[str, list[float]] = {what: [] for what in measured}
        for _ in range(flags.rounds):
            for what, measure in measured.items():
                times[what].append(measure())
        for what, seconds in times.items():
            print(f"  {what:<30} {statistics.median(seconds):6.2f}   ({min(seconds):.2f} to {max(seconds):.2f})")
        print("A training step: CPU seconds", flush=True)
        command = [sys.executable, "-c", PARTS, one_step[0].removesuffix(".py"), *one_step[1:]]
        subprocess.run([*command, f"--output_dir={folder / 'parts'}", "--verbosity=-1"], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
