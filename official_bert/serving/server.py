"""A model server on KServe: an export answers over REST, as from TensorFlow Serving, and over the open protocol (V2).

KServe brings the V2 protocol over REST and gRPC, health, metrics and the orderly end; this module adds a model, and the
addresses of TensorFlow Serving's REST API. Needs the extra `serve`.
"""

import asyncio
import logging
import uuid
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import kserve
import numpy as np
import uvloop
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from kserve import errors, model_server
from kserve.utils.numpy_codec import from_np_dtype
from prometheus_client import Histogram

from official_bert.config.batching import BatchingSettings
from official_bert.serving.batching import QueueFullError
from official_bert.serving.body_limit import MOST_BYTES
from official_bert.serving.rest_endpoints import add_endpoints, find_version
from official_bert.serving.rest_format import (
    JsonRequest,
    RequestError,
    answer_body,
    as_integers,
    check_names,
    read_request,
    request_arrays,
)
from official_bert.serving.servable import TEXT
from official_bert.serving.served_model import ServedModel, ServedVersion, Signature
from official_bert.serving.ui_page import add_page

_GRACE_SECONDS = 30  # that requests have to end after SIGTERM
_SIGNATURE_PARAMETER = "signature_name"
_BATCH_EXAMPLES = Histogram("batch_examples", "examples computed together", buckets=[2**power for power in range(11)])


class _RestCall(NamedTuple):
    """A request to TensorFlow Serving's REST API."""

    body: bytes
    version: ServedVersion


class _Call(NamedTuple):
    """A request that is ready to be computed; `request` says how to answer."""

    version: ServedVersion
    signature_name: str
    inputs: Mapping[str, np.ndarray]
    request: JsonRequest | kserve.InferRequest


class _Result(NamedTuple):
    call: _Call
    outputs: Mapping[str, np.ndarray]


