"""hf://owner/name: models from a local hub, through the real client."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import official_bert
from official_bert.checkpoints.safetensors import WEIGHTS_FILE, to_hf, write_file
from official_bert.config.bert_config import BertConfig
from official_bert.support.files import local_folder
from tests import warm_start
from tests.conftest import ROOT
from tests.support.hub_server import serving

pytestmark = pytest.mark.slow

pytest.importorskip("huggingface_hub")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "harbour", "slept"]
CONFIG = BertConfig(
    vocab_size=len(WORDS), hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4,
    max_position_embeddings=16, type_vocab_size=2,
)  # fmt: skip


@pytest.fixture
def hub(tmp_path):
    """A hub; `own/private` needs a token, `own/cut` is sent half, and `own/damaged` with a wrong last byte."""
    encoder = official_bert.BertEncoder(CONFIG)
    weights = to_hf({name: np.asarray(value) for name, value in encoder.checkpoint_variables().items()}, CONFIG, "it")
    write_file(str(tmp_path / WEIGHTS_FILE), weights.arrays)
    model = {
        "config.json": json.dumps(CONFIG.to_hugging_face(weights.architecture, None)).encode(),
        "vocab.txt": "\n".join(WORDS).encode(),
        WEIGHTS_FILE: (tmp_path / WEIGHTS_FILE).read_bytes(),
        "pytorch_model.bin": b"not wanted",
        "onnx/model.onnx": b"not wanted",
    }
    with serving(
        {
            "own/model": model,
            "own/old": {"config.json": b"{}", "0_Transformer/vocab.txt": b"the", "pytorch_model.bin": b"all there is"},
            "own/keras": {"config.json": b"{}", "tf_model.h5": b"all there is"},
            "own/parts": {"modules.json": b"[]", "0_Transformer/pytorch_model.bin": b"not wanted"}
            | {f"0_Transformer/model-{part}-of-2.safetensors": part.encode() for part in "12"}
            | {"0_Transformer/model.safetensors.index.json": b"{}", "2_Dense/pytorch_model.bin": b"wanted"},
            "own/private": model,
            "own/cut": {"tokenizer_config.json": b"{ }", "tf_model.h5": b"all there is"},
            "own/damaged": {"config.json": b"{}", "model-1.safetensors": b"all there is"},
        }
    ) as hub:
        hub.private.add("own/private")
        hub.broken.add("tokenizer_config.json")
        hub.damaged.add("model-1.safetensors")
        hub.environment = {
            **os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        yield hub


def run(hub, *arguments, **changes):
    """Run Python with the client set to the hub; the client reads settings once, so each run needs a process."""
    command, environment = [sys.executable, *arguments], {**hub.environment, **changes}
    forked = warm_start.run(command, environment, timeout=100)
    return forked or subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


FOLDERS = """
import os, sys
from official_bert.support.errors import UserError
from official_bert.support.files import local_folder
for path in sys.argv[1:]:
    try:
        folder = local_folder(path)
        paths = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
        print(*sorted(os.path.relpath(path, folder) for path in paths))
    except UserError as error:
        print(error)
"""


def folders(hub, *paths, **changes):
    """Resolve paths in a process; return for each the names in its folder, or the message."""
    result = run(hub, "-c", FOLDERS, *paths, **changes)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


WAYS_IN = """
import official_bert
print(official_bert.BertEncoder.from_checkpoint("hf://own/model").config.hidden_size)
print(official_bert.load_tokenizer("hf://own/model@main").tokenize("the harbour slept"))
print(official_bert.Predictor("hf://own/model").embed("harbour").shape)
"""


def test_a_model_is_read_by_every_way_in_and_then_without_a_network(hub, tmp_path):
    result = run(hub, "-c", WAYS_IN)
    assert result.stdout.splitlines() == ["4", "['[UNK]', 'harbour', 'slept']", "(4,)"], result.stderr
    assert any(WEIGHTS_FILE in request for request in hub.requests)
    assert not any("onnx" in request or ".bin" in request for request in hub.requests)
    (tmp_path / "texts.txt").write_text("the harbour slept\n")
    result = run(
        hub, "-m", "official_bert", "extract_features", "--init_checkpoint=hf://own/model", "--layers=-1",
        "--max_seq_length=16", f"--input_file={tmp_path / 'texts.txt'}", f"--output_file={tmp_path / 'out.jsonl'}",
        HF_HUB_OFFLINE="1",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "out.jsonl").read_text())["features"][1]["token"] == "[UNK]"
    (found,) = folders(hub, "hf://own/other", HF_HUB_OFFLINE="1")
    assert found.startswith("hf://own/other cannot be downloaded, and is not in the cache: ")


def test_only_needed_files_are_downloaded_and_failures_are_reported(hub):
    """Half a download is not taken for a model, and neither is a damaged one."""
    paths = {
        "hf://own/model": f"config.json {WEIGHTS_FILE} vocab.txt",
        "hf://own/old": "0_Transformer/vocab.txt config.json pytorch_model.bin",
        "hf://own/keras": "config.json tf_model.h5",
        "hf://own/parts": "0_Transformer/model-1-of-2.safetensors 0_Transformer/model-2-of-2.safetensors "
        "0_Transformer/model.safetensors.index.json 2_Dense/pytorch_model.bin modules.json",
        "hf://own/private": "hf://own/private: the model does not exist or is private; check the name, or set HF_TOKEN",
        "hf://own/model@v2": "hf://own/model@v2: this model has no revision 'v2'",
        "hf://model": "hf://model is not a model name; write hf://owner/name or hf://owner/name@revision",
        "hf://own/../x": "hf://own/../x is not a model name; write hf://owner/name or hf://owner/name@revision",
    }
    *found, cut, damaged = folders(hub, *paths, "hf://own/cut", "hf://own/damaged")
    assert found == list(paths.values())
    assert cut.startswith("hf://own/cut cannot be downloaded, and is not in the cache: peer closed")
    said, blob = damaged.removesuffix(" to download it again").split("; delete ")
    assert said == "hf://own/damaged: model-1.safetensors is damaged: its SHA-256 does not match"
    hub.broken.clear()
    hub.damaged.clear()
    os.remove(blob)
    found = folders(hub, "hf://own/private", "hf://own/cut", "hf://own/damaged", HF_TOKEN="right")
    assert found == [paths["hf://own/model"], "tf_model.h5 tokenizer_config.json", "config.json model-1.safetensors"]
    assert local_folder("a/b") == "a/b"
    without = "import sys; sys.modules['huggingface_hub'] = None\n" + FOLDERS
    result = run(hub, "-c", without, "hf://own/model")
    assert result.stdout == "hf://own/model needs the client of the hub; run: pip install 'official-bert[hub]'\n"
