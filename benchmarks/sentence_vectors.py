r"""Sentence vectors per second, compared with PyTorch's `transformers`; output files compared with the reference's.

  python benchmarks/sentence_vectors.py --hf_dir all-MiniLM-L6-v2 --mrpc_file glue/MRPC/train.tsv

Vectors are means over the wordpieces of the last layer. The peer computes batches of 32 sentences in order, padded to
the longest; ours uses the code of `extract_features.py`, including tokenization and restoring the order. The vectors of
both sides are compared first.

Then texts are written with `--output_format=npz --pooling=mean --layers=-1`, and as JSON Lines of all wordpieces and
the four default layers: by our writer, and in the reference's way, from sequences padded to 128, number by number.
Needs the `bench` extra.
"""

import argparse
import contextlib
import functools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# These crash the process if TensorFlow was imported first.
import torch

with contextlib.suppress(ImportError):  # builds for CPUs lack it
    import triton  # noqa: F401

from transformers import AutoModel, AutoTokenizer  # isort: skip

import numpy as np
from common import compare

from official_bert.data.feature_files import FeatureLayout, TextFeatures, feature_writer
from official_bert.data.text_inputs import TextOrPair
from official_bert.inference.text_encoder import TextEncoder, VectorSettings
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import FlatLayout, UnpaddedLayout
from official_bert.tokenization import FullTokenizer

BATCH_SIZE, MAX_SEQ_LENGTH, DEFAULT_LAYERS = 32, 128, (-1, -2, -3, -4)
TOLERANCE = 1e-4
ROUNDS = 3


def read_sentences(mrpc_file: str) -> list[str]:
    """Return both sentences of every pair."""
    with open(mrpc_file, encoding="utf-8-sig") as source:
        rows = [line.rstrip("\n").split("\t") for line in source][1:]
    return [sentence for row in rows for sentence in row[3:5]]


def peer_vectors(hf_dir: str):
    """Return a function from texts to mean vectors, float32 [N, D]."""
    tokenizer, model = AutoTokenizer.from_pretrained(hf_dir), AutoModel.from_pretrained(hf_dir).eval()

    @torch.inference_mode()
    def vectors(texts: list[str]) -> np.ndarray:
        means = []
        for start in range(0, len(texts), BATCH_SIZE):
            batch = tokenizer(
                texts[start : start + BATCH_SIZE],
                padding=True,
                truncation=True,
                max_length=MAX_SEQ_LENGTH,
                return_tensors="pt",
            )
            weights = batch["attention_mask"].unsqueeze(-1).float()
            hidden = model(**batch).last_hidden_state
            means.append(((hidden * weights).sum(1) / weights.sum(1)).numpy())
        return np.concatenate(means)

    return vectors


def extractor_of(
    flags: argparse.Namespace, pooling: str, layers: tuple[int, ...], *, is_padded: bool = False
) -> TextEncoder:
    """Return the script's extractor, or with `is_padded` one that pads like the reference's."""
    layout = FlatLayout if is_padded else UnpaddedLayout
    encoder = BertEncoder.from_checkpoint(flags.hf_dir, layout=layout)
    tokenizer = FullTokenizer.from_folder(flags.hf_dir)
    settings = VectorSettings(layers, pooling, MAX_SEQ_LENGTH)
    fixed_shape = (BATCH_SIZE, MAX_SEQ_LENGTH) if is_padded else None
    return TextEncoder(encoder, tokenizer, settings, batch_size=BATCH_SIZE, fixed_shape=fixed_shape)


def write_json_numbers(path: str, features: Iterable[TextFeatures], tokenizer: FullTokenizer) -> None:
    """Round and write one Python number at a time."""
    with open(path, "w") as sink:
        for text in features:
            tokens = []
            for token, vectors in zip(tokenizer.convert_ids_to_tokens(text.input_ids), text.vectors, strict=True):
                layers = [
                    {"index": index, "values": [round(float(value), 6) for value in vector.flat]}
                    for index, vector in zip(DEFAULT_LAYERS, vectors, strict=True)
                ]
                tokens.append({"token": token, "layers": layers})
            sink.write(json.dumps({"linex_index": text.index, "features": tokens}) + "\n")


