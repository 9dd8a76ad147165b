r"""Sentence vectors per second, compared with PyTorch's `transformers`.

  python benchmarks/sentence_vectors.py --hf_dir all-MiniLM-L6-v2 --mrpc_file glue/MRPC/train.tsv

Vectors are means over the wordpieces of the last layer. The peer computes batches of 32 sentences in order, padded to
the longest; ours uses the code of `extract_features.py`, including tokenization and restoring the order. The vectors of
both sides are compared first. Needs the `bench` extra.
"""

import argparse
import contextlib
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# These crash the process if TensorFlow was imported first.
import torch

with contextlib.suppress(ImportError):  # builds for CPUs lack it
    import triton  # noqa: F401

from transformers import AutoModel, AutoTokenizer  # isort: skip

import numpy as np
from common import compare

from official_bert.data.text_inputs import TextOrPair
from official_bert.inference.text_encoder import TextEncoder, VectorSettings
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.tokenization import FullTokenizer

BATCH_SIZE, MAX_SEQ_LENGTH = 32, 128
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("hf_dir", "mrpc_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max_texts", type=int, default=None, help="use only this number of texts, from the start")
    flags = parser.parse_args()
    texts = read_sentences(flags.mrpc_file)[: flags.max_texts]
    extractor = TextEncoder(
        BertEncoder.from_checkpoint(flags.hf_dir, layout=UnpaddedLayout),
        FullTokenizer.from_folder(flags.hf_dir),
        VectorSettings((-1,), "mean", MAX_SEQ_LENGTH),
        batch_size=BATCH_SIZE,
    )

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


if __name__ == "__main__":
    main()
