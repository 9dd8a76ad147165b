r"""Sentence vectors beside sentence-transformers, FastEmbed and ONNX Runtime, and a server of them beside infinity.

  python benchmarks/embedding_peers.py --model=all-MiniLM-L6-v2 --squad=squad/dev.json --onnx_model=minilm_onnx \
      --torch_python=st/bin/python --fastembed_python=fe/bin/python --infinity_python=infinity/bin/python

The texts are questions and paragraphs of SQuAD in random order; a fifth are paragraphs. Each side encodes all of them
in its own process, after a warm-up; its vectors are compared with ours. "onnx runtime" is an ONNX model with Hugging
Face's tokenizer, in batches of 32 texts of similar lengths. Then the server of an export and `infinity_emb v2` answer
OpenAI's requests of one text each. A side whose Python or model is not given is left out. `--onnx_model` is a folder
with `model.onnx`, `tokenizer.json` and the other files of the model.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from common import free_port, measure_load, running_server

MAX_SEQ_LENGTH, BATCH_SIZE = 256, 32
INFINITY_FLAGS = ("--url-prefix=/v1", "--device=cpu", "--engine=torch", "--log-level=error")


def read_texts(flags: argparse.Namespace) -> list[str]:
    articles = json.loads(pathlib.Path(flags.squad).read_text())["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [question["question"] for paragraph in paragraphs for question in paragraph["qas"]]
    rng = random.Random(0)
    texts = rng.sample([paragraph["context"] for paragraph in paragraphs], flags.num_texts // 5)
    texts += rng.sample(questions, flags.num_texts - len(texts))
    rng.shuffle(texts)
    return [" ".join(text.split()) for text in texts]


def ours(flags: argparse.Namespace):
    from official_bert import Predictor

    predictor = Predictor(flags.model)
    return lambda texts: predictor.embed(texts, max_seq_length=MAX_SEQ_LENGTH)


def sentence_transformers(flags: argparse.Namespace):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(flags.model, device="cpu")
    model.max_seq_length = MAX_SEQ_LENGTH
    return lambda texts: model.encode(texts, batch_size=BATCH_SIZE)


def fastembed(flags: argparse.Namespace):
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    width = json.loads(pathlib.Path(flags.onnx_model, "config.json").read_text())["hidden_size"]
    TextEmbedding.add_custom_model(
        "model",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="model"),
        dim=width,
        model_file="model.onnx",
    )
    model = TextEmbedding("model", specific_model_path=flags.onnx_model)
    return lambda texts: np.stack(list(model.embed(texts, batch_size=BATCH_SIZE)))


def onnx_runtime(flags: argparse.Namespace):
    import onnxruntime
    from tokenizers import Tokenizer

    session = onnxruntime.InferenceSession(f"{flags.onnx_model}/model.onnx", providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(f"{flags.onnx_model}/tokenizer.json")
    tokenizer.enable_truncation(MAX_SEQ_LENGTH)
    tokenizer.enable_padding()

    def encode(texts: list[str]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        vectors: list[np.ndarray] = [np.empty(0)] * len(texts)
        for start in range(0, len(texts), BATCH_SIZE):
            numbers = order[start : start + BATCH_SIZE]
            encodings = tokenizer.encode_batch([texts[number] for number in numbers])
            mask = np.array([encoding.attention_mask for encoding in encodings])
            inputs = {
                "input_ids": np.array([encoding.ids for encoding in encodings]),
                "attention_mask": mask,
                "token_type_ids": np.array([encoding.type_ids for encoding in encodings]),
            }
            hidden = session.run(None, inputs)[0] * mask[..., None]
            means = hidden.sum(axis=1) / mask.sum(axis=1, keepdims=True)
            for number, vector in zip(numbers, means / np.linalg.norm(means, axis=1, keepdims=True), strict=True):
                vectors[number] = vector
        return np.stack(vectors)

    return encode


SIDES = {
    "ours": ours,
    "sentence-transformers": sentence_transformers,
    "fastembed": fastembed,
    "onnx runtime": onnx_runtime,
}


def encode_all(flags: argparse.Namespace) -> dict[str, float]:
    """Encode all texts with one side and save the vectors; return texts/s."""
    encode, texts = SIDES[flags.side](flags), read_texts(flags)
    encode(texts[:512])
    began = time.perf_counter()
    vectors = encode(texts)
    seconds = time.perf_counter() - began
    np.save(flags.vectors, vectors.astype(np.float32))
    return {"texts/s": len(texts) / seconds}


def load(flags: argparse.Namespace) -> dict[str, float]:
    contents = [{"model": "model", "input": [text], "truncate": True} for text in read_texts(flags)]
    return measure_load(flags.port, "/v1/embeddings", contents, flags.connections, flags.seconds)


def in_process(python: str, *arguments: str) -> dict[str, float]:
    """Run this script in another process; its last line of output is JSON with the measurements."""
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
    command = [python, __file__, *sys.argv[1:], *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables).stdout
    return json.loads(output.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a sentence-transformers folder")
    parser.add_argument("--squad", required=True)
    parser.add_argument("--onnx_model")
    parser.add_argument("--torch_python", help="a Python with sentence-transformers")
    parser.add_argument("--fastembed_python", help="a Python with FastEmbed")
    parser.add_argument("--infinity_python", help="a Python with infinity-emb")
    parser.add_argument("--num_texts", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15, help="of each measurement of a server")
    # With these, a process does one job for the benchmark.
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--vectors", help=argparse.SUPPRESS)
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.side or flags.load:
        print(json.dumps(encode_all(flags) if flags.side else load(flags)))
        return

    pythons = {
        "ours": sys.executable,
        "sentence-transformers": flags.torch_python,
        "fastembed": flags.fastembed_python,
        "onnx runtime": flags.onnx_model and sys.executable,
    }
    rates: dict[str, list[float]] = {side: [] for side, python in pythons.items() if python}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(flags.rounds):
            for side in rates:
                found = in_process(pythons[side], "--side", side, "--vectors", f"{folder}/{side}.npy")
                rates[side].append(found["texts/s"])
        vectors = np.load(f"{folder}/ours.npy")
        print(f"{flags.num_texts:,} texts, {os.cpu_count()} cores, {flags.rounds} rounds", flush=True)
        for side, figures in rates.items():
            ratios = sorted(first / second for first, second in zip(rates["ours"], figures, strict=True))
            least = (np.load(f"{folder}/{side}.npy") * vectors).sum(axis=1).min()
            rate, ratio = statistics.median(figures), statistics.median(ratios)
            spread = f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
            print(f"  {side:<22}{rate:>8.1f} texts/s   ours / this {ratio:.2f} {spread}   least cosine {least:.5f}")
        if not flags.infinity_python:
            return
        bert = [sys.executable, "-m", "official_bert"]
        export = f"{folder}/export"
        sizes = [f"--max_seq_length={MAX_SEQ_LENGTH}", "--verbosity=-1"]
        command = [*bert, "export_embeddings", f"--init_checkpoint={flags.model}", f"--export_dir={export}", *sizes]
        subprocess.run(command, check=True)
        infinity = str(pathlib.Path(flags.infinity_python).with_name("infinity_emb"))
        servers = {
            "ours": [*bert, "serve", f"--export_dir={export}", "--model_name=model", "--grpc_port=0", "--verbosity=-1"],
            "infinity": [infinity, "v2", f"--model-id={flags.model}", "--served-model-name=model", *INFINITY_FLAGS],
        }
        print(f"Server, {flags.connections} connections")
        for side in itertools.chain.from_iterable([servers] * flags.rounds):
            port = free_port()
            with running_server([*servers[side], f"--port={port}"], f"http://127.0.0.1:{port}/health"):
                row = in_process(sys.executable, "--load", f"--port={port}")
            print(
                f"  {side:<10}{row['rate']:>8.1f} answers/s   p50 {row['p50']:.0f} ms   p99 {row['p99']:.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