def write_with(writer: Callable[..., AbstractContextManager], path: str, features: Iterable[TextFeatures]) -> None:
    with writer(path) as write:
        for text in features:
            write(text)


def compare_files(flags: argparse.Namespace, sentences: list[str], width: int, tokenizer: FullTokenizer) -> None:
    """Print the seconds and bytes of each output format."""
    texts = [TextOrPair(sentence) for sentence in sentences]

    def writer(output_format: str, layers: tuple[int, ...], is_pooled: bool):
        layout = FeatureLayout(layers, width, is_pooled)
        return functools.partial(
            feature_writer, output_format=output_format, layout=layout, tokens_of=tokenizer.convert_ids_to_tokens
        )

    all_layers = extractor_of(flags, "none", DEFAULT_LAYERS)
    padded = extractor_of(flags, "none", DEFAULT_LAYERS, is_padded=True)
    ways = (
        (
            "npz, mean of the last layer",
            extractor_of(flags, "mean", (-1,)),
            functools.partial(write_with, writer("npz", (-1,), True)),
        ),
        (
            "JSON lines, all wordpieces",
            all_layers,
            functools.partial(write_with, writer("jsonl", DEFAULT_LAYERS, False)),
        ),
        ("the reference's way", padded, functools.partial(write_json_numbers, tokenizer=tokenizer)),
    )
    print(f"Files: {len(texts):,} texts")
    base = None
    for name, extractor, write in ways:
        with tempfile.TemporaryDirectory(dir=flags.scratch_dir) as folder:
            path = os.path.join(folder, "features")
            write(path, features=extractor.features(texts[:BATCH_SIZE]))  # compiles
            began = time.perf_counter()
            write(path, features=extractor.features(texts))
            found = time.perf_counter() - began, os.path.getsize(path)
        base = base or found
        print(
            f"  {name:<28} {found[0]:>8.1f} s {found[1] / 1e6:>10,.1f} MB"
            f"   {found[0] / base[0]:>6.1f} times the seconds, {found[1] / base[1]:>6,.1f} times the bytes"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("hf_dir", "mrpc_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max_texts", type=int, default=None, help="use only this number of texts, from the start")
    parser.add_argument("--file_texts", type=int, default=500, help="texts to write to files; 0 for none")
    parser.add_argument("--scratch_dir", default=None, help="folder for the files; 1.5 MB of JSON Lines per text")
    flags = parser.parse_args()
    texts = read_sentences(flags.mrpc_file)[: flags.max_texts]
    extractor = extractor_of(flags, "mean", (-1,))

    def our_vectors(texts: list[str]) -> np.ndarray:
        return np.stack([features.vectors[0] for features in extractor.features(map(TextOrPair, texts))])

    peer = peer_vectors(flags.hf_dir)
    ours = our_vectors(texts)
    difference = np.abs(ours - peer(texts)).max()
    print(f"Sentence vectors: {len(texts):,} sentences of MRPC; largest difference {difference:.1e}")
    if difference > TOLERANCE:
        raise SystemExit(f"the vectors differ by more than {TOLERANCE}")

    def rate(vectors) -> float:
        began = time.perf_counter()
        vectors(texts)
        return len(texts) / (time.perf_counter() - began)

    compare("texts/s", lambda: rate(our_vectors), lambda: rate(peer), "transformers", rounds=ROUNDS)
    if flags.file_texts:
        tokenizer = FullTokenizer.from_folder(flags.hf_dir)
        compare_files(flags, texts[: flags.file_texts], ours.shape[1], tokenizer)


if __name__ == "__main__":
    main()
