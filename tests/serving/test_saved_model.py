"""Exports from the view of the server and its clients."""

import collections
import os
import pathlib
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import config_pb2, saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from official_bert.commands import run_classifier, run_pretraining
from official_bert.config.bert_config import BertConfig
from official_bert.serving import exports
from official_bert.serving.servable import IDS_SCHEMA, without_server_padding
from official_bert.serving.versions import find_export
from official_bert.support import writing
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.question_answering.options import SquadConfig
from official_bert.tokenization import FullTokenizer
from tests.conftest import run_config
from tests.exports import OF_CLASSIFIER, TOLERANCE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def signatures(version):
    return tf.saved_model.load(version).signatures


def test_keras_reads_an_export_as_a_layer(version, signatures):
    texts = {"text_a": tf.constant(["the town", ""]), "text_b": tf.constant(["", "the quay"])}
    expected = signatures["text"](**texts)
    found = tf.keras.layers.TFSMLayer(version, call_endpoint="serve")(texts)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_all_files_are_there(reviews, version):
    folder = pathlib.Path(reviews["export_dir"])
    made = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert made == {
        "batching_parameters.txt", "models.config", "1/saved_model.pb", "1/fingerprint.pb", "1/checksums.json",
        "1/official_bert.json", "1/variables/variables.index", "1/variables/variables.data-00000-of-00001",
        "1/assets/vocab.txt", "1/assets.extra/tf_serving_warmup_requests",
    }  # fmt: skip
    assert (folder / "1/assets/vocab.txt").read_bytes() == pathlib.Path(reviews["vocab_file"]).read_bytes()
    models = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((folder / "models.config").read_text(), models)
    (model,) = models.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("reviews", str(folder), "tensorflow")
    # Requests of more than 32 examples are split; without the last two lines the server refuses them.
    assert {
        "pad_variable_length_inputs: true", "enable_large_batch_splitting { value: true }",
        "max_execution_batch_size { value: 32 }",
    } <= {*(folder / "batching_parameters.txt").read_text().splitlines()}  # fmt: skip


@pytest.mark.endurance
def test_the_warmup_requests_can_be_answered(version, signatures):
    """Replay the file like the server, using only its messages."""
    path = os.path.join(version, "assets.extra", "tf_serving_warmup_requests")
    seen, lengths = {}, set()
    for record in tf.data.TFRecordDataset([path]).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert request == predict_pb2.PredictRequest.FromString(request.SerializeToString())
        assert request.model_spec.name == "reviews"
        inputs = {name: tf.constant(tf.make_ndarray(proto)) for name, proto in request.inputs.items()}
        outputs = signatures[request.model_spec.signature_name](**inputs)
        (size,) = {int(values.shape[0]) for values in (*inputs.values(), *outputs.values())}
        seen.setdefault(request.model_spec.signature_name, set()).add(size)
        lengths |= {values.shape[1] for name, values in inputs.items() if name == "input_ids"}
    assert seen == {name: {1, 2, 8} for name in OF_CLASSIFIER}
    assert len(lengths) > 1 and max(lengths) == 32


def server_batch(requests):
    """Join requests like TensorFlow Serving with `pad_variable_length_inputs`, padding with first elements."""
    joined = {}
    for name in requests[0]:
        longest = max(request[name].shape[1] for request in requests)
        widths = [[(0, 0), (0, longest - request[name].shape[1])] for request in requests]
        values = [(request[name], width) for request, width in zip(requests, widths, strict=True)]
        joined[name] = np.concatenate([np.pad(each, width, constant_values=each[0, 0]) for each, width in values])
    return joined