class _Overloaded(errors.ModelNotReady):
    """Too many requests wait; KServe answers with 503, or UNAVAILABLE."""

    def __init__(self, reason: str):
        RuntimeError.__init__(self, reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


_REFUSALS = (errors.InvalidInput, errors.ModelNotFound, NotImplementedError, _Overloaded)


class ExportModel(kserve.Model):
    """An export as KServe calls it: bytes to arrays, arrays to predictions, predictions to bytes."""

    def __init__(self, name: str, served: ServedModel):
        """Answers under a name with what is served."""
        super().__init__(name)
        self.served, self.ready = served, True

    def stop(self) -> None:
        """Ends the look for new versions."""
        super().stop()
        self.served.close()

    async def answer(self, body: bytes, version: ServedVersion) -> bytes:
        """Answers a request to TensorFlow Serving's REST API."""
        answer, _ = await self(_RestCall(body, version))
        return answer

    async def preprocess(self, payload: _RestCall | kserve.InferRequest, headers: Any = None) -> _Call:
        """Makes arrays of a request."""
        try:
            if isinstance(payload, kserve.InferRequest):
                version = find_version(self, _number(payload.model_version))
                name = _signature_name(payload)
                return _Call(version, name, _tensors(payload, version.signature(name)), payload)
            request = read_request(payload.body)
            inputs = request_arrays(request, payload.version.signature(request.signature_name).dtypes)
            return _Call(payload.version, request.signature_name, inputs, request)
        except RequestError as error:
            raise errors.InvalidInput(str(error)) from error

    async def predict(self, payload: _Call, headers: Any = None, response_headers: Any = None) -> _Result:
        """Computes."""
        try:
            return _Result(payload, await payload.version.predict(payload.signature_name, payload.inputs))
        except RequestError as error:
            raise errors.InvalidInput(str(error)) from error
        except QueueFullError as error:
            raise _Overloaded(str(error)) from error

    async def postprocess(
        self, result: _Result, headers: Any = None, response_headers: Any = None
    ) -> bytes | kserve.InferResponse:
        """Makes the answer."""
        call = result.call
        if isinstance(call.request, JsonRequest):
            return answer_body(result.outputs, call.request.is_in_rows)
        return _infer_response(self.name, call.version.number, call.request, result.outputs)

    def get_input_types(self) -> list[dict[str, Any]]:
        """The inputs of the signature that V2 requests call by default."""
        return _tensor_types(self.served.version.signature(TEXT).inputs)

    def get_output_types(self) -> list[dict[str, Any]]:
        """Its outputs."""
        return _tensor_types(self.served.version.signature(TEXT).outputs)


class _Repository(kserve.ModelRepository):
    """Holds the one model, which clients cannot unload."""

    is_ending = False

    def unload(self, name: str) -> None:
        if not self.is_ending:
            raise NotImplementedError("this server's model cannot be unloaded; end the server")
        super().unload(name)


class _Server(kserve.ModelServer):
    def stop(self, sig: int) -> None:
        self.registered_models.is_ending = True
        super().stop(sig)


def serve(
    export_dir: str, *, name: str, settings: BatchingSettings, port: int, grpc_port: int, has_page: bool = False
) -> None:
    """Serves the highest version of an export until SIGTERM or Ctrl-C; requests that have begun are answered.

    Args:
      export_dir: folder of the versions.
      name: of the model, in the addresses.
      settings: of the batches.
      port: of REST.
      grpc_port: of gRPC; 0 for none.
      has_page: whether there is a page at /ui to try the model.

    Raises:
      UserError: there is no version, or it is damaged.
    """
    model_server.args.configure_logging = False  # KServe's messages go where all others go
    model_server.args.grpc_max_receive_message_length = MOST_BYTES
    model_server.args.grpc_max_send_message_length = -1  # no limit, as over REST
    for logger in ("kserve", "kserve.trace", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    logging.getLogger("kserve").addFilter(_without_traceback)
    warnings.filterwarnings("ignore", "ORJSONResponse is deprecated")  # KServe's own class of answers
    model = ExportModel(name, ServedModel(export_dir, settings, _BATCH_EXAMPLES.observe))
    server = _Server(
        http_port=port,
        grpc_port=grpc_port,
        enable_grpc=bool(grpc_port),
        grace_period=_GRACE_SECONDS,
        registered_models=_Repository(),
        enable_latency_logging=False,
    )
    _add_endpoints(server.registered_models)
    if has_page:
        add_page(model_server.app, name)
    model.served.start_watching()
    logging.getLogger("absl").info("serving %s at http://localhost:%d/v1/models/%s", name, port, name)
    if has_page:
        logging.getLogger("absl").info("try it at http://localhost:%d/ui", port)
    uvloop.install()
    asyncio.set_event_loop(asyncio.new_event_loop())  # KServe asks for one before it makes its own
    server.start([model])


def _without_traceback(record: logging.LogRecord) -> bool:
    """Shortens the log of a client's mistake to one line."""
    if record.exc_info and isinstance(record.exc_info[1], _REFUSALS):
        record.msg, record.args, record.exc_info = "%s", (record.exc_info[1],), None
    return True


def _add_endpoints(repository: kserve.ModelRepository) -> None:
    """Adds the addresses of TensorFlow Serving before KServe adds its own, which come second."""

    def find(name: str) -> ExportModel:
        model = repository.get_model(name)
        if model is None:
            raise errors.ModelNotFound(name)
        return model

    add_endpoints(model_server.app, find)
    model_server.app.add_exception_handler(RequestValidationError, _answer_invalid)


async def _answer_invalid(_: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"error": f"{place}: {first['msg']}"}, 400)


def _number(text: str | None) -> int | None:
    """The number of a version.

    Raises:
      RequestError: it is none.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise RequestError(f"model_version {text!r} is not the number of a version")
    return int(text)


def _signature_name(request: kserve.InferRequest) -> str:
    parameters = request.parameters
    if not parameters or _SIGNATURE_PARAMETER not in parameters:
        return TEXT
    value = parameters[_SIGNATURE_PARAMETER]
    return str(getattr(value, "string_param", value))  # over gRPC a message


def _tensors(request: kserve.InferRequest, signature: Signature) -> dict[str, np.ndarray]:
    """The inputs of a V2 request as a signature takes them.

    Raises:
      RequestError: they do not fit it.
    """
    tensors = {tensor.name: tensor for tensor in request.inputs}
    check_names(tensors, signature.inputs)
    inputs = {}
    for name, dtype in signature.dtypes.items():
        if tensors[name].datatype != from_np_dtype(dtype):
            raise RequestError(f"{name} must have the datatype {from_np_dtype(dtype)}, not {tensors[name].datatype}")
        try:
            values = tensors[name].as_numpy()
            inputs[name] = _bytes(values) if dtype == np.dtype(object) else as_integers(name, values, dtype)
        except Exception as error:  # of any kind: the library reads the client's numbers unchecked
            raise RequestError(f"{name} does not have the shape that it says, or other values: {error}") from error
    return inputs


def _bytes(values: np.ndarray) -> np.ndarray:
    """Strings as bytes; numbers in JSON are none."""
    flat = [text if isinstance(text, bytes) else text.encode("utf-8", "ignore") for text in values.flat]
    return np.array(flat, object).reshape(values.shape)


def _infer_response(
    model_name: str, number: int, request: kserve.InferRequest, outputs: Mapping[str, np.ndarray]
) -> kserve.InferResponse:
    wanted = {output.name for output in request.request_outputs or ()}
    if unknown := wanted - set(outputs):
        raise errors.InvalidInput(f"there is no output {', '.join(sorted(unknown))}; there are {', '.join(outputs)}")
    tensors = []
    for name, values in outputs.items():
        tensor = kserve.InferOutput(name, list(values.shape), from_np_dtype(values.dtype))
        tensor.set_data_from_numpy(values, binary_data=request.use_binary_outputs)
        tensors.append(tensor)
    return kserve.InferResponse(
        request.id or str(uuid.uuid4()),
        model_name,
        tensors,
        model_version=str(number),
        use_binary_outputs=request.use_binary_outputs,
        requested_outputs=request.request_outputs,
    )


def _tensor_types(specifications: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "datatype": from_np_dtype(np.dtype(spec.dtype.as_numpy_dtype)),
            "shape": [-1 if size is None else size for size in spec.shape.as_list()],
        }
        for name, spec in specifications.items()
    ]
