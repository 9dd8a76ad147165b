"""`save_model`: a Keras model saved like the output of a run."""

import json
import os
import pathlib
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.inference.finished_runs import export, load_export
from official_bert.inference.predictor import Predictor
from official_bert.inference.user_models import save_model
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, SpanModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.serving.servable import IDS_SCHEMA
from official_bert.support.errors import UserError
from official_bert.tasks.classification.records import LabelledText, TextJoiner
from official_bert.tokenization import FullTokenizer
from tests.conftest import run_here

PAIRS = [("the baker woke .", "the town"), ("the Town", ""), ("a " * 40, "the harbour")]
LABELS = ["first", "second", "third"]


@pytest.fixture(scope="module")
def encoder(model_dir, one_layer_config_file):
    return BertEncoder.from_checkpoint(model_dir / "bert_model.ckpt", bert_config=one_layer_config_file)


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return FullTokenizer(vocab_file, do_lower_case=False)


@pytest.fixture(scope="module")
def pairs(encoder, tokenizer, tmp_path_factory):
    """The folder of a classifier of pairs, and its expected probabilities for `PAIRS`."""
    model = ClassificationModel(encoder, num_outputs=3)
    weights = model.checkpoint_variables()["output_weights"]
    weights.assign(30 * weights)  # so that swapped labels are noticed
    folder = tmp_path_factory.mktemp("saved") / "new" / "pairs"
    flags = {"labels": LABELS, "max_seq_length": 32, "text_b_column": "second"}
    assert save_model(folder, model, tokenizer, **flags) == str(folder)
    return folder, tf.nn.softmax(model(tokenizer(PAIRS, max_seq_length=32))).numpy()


def probabilities(predictor, texts=PAIRS):
    return [[result.probabilities[label] for label in LABELS] for result in predictor(texts)]


@pytest.mark.slow
def test_a_predictor_answers_as_the_model_does(pairs, encoder, tokenizer, monkeypatch):
    folder, expected = pairs
    assert os.listdir(folder.parent) == ["pairs"]
    assert (folder / "model.ckpt-0.index").exists()  # the model has no optimizer
    predictor = Predictor(folder)
    np.testing.assert_allclose(probabilities(predictor), expected, atol=1e-5)
    monkeypatch.setattr(BertEncoder, "from_checkpoint", None)  # nothing may load it a second time
    batch = tokenizer(PAIRS[:2], max_seq_length=64)
    np.testing.assert_allclose(predictor.embed(PAIRS[:2], pooling="pooler"), encoder.pool(**batch), atol=1e-5)


@pytest.mark.slow
def test_the_output_folder_of_a_trainer_is_completed(pairs, encoder, tokenizer, tmp_path):
    model = ClassificationModel.from_checkpoint(pairs[0], num_outputs=3)
    arrays = {name: np.asarray(value) for name, value in model.checkpoint_variables().items()}
    arrays |= {"output_bias/adam_m": np.zeros(3, np.float32), "global_step": np.int64(7)}
    CheckpointFolder(str(tmp_path), keep_max=1).save(7, arrays)
    flags = {"labels": LABELS, "max_seq_length": 32, "text_b_column": "second"}
    with pytest.raises(
        UserError, match=r"contains checkpoints, as a Trainer writes them, but .*save_model\('.*', trainer.model,"
    ):
        Predictor(tmp_path)
    kept = sorted(os.listdir(tmp_path))
    with pytest.raises(UserError, match=r"model\.ckpt-7"):
        save_model(tmp_path, TaggingModel(encoder, num_outputs=2), tokenizer, labels=["a", "b"])
    assert sorted(os.listdir(tmp_path)) == kept
    save_model(tmp_path, model, tokenizer, **flags)
    np.testing.assert_allclose(probabilities(Predictor(tmp_path)), pairs[1], atol=1e-5)
    with pytest.raises(UserError, match="folder"):  # it is complete
        save_model(tmp_path, model, tokenizer, **flags)