def test_the_padding_of_the_server_changes_nothing(signatures):
    pairs = [("the warm town", ""), ("the harbour and the bridge " * 3, "empty"), ("bright", "broken quay in the rain")]
    tokenized = (signatures["tokenize"](text_a=[first], text_b=[second]) for first, second in pairs)
    requests = [{name: values.numpy() for name, values in request.items()} for request in tokenized]
    alone = [signatures["serving_default"](**request)["logits"].numpy()[0] for request in requests]
    batch = server_batch(requests)
    assert (batch["input_mask"] == 1).all()  # the server fills the mask up with ones
    together = signatures["serving_default"](**batch)["logits"].numpy()
    np.testing.assert_allclose(together, alone, atol=TOLERANCE)
    assert np.abs(together - together[0]).max() > 1e-3  # they do differ
    # A client may pad before the server does.
    padded = {name: np.pad(values, [(0, 0), (0, 3)]) for name, values in requests[0].items()}
    again = signatures["serving_default"](**server_batch([padded, requests[1]]))["logits"].numpy()
    np.testing.assert_allclose(again[0], alone[0], atol=TOLERANCE)


def test_only_a_run_at_the_end_is_padding():
    ids = tf.constant([[2, 7, 2, 3, 2, 2], [2, 2, 2, 2, 2, 2], [2, 7, 8, 9, 5, 3], [2, 7, 3, 0, 0, 2]])
    inputs = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.ones_like(ids)}
    cleaned = without_server_padding(inputs, 2)
    expected = [[1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0], [1] * 6, [1, 1, 1, 1, 1, 0]]
    assert cleaned["input_mask"].numpy().tolist() == expected
    assert (cleaned["input_ids"].numpy() == ids.numpy() * expected).all()


def test_strange_requests_get_defined_answers(reviews, signatures):
    broken = [b"caf\xc3\xa9 \xffbright\xed\xa0\x80 town", b"\x80\xbf"]
    whole = [text.decode("utf-8", "ignore").encode() for text in broken]
    for name, values in signatures["tokenize"](text_a=broken, text_b=broken[::-1]).items():
        expected = signatures["tokenize"](text_a=whole, text_b=whole[::-1])[name]
        assert values.numpy().tolist() == expected.numpy().tolist()
    nothing = tf.constant([], tf.string)
    for name, values in signatures["text"](text_a=nothing, text_b=nothing).items():
        assert values.shape.as_list() == [0, 3], name
    ids = signatures["tokenize"](text_a=[""], text_b=[""])
    assert [len(row) for row in ids["input_ids"].numpy()] == [2]
    tokenizer = FullTokenizer(reviews["vocab_file"])
    long = signatures["tokenize"](text_a=["bright town " * 1000], text_b=["the"])["input_ids"].numpy()[0].tolist()
    classifier_id, separator = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]
    kept = (tokenizer.encode("bright town") * 1000)[:28]
    assert long == [classifier_id, *kept, separator, *tokenizer.encode("the"), separator]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": [[2, -1, 3]]}, "input_ids must be from 0 to 1181"),
        ({"input_ids": [[2, 2**32 + 5, 3]]}, "input_ids must be from 0 to 1181"),  # 5 of 32 bits
        ({"segment_ids": [[0, 9, 0]]}, "segment_ids must be from 0 to 1"),
        ({name: [[1] * 65] for name in IDS_SCHEMA.names}, "input_ids must have from 1 to 64 positions, but has"),
        ({name: np.zeros([2, 0]) for name in IDS_SCHEMA.names}, "input_ids must have from 1 to 64 positions"),
    ],
)
def test_requests_that_cannot_be_right_are_refused(signatures, changes, message):
    signature = signatures["serving_int64"]
    inputs = {"input_ids": [[2, 7, 3]], "input_mask": [[1, 1, 1]], "segment_ids": [[0, 0, 0]], **changes}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signature(**{name: tf.constant(values, tf.int64) for name, values in inputs.items()})


