"""Exports for LiteRT, ONNX Runtime and OpenVINO give the answers of a SavedModel."""

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
from official_bert.config.sentence_modules import Prompts
from official_bert.families.albert import AlbertConfig
from official_bert.families.bert import ElectraConfig, RobertaConfig
from official_bert.families.deberta import DebertaConfig
from official_bert.families.modernbert import ModernBertConfig
from official_bert.families.mpnet import MPNetConfig
from official_bert.inference.finished_runs import load_export, model_of
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import PLAIN
from official_bert.modeling.heads import BILSTM
from official_bert.serving import versions
from official_bert.serving.engine_model import Engine, load_engine_model
from official_bert.serving.exports import write_lite, write_onnx
from official_bert.serving.saved_model import signature_of
from official_bert.serving.servable import IDS_SCHEMA
from official_bert.serving.signatures import SERVING_INT64, TEXT, TOKEN_VECTORS, TOKENIZE, RequestError
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.sentence_encoder.reader import SPARSE_VECTORS
from official_bert.tasks.sentence_encoder.static import static_servable
from official_bert.tasks.tagging.task import scheme_transitions
from official_bert.tokenization import FullTokenizer
from tests.conftest import endurance, prints_error, run_here, slow
from tests.exports import LABELS, predicted_pairs, traced_once
from tests.serving.tiny_exports import TAGS, TASKS

pytestmark = pytest.mark.usefixtures("unoptimized_graphs")
TOLERANCES = {("tflite", "float16"): 1e-3, ("tflite", "int8"): 0.1, ("onnx", "int8"): 0.1}
CONFIG = BertConfig(
    vocab_size=1182, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=64, type_vocab_size=2, initializer_range=0.1,
)  # fmt: skip
ENGINES = {"tflite": {None: "ai_edge_litert"}, "onnx": {"onnxruntime": "onnxruntime", "openvino": "openvino"}}


def engines(export_format, folder):
    names = [name for name, package in ENGINES[export_format].items() if importlib.util.find_spec(package)]
    if not names:
        pytest.skip(f'needs the extra "{export_format}"')
    return [load_engine_model(folder, engine=name, num_threads=2) for name in names]


def probabilities(predict, reviews):
    """Return the probabilities of the classes of each pair, [B, C]."""
    rows = predict(list(map(tuple, predicted_pairs(reviews))))
    return np.array([[row.probabilities[label] for label in LABELS] for row in rows])


@pytest.fixture(scope="module")
def expected(reviews, version):
    return probabilities(Predictor(version), reviews)


@pytest.mark.slow
@pytest.mark.parametrize(("export_format", "precision"), TOLERANCES)
def test_a_classifier_gives_the_probabilities_of_the_saved_model(reviews, expected, tmp_path, export_format, precision):
    if export_format == "onnx":
        pytest.importorskip("tf2onnx", reason='needs the extra "onnx"')
    out, folder, model = tmp_path / "out", tmp_path / "out" / "1", f"model.{export_format}"
    export = {"export_dir": str(out), "export_format": export_format, "export_precision": precision}
    run_here("run_classifier", **{**reviews, **export}, do_export=True)
    for engine in ENGINES[export_format]:
        predict = Predictor(out, engine=engine)
        assert predict.text_names == ["text_a", "text_b"]
        difference = np.abs(probabilities(predict, reviews) - expected).max()
        assert 1e-6 < difference < TOLERANCES[export_format, precision]
        with pytest.raises(UserError, match="leave out 'vocab_file'"):
            Predictor(out, engine=engine, vocab_file="vocab.txt")
        with pytest.raises(UserError, match="does not fit the model: it lacks the feature 'input_ids'"):
            predict.predict_records([b""])
    files = {path.relative_to(folder).as_posix() for path in folder.glob("**/*")}
    assert files == {model, "official_bert.json", "checksums.json", "assets", "assets/vocab.txt"}
    assert json.loads((folder / "checksums.json").read_text()).keys() >= {model}
    with pytest.raises(UserError, match=f"1 has {model}, not a SavedModel; official_bert.Predictor"):
        load_export(out)
    (folder / model).write_bytes(b"x" * 100)
    with pytest.raises(UserError, match=f"1 is damaged: {model} does not match its checksum"):
        Predictor(out)
    (folder / "checksums.json").unlink()
    with pytest.raises(UserError, match=f"{model} cannot be loaded .*; is it damaged"):
        Predictor(out)
    said = json.loads((folder / "official_bert.json").read_text())
    said.pop("outputs")
    (folder / "official_bert.json").write_text(json.dumps(said))
    with pytest.raises(UserError, match=f"by an earlier version, .* again with export_format={export_format}"):
        Predictor(out)


def servable_of(kind, encoder, tokenizer, **options):
    return TASKS[kind](encoder, config=encoder.config, tokenizer=tokenizer, **options)[1]


