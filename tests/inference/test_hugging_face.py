"""`Predictor` on Hugging Face folders with task heads, compared with the pipelines of `transformers`.

`tests/golden/families/make_answers.py` made the models and recorded the outputs.
"""

import json
import math
import shutil

import pytest

from official_bert.config.sentence_modules import score_activation
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from tests.conftest import GOLDEN, endurance, run_here, slow

ANSWERS = GOLDEN / "families" / "answers"
TOLERANCE = 1e-5


def comparable(text, result):
    """Return a result in the form of the pipeline's output: names and positions with a score each."""
    if isinstance(result, float):
        return [["LABEL_0", result]]
    if hasattr(result, "label"):
        return [list(pair) for pair in result.probabilities.items()]
    if hasattr(result, "tags"):
        starts = [text.index(word) for word in result.words]
        return [list(row) for row in zip(result.tags, result.probabilities, starts, strict=True)]
    if hasattr(result[0], "text"):
        return [[answer.text, answer.probability, answer.start] for answer in result]
    return [[[candidate.word, candidate.probability] for candidate in mask] for mask in result]


def expected(text, answer, head):
    if head != "tags":
        return answer
    starts = {text.index(word) for word in text.split()}  # only the first wordpiece of a word counts
    return [[tag, score, start] for _, tag, score, start in answer if start in starts]


def assert_alike(found, wanted):
    """Compare nested lists: floats within the tolerance, everything else exactly."""
    if isinstance(wanted, list):
        for one, other in zip(found, wanted, strict=True):
            assert_alike(one, other)
    else:
        assert found == (pytest.approx(wanted, abs=TOLERANCE) if isinstance(wanted, float) else wanted)


SLOW = ["bert_tags", "bert_several", "bert_number", "bert_masks", "bert_spans", "distilbert_labels"]
TOGETHER = ["bert_labels", "distilbert_spans", "electra_masks", "electra_tags", "roberta_masks"]  # families and heads


@pytest.mark.parametrize("folder", ["roberta_labels", *slow(*SLOW), *endurance(*TOGETHER)])
def test_answers_are_those_of_the_pipeline(folder):
    if folder.startswith("roberta"):
        pytest.importorskip("tokenizers")
    predict, head = Predictor(ANSWERS / folder), folder.partition("_")[2]
    rows = json.loads((ANSWERS / folder / "answers.json").read_text())
    texts = [text if isinstance(text, str) else tuple(text) for text, _ in rows]
    for text, result, (_, answer) in zip(texts, predict(texts), rows, strict=True):
        assert_alike(comparable(text, result), expected(text, answer, head))
    assert predict.embed("a cat").shape == (8,)


def test_the_class_names_of_a_config_must_match(tmp_path):
    shutil.copytree(ANSWERS / "bert_labels", tmp_path, dirs_exist_ok=True)
    values = json.loads((tmp_path / "config.json").read_text())
    lacking = "lacks cls/squad/.*config.json says BertForQuestionAnswering, but the weights lack its span head"
    for change, message in (
        ({"id2label": {"0": "a", "2": "b"}}, r"config\.json: id2label must map \"0\", \"1\" and so on"),
        ({"id2label": {"0": "a", "1": "b"}}, r"output_weights is \[3, 8\] there and \[2, 8\] here"),
        ({"problem_type": "regression"}, "problem_type is regression with 3 numbers"),
        ({"architectures": ["BertForQuestionAnswering"]}, lacking),
        ({"model_type": "gpt2"}, r"config\.json: model_type is 'gpt2', a family of encoders that is not supported"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(values | change))
        with pytest.raises(UserError, match=message):
            Predictor(tmp_path)


@pytest.mark.slow
def test_the_score_of_a_cross_encoder_passes_through_its_activation(tmp_path):
    shutil.copytree(ANSWERS / "bert_number", tmp_path, dirs_exist_ok=True)
    text, ((_, raw),) = json.loads((tmp_path / "answers.json").read_text())[0]
    values = json.loads((tmp_path / "config.json").read_text()) | {"problem_type": None}
    sigmoid, identity = (f"torch.nn.modules.activation.{name}" for name in ("Sigmoid", "Identity"))
    module = {"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))  # a cross-encoder has its head beside it
    for changes, expected in (
        ({}, "Sigmoid"),  # as in the pipeline and in sentence-transformers
        ({"problem_type": "regression"}, "Identity"),
        ({"problem_type": "regression", "sentence_transformers": {"activation_fn": sigmoid}}, "Sigmoid"),
        ({"sbert_ce_default_activation_function": identity}, "Identity"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}, "activation_fn is 'torch.nn.Tanh', which is"),
        ({"sentence_transformers": {"scale": "2"}}, "config.json: sentence_transformers.scale is '2', which is not"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(values | changes))
        if " is " in expected:
            with pytest.raises(UserError, match=expected):
                score_activation(str(tmp_path), "regression")
        else:
            assert score_activation(str(tmp_path), "regression") == expected
    for problem in (None, "single_label_classification"):
        (tmp_path / "config.json").write_text(json.dumps(values | {"problem_type": problem}))
        assert Predictor(tmp_path)(text) == pytest.approx(1 / (1 + math.exp(-raw)), abs=TOLERANCE)
    settings = json.dumps({"activation_fn": identity, "model_type": "CrossEncoder"})
    (tmp_path / "config_sentence_transformers.json").write_text(settings)
    assert score_activation(str(tmp_path), "regression") == "Identity"


@pytest.mark.slow
def test_a_finished_model_can_be_exported(tmp_path):
    export = {"export_dir": tmp_path / "bert_tags", "export_format": "tflite"}
    run_here("export", model_dir=ANSWERS / "bert_tags", **export)
    served, loaded = (comparable("a cat", Predictor(path / "bert_tags")("a cat")) for path in (tmp_path, ANSWERS))
    assert_alike(served, loaded)
