"""Writes two small random sentence encoders and their vectors: python make.py, with sentence-transformers 6.2."""

import json
import pathlib
import shutil

import torch
import transformers
from sentence_transformers import SentenceTransformer, models

FOLDER = pathlib.Path(__file__).parent
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "harbour", "slept", "the", "quiet", "woke"]
TEXTS = ["the harbour slept", "", "the quiet harbour woke " * 5, "slept"]

torch.manual_seed(0)
base = FOLDER / "base"
base.mkdir(exist_ok=True)
(base / "vocab.txt").write_text("\n".join(WORDS))
config = transformers.BertConfig(
    vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16, initializer_range=0.5,
)  # fmt: skip
transformers.BertModel(config).save_pretrained(base)
transformers.BertTokenizer(str(base / "vocab.txt")).save_pretrained(base)
transformer = models.Transformer(str(base), max_seq_length=10)
dense = models.Dense(8, 5, activation_function=torch.nn.Tanh())
for name, modules in {
    "dense": [models.Pooling(8, pooling_mode="mean"), dense, models.Normalize()],
    "poolings": [models.Pooling(8, pooling_mode=("cls", "max", "mean"))],
}.items():
    encoder = SentenceTransformer(modules=[transformer, *modules], device="cpu")
    encoder.save(str(FOLDER / name))
    vectors = encoder.encode(TEXTS).tolist()
    (FOLDER / name / "expected.json").write_text(json.dumps({"texts": TEXTS, "vectors": vectors}))
    (FOLDER / name / "README.md").unlink()
shutil.rmtree(base)
