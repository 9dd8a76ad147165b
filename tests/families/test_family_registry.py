"""The registry of encoder families."""

import json

import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.families.bert import ElectraConfig
from official_bert.families.family import all_families
from official_bert.support.errors import UserError


def test_an_unknown_family_is_refused_with_those_that_are_known(tmp_path):
    known = ", ".join(map(repr, all_families()))
    for name, key in (("config.json", "model_type"), ("bert_config.json", "family")):
        path = tmp_path / name
        path.write_text(json.dumps({key: "gpt2", "vocab_size": 9}))
        with pytest.raises(UserError, match=f"{name}: {key} is 'gpt2', .* one of these: {known}$"):
            BertConfig.from_json_file(str(path))


def test_another_family_is_another_model():
    electra = ElectraConfig(vocab_size=9)
    as_bert = BertConfig(
        **{name: value for name, value in electra.to_dict().items() if name not in ("family", "embedding_size")}
    )
    assert as_bert != electra
    ours, theirs = electra.identity_values(), as_bert.identity_values()
    assert ours == {**theirs, "family": "electra", "embedding_size": 128}
