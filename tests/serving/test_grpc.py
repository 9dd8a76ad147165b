"""TensorFlow Serving's gRPC API from the view of its own client: a real server process, and REST beside it."""

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from official_bert import Predictor
from official_bert.options.groups import BatchingSettings
from official_bert.serving.rest_format import RequestError, read_message
from official_bert.serving.served_model import ServedModel
from tests.exports import TOLERANCE, assert_same
from tests.serving.server_process import Server, resident_kilobytes
from tests.serving.tiny_exports import PAIRS

grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_serving")
pytest.importorskip("uvicorn")

from google.protobuf.internal.encoder import _VarintBytes as varint  # noqa: E402
from tensorflow.core.framework.tensor_pb2 import TensorProto  # noqa: E402
from tensorflow_serving.apis import (  # noqa: E402
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    input_pb2,
    model_management_pb2,
    regression_pb2,
)
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceStub  # noqa: E402
from tensorflow_serving.apis.predict_pb2 import PredictRequest  # noqa: E402
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unoptimized_graphs")]

TEXTS = {f"text_{'ab'[place]}": [pair[place].encode() for pair in PAIRS] for place in (0, 1)}
MANY_TEXTS = {name: texts * 256 for name, texts in TEXTS.items()}
IDS = {"input_ids": [[2, 7, 3], [2, 9, 3]], "input_mask": [[1] * 3] * 2, "segment_ids": [[0] * 3] * 2}
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def server(export_dir, tmp_path_factory):
    server = Server(export_dir, tmp_path_factory.mktemp("log") / "log")
    yield server
    if server.process.poll() is None:
        assert server.end() == 0, server.log
    assert "Traceback" not in server.log


@pytest.fixture(scope="module")
def channel(server):
    with connect(server) as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(channel):
    return PredictionServiceStub(channel)


def connect(server):
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options)


def predict_request(signature_name="", inputs=(), wanted=(), **spec):
    spec |= {"name": "reviews", "signature_name": signature_name}
    request = PredictRequest(model_spec=spec, output_filter=wanted)
    for name, values in dict(inputs).items():
        dtype = np.int32 if isinstance(values, list) and not isinstance(values[0], bytes) else None
        is_made = isinstance(values, TensorProto)
        request.inputs[name].CopyFrom(values if is_made else tf.make_tensor_proto(values, dtype))
    return request


def outputs(response):
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


def example(**features):
    """Return an Example of strings, bytes or integers, or lists of these."""
    example = tf.train.Example()
    for name, value in features.items():
        values, feature = value if isinstance(value, list) else [value], example.features.feature[name]
        if isinstance(values[0], int):
            feature.int64_list.value.extend(values)
        else:
            feature.bytes_list.value.extend(tf.compat.as_bytes(value) for value in values)
    return example


TEXT_EXAMPLES = [example(text_a=first, text_b=second) for first, second in PAIRS]
ID_EXAMPLES = [example(**{name: rows[each] + [0] * 29 for name, rows in IDS.items()}) for each in range(2)]  # padded


def assert_refused(call, code, message):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert (caught.value.code(), message in caught.value.details()) == (code, True), caught.value.details()
    assert "\n" not in caught.value.details()


def test_answers_equal_those_of_the_export_and_of_rest(server, stub, signatures):
    int64 = {name: np.array(rows, np.int64) for name, rows in IDS.items()}
    requests = [
        ("text", TEXTS), ("tokenize", TEXTS), ("serving_default", IDS), ("serving_int64", int64),
        ("examples", {"examples": [value.SerializeToString() for value in ID_EXAMPLES]}),
    ]  # fmt: skip
    for name, inputs in requests:
        response = stub.Predict(predict_request(name, inputs, version={"value": 1}), timeout=60)
        assert (response.model_spec.signature_name, response.model_spec.version.value) == (name, 1)
        expected = signatures[name](**{key: tf.constant(values) for key, values in inputs.items()})
        found = outputs(response)
        assert set(found) == set(expected)
        if name != "examples":  # bytes that are not UTF-8
            is_text = name in ("text", "tokenize")
            plain = {
                key: list(map(bytes.decode, rows)) if is_text else np.asarray(rows).tolist()
                for key, rows in inputs.items()
            }
            over_rest = server.outputs(name, plain)
        for key, values in expected.items():
            if values.dtype == tf.string:
                assert found[key].tolist() == values.numpy().tolist()
                continue
            np.testing.assert_allclose(found[key], values.numpy(), atol=TOLERANCE)
            assert found[key].dtype == values.numpy().dtype
            if name != "examples":
                np.testing.assert_allclose(found[key], over_rest[key], atol=TOLERANCE)
    assert response.outputs["logits"].float_val and not response.outputs["logits"].tensor_content  # as clients read it


