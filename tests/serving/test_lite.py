"""Exports for LiteRT, run by TensorFlow's interpreter."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.commands import run_classifier
from official_bert.config.bert_config import BertConfig
from official_bert.inference.predictor import Predictor
from official_bert.modeling.classifier import ClassificationModel
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import FLAT
from official_bert.modeling.heads import BILSTM
from official_bert.modeling.sentence import SentenceModel
from official_bert.modeling.span import SpanModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.serving.lite import write_lite
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.classification.servable import ClassificationServable
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.question_answering.servable import QuestionAnsweringServable
from official_bert.tasks.question_answering.windows import WindowOptions
from official_bert.tasks.sentence_encoder.servable import SentenceServable
from official_bert.tasks.tagging.servable import TaggingServable
from official_bert.tokenization import FullTokenizer
from tests.conftest import prints_error
from tests.exports import predicted_pairs

TOLERANCES = {"float32": 1e-4, "float16": 1e-3, "int8": 0.1}
CONFIG = BertConfig(
    vocab_size=1182, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=64, type_vocab_size=2, initializer_range=0.1,
)  # fmt: skip
OPTIONS = WindowOptions(max_seq_length=24, doc_stride=8, max_query_length=6)


def answers(path, ids):
    """Return the interpreter's outputs for rows of ids, one at a time: name to array."""
    run = tf.lite.Interpreter(str(path), num_threads=1).get_signature_runner("serving_default")
    rows = [
        run(**{name: values[row : row + 1] for name, values in ids.items()}) for row in range(len(ids["input_ids"]))
    ]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def padded(ids, length):
    return {name: np.pad(values, [[0, 0], [0, length - values.shape[1]]]) for name, values in ids.items()}


def answers_without_padding(path, ids):
    """Return the interpreter's outputs for each row without its padding: a list of name to array, [1, ...]."""
    run = tf.lite.Interpreter(str(path), num_threads=1).get_signature_runner("serving_default")
    lengths = ids["input_mask"].sum(axis=1)
    return [
        run(**{name: values[row : row + 1, :length] for name, values in ids.items()})
        for row, length in enumerate(lengths)
    ]


@pytest.mark.parametrize(
    "precision", [pytest.param(name, marks=pytest.mark.slow) for name in ("int8", "float32", "float16")]
)
def test_a_classifier_gives_the_probabilities_of_the_saved_model(reviews, version, tmp_path, precision):
    export = {"export_dir": str(tmp_path / "lite"), "export_format": "tflite", "export_precision": precision}
    run_classifier.run(ClassifierConfig(**{**reviews, **export}, do_export=True))
    signatures = tf.saved_model.load(version).signatures
    texts = dict(zip(("text_a", "text_b"), map(tf.constant, zip(*predicted_pairs(reviews), strict=True)), strict=True))
    ids = {name: values.numpy() for name, values in signatures["tokenize"](**texts).items()}
    expected = signatures["text"](**texts)
    found = answers(tmp_path / "lite" / "1" / "model.tflite", padded(ids, 32))
    assert found.keys() == {"probabilities", "logits"}
    difference = np.abs(found["probabilities"] - expected["probabilities"]).max()
    assert difference < TOLERANCES[precision]
    assert (difference > 1e-7) == (precision != "float32")
    without_padding = answers_without_padding(tmp_path / "lite" / "1" / "model.tflite", ids)
    for number, row in enumerate(without_padding):
        np.testing.assert_allclose(
            row["probabilities"][0], expected["probabilities"][number], atol=TOLERANCES[precision]
        )
    files = {path.relative_to(tmp_path / "lite" / "1").as_posix() for path in tmp_path.glob("lite/1/**/*")}
    assert files == {"model.tflite", "official_bert.json", "checksums.json", "assets", "assets/vocab.txt"}
    assert json.loads((tmp_path / "lite" / "1" / "checksums.json").read_text()).keys() >= {"model.tflite"}
    with pytest.raises(UserError, match="is for LiteRT and reads ids, not texts"):
        Predictor(str(tmp_path / "lite"))


