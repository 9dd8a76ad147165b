"""TensorFlow Serving's gRPC API: `PredictionService` and `ModelService`, with the messages of tensorflow-serving-api.

The methods share versions, batching, limits and metrics with REST. Messages are parsed here, not by gRPC, so that they
are counted and checked before they take more memory than their bytes.
"""

import asyncio
import contextlib
import functools
import itertools
import logging
import math
import pathlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import Int64Value
from grpc.aio import ServicerContext
from tensorflow.core.framework import types_pb2
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest, ClassificationResponse
from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    SignatureDefMap,
)
from tensorflow_serving.apis.get_model_status_pb2 import (
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelVersionStatus,
)
from tensorflow_serving.apis.input_pb2 import Input
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse
from tensorflow_serving.apis.regression_pb2 import RegressionRequest, RegressionResponse
from tensorflow_serving.apis.status_pb2 import StatusProto

from official_bert.serving.app import AUTHORIZATION, REFUSAL, Access
from official_bert.serving.batching import MOST_BYTES, Arrays, Hold, QueueFullError, TooManyBytesError
from official_bert.serving.rest_format import (
    ArraySpec,
    MessageError,
    RequestError,
    check_names,
    check_size,
    quoted,
    quoted_names,
    read_message,
)
from official_bert.serving.served_model import ServedModel, ServedVersion
from official_bert.serving.signatures import SERVING_DEFAULT
from official_bert.support.errors import format_names
from official_bert.support.wire import read_varint

_METADATA = "signature_def"  # the only metadata there is
_MOST_ARRIVING = 256  # messages awaited at the same time, for `_PATIENCE_SECONDS`
_MOST_SLOW = 4  # messages awaited longer
_PATIENCE_SECONDS = 0.25
_MOST_CALLS = 4096  # at the same time
_OPTIONS = {
    "grpc.max_receive_message_length": MOST_BYTES,
    "grpc.max_send_message_length": -1,
    "grpc.server_handshake_timeout_ms": 10_000,
    "grpc.max_connection_idle_ms": 65_000,  # without calls; clients connect again by themselves
}
# The field of the values of a tensor by NumPy type, and the type's number; all integers below 32 bits share a field.
_FIELDS = {
    np.dtype(np.int32): ("int_val", types_pb2.DT_INT32),
    np.dtype(np.int64): ("int64_val", types_pb2.DT_INT64),
    np.dtype(np.float32): ("float_val", types_pb2.DT_FLOAT),
    np.dtype(np.bool_): ("bool_val", types_pb2.DT_BOOL),
    np.dtype(np.int8): ("int_val", types_pb2.DT_INT8),
    np.dtype(np.uint8): ("int_val", types_pb2.DT_UINT8),
    np.dtype(object): ("string_val", types_pb2.DT_STRING),
}

# Called after each request with "gRPC", its service and method, its status and its seconds.
RequestCounter = Callable[[str, str, str, float], None]
# From a request, the version that answers and the request's size in bytes to a serialized response.
Method = Callable[[Any, ServedVersion, int], Awaitable[bytes]]


class _StatusError(RequestError):
    """A client error with a status of its own."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code


class _Receiver:
    """Receives many messages that arrive at once, and a few slow ones, because gRPC hides a message until it is whole.

    Of more slow ones, the first is given up: streams that send nothing take no other's place.
    """

    def __init__(self):
        self._arriving = asyncio.Semaphore(_MOST_ARRIVING)
        self._slow: dict[ServicerContext, None] = {}

    async def receive(self, context: ServicerContext) -> bytes:
        """Return the request's message."""
        async with self._arriving:
            reading = asyncio.ensure_future(context.read())
            await asyncio.wait([reading], timeout=_PATIENCE_SECONDS)
        try:
            if not reading.done():
                self._slow[context] = None
                if len(self._slow) > _MOST_SLOW:
                    await self._give_up(next(iter(self._slow)))
            message = await reading
        finally:
            self._slow.pop(context, None)
            reading.cancel()
        if message is grpc.aio.EOF:
            raise RequestError("the request has no message")
        return message

    async def _give_up(self, context: ServicerContext) -> None:
        del self._slow[context]
        with contextlib.suppress(grpc.aio.AbortError, grpc.aio.UsageError):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "many requests arrive slowly; try again later")