def test_arguments_that_do_not_match_are_refused(pairs, encoder, tokenizer, tmp_path):
    classifier, span = ClassificationModel(encoder, num_outputs=3), SpanModel(encoder)
    for model, changes, message in (
        (classifier, {"labels": None}, r"the model has 3 outputs; give their names in order: labels=\[...\]"),
        (classifier, {"labels": ["a", "b"]}, "give 3 distinct names, one per output of the model"),
        (classifier, {"labels": "abc"}, "give 3 distinct names"),
        (classifier, {"max_length": 3}, "'max_length': the script that trains a ClassificationModel has no such flag"),
        (classifier, {"head": "bilstm"}, "'head' follows from the model, the tokenizer and the folder; leave it out"),
        (classifier, {"max_seq_length": 65}, "max_seq_length=65 exceeds max_position_embeddings=64 of the model"),
        (span, {}, "the outputs of a SpanModel have no labels; leave them out"),
        (span, {"labels": None}, "no part of a context fits beside a question"),  # found when reading it back
        (encoder, {}, "PretrainingModel, MultipleChoiceModel, SentenceModel and functional models, not BertEncoder"),
    ):
        with pytest.raises(UserError, match=message):
            save_model(tmp_path / "out", model, tokenizer, **{"labels": LABELS, **changes})
    with pytest.raises(UserError, match="tokenizer is 'vocab.txt'; give the FullTokenizer"):
        save_model(tmp_path / "out", classifier, "vocab.txt", labels=LABELS)
    with pytest.raises(UserError, match="folder=.*pairs/.* exists already; give another folder"):
        save_model(pairs[0], classifier, tokenizer, labels=LABELS)
    with pytest.raises(UserError, match="--export_format=h5: must be one of saved_model, tflite, onnx"):
        export(pairs[0], tmp_path / "out", export_format="h5")
    with pytest.raises(UserError, match="pairs is not an export; check the path"):
        load_export(pairs[0])
    assert not os.listdir(tmp_path)


@pytest.mark.slow
def test_models_with_options_are_saved(encoder, tokenizer, tmp_path):
    windows = ClassificationModel(encoder, num_outputs=3, window_length=16)
    tags = TaggingModel(encoder, num_outputs=3, head="bilstm")
    score = ClassificationModel(encoder, num_outputs=1, feature_layers="last")
    sizes = {"max_windows": 3, "doc_stride": 4}
    for model, given, following in (
        (windows, {"labels": LABELS, **sizes}, {"long_text": "window", "max_seq_length": 16, **sizes}),
        (tags, {"labels": ["O", "B-X", "I-X"]}, {"head": "bilstm"}),
        (score, {}, {"feature_layers": "last", "regression": True}),
    ):
        folder = save_model(tmp_path / next(iter(following)), model, tokenizer, **given)
        flags = json.loads(pathlib.Path(folder, "run_config.json").read_text())["flags"]
        assert following.items() <= flags.items()
    texts, joiner = ["the town " * 30, "woke"], TextJoiner(tokenizer, max_seq_length=16, **sizes)
    np.testing.assert_allclose(Predictor(folder)(texts), score(tokenizer(texts))[:, 0], atol=1e-5)
    rows = [joiner.join(LabelledText((text, None), 0), Counter()) for text in texts]
    inputs = {name: np.array([[*row[name], *[0] * (48 - len(row[name]))] for row in rows]) for name in IDS_SCHEMA.names}
    expected = tf.nn.softmax(windows(inputs))
    np.testing.assert_allclose(probabilities(Predictor(tmp_path / "long_text"), texts), expected, atol=1e-5)


@pytest.mark.endurance
def test_the_scripts_read_the_folder(pairs, tmp_path):
    folder, expected = pairs
    rows = "".join(f"{first}\t{second}\n" for first, second in PAIRS)
    (tmp_path / "texts.tsv").write_text(f"text\tsecond\n{rows}")
    flags = {
        "bert_config_file": folder / "bert_config.json", "vocab_file": folder / "vocab.txt", "do_lower_case": False,
        "task_name": "custom", "data_dir": tmp_path, "text_a_column": "text", "text_b_column": "second",
        "max_seq_length": 32, "output_dir": folder, "do_predict": True, "predict_file": "texts.tsv",
    }  # fmt: skip
    run_here("run_classifier", **flags)
    np.testing.assert_allclose(np.loadtxt(folder / "test_results.tsv"), expected, atol=1e-4)
    assert export(folder, tmp_path / "out") == str(tmp_path / "out" / "1")
    first, second = map(tf.constant, zip(*PAIRS, strict=True))
    answer = load_export(tmp_path / "out").signatures["text"](text_a=first, text_b=second)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