def test_the_signature_may_be_left_out_and_outputs_chosen(stub):
    response = stub.Predict(predict_request("", TEXTS, ["logits"]), timeout=60)
    assert response.model_spec.signature_name == "text" and list(response.outputs) == ["logits"]
    assert stub.Predict(predict_request("", IDS), timeout=60).model_spec.signature_name == "serving_default"


def tensor(dtype, shape, tensor_content=b"", **values):
    dims = {"dim": [{"size": size} for size in shape]}
    dtype = tf.as_dtype(dtype).as_datatype_enum
    return TensorProto(dtype=dtype, tensor_shape=dims, tensor_content=tensor_content, **values)


def test_tensors_may_be_written_in_every_way(stub):
    def logits(name, inputs):
        return outputs(stub.Predict(predict_request(name, inputs), timeout=60))["logits"]

    ids = tensor("int32", [2, 3], int_val=[2, 7, 3, 2, 9, 3])
    for mask in ([1] * 6, [1]):  # as in TensorFlow, one value stands for all
        for segments in ([0] * 6, []):  # and none for zeros
            masks = [tensor("int32", [2, 3], int_val=values) for values in (mask, segments)]
            found = logits("", dict(zip(IDS, (ids, *masks), strict=True)))
            np.testing.assert_allclose(found, logits("", IDS), atol=TOLERANCE)
    # As C++ clients write strings: all lengths as varints, then the bytes.
    contents = {name: b"".join([*(varint(len(text)) for text in texts), *texts]) for name, texts in TEXTS.items()}
    found = logits("text", {name: tensor("string", [4], content) for name, content in contents.items()})
    np.testing.assert_allclose(found, logits("text", TEXTS), atol=TOLERANCE)


ONE = {name: rows[:1] for name, rows in IDS.items()}
BAD_IDS = {**ONE, "input_ids": [[2, 1182, 3]]}


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (PredictRequest(), Code.INVALID_ARGUMENT, "Missing ModelSpec"),
        (PredictRequest(model_spec={"signature_name": "text"}), Code.INVALID_ARGUMENT, "there is no model ''"),
        (PredictRequest(model_spec={"name": "a\nb"}), Code.NOT_FOUND, r"no model 'a\nb'; reviews is served"),
        (predict_request("text", TEXTS, version={"value": 7}), Code.NOT_FOUND, "version 7 of reviews is not served"),
        (predict_request("text", TEXTS, version_label="stable"), Code.INVALID_ARGUMENT, "no version label 'stable'"),
        (predict_request("text", TEXTS, ["absent"]), Code.INVALID_ARGUMENT, "no output 'absent'; the signature has"),
        (predict_request("text", TEXTS, ["logits"] * 2), Code.INVALID_ARGUMENT, "name each output once"),
        (predict_request("absent", TEXTS), Code.FAILED_PRECONDITION, "no signature 'absent'; the model has 'classify'"),
        (predict_request("text", IDS), Code.INVALID_ARGUMENT, "reads 'text_a', 'text_b', but the request has 'input_"),
        (predict_request("", {**ONE, "input_ids": np.array([[2]])}), Code.INVALID_ARGUMENT, "DT_INT32, not DT_INT64"),
        (predict_request("", {**ONE, "input_ids": [2, 3]}), Code.INVALID_ARGUMENT, "2 dimension(s), but has 1"),
        (predict_request("", BAD_IDS), Code.INVALID_ARGUMENT, "must be from 0 to 1181, but is from 2 to 1182"),
        *(
            (predict_request("", {**ONE, "input_ids": wrong}), Code.INVALID_ARGUMENT, message)
            for wrong, message in (
                (tensor("int32", [1, 1 << 40], int_val=[1]), "a shape of at most 2097152 values"),
                (tensor("int32", [1024, 2049], int_val=[1]), "a shape of at most 2097152 values"),
                (tensor("int32", [1, -1], int_val=[1]), "a shape of at most 2097152 values"),
                (tensor("int32", [0, 1 << 62]), "a shape of at most 2097152 values"),
                (tensor("int32", [1, 3], int_val=[1, 2]), "has 2 values, but says that its shape is [1, 3]"),
                (tensor("int32", [1, 3], b"1234"), "has 1 values, but says that its shape is [1, 3]"),
                (tensor("int32", [1, 3], b"123"), "not a whole number of values"),
                (tensor("int32", [0, 3], b"1234"), "has 1 values, but says that its shape is [0, 3]"),
            )
        ),
        *(
            (predict_request("text", {**TEXTS, "text_a": wrong}), Code.INVALID_ARGUMENT, message)
            for wrong, message in (
                (tensor("string", [4], b"\x01\x01\x01\x05abc"), "does not have 4 strings"),
                (tensor("string", [4], b"\xff"), "does not have 4 strings"),
                (tensor("string", [4], string_val=[b"", b""]), "has 2 values, but says that its shape is [4]"),
            )
        ),
    ],
)  # fmt: skip
def test_mistakes_have_the_codes_of_tensorflow_serving(stub, request_, code, message):
    assert_refused(lambda: stub.Predict(request_, timeout=60), code, message)


