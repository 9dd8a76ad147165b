"""The small model of the reference, and its activations."""

import pytest

from official_bert.config.bert_config import BertConfig
from tests.conftest import golden_arrays


@pytest.fixture(scope="session")
def config(model_dir):
    return BertConfig.from_json_file(str(model_dir / "bert_config.json"))


@pytest.fixture(scope="session")
def golden():
    return golden_arrays("pretraining_model/activations.npz")


@pytest.fixture(scope="session")
def batch(golden):
    return {name.removeprefix("in/"): values for name, values in golden.items() if name.startswith("in/")}