def random_ids(length):
    rng = np.random.default_rng(1)
    mask = (np.arange(length) < [[length], [9], [17]]).astype(np.int32)
    return {
        "input_ids": rng.integers(1, 1182, [3, length]).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(length) >= 5).astype(np.int32) * mask,
    }


@pytest.mark.parametrize(
    "task",
    ["question answering", *(pytest.param(task, marks=pytest.mark.slow) for task in ("tagging", "LSTM", "sentences"))],
)
def test_other_tasks(task, vocab_file, tmp_path):
    keras.utils.set_random_seed(1)
    encoder, tokenizer = create_encoder(CONFIG, FLAT), FullTokenizer(vocab_file)
    if task == "question answering":
        servable = QuestionAnsweringServable(SpanModel(encoder), CONFIG, tokenizer, OPTIONS)
    elif task == "sentences":
        model = SentenceModel(encoder, poolings=("max", "mean"), layers_after=[(13, "tanh"), None])
        types = ("int8", "binary")
        servable = SentenceServable(model, CONFIG, tokenizer, max_seq_length=24, vector_types=types)
    else:
        head = {"head": BILSTM} if task == "LSTM" else {}
        model = TaggingModel(encoder, num_outputs=3, **head)
        servable = TaggingServable(model, CONFIG, tokenizer, tags=["O", "B-X", "I-X"], max_seq_length=24)
    path = write_lite(str(tmp_path), servable)
    ids = random_ids(24)
    expected = servable.predict({name: tf.constant(values) for name, values in ids.items()})
    found = answers(f"{path}/model.tflite", ids)
    assert found.keys() == {name for name, values in expected.items() if values.dtype != tf.string}
    for name, values in found.items():
        real = ids["input_mask"] == 1 if values.shape[1] == 24 else slice(None)
        tolerance = 1 if name == "int8_vectors" else 1e-4
        np.testing.assert_allclose(values[real], expected[name].numpy()[real], atol=tolerance, err_msg=name)
    for number, row in enumerate(answers_without_padding(f"{path}/model.tflite", ids)):
        for name, values in row.items():
            same = expected[name].numpy()[number, : values.shape[1]]
            tolerance = 1 if name == "int8_vectors" else 1e-4
            np.testing.assert_allclose(values[0], same, atol=tolerance, err_msg=name)


@pytest.mark.slow
def test_a_classifier_of_windows_reads_all_of_them(vocab_file, tmp_path):
    keras.utils.set_random_seed(1)
    model = ClassificationModel(create_encoder(CONFIG, FLAT), num_outputs=2, window_length=12)
    servable = ClassificationServable(
        model, CONFIG, FullTokenizer(vocab_file), problem="single_label", labels=("0", "1"), is_pair=False,
        max_seq_length=12, max_windows=2, doc_stride=4,
    )  # fmt: skip
    path = write_lite(str(tmp_path), servable)
    ids = random_ids(24)
    expected = servable.predict({name: tf.constant(values) for name, values in ids.items()})
    found = answers(f"{path}/model.tflite", ids)
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-4)
    for number, row in enumerate(answers_without_padding(f"{path}/model.tflite", ids)):
        np.testing.assert_allclose(row["probabilities"][0], expected["probabilities"][number], atol=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"export_precision": "int8"}, "--export_precision=int8; choose one of float32, bfloat16"),
        (
            {"export_format": "tflite", "export_precision": "bfloat16"},
            "--export_format=tflite does not support --export_precision=bfloat16",
        ),
    ],
)
def test_formats_have_their_precisions(reviews, flags, message):
    with prints_error(message, ClassifierConfig):
        ClassifierConfig(**{**reviews, **flags}, do_export=True)


def test_a_pretrained_model_is_refused():
    flags = {"bert_config_file": "a", "output_dir": "b", "vocab_file": "c", "export_dir": "d", "do_export": True}
    with prints_error("--export_format=tflite: a pretrained model answers with words", PretrainingConfig):
        PretrainingConfig(**flags, export_format="tflite")
