"""Shared by the tests of training."""

import json

import pytest


@pytest.fixture(scope="module")
def quiet_model(tmp_path_factory, model_dir):
    """A model of one layer without dropout, whose masks differ between devices by design."""
    folder = tmp_path_factory.mktemp("model")
    config = json.loads((model_dir / "bert_config.json").read_text())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_hidden_layers=1)
    (folder / "bert_config.json").write_text(json.dumps(config))
    return {"bert_config_file": str(folder / "bert_config.json"), "init_checkpoint": str(model_dir / "bert_model.ckpt")}