def requests(mask_id, at_once):
    """Yield ids with and without padding: batches, if the engine reads several rows at once, and single rows."""
    rng, length = np.random.default_rng(1), 24
    mask = (np.arange(length) < [[length], [9], [17]]).astype(np.int32)
    ids = rng.integers(1, 1182, [3, length]).astype(np.int32)
    ids[0, [5, 2]] = ids[2, 3] = mask_id  # and none in the second
    segments = (np.arange(length) >= 5).astype(np.int32)
    batch = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments * mask}
    if at_once:
        yield batch
    for row, num_real in enumerate(mask.sum(axis=1)):
        for end in {length, num_real}:
            yield {name: values[row : row + 1, :end] for name, values in batch.items()}


WRITERS = {"tflite": write_lite, "onnx": write_onnx}
WORDS = [[b"the", b"town"] + [b""] * 38, [b""] * 40, [b"", "Zoë’s".encode(), b"a b", b"\xff\x00"] + [b"river"] * 36]
LONG = "The bright town has a river. Zoë’s ﬁne café, 東京 tower… " * 3
TEXTS = {
    "multiple_choice": [("the town", "who", "a\nb c \n river\n"), ("", "", "x y\nz"), (LONG, "what", f"{LONG}\nb")],
    "question_answering": [("who", LONG), ("", "word"), (LONG, "the river is here"), ("who", "")],
    "pretraining": [("the [MASK] is [MASK]",), ("no mask",), ("[MASK] " * 40,)],
}


def config_of(family, **changes):
    return family(**{**CONFIG.to_dict(), **changes})