class _Services:
    """The methods of both services for a served model."""

    def __init__(self, name: str, served: ServedModel, count_request: RequestCounter, access: Access):
        self._name, self._served, self._count_request, self._access = name, served, count_request, access
        self._receiver = _Receiver()

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        services: Mapping[str, Mapping[str, tuple[type[Message], Method]]] = {
            "PredictionService": {
                "Predict": (PredictRequest, self._predict),
                "Classify": (ClassificationRequest, self._classify),
                "Regress": (RegressionRequest, self._regress),
                "GetModelMetadata": (GetModelMetadataRequest, self._metadata),
            },
            "ModelService": {"GetModelStatus": (GetModelStatusRequest, self._status)},
        }
        return [
            grpc.method_handlers_generic_handler(
                f"tensorflow.serving.{service}",
                {
                    name: self._handler(f"{service}/{name}", *kind_and_method)
                    for name, kind_and_method in methods.items()
                },
            )
            for service, methods in services.items()
        ]

    def _handler(self, name: str, kind: type[Message], method: Method) -> grpc.RpcMethodHandler:
        """Return a handler from a serialized request to a serialized response, or to a status with one line."""

        async def answer(context: ServicerContext, hold: Hold) -> bytes:
            given = dict(context.invocation_metadata() or ()).get(AUTHORIZATION.decode(), "")
            if not self._access.allows(given.encode()):
                raise _StatusError(grpc.StatusCode.UNAUTHENTICATED, REFUSAL)
            version, received = self._served.version, [await self._receiver.receive(context)]
            size = len(received[0])
            hold(size)
            try:
                request = await version.aside(size, lambda: read_message(kind, received.pop(), version.most_values))
            except MessageError as error:
                logging.getLogger("absl").warning("%s: %s", name, error)
                raise
            self._check(request, version)
            return await method(request, version, size)

        async def handle(_: Any, context: ServicerContext) -> None:
            start, code, message = time.perf_counter(), grpc.StatusCode.CANCELLED, ""
            try:
                with self._served.admission.request() as hold:
                    response = await answer(context, hold)
                    hold(len(response), is_answer=True)
                    await context.write(response)
                code = grpc.StatusCode.OK
                return
            except (RequestError, QueueFullError) as error:
                code, message = _code(error), str(error)
            except grpc.aio.AbortError:
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
                raise
            except Exception:
                logging.getLogger("absl").exception("a request could not be answered")
                code, message = grpc.StatusCode.INTERNAL, "the server failed; its log says why"
            finally:
                self._count_request("gRPC", name, code.name, time.perf_counter() - start)
            await context.abort(code, message)

        # Streams of one message each way: it is received when its turn comes, and counted until it is sent.
        return grpc.stream_stream_rpc_method_handler(handle)

    async def _predict(self, request: PredictRequest, version: ServedVersion, size: int) -> bytes:
        name, wanted, inputs = await version.aside(size, functools.partial(_read_predict, request, version))
        del request  # its memory, during the computation
        outputs = await version.predict(name, inputs)
        response = PredictResponse(model_spec=self._spec(version, name))

        def serialized() -> bytes:
            for output in wanted:
                _fill(response.outputs[output], outputs[output])
            return response.SerializeToString()

        return await version.aside(sum(outputs[output].size for output in wanted), serialized)

    async def _classify(self, request: ClassificationRequest, version: ServedVersion, size: int) -> bytes:
        name = request.model_spec.signature_name
        examples = await version.aside(size, lambda: _examples(request.input))
        response = ClassificationResponse(model_spec=self._spec(version, name or SERVING_DEFAULT))
        for row in await version.classify(name, examples):
            classes = response.result.classifications.add().classes
            for label, score in row:
                classes.add(label=label, score=score)
        return response.SerializeToString()

    async def _regress(self, request: RegressionRequest, version: ServedVersion, size: int) -> bytes:
        name = request.model_spec.signature_name
        examples = await version.aside(size, lambda: _examples(request.input))
        response = RegressionResponse(model_spec=self._spec(version, name or SERVING_DEFAULT))
        for value in await version.regress(name, examples):
            response.result.regressions.add(value=value)
        return response.SerializeToString()

    async def _metadata(self, request: GetModelMetadataRequest, version: ServedVersion, size: int) -> bytes:
        del size
        if set(request.metadata_field) != {_METADATA}:
            raise RequestError(f'metadata_field must be "{_METADATA}"')
        response = GetModelMetadataResponse(model_spec=self._spec(version))
        response.metadata[_METADATA].Pack(json_format.ParseDict({_METADATA: version.definitions}, SignatureDefMap()))
        return response.SerializeToString()

    async def _status(self, request: GetModelStatusRequest, version: ServedVersion, size: int) -> bytes:
        del request, size
        response = GetModelStatusResponse()
        response.model_version_status.add(
            version=version.number, state=ModelVersionStatus.AVAILABLE, status=StatusProto()
        )
        return response.SerializeToString()

    def _check(self, request: Any, version: ServedVersion) -> None:
        """Raise an error unless a request is for the served model and version."""
        if not request.HasField("model_spec"):
            raise RequestError("Missing ModelSpec")
        spec = request.model_spec
        if spec.name != self._name:
            message = f"there is no model {quoted(spec.name)}; {self._name} is served"
            raise _StatusError(grpc.StatusCode.NOT_FOUND, message) if spec.name else RequestError(message)
        if spec.HasField("version_label"):
            raise RequestError(f"there is no version label {quoted(spec.version_label)}; use its number")
        if spec.HasField("version") and spec.version.value != version.number:
            message = f"version {spec.version.value} of {self._name} is not served; version {version.number} is"
            raise _StatusError(grpc.StatusCode.NOT_FOUND, message)

    def _spec(self, version: ServedVersion, signature_name: str = "") -> ModelSpec:
        return ModelSpec(name=self._name, version=Int64Value(value=version.number), signature_name=signature_name)


