"""Exports that read ids: for LiteRT, run by TensorFlow's interpreter, for ONNX Runtime and for OpenVINO."""

import dataclasses
import importlib
import importlib.util
import json
import os
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.commands import run_classifier
from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.families.bert import ElectraConfig, RobertaConfig
from official_bert.families.mpnet import MPNetConfig
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import PLAIN
from official_bert.modeling.heads import BILSTM, ClassificationModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.sentence import SentenceModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.options import groups
from official_bert.serving.exports import write_lite, write_onnx
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.classification.servable import ClassificationServable
from official_bert.tasks.pretraining.servable import PretrainingServable
from official_bert.tasks.question_answering.data import WindowOptions
from official_bert.tasks.question_answering.servable import QuestionAnsweringServable
from official_bert.tasks.sentence_encoder.servable import SentenceServable
from official_bert.tasks.tagging.servable import TaggingServable
from official_bert.tokenization import FullTokenizer
from tests.conftest import prints_error, run_here
from tests.exports import predicted_pairs

TOLERANCES = {("tflite", "float16"): 1e-3, ("tflite", "int8"): 0.1, ("onnx", "float32"): 1e-5, ("onnx", "int8"): 0.1}
CONFIG = BertConfig(
    vocab_size=1182, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=64, type_vocab_size=2, initializer_range=0.1,
)  # fmt: skip
OPTIONS = WindowOptions(max_seq_length=24, doc_stride=8, max_query_length=6)


def engines(export_format, folder):
    """Return functions from ids to outputs by name, one for each program that is installed."""
    if export_format == "tflite":
        return [tf.lite.Interpreter(f"{folder}/model.tflite", num_threads=1).get_signature_runner("serving_default")]
    onnxruntime = pytest.importorskip("onnxruntime", reason='needs the extra "onnx"')
    session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
    assert all(value.shape == ["batch", "length"] for value in session.get_inputs())
    names = [value.name for value in session.get_outputs()]
    runs = [lambda **ids: dict(zip(names, session.run(None, ids), strict=True))]
    if importlib.util.find_spec("openvino"):
        openvino = importlib.import_module("openvino")
        model = openvino.Core().compile_model(f"{folder}/model.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        runs.append(lambda **ids: {value.any_name: found for value, found in model(ids).items()})
    return runs


@pytest.mark.slow
@pytest.mark.parametrize(("export_format", "precision"), TOLERANCES)
def test_a_classifier_gives_the_probabilities_of_the_saved_model(reviews, version, tmp_path, export_format, precision):
    if export_format == "onnx":
        pytest.importorskip("tf2onnx", reason='needs the extra "onnx"')
    export = {"export_dir": str(tmp_path / "out"), "export_format": export_format, "export_precision": precision}
    run_here("run_classifier", **{**reviews, **export}, do_export=True)
    signatures = tf.saved_model.load(version).signatures
    texts = dict(zip(("text_a", "text_b"), map(tf.constant, zip(*predicted_pairs(reviews), strict=True)), strict=True))
    ids = {name: values.numpy() for name, values in signatures["tokenize"](**texts).items()}
    expected = signatures["text"](**texts)["probabilities"].numpy()
    lengths, tolerance = ids["input_mask"].sum(axis=1), TOLERANCES[export_format, precision]
    for run in engines(export_format, tmp_path / "out" / "1"):
        rows = [
            run(**{name: values[row : row + 1, :length] for name, values in ids.items()})
            for row, length in enumerate(lengths)
        ]
        assert rows[0].keys() == {"probabilities", "logits"}
        difference = np.abs(np.concatenate([row["probabilities"] for row in rows]) - expected).max()
        assert difference < tolerance
        assert (difference > 1e-6) == (precision != "float32")
    files = {path.relative_to(tmp_path / "out" / "1").as_posix() for path in tmp_path.glob("out/1/**/*")}
    model = f"model.{export_format}"
    assert files == {model, "official_bert.json", "checksums.json", "assets", "assets/vocab.txt"}
    assert json.loads((tmp_path / "out" / "1" / "checksums.json").read_text()).keys() >= {model}
    for path in ("out", "out/1"):
        with pytest.raises(UserError, match="1 is for (LiteRT|ONNX Runtime) and reads ids, not texts"):
            Predictor(str(tmp_path / path))


def servable_of(task, encoder, tokenizer):
    """Return an untrained model of a task."""
    common = {"config": encoder.config, "tokenizer": tokenizer}
    if task == "question answering":
        return QuestionAnsweringServable(SpanModel(encoder), **common, options=OPTIONS)
    if task == "pretraining":
        return PretrainingServable(PretrainingModel(encoder), **common, max_seq_length=24, top_k=3)
    if task == "sentences":
        poolings = ("max", "cls", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
        model = SentenceModel(encoder, poolings=poolings, layers_after=["LayerNorm", (13, "gelu_erf"), None])
        options = {"vector_types": ("int8", "binary"), "prefix": "the", "pools_prefix": False}
        return SentenceServable(model, **common, max_seq_length=24, **options)
    if task == "windows":
        return ClassificationServable(
            ClassificationModel(encoder, num_outputs=2, window_length=12), **common, problem="single_label",
            labels=("0", "1"), is_pair=False, max_seq_length=12, max_windows=2, doc_stride=4,
        )  # fmt: skip
    model = TaggingModel(encoder, num_outputs=3, **({"head": BILSTM} if task == "LSTM" else {}))
    return TaggingServable(model, **common, tags=["O", "B-X", "I-X"], max_seq_length=24)


def requests(mask_id, at_once):
    """Yield ids with and without padding: batches, if the engine reads several rows at once, and single rows."""
    rng, length = np.random.default_rng(1), 24
    mask = (np.arange(length) < [[length], [9], [17]]).astype(np.int32)
    ids = rng.integers(1, 1182, [3, length]).astype(np.int32)
    ids[0, [5, 2]] = ids[2, 3] = mask_id  # and none in the second
    batch = {
        "input_ids": ids * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(length) >= 5).astype(np.int32) * mask,
    }
    if at_once:
        yield batch
    for row, num_real in enumerate(mask.sum(axis=1)):
        for end in {length, num_real}:
            yield {name: values[row : row + 1, :end] for name, values in batch.items()}


WRITERS = {"tflite": write_lite, "onnx": write_onnx}
MODELS = {
    "question answering": dataclasses.replace(CONFIG, hidden_act="gelu_erf"),
    "tagging": RobertaConfig(**CONFIG.to_dict()),
    "LSTM": CONFIG,
    "sentences": AlbertConfig(**{**CONFIG.to_dict(), "embedding_size": 16}),
    "pretraining": MPNetConfig(**{**CONFIG.to_dict(), "type_vocab_size": 0}),
    "windows": ElectraConfig(**{**CONFIG.to_dict(), "embedding_size": 16}),
}


@pytest.mark.parametrize("export_format", WRITERS)
@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=[pytest.mark.slow] * (number > 0)) for number, task in enumerate(MODELS)]
)
def test_models_give_the_outputs_of_tensorflow(task, export_format, vocab_file, tmp_path):
    if export_format == "onnx":
        pytest.importorskip("tf2onnx", reason='needs the extra "onnx"')
    keras.utils.set_random_seed(1)
    words = pathlib.Path(vocab_file).read_text(encoding="utf-8").splitlines()
    place = MODELS[task].first_position - 1  # of [PAD]; it is 1 for RoBERTa
    if place > 0:
        words.insert(place, words.pop(words.index("[PAD]")))
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    tokenizer = FullTokenizer(str(tmp_path / "vocab.txt"))
    servable = servable_of(task, create_encoder(MODELS[task], PLAIN), tokenizer)
    environment = dict(os.environ)
    folder = WRITERS[export_format](str(tmp_path), servable)
    assert os.environ == environment
    for run in engines(export_format, folder):
        for ids in requests(tokenizer.mask_id, at_once=export_format == "onnx"):
            found, expected = run(**ids), servable.numbers({name: tf.constant(values) for name, values in ids.items()})
            assert found.keys() == expected.keys()
            for name, values in found.items():
                tolerance = 1 if name == "int8_vectors" else 1e-5
                np.testing.assert_allclose(values, expected[name], atol=tolerance, rtol=0, err_msg=name)


