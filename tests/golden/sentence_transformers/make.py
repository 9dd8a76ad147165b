"""Writes small random sentence encoders and their vectors: python make.py, with sentence-transformers 6.2."""

import itertools
import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, SparseEncoder, models
from sentence_transformers.sparse_encoder.models import SpladePooling

FOLDER = pathlib.Path(__file__).parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "harbour", "slept", "the", "quiet", "woke"]
ACCENTED = [*SPECIAL, "the", "harbour", "slept", "##s", "café", "cafe", "and", "woke", ".", ","]
TEXTS = ["the harbour slept", "", "the quiet harbour woke " * 5, "slept"]
ACCENTED_TEXTS = ["the harbour slept .", "The Café woke , and the harbours", "", "cafe", "the " * 30]


def transformer(words, model_class=transformers.BertModel, transformer_task="feature-extraction", **settings):
    base = FOLDER / "base"
    base.mkdir()
    (base / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=16, initializer_range=0.5,
    )  # fmt: skip
    model_class(config).save_pretrained(base)
    transformers.BertTokenizer(str(base / "vocab.txt"), **settings).save_pretrained(base)
    module = models.Transformer(str(base), max_seq_length=10, transformer_task=transformer_task)
    shutil.rmtree(base)
    return module


def save(name, modules, **settings):
    SentenceTransformer(modules=modules, device="cpu", **settings).save(str(FOLDER / name))
    (FOLDER / name / "README.md").unlink()


def make_older(folder):
    """Convert a saved model to the layout of early versions: other names, another encoder folder, pickles."""
    inner = folder / "0_Transformer"
    inner.mkdir()
    for file in [path for path in folder.iterdir() if path.is_file() and "modules" not in path.name]:
        file.rename(inner / file.name)
    (inner / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9, "do_lower_case": True}))
    modules = [
        {"idx": number, "name": str(number), "path": f"{number}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(("Transformer", "Pooling", "Dense"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for place in (inner, folder / "2_Dense"):
        torch.save(load_file(place / "model.safetensors"), place / "pytorch_model.bin")
        (place / "model.safetensors").unlink()


def write_vectors(name, texts):
    """The default prompt, if there is one, is applied."""
    vectors = SentenceTransformer(str(FOLDER / name), device="cpu").encode(texts).tolist()
    (FOLDER / name / "expected.json").write_text(json.dumps({"texts": texts, "vectors": vectors}))


torch.manual_seed(0)
encoder = transformer(WORDS)
dense = models.Dense(8, 5, activation_function=torch.nn.Tanh())
save("dense", [encoder, models.Pooling(8, pooling_mode="mean"), dense, models.Normalize()])
save("poolings", [encoder, models.Pooling(8, pooling_mode=("cls", "max", "mean"))])
shutil.rmtree(FOLDER / "older", ignore_errors=True)
poolings = models.Pooling(8, pooling_mode=("mean", "cls", "max"))
save("older", [transformer(ACCENTED, do_lower_case=False), poolings, models.Dense(24, 7)])
make_older(FOLDER / "older")
of_positions = models.Pooling(8, ("weightedmean", "mean_sqrt_len_tokens", "lasttoken", "cls"), include_prompt=False)
norm = models.LayerNorm(32)
torch.nn.init.normal_(norm.norm.weight), torch.nn.init.normal_(norm.norm.bias)
dense = models.Dense(32, 5, bias=False, activation_function=torch.nn.GELU())
prompts = {"prompts": {"query": "the quiet ", "other": "slept"}, "default_prompt_name": "query"}
save("prompt", [transformer(WORDS), of_positions, norm, dense], **prompts)
for name, texts in {"dense": TEXTS, "poolings": TEXTS, "older": ACCENTED_TEXTS, "prompt": TEXTS}.items():
    write_vectors(name, texts)

inputs, values = torch.tensor([-25, -4, -2.5, -0.7, -0.1, 0.3, 0.9, 2.9, 5, 21]), {}
for kind in [torch.nn.Identity, *(getattr(torch.nn, name) for name in torch.nn.modules.activation.__all__)]:
    try:
        function = kind().eval()
        if function(inputs).shape == inputs.shape and not list(function.parameters()):
            values[f"{kind.__module__}.{kind.__name__}"] = function(inputs).tolist()
    except (TypeError, ValueError, RuntimeError):
        pass  # it needs arguments
(FOLDER / "activations.json").write_text(json.dumps({"inputs": inputs.tolist(), "values": values}))

masked_lm = transformer(WORDS, transformers.BertForMaskedLM, transformer_task="fill-mask")
torch.nn.init.normal_(masked_lm.model.cls.predictions.bias)
sparse = SparseEncoder(modules=[masked_lm, SpladePooling("max")], device="cpu")
sparse.save(str(FOLDER / "splade"))
(FOLDER / "splade" / "README.md").unlink()
expected = {}
for row in itertools.product(SpladePooling.SPLADE_POOLING_MODES, SpladePooling.SPLADE_ACTIVATION):
    sparse[1].pooling_strategy, sparse[1].activation_function = row
    vectors = sparse.encode(TEXTS, convert_to_sparse_tensor=False)
    expected[" ".join(row)] = {"vectors": vectors.tolist(), "dot": sparse.similarity(vectors, vectors).tolist()}
(FOLDER / "splade" / "expected.json").write_text(json.dumps({"texts": TEXTS, **expected}))