def classification(examples, signature_name="", context=None):
    request = classification_pb2.ClassificationRequest(model_spec={"name": "reviews", "signature_name": signature_name})
    if context is None:
        request.input.example_list.examples.extend(examples)
    else:
        request.input.example_list_with_context.context.CopyFrom(context)
        request.input.example_list_with_context.examples.extend(examples)
    return request


def test_classes_equal_those_of_the_predictor_and_of_rest(server, stub, signatures, export_dir):
    def classes(request):
        found = stub.Classify(request, timeout=60).result.classifications
        return [[[entry.label, entry.score] for entry in row.classes] for row in found]

    found = classes(classification(TEXT_EXAMPLES))
    assert_same(found, [list(map(list, row.probabilities.items())) for row in Predictor(export_dir)(PAIRS)])
    status, answer = server.ask("classify", {"examples": [dict(zip(TEXTS, pair, strict=True)) for pair in PAIRS]})
    assert status == 200
    assert_same(found, answer["results"])
    # As TensorFlow Serving computes it.
    expected = signatures["classify"](inputs=[value.SerializeToString() for value in TEXT_EXAMPLES])
    labels, scores = (expected[name].numpy() for name in ("classes", "scores"))
    rows = np.stack([labels.astype(str).astype(object), scores.astype(object)], axis=-1)
    assert_same(found, rows.tolist())
    # Features of the context belong to every example, unless it has them itself.
    examples = [example(text_b=pair[1]) for pair in PAIRS[:2]] + TEXT_EXAMPLES[2:]
    in_context = classes(classification(examples, context=example(text_a=PAIRS[0][0])))
    assert in_context[1] != found[1]
    assert_same([in_context[0], *in_context[2:]], [found[0], *found[2:]])


METHOD = "Expected {} signature method_name to be tensorflow/serving/{}. Was: tensorflow/serving/predict"


@pytest.mark.parametrize(
    ("verb", "signature_name", "examples", "message"),
    [
        ("classify", "tokenize", [{}], METHOD.format("classification", "classify")),
        ("regress", "", [{"text_a": "a", "text_b": "b"}], METHOD.format("regression", "regress")),
        ("classify", "absent", [{}], "there is no signature 'absent'"),
        ("classify", "classify", [{"text_a": "a"}], "Feature: text_b (data type: string) is required"),
        ("classify", "", [{"text_a": "a", "text_b": ["a", "b"]}], "Key: text_b, Index: 0.  Can't parse serialized"),
        ("classify", "", [{"text_a": "a", "text_b": 1}], "Key: text_b, Index: 0.  Data types don't match"),
        ("classify", "", [{"text_a": "a", "text_b": "b"}] * 1025, "has 1025 examples; at most 1024 are allowed"),
    ],
)
def test_mistakes_in_examples_are_the_same_over_both(server, stub, verb, signature_name, examples, message):
    status, answer = server.ask(verb, {"signature_name": signature_name, "examples": examples})
    assert status == 400 and message in answer["error"]
    request, call = classification([example(**features) for features in examples], signature_name), stub.Classify
    if verb == "regress":
        request = regression_pb2.RegressionRequest(model_spec=request.model_spec, input=request.input)
        call = stub.Regress
    assert_refused(lambda: call(request, timeout=60), Code.INVALID_ARGUMENT, message)