def test_the_ids_of_a_pretrained_model_are_those_of_its_words(vocab_file):
    keras.utils.set_random_seed(1)
    tokenizer = FullTokenizer(vocab_file)
    servable = servable_of("pretraining", create_encoder(CONFIG, PLAIN), tokenizer)
    (ids, *_) = requests(tokenizer.mask_id, at_once=True)
    numbers, answers = servable.numbers(ids), servable.predict(ids)
    np.testing.assert_allclose(numbers["probabilities"], answers["probabilities"], rtol=1e-6)
    words = np.array(tokenizer.convert_ids_to_tokens(numbers["ids"].numpy().ravel().tolist())).reshape(3, 2, 3)
    is_real = numbers["probabilities"].numpy() > 0
    assert is_real[:, :, 0].tolist() == [[True, True], [False, False], [True, False]]
    assert answers["words"].numpy()[is_real].astype(str).tolist() == words[is_real].tolist()


def test_formats_have_their_precisions(reviews):
    message = "--export_format=tflite does not support --export_precision=bfloat16"
    with prints_error(message):
        ClassifierConfig(**{**reviews, "export_format": "tflite", "export_precision": "bfloat16"}, do_export=True)


def test_without_the_extra_the_message_says_what_to_install(reviews, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    config = ClassifierConfig(**{**reviews, "export_dir": str(tmp_path / "onnx")}, do_export=True, export_format="onnx")
    with pytest.raises(UserError, match=r"tf2onnx is not installed; run: pip install .*\[onnx\]"):
        run_classifier.prepare(config)
    with pytest.raises(UserError, match=r"tf2onnx is not installed; run: pip install .*\[onnx\]"):
        write_onnx(str(tmp_path / "onnx"), None)
    assert not (tmp_path / "onnx").exists()
    monkeypatch.setattr(groups, "MOST_ONNX_BYTES", 4)
    with prints_error("--export_format=onnx: a file holds at most 2 GB, but the .* parameters of the encoder need"):
        run_classifier.prepare(config)
