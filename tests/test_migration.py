"""The table for users of other libraries in docs/migration.md: each row is run."""

import pathlib
import re

import numpy as np
import pytest

import official_bert
from tests.conftest import GOLDEN, slow

PAGE = pathlib.Path(official_bert.__file__).parents[1] / "docs" / "migration.md"
FAMILIES = GOLDEN / "families"
# The model of each row, by the start of its first cell, and its results: keys of the outputs of transformers.
MODELS = {
    "TFBertModel": "bert/Model", "TFBertForMaskedLM": "answers/bert_masks",
    "TFBertForSequenceClassification": "bert/ForSequenceClassification",
    "TFBertForTokenClassification": "bert/ForTokenClassification", "TFBertForQuestionAnswering": "answers/bert_spans",
    "TFDistilBertForSequenceClassification": "distilbert/ForSequenceClassification",
    "TFRobertaForMaskedLM": "roberta/ForMaskedLM",
    "TFElectraForTokenClassification": "electra/ForTokenClassification",
    "TFElectraForPreTraining": "electra/ForPreTraining", "CrossEncoder": "answers/bert_number",
    "AutoTokenizer": "answers/bert_labels", 'pipeline("text-classification"': "answers/bert_labels",
    'pipeline("token-classification"': "answers/bert_tags", 'pipeline("question-answering"': "answers/bert_spans",
    'pipeline("fill-mask"': "answers/bert_masks", "hub.KerasLayer": "../tf2/hub_bert",
    "nlp.networks.BertEncoder": "../tf2/garden_encoder_v2",
    "keras_hub.models.BertTextClassifier": "../tf2/keras_hub_bert",
}  # fmt: skip
THEIR_NAMES = {
    "input_ids": ("input_ids", "ids"),
    "input_mask": ("attention_mask", "mask"),
    "segment_ids": ("token_type_ids", "segments"),
}
POSITIONS = np.tile(np.arange(9), (4, 1))


def rows():
    section = PAGE.read_text().split("| you had | you write |\n|---|---|\n")[1].split("\n\n")[0]
    for row in section.splitlines():
        had, write = (re.search("`(.+?)`", cell)[1] for cell in re.split(r" (?<!\\)\| ", row)[:2])
        yield had, write.replace(r"\|", "|")


ROWS = dict(rows())


def model_of(had):
    (model,) = (model for name, model in MODELS.items() if re.match(re.escape(name) + r"\W", had))
    return model


IN_DEFAULT = [had for had in ROWS if had.startswith(("TFBert", "AutoTokenizer"))]


@pytest.mark.parametrize("had", [*IN_DEFAULT, *slow(*(had for had in ROWS if had not in IN_DEFAULT))])
def test_migrated_code_gives_the_same_results(had):
    folder = FAMILIES / model_of(had)
    has_arrays = (folder / "expected.npz").exists()
    expected = dict(np.load(folder / "expected.npz")) if has_arrays else {"input_ids": np.ones([4, 9], np.int32)}
    inputs = {ours: expected[name] for ours, theirs in THEIR_NAMES.items() for name in theirs if name in expected}
    names = {
        "folder": folder, "inputs": inputs, "positions": POSITIONS, "texts": ["a cat", "zoe keeps bees"],
        "text": "zoe keeps bees", "question": "who keeps bees ?", "query": "bees", "masked_text": "the [MASK] goes",
    }  # fmt: skip
    public = {name: getattr(official_bert, name) for name in official_bert.__all__}
    found = eval(ROWS[had], vars(official_bert) | public | names)
    if not has_arrays:
        assert found is not None
        return
    if isinstance(found, dict) and "pooled_output" in found:
        pooled = expected.get("pooler_output", expected.get("pooled_output"))
        np.testing.assert_allclose(found["pooled_output"], pooled, atol=1e-5)
        return
    logits = found["masked_lm_logits"] if isinstance(found, dict) else found
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-5)


def test_every_model_has_a_row():
    assert [model_of(had) for had in ROWS] == list(MODELS.values())