@pytest.mark.endurance
def test_requests_of_another_rank_are_refused_in_the_server(version):
    """TensorFlow Serving feeds nodes directly, regardless of the shapes of the signature."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tf.compat.v1.saved_model.load(session, ["serve"], version)
        for name in OF_CLASSIFIER:
            definition, options = model.signature_def[name], config_pb2.CallableOptions()
            options.feed.extend(node.name for node in definition.inputs.values())
            options.fetch.extend(node.name for node in definition.outputs.values())
            call = session._make_callable_from_options(options)
            first = next(iter(definition.inputs.values()))
            rank, kind = len(first.tensor_shape.dim), tf.as_dtype(first.dtype).as_numpy_dtype
            kind = bytes if kind is object else kind
            for shape in ([], [1], [3], [0], [1, 3], [1, 1, 3], [0, 3, 2]):
                if len(shape) != rank:
                    message = rf"must have {rank} dimension.*but has the shape\] \[{' '.join(map(str, shape))}\]"
                    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                        call(*[np.full(shape, kind(), kind)] * len(definition.inputs))


def exported(reviews, **changes):
    flags = {**reviews, **changes}
    run_config(run_classifier, ClassifierConfig(**flags, do_export=True))


def test_shared_parts_of_signatures_are_saved_once(version):
    content = saved_model_pb2.SavedModel.FromString(pathlib.Path(version, "saved_model.pb").read_bytes())
    names = [function.signature.name for function in content.meta_graphs[0].graph_def.library.function]
    traced = collections.Counter(re.fullmatch(r"__inference_(.*)_\d+", name)[1] for name in names if "__inf" in name)
    shared = ("encode_beginnings", "encode_up_to", "encode_some", "predict")
    assert [traced[name] for name in shared] == [1] * len(shared)
    assert not {"encode", "encode_with_offsets"} & set(traced)


@pytest.mark.endurance
def test_a_further_version_has_its_own_settings_and_leaves_what_is_there_as_it_is(
    reviews, version, signatures, tmp_path, caplog
):
    """It is for shorter texts and in one part."""
    out, target = shutil.copytree(reviews["output_dir"], tmp_path / "out"), tmp_path / "models"
    shutil.rmtree(out / "eval", ignore_errors=True)
    before = sorted(os.listdir(out))
    for name in ("1", "7", "\u0663"):  # the last is a digit, but not to the server
        (target / name).mkdir(parents=True)
    (target / "batching_parameters.txt").write_text("max_batch_size { value: 7 }\n")
    changes = {"max_seq_length": 16, "export_parallelism": 1}
    exported(reviews, output_dir=str(out), export_dir=str(target), **changes)
    assert f"max_seq_length=16, but the checkpoints in {out} were trained with 32" in caplog.text
    assert exports.versions(str(target)) == [1, 7, 8] and sorted(os.listdir(out)) == before
    assert (target / "batching_parameters.txt").read_text() == "max_batch_size { value: 7 }\n"
    assert not [path for path in target.iterdir() if path.name.startswith(".")]
    assert find_export(str(target)) == str(target / "8")

    loaded = tf.saved_model.load(str(target / "8")).signatures
    long = {"text_a": tf.constant(["bright town " * 20]), "text_b": tf.constant(["the"])}
    assert loaded["tokenize"](**long)["input_ids"].shape == (1, 16)
    ids = signatures["tokenize"](**long)
    answer, expected = loaded["serving_default"](**ids), signatures["serving_default"](**ids)
    np.testing.assert_allclose(answer["probabilities"], expected["probabilities"], atol=TOLERANCE)
    config = BertConfig.from_json_file(reviews["bert_config_file"])
    for folder, num_parts in ((version, 2), (target / "8", 1)):
        shapes = [tuple(shape) for _, shape in tf.train.list_variables(os.path.join(folder, "variables", "variables"))]
        projections = (num_parts * config.num_hidden_layers, config.hidden_size, 3 * config.hidden_size // num_parts)
        assert shapes.count(projections) == 1  # queries, keys and values in one matrix
        assert sum(map(np.prod, shapes)) < 1.01 * config.num_parameters


def test_a_failed_export_leaves_nothing_and_is_reported_without_operation_names(tokenizer, tmp_path):
    servable = SimpleNamespace(vocabulary=tokenizer.vocabulary, described={}, arrays={})
    folder = tmp_path / "models"

    def interrupt(partial):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exports._write_version(str(folder), servable, save=os.listdir, add=interrupt)
    assert list(folder.iterdir()) == []
    with pytest.raises(UserError) as caught:
        exports._write_version(str(folder), servable, save=lambda _: tf.io.read_file(str(tmp_path / "absent")))
    message = str(caught.value)
    assert message.startswith(f"cannot write to export_dir={folder}: ") and "No such file" in message
    assert "{{" not in message and "[Op:" not in message


def test_names_are_quoted_in_the_settings(tmp_path):
    folder = tmp_path / 'a "b"\n\\c é'
    folder.mkdir()
    exports._write_settings(str(folder), folder.name)
    models = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((folder / "models.config").read_text(), models)
    (model,) = models.model_config_list.config
    assert (model.name, model.base_path) == (folder.name, str(folder))


def test_a_race_for_a_number_is_settled(tmp_path, monkeypatch):
    for name in ("1", ".version.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").touch()
    seen = iter([[], [1], [1]])
    monkeypatch.setattr(exports, "versions", lambda _: next(seen))
    assert exports._publish(str(tmp_path / ".version.partial"), str(tmp_path)) == str(tmp_path / "2")
    with pytest.raises(FileExistsError):
        writing.rename_folder(str(tmp_path / "2"), str(tmp_path / "1"))


def test_mistakes(reviews, files_of_model, records_file, tmp_path):
    (tmp_path / "file").write_text("")
    fine, other = {"export_dir": str(tmp_path / "models")}, {"output_dir": str(tmp_path / "out")}
    for changes, message in (
        ({"export_dir": str(tmp_path / "file")}, "export_dir=.*file: .*file is a file, not a folder"),
        ({"export_dir": str(tmp_path / "file/models")}, "export_dir=.*file/models: .*file is a file, not a folder"),
        ({"export_dir": reviews["export_dir"] + "/1"}, "export_dir=.*/1 is itself an exported version"),
        ({**fine, "text_b_column": None}, "text_b_column=None, but the checkpoints in .* with text_b_column=other"),
        ({**fine, "export_parallelism": 3}, "export_parallelism=3 does not divide num_attention_heads=4"),
        ({**fine, "export_format": "tflite", "export_parallelism": 2}, "--export_parallelism needs .*export_format"),
        ({"export_dir": None}, "--do_export needs --export_dir"),
        ({**fine, **other, "labels": "a,b,c"}, "checkpoint .* lacks output_weights, output_bias: .* not fine-tuned"),
        ({**fine, **other, "train_file": None}, "the labels are unknown"),
        ({**fine, "max_seq_length": 65}, "max_seq_length=65 exceeds max_position_embeddings=64"),
    ):
        with pytest.raises(UserError, match=message):
            exported(reviews, **changes)
    with pytest.raises(UserError, match="--export_dir needs --do_export"):
        ClassifierConfig(**reviews, do_predict=True)
    with pytest.raises(UserError, match="--do_export exports one checkpoint; leave --ensemble_checkpoints out"):
        answers = {"predict_file": "dev.json", "do_predict": True, "ensemble_checkpoints": "a,b"}
        SquadConfig(**files_of_model, **answers, output_dir="out", do_export=True, export_dir="models")
    pretrain = {**files_of_model, **other, "input_file": records_file, "max_seq_length": 64, "do_export": True, **fine}
    with pytest.raises(UserError, match="--do_train needs --input_file"):
        PretrainingConfig(**{**pretrain, "input_file": None}, do_train=True)
    with pytest.raises(UserError, match="no checkpoint in output_dir"):
        config = {**pretrain, "init_checkpoint": None, "max_predictions_per_seq": 10}
        run_config(run_pretraining, PretrainingConfig(**config))
    assert not (tmp_path / "models").exists()
