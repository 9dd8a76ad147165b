r"""A table of this project's figures beside those of its peers, from short runs of the benchmarks that compare them.

  python benchmarks/summary.py --text book1.txt book2.txt --vocab_file vocab.txt --model minilm --mrpc glue/MRPC

Needs the `bench` extra, and takes less than 15 minutes on two cores. Without `--model`, a Hugging Face folder of an
uncased BERT, and `--mrpc`, fine-tuning, exports and vectors are left out.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from common import TABLE_FILE

FOLDER = pathlib.Path(__file__).parent
EXPORT_PEERS = ("PyTorch", "ONNX Runtime", "OpenVINO")
PACKAGES = (  # of the runs below, the last of which come after minutes
    "accelerate", "blingfire", "nanotoken", "onnx", "onnxruntime", "onnxscript", "openvino", "tensorflow_serving",
    "tokenizers", "torch", "transformers",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True, help="UTF-8 text files, one text per line")
    parser.add_argument("--vocab_file", required=True, help="an uncased vocabulary")
    parser.add_argument("--model")
    parser.add_argument("--mrpc")
    flags = parser.parse_args()
    if absent := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        sys.exit(f"not installed: {', '.join(absent)}; run: pip install -e '.[bench]'")
    text = ["--text", *flags.text, "--vocab_file", flags.vocab_file]
    runs = [
        ("tokens", "tokenization.py", text),
        ("tokens in the graph", "graph_tokenizer.py", text),
        ("records", "record_making.py", ["--text", flags.text[0], "--vocab_file", flags.vocab_file]),
        ("pretraining step", "training_step.py", []),
    ]
    if flags.model and flags.mrpc:
        data, model = f"--data_dir={flags.mrpc}", f"--hf_dir={flags.model}"
        training = [data, f"--model={flags.model}", "--num_train_epochs=0.5", "--num_seeds=2"]
        serving = [data, model, "--num_pairs=100", "--rounds=2", "--engines", "ours", *EXPORT_PEERS]
        vectors = [model, f"--mrpc_file={flags.mrpc}/train.tsv", "--max_texts=1000"]
        runs += [
            ("fine-tuning", "finetuning.py", training),
            ("export", "serving.py", serving),
            ("vectors", "sentence_vectors.py", vectors),
        ]
    print("Start-up", flush=True)
    subprocess.run([sys.executable, FOLDER / "start_up.py"], check=True)
    rows = []
    for label, script, arguments in runs:
        with tempfile.NamedTemporaryFile("r") as table:
            environment = {**os.environ, TABLE_FILE: table.name, "TF_CPP_MIN_LOG_LEVEL": "3"}
            subprocess.run([sys.executable, FOLDER / script, *arguments], check=True, env=environment)
            rows += [[label, *json.loads(line)] for line in table]
    print(f"\n{'':<20}  {'unit':<24}{'ours':>14}  {'peer':<18}{'':>14}{'ratio (rounds)':>26}")
    for label, unit, peer_name, ours, peer, ratio, least, most in rows:
        spread = f"{ratio:.2f} ({least:.2f} to {most:.2f})"
        digits = 1 if ours >= 10 else 2
        print(f"{label:<20}  {unit:<24}{ours:>14,.{digits}f}  {peer_name:<18}{peer:>14,.{digits}f}{spread:>26}")


if __name__ == "__main__":
    main()