def test_mistakes_in_json_examples(server):
    for body, message in (
        ({}, 'must have "examples", a list with at least one example'),
        ({"examples": [1]}, 'each of "examples" must be an object of features'),
        ({"examples": [{"text_a": None}]}, "the feature 'text_a' must have strings, not null"),
        ({"examples": [{"text_a": 1 << 63}]}, "the feature 'text_a' must have whole numbers of at most 64 bits"),
        ({"examples": [{}], "context": 1}, "context must be an object of features"),
    ):
        status, answer = server.ask("classify", body)
        assert status == 400 and message in answer["error"]
        assert server.ask("regress", body)[1] == answer


@pytest.mark.endurance
def test_regression_returns_the_scores(write_export, tmp_path):
    path = write_export(tmp_path / "scores", labels=())
    version = ServedModel(str(tmp_path / "scores"), BatchingSettings(num_batch_threads=1)).version
    examples = [value.SerializeToString() for value in TEXT_EXAMPLES]
    expected = tf.saved_model.load(path).signatures["text"](**{name: tf.constant(TEXTS[name]) for name in TEXTS})
    np.testing.assert_allclose(asyncio.run(version.regress("", examples)), expected["scores"], atol=TOLERANCE)
    with pytest.raises(RequestError, match="Expected classification signature method_name"):
        asyncio.run(version.classify("", examples[:1]))


def test_status_metadata_and_methods_that_are_not_there(server, channel, stub):
    spec, models = {"name": "reviews"}, ModelServiceStub(channel)
    status = models.GetModelStatus(get_model_status_pb2.GetModelStatusRequest(model_spec=spec), timeout=60)
    (version,) = status.model_version_status
    assert (version.version, version.state, version.status.error_code) == (1, version.AVAILABLE, 0)
    request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
    metadata = stub.GetModelMetadata(request, timeout=60)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert metadata.model_spec.version.value == 1 and metadata.metadata["signature_def"].Unpack(found)
    over_rest = server.get("/v1/models/reviews/metadata")[1]["metadata"]["signature_def"]["signature_def"]
    assert set(found.signature_def) == set(over_rest)
    text = found.signature_def["text"]
    assert text.inputs["text_a"].name == over_rest["text"]["inputs"]["text_a"]["name"]
    del request.metadata_field[:]
    assert_refused(lambda: stub.GetModelMetadata(request, timeout=60), Code.INVALID_ARGUMENT, '"signature_def"')
    absent = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "absent"})
    assert_refused(lambda: models.GetModelStatus(absent, timeout=60), Code.NOT_FOUND, "there is no model 'absent'")
    reload = model_management_pb2.ReloadConfigRequest()
    inference = (stub.MultiInference, inference_pb2.MultiInferenceRequest())
    for call, request in (inference, (models.HandleReloadConfigRequest, reload)):
        assert_refused(lambda call=call, request=request: call(request, timeout=60), Code.UNIMPLEMENTED, "not found")


def test_what_is_not_protobuf_is_one_line_of_the_log(server, channel):
    predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    message = "the request is not a serialized tensorflow.serving.PredictRequest"
    before = server.log.count("\n")
    assert_refused(lambda: predict(b'{"inputs": 1}', timeout=60), Code.INVALID_ARGUMENT, message)
    assert_refused(lambda: predict(b"\x12\x7f" * (1 << 16), timeout=60), Code.INVALID_ARGUMENT, message)
    (*_, first, second) = server.log.splitlines()
    assert server.log.count("\n") == before + 2 and message in first and message in second
    without_message = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
    assert_refused(lambda: without_message(iter(()), timeout=60), Code.INVALID_ARGUMENT, "has no message")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (PredictRequest, b"\x12\x00" * (1 << 16)),  # entries of a map: 200 bytes in memory for 2
        (PredictRequest, predict_request("", {"a": tensor("string", [1], string_val=[b""] * (1 << 15))})),
        (PredictRequest, predict_request("", {"a": tensor("int64", [1], int64_val=[1] * (1 << 18))})),
        (PredictRequest, predict_request("", {"a": tensor("int64", [1] * (1 << 14))})),
        (TensorProto, b"\x38\x01" * (1 << 16)),
        (input_pb2.Input, input_pb2.Input(example_list={"examples": [tf.train.Example()] * (1 << 15)})),
        (tf.train.Example, tf.train.Example(features={"feature": {str(i): {} for i in range(1 << 13)}})),
    ],
    ids=["entries", "strings", "numbers", "dimensions", "unpacked numbers", "examples", "features"],
)
def test_messages_that_would_take_much_more_memory_than_their_bytes_are_not_parsed(kind, content):
    content = content if isinstance(content, bytes) else content.SerializeToString()
    with pytest.raises(RequestError, match="more than 131072 values"):
        read_message(kind, content, 1 << 17)