def _code(error: RequestError | QueueFullError) -> grpc.StatusCode:
    if isinstance(error, TooManyBytesError):
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    if isinstance(error, QueueFullError):
        return grpc.StatusCode.UNAVAILABLE
    return error.code if isinstance(error, _StatusError) else grpc.StatusCode.INVALID_ARGUMENT


def _examples(request: Input) -> Sequence[bytes]:
    """Return serialized tf.Examples; the context comes first, so that features of the example take precedence."""
    examples = getattr(request, request.WhichOneof("kind") or "example_list")
    context = examples.context.SerializeToString() if examples is not request.example_list else b""
    return [context + example.SerializeToString() for example in examples.examples]


def _read_predict(request: PredictRequest, version: ServedVersion) -> tuple[str, Sequence[str], Arrays]:
    """Return the names of the signature and of the outputs that a request wants, and its inputs."""
    try:
        signature = version.signature_for(request.model_spec.signature_name, request.inputs.keys())
    except RequestError as error:
        raise _StatusError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error
    wanted = list(request.output_filter) or sorted(signature.outputs)
    if unknown := set(wanted) - set(signature.outputs):
        there = format_names(sorted(signature.outputs))
        raise RequestError(f"there is no output {quoted_names(unknown)}; the signature has {there}")
    if len(set(wanted)) < len(wanted):
        raise RequestError("output_filter must name each output once")
    check_names(request.inputs, signature.inputs)
    inputs = {name: _array(name, request.inputs[name], kind, version) for name, kind in signature.inputs.items()}
    return signature.name, wanted, inputs


def _array(name: str, tensor: TensorProto, input_type: ArraySpec, version: ServedVersion) -> np.ndarray:
    """Return a tensor as an array, without allocating more than its bytes allow.

    As in TensorFlow, a single value stands for all, and none for zeros; they are not copied.
    """
    dtype, shape = input_type.dtype, [dimension.size for dimension in tensor.tensor_shape.dim]
    field, number = _FIELDS[dtype]
    if tensor.dtype != number:
        raise RequestError(f"{name} must have the type {_type_name(number)}, not {_type_name(tensor.dtype)}")
    check_size(name, len(shape), input_type.rank, shape[0] if shape else 0, version.most_examples)
    if any(not 0 <= size <= version.most_values for size in shape) or math.prod(shape) > version.most_values:
        raise RequestError(f"{name} must have a shape of at most {version.most_values} values, not {shape}")
    if tensor.tensor_content:
        values = _of_content(name, tensor.tensor_content, dtype, math.prod(shape))
    else:
        values = np.fromiter(getattr(tensor, field) or [b"" if dtype.kind == "O" else 0], dtype)
        if len(values) == 1:
            return np.broadcast_to(values, shape)
    if len(values) != math.prod(shape):
        raise RequestError(f"{name} has {len(values)} values, but says that its shape is {shape}")
    return values.reshape(shape)


def _of_content(name: str, content: bytes, dtype: np.dtype, number: int) -> np.ndarray:
    """Return the values of `tensor_content`: numbers as in memory, or strings, after the lengths of all of them."""
    if dtype.kind != "O":
        if len(content) % dtype.itemsize:
            raise RequestError(f"{name} has {len(content)} bytes, which is not a whole number of values")
        return np.frombuffer(content, dtype)
    lengths, position = [], 0
    with contextlib.suppress(IndexError):  # too short for so many lengths
        while len(lengths) < number:
            length, position = read_varint(content, position)
            lengths.append(length)
    if len(lengths) != number or position + sum(lengths) != len(content):
        raise RequestError(f"{name} does not have {number} strings, after the lengths of all of them")
    ends = itertools.accumulate(lengths, initial=position)
    return np.array([content[start:end] for start, end in itertools.pairwise(ends)], object)


def _type_name(number: int) -> str:
    return types_pb2.DataType.Name(number) if number in types_pb2.DataType.values() else str(number)


def _fill(tensor: TensorProto, values: np.ndarray) -> None:
    """Write values as TensorFlow Serving does, one by one: clients read `float_val`."""
    field, tensor.dtype = _FIELDS[values.dtype]
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    getattr(tensor, field).extend(values.ravel().tolist())


async def start_grpc(
    name: str, served: ServedModel, port: int, count_request: RequestCounter, access: Access
) -> grpc.aio.Server:
    """Start a server in the event loop, on all network interfaces."""
    server = grpc.aio.server(options=list(_OPTIONS.items()), maximum_concurrent_rpcs=_MOST_CALLS)
    server.add_generic_rpc_handlers(_Services(name, served, count_request, access).handlers())
    if access.certfile and access.keyfile:
        key, certificate = (pathlib.Path(path).read_bytes() for path in (access.keyfile, access.certfile))
        server.add_secure_port(f"[::]:{port}", grpc.ssl_server_credentials([(key, certificate)]))
    else:
        server.add_insecure_port(f"[::]:{port}")
    await server.start()
    return server
