r"""A table of this project's figures beside those of its peers, from short runs of the benchmarks that compare them.

  python benchmarks/summary.py --text book1.txt book2.txt --vocab_file vocab.txt --model minilm --mrpc glue/MRPC

Needs the `bench` extra, and takes less than 15 minutes on two cores. Without `--model`, a Hugging Face folder of an
uncased BERT, and `--mrpc`, fine-tuning, exports and vectors are left out.

This draws the table of a page, without measuring:

  python benchmarks/summary.py --draw docs/performance.md --picture docs/images/speed.svg
"""

import argparse
import html
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from common import TABLE_FILE

FOLDER = pathlib.Path(__file__).parent
EXPORTS = ("ours", "ours, int8", "PyTorch", "ONNX Runtime", "ONNX, int8", "OpenVINO")
PACKAGES = (  # of the runs below, the last of which come after minutes
    "accelerate", "ai_edge_litert", "blingfire", "nanotoken", "onnx", "onnxruntime", "onnxscript", "openvino",
    "tensorflow_serving", "tokenizers", "torch", "transformers",
)  # fmt: skip


# A line of the table that `main` prints: label, unit, our figure, peer, its figure, and the ratio of both.
ROW = re.compile(r"(\S.*?) {2,}(\S.*?) {2,}([\d,.]+)  (\S.*?) {2,}([\d,.]+) +([\d.]+) \([\d.]+ to [\d.]+\)")
OURSELVES = ("plain", "FullTokenizer", "ours, int8")  # peers that are code of this project


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", help="UTF-8 text files, one text per line")
    parser.add_argument("--vocab_file", help="an uncased vocabulary")
    parser.add_argument("--model")
    parser.add_argument("--mrpc")
    parser.add_argument("--draw", type=pathlib.Path, help="a page with a table to draw into --picture")
    parser.add_argument("--picture", type=pathlib.Path, help="SVG file to write")
    flags = parser.parse_args()
    if flags.draw and flags.picture:
        flags.picture.write_text(draw(flags.draw.read_text()))
        return
    if not (flags.text and flags.vocab_file):
        parser.error("--text and --vocab_file, or --draw and --picture are required")
    if absent := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        sys.exit(f"not installed: {', '.join(absent)}; run: pip install -e '.[bench]'")
    print("Start-up", flush=True)
    subprocess.run([sys.executable, FOLDER / "start_up.py"], check=True)
    rows = measure(flags)
    print(f"\n{'':<20}  {'unit':<28}{'ours':>14}  {'peer':<18}{'':>14}{'ratio (rounds)':>26}")
    for label, unit, peer_name, ours, peer, ratio, least, most in rows:
        spread = f"{ratio:.2f} ({least:.2f} to {most:.2f})"
        digits = 1 if ours >= 10 else 2
        print(f"{label:<20}  {unit:<28}{ours:>14,.{digits}f}  {peer_name:<18}{peer:>14,.{digits}f}{spread:>26}")


def measure(flags: argparse.Namespace) -> list[list]:
    """Run the benchmarks and return the rows of the table."""
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
        serving = [data, model, "--num_pairs=100", "--rounds=2", "--engines", *EXPORTS]
        vectors = [model, f"--mrpc_file={flags.mrpc}/train.tsv", "--max_texts=1000"]
        runs += [
            ("fine-tuning", "finetuning.py", training),
            ("export", "serving.py", serving),
            ("vectors", "sentence_vectors.py", vectors),
        ]
    rows = []
    for label, script, arguments in runs:
        with tempfile.NamedTemporaryFile("r") as table:
            environment = {**os.environ, TABLE_FILE: table.name, "TF_CPP_MIN_LOG_LEVEL": "3"}
            subprocess.run([sys.executable, FOLDER / script, *arguments], check=True, env=environment)
            rows += [[label, *json.loads(line)] for line in table]
    return rows


def draw(page: str) -> str:
    """Return an SVG of our speed as a multiple of each peer's, on a logarithmic scale, from the table of a page."""
    rows = [match.groups() for line in page.splitlines() if (match := ROW.fullmatch(line.strip()))]
    rows = [row for row in rows if row[3] not in OURSELVES]
    one, doubling, step = 430, 60, 22  # pixels: position of "as fast", width of a doubling, height of a row
    shapes = []
    for number, (label, unit, _, peer, _, ratio) in enumerate(rows):
        top, reach = 40 + step * number, doubling * math.log2(float(ratio))
        color = "#2a7ab9" if reach >= 0 else "#b0b0b0"
        how = unit.partition(", ")[2]
        name = f"{label}{f', {how}' if how else ''}: {peer}"
        side = f'x="{one + reach + 6:.0f}"' if reach >= 0 else f'x="{one + reach - 6:.0f}" text-anchor="end"'
        shapes += [
            f'<text x="8" y="{top + 14}">{html.escape(name)}</text>',
            f'<rect x="{one + min(0, reach):.0f}" y="{top + 2}" width="{abs(reach):.0f}" height="16" fill="{color}"/>',
            f'<text {side} y="{top + 14}">{ratio}</text>',
        ]
    height = 50 + step * len(rows)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="640" height="{height}" fill="white"/>',
        f'<text x="{one}" y="20" text-anchor="middle" font-weight="bold">Our speed, peer = 1 (logarithmic)</text>',
        *shapes,
        f'<path d="M{one} 30V{height - 8}" stroke="black"/>',
        "</svg>\n",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