def test_large_messages_of_allowed_size_are_parsed():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 1 << 31, [1024, 512]).astype(np.int32)
    as_values = tensor("int32", ids.shape, int_val=ids.ravel().tolist())
    texts = [rng.bytes(2000) for _ in range(1024)]
    for inputs in ({"a": ids, "b": as_values}, {"texts": texts, "a": ids}):
        request = predict_request("text", inputs)
        assert read_message(PredictRequest, request.SerializeToString(), 1 << 21) == request


def test_200_calls_at_once_are_each_answered_with_their_own_predictions(server, stub, signatures):
    texts = [f"{'bright ' * (number % 40)}town {number}".encode() for number in range(200)]
    requests = [predict_request("text", {name: [text] for name in TEXTS}) for text in texts]
    calls = [stub.Predict.future(request, timeout=120) for request in requests]
    wrong = stub.Predict.future(predict_request("", BAD_IDS), timeout=120)
    found = np.concatenate([outputs(call.result())["logits"] for call in calls])
    expected = signatures["text"](**dict.fromkeys(TEXTS, tf.constant(texts)))["logits"].numpy()
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert wrong.exception().code() == Code.INVALID_ARGUMENT
    metrics = server.send("GET", "/metrics")[1].decode()
    assert 'requests_total{method="gRPC",path="PredictionService/Predict",status="INVALID_ARGUMENT"}' in metrics


def test_a_call_whose_deadline_has_passed_leaves_the_queue(server, stub):
    large = predict_request("text", MANY_TEXTS)
    calls = [stub.Predict.future(large, timeout=60) for _ in range(20)]
    server.wait_until(lambda: server.metrics()["queue_examples"] >= 10_000)
    for call in calls:
        call.cancel()
    assert_refused(lambda: stub.Predict(large, timeout=0.02), Code.DEADLINE_EXCEEDED, "Deadline Exceeded")
    server.wait_until(lambda: server.metrics()["queue_examples"] == 0, 0.5)  # computing them takes longer


def test_calls_that_send_nothing_do_not_keep_others_waiting(server, stub):
    is_ending, silent = threading.Event(), []
    with contextlib.ExitStack() as channels:
        for _ in range(4):
            own = channels.enter_context(connect(server))
            predict = own.stream_unary("/tensorflow.serving.PredictionService/Predict")
            silent += [predict.future(iter(is_ending.wait, True), timeout=60) for _ in range(100)]
        began = time.monotonic()
        stub.Predict(predict_request("", IDS), timeout=60)
        assert time.monotonic() - began < 3  # 25 s with four messages at a time
        server.wait_until(lambda: sum(call.done() for call in silent) == len(silent) - 4)
        refused = [call for call in silent if call.done()]
        assert all(call.code() == Code.RESOURCE_EXHAUSTED for call in refused)
        assert all("arrive slowly" in call.details() for call in refused)
        is_ending.set()


@pytest.mark.endurance
def test_connections_that_send_nothing_are_closed(server):
    with socket.create_connection(("127.0.0.1", server.grpc_port), timeout=30) as connection:
        while connection.recv(1 << 16):  # the server's settings
            pass


@pytest.mark.endurance
def test_large_requests_of_many_connections_take_bounded_memory(server):
    texts = {name: [b"a b " * 7_000_000] for name in TEXTS}  # 56 MB
    large, idle = predict_request("text", texts).SerializeToString(), resident_kilobytes(server.process.pid)

    def ask(_):
        with connect(server) as channel:
            call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict").future(large, timeout=120)
            return call.code()

    with concurrent.futures.ThreadPoolExecutor(10) as executor:
        assert set(executor.map(ask, range(10))) == {Code.OK, Code.RESOURCE_EXHAUSTED}
    most = resident_kilobytes(server.process.pid, "VmHWM") - idle
    assert most < 1_500_000, f"{most / 1e6:.2f} GB above {idle / 1e6:.2f} GB"


@pytest.mark.endurance
def test_a_call_that_has_begun_is_answered_after_sigterm(server, stub):
    """This must be the last test of the server, since it stops it."""
    begun = stub.Predict.future(predict_request("text", MANY_TEXTS), timeout=60)
    server.wait_until(lambda: server.metrics()["queue_examples"] >= 500)
    assert server.end() == 0, server.log
    assert outputs(begun.result())["logits"].shape == (1024, 3)