# The kind of model, its encoder, and its options.
MODELS = {
    "multiple choice": (
        "multiple_choice", config_of(ModernBertConfig, num_hidden_layers=3, type_vocab_size=0, local_attention=4), {}
    ),
    "question answering": (
        "question_answering", config_of(DebertaConfig, hidden_act="gelu_erf", type_vocab_size=0, position_buckets=8), {}
    ),
    "LSTM": ("tagging", config_of(RobertaConfig), {"head": BILSTM, "transitions": scheme_transitions(TAGS)}),
    "sparse": ("sentence_encoder", CONFIG, {"poolings": ["splade"], "layers_after": ()}),
    "sentences": (
        "sentence_encoder", config_of(AlbertConfig, num_hidden_layers=2, embedding_size=16),
        {
            "poolings": ("max", "cls", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"),
            "layers_after": ["LayerNorm", (13, "gelu_erf"), None], "vector_types": ("int8", "binary"),
            "prompts": Prompts({}, "the", are_pooled=False),
        },
    ),
    "pretraining": ("pretraining", config_of(MPNetConfig, type_vocab_size=0), {"top_k": 3}),
    "windows": (
        "classification", config_of(ElectraConfig, embedding_size=16),
        {"max_windows": 2, "max_seq_length": 12, "doc_stride": 4, "is_pair": False},
    ),
    "static": ("sentence_encoder", CONFIG, {"layers_after": ()}),
}  # fmt: skip


# In CI each kind of output, tagging with an LSTM and transitions; with `endurance` each task in both formats.
ROWS = [("question answering", "tflite"), ("LSTM", "tflite"), ("sparse", "onnx")]
OTHERS = [(task, export_format) for task in MODELS for export_format in WRITERS if (task, export_format) not in ROWS]


@pytest.mark.parametrize(("task", "export_format"), [*slow(*ROWS), *endurance(*OTHERS)])
def test_models_give_the_outputs_of_tensorflow(task, export_format, vocab_file, tmp_path, monkeypatch):
    monkeypatch.setattr("official_bert.modeling.modernbert._SMALLEST_BLOCK", 4)  # ModernBERT has blocks from 17 on
    if export_format == "onnx":
        pytest.importorskip("tf2onnx", reason='needs the extra "onnx"')
    keras.utils.set_random_seed(1)
    words = pathlib.Path(vocab_file).read_text(encoding="utf-8").splitlines()
    kind, config, options = MODELS[task]
    place = config.first_position - 1  # of [PAD]; it is 1 for RoBERTa
    if place > 0:
        words.insert(place, words.pop(words.index("[PAD]")))
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    tokenizer = FullTokenizer(str(tmp_path / "vocab.txt"))
    servable = servable_of(kind, create_encoder(config, PLAIN), tokenizer, **options)
    servable = traced_once(static_servable(servable, 8) if task == "static" else servable)
    environment = dict(os.environ)
    folder = WRITERS[export_format](str(tmp_path), servable)
    assert os.environ == environment
    texts = [list(column) for column in zip(*TEXTS.get(kind, [("the town",), ("",), (LONG,)]), strict=True)]
    texts = dict(zip(servable.text_names, texts, strict=True))
    tensors = {name: tf.constant(column) for name, column in texts.items()}
    expected = {name: servable.signature(name) for name in versions.description(folder)["outputs"]}
    answers, ids_of_texts = expected[TEXT](**tensors), expected[TOKENIZE](**tensors)
    more = {"words": servable.answer_words} if task == "LSTM" else {}
    more |= {SPARSE_VECTORS: servable.signatures()[SPARSE_VECTORS]} if task == "sparse" else {}
    specs = dict.fromkeys(IDS_SCHEMA.names, tf.TensorSpec([None, None], tf.int32))
    numbers = tf.function(servable.numbers, input_signature=[specs], autograph=False)
    assert_close(model_of(servable).answer(texts), answers, 1e-4)
    for model in engines(export_format, folder):
        assert_close(model.answer(texts), answers, 1e-4)
        assert_close(model.tokenize(texts), ids_of_texts, 0)
        found, inputs = model.signatures().signatures, {**texts, "words": WORDS}
        assert found.keys() == {*expected, *more, SERVING_INT64}
        assert {name: found[name].outputs for name in expected} == {
            name: signature_of(name, function).outputs for name, function in expected.items()
        }
        for name in {TEXT, TOKENIZE, *more} - {"words"}:
            nothing = found[name].compute({key: np.array([], object) for key in servable.text_names})
            assert {key: (len(values), values.ndim, values.dtype) for key, values in nothing.items()} == {
                key: (0, spec.rank, spec.dtype) for key, spec in found[name].outputs.items()
            }
        if model.reader.num_read is not None:  # the rest of a long text is not read, whatever the blanks between words
            longest = [{key: [blank.join(["town"] * 3_000)] for key in servable.text_names} for blank in " \n"]
            assert_close(
                model.answer(longest[1]),
                expected[TEXT](**{key: tf.constant(value) for key, value in longest[0].items()}),
                1e-4,
            )
        for name, function in more.items():
            given = {key: np.array(inputs[key], object) for key in found[name].inputs}
            answer = function(**{key: tf.constant(value.tolist()) for key, value in given.items()})
            assert_close(found[name].compute(given), answer, 1e-4)
        if "words" in more:
            with pytest.raises(RequestError, match="each table of the response is limited to 2097152 cells"):
                found["words"].compute({"words": np.full((3, 1 << 20), b"", object)})
        for ids in requests(tokenizer.mask_id, at_once=export_format == "onnx"):
            tensors = {name: tf.constant(values) for name, values in ids.items()}
            assert_close(model.compute(ids), numbers(tensors), 1e-5)
            if task == "sentences":
                assert_close(found[TOKEN_VECTORS].compute(ids), expected[TOKEN_VECTORS](**tensors), 1e-5)
        check_parts(model, ids)
        with pytest.raises(RequestError, match="input_ids must be from 0 to 1181, but is from 1 to 1182"):
            model.predict({**ids, "input_ids": np.full_like(ids["input_ids"], 1182) - (ids["input_ids"] > 500) * 1181})


def check_parts(model, ids):
    """Many sequences in a request are computed in parts."""
    alone, compute, sizes = model.predict(ids), model.compute, []

    class Recorded(Engine):
        most_rows = compute.most_rows

        def all(self, batches):
            batches = list(batches)
            sizes.extend(ids["input_ids"].size for ids in batches)
            return compute.all(batches)

    def repeated(arrays):
        return {name: np.repeat(values, 150, axis=0) for name, values in arrays.items()}

    model.compute = Recorded()
    assert_close(model.predict(repeated(ids)), repeated(alone), 1e-5)
    assert len(sizes) > 1 and max(sizes) <= 1 << 11
    model.compute = compute


def assert_close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, values in found.items():
        wanted = np.asarray(expected[name])
        assert (values.shape, values.dtype) == (wanted.shape, wanted.dtype), name
        if values.dtype == object:
            assert values.tolist() == wanted.tolist()
        else:
            largest = 1 if name == "int8_vectors" else tolerance
            np.testing.assert_allclose(values, wanted, atol=largest, rtol=0, err_msg=name)


def test_the_ids_of_a_pretrained_model_are_those_of_its_words(vocab_file):
    keras.utils.set_random_seed(1)
    tokenizer = FullTokenizer(vocab_file)
    servable = servable_of("pretraining", create_encoder(CONFIG, PLAIN), tokenizer, top_k=3)
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
    for refused in (lambda: run_classifier.prepare(config), lambda: write_onnx(str(tmp_path / "onnx"), None)):
        with pytest.raises(UserError, match=r"tf2onnx is not installed; run: pip install .*\[onnx\]"):
            refused()
    assert not (tmp_path / "onnx").exists()
    monkeypatch.setattr(versions, "MOST_ONNX_BYTES", 4)
    with prints_error("--export_format=onnx: a file holds at most 2 GB, but the .* parameters of the encoder need"):
        run_classifier.prepare(config)
