"""A model server on KServe: serves an export over TensorFlow Serving's REST API and the Open Inference Protocol (V2).

KServe provides the V2 protocol over REST and gRPC, health checks, metrics and graceful shutdown; this module adds a
model and the endpoints of TensorFlow Serving's REST API. Needs the extra `serve`.
"""

import asyncio
import html
import json
import logging
import pathlib
import uuid
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import kserve
import numpy as np
import uvloop
from fastapi import FastAPI, Request, Response
from kserve import errors, model_server
from kserve.utils.numpy_codec import from_np_dtype
from starlette.exceptions import HTTPException

from official_bert.options.groups import BatchingSettings
from official_bert.serving.batching import QueueFullError
from official_bert.serving.open_inference import LENGTH_HEADER, open_arrays, read_open_request
from official_bert.serving.rest_endpoints import MOST_BYTES, BatchMetrics, add_endpoints, find_version, named_model
from official_bert.serving.rest_format import JsonRequest, RequestError, quoted_names
from official_bert.serving.servable import TEXT
from official_bert.serving.served_model import ServedModel, ServedVersion

_FOLDER = pathlib.Path(__file__).parent / "ui"
_FILES = {"page.js": "text/javascript", "page.css": "text/css"}
# The page loads no external resources, and never executes the content of a text.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_GRACE_SECONDS = 30  # time for requests to finish after SIGTERM
_SIGNATURE_PARAMETER = "signature_name"


def add_page(app: FastAPI, model_name: str) -> None:
    """Add `/ui` to a server."""
    name = html.escape(model_name)
    heading = f'<h1 id="name" data-path="v1/models/{name}">{name}</h1>'
    page = (_FOLDER / "index.html").read_text("utf-8").replace('<h1 id="name"></h1>', heading)
    contents = {file_name: (_FOLDER / file_name).read_bytes() for file_name in _FILES}

    async def show(request: Request) -> Response:
        return Response(page, media_type="text/html", headers=_HEADERS)

    async def send_file(request: Request) -> Response:
        file_name = request.url.path.rpartition("/")[2]
        return Response(contents[file_name], media_type=_FILES[file_name], headers=_HEADERS)

    app.add_route("/ui", show, methods=["GET"])
    for file_name in _FILES:
        app.add_route(f"/ui/{file_name}", send_file, methods=["GET"])


class _RestCall(NamedTuple):
    """A request to TensorFlow Serving's REST API."""

    body: bytes
    version: ServedVersion


class _OpenCall(NamedTuple):
    """A request to the V2 protocol's REST API; `json_length` comes from its header."""

    body: bytes
    json_length: str | None
    version: ServedVersion


class _Call(NamedTuple):
    """A parsed request; `request` determines the form of the answer."""

    version: ServedVersion
    signature_name: str
    inputs: Mapping[str, np.ndarray]
    request: JsonRequest | kserve.InferRequest


class _Result(NamedTuple):
    call: _Call
    outputs: Mapping[str, np.ndarray]


class _OpenAnswer(NamedTuple):
    """The body of a response, and the length of its JSON part if binary values follow."""

    body: bytes
    json_length: int | None


class _Overloaded(errors.ModelNotReady):
    """The request queue is full; KServe responds with 503 or UNAVAILABLE."""

    def __init__(self, reason: str):
        RuntimeError.__init__(self, reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


_REFUSALS = (errors.InvalidInput, errors.ModelNotFound, errors.ModelNotReady, NotImplementedError)


class ExportModel(kserve.Model):
    """An export as a KServe model: bytes to arrays, arrays to predictions, predictions to bytes."""

    def __init__(self, name: str, served: ServedModel):
        super().__init__(name)
        self.served, self.ready = served, True

    def stop(self) -> None:
        """Stop watching for new versions."""
        super().stop()
        self.served.close()

    async def answer(self, body: bytes, version: ServedVersion) -> bytes:
        """Answer a request to TensorFlow Serving's REST API."""
        answer, _ = await self(_RestCall(body, version))  # KServe's: preprocess, predict and postprocess below
        return answer

    async def answer_open(self, request: Request) -> Response:
        """Answer a request to the V2 protocol's REST API."""
        version = find_version(self, request.path_params.get("number"))
        call = _OpenCall(await request.body(), request.headers.get(LENGTH_HEADER), version)
        answer, _ = await self(call)
        if answer.json_length is None:
            return Response(answer.body, media_type="application/json")
        headers = {LENGTH_HEADER: str(answer.json_length)}
        return Response(answer.body, media_type="application/octet-stream", headers=headers)

    async def preprocess(self, payload: _RestCall | _OpenCall | kserve.InferRequest, headers: Any = None) -> _Call:
        """Convert a request to arrays."""
        try:
            if isinstance(payload, _RestCall):
                request, inputs = await payload.version.read(payload.body)
                return _Call(payload.version, request.signature_name, inputs, request)
            if isinstance(payload, _OpenCall):
                return await payload.version.aside(len(payload.body), lambda: self._read_open(payload))
            version = find_version(self, payload.model_version)
            return await version.aside(_size(payload), lambda: _open_call(payload, version))
        except (RequestError, HTTPException) as error:
            raise errors.InvalidInput(getattr(error, "detail", None) or str(error)) from error

    def _read_open(self, payload: _OpenCall) -> _Call:
        version = payload.version
        request = read_open_request(payload.body, payload.json_length, self.name, version.most_values)
        return _open_call(request, version)

    async def predict(self, payload: _Call, headers: Any = None, response_headers: Any = None) -> _Result:
        """Compute predictions."""
        try:
            return _Result(payload, await payload.version.predict(payload.signature_name, payload.inputs))
        except RequestError as error:
            raise errors.InvalidInput(str(error)) from error
        except QueueFullError as error:
            raise _Overloaded(str(error)) from error

    async def postprocess(
        self, result: _Result, headers: Any = None, response_headers: Any = None
    ) -> bytes | _OpenAnswer | kserve.InferResponse:
        call, version = result.call, result.call.version
        if isinstance(call.request, JsonRequest):
            return await version.write(result.outputs, call.request.is_in_rows)
        size = sum(values.size for values in result.outputs.values())
        return await version.aside(size, lambda: self._open_answer(call, result.outputs))

    def _open_answer(self, call: _Call, outputs: Mapping[str, np.ndarray]) -> _OpenAnswer | kserve.InferResponse:
        response = _infer_response(self.name, call.version.number, call.request, outputs)
        if call.request.from_grpc:
            return response
        answer, json_length = response.to_rest()
        return _OpenAnswer(answer if isinstance(answer, bytes) else json.dumps(answer).encode(), json_length)

    def get_input_types(self) -> list[dict[str, Any]]:
        """Return the inputs of the signature that V2 requests call by default."""
        return _tensor_types(self.served.version.signature(TEXT).inputs)

    def get_output_types(self) -> list[dict[str, Any]]:
        return _tensor_types(self.served.version.signature(TEXT).outputs)


class _Repository(kserve.ModelRepository):
    """A repository with a single model that clients cannot unload."""

    is_ending = False

    def unload(self, name: str) -> None:
        if not self.is_ending:
            raise NotImplementedError("this server's model cannot be unloaded; stop the server instead")
        super().unload(name)


class _Server(kserve.ModelServer):
    def stop(self, sig: int) -> None:
        self.registered_models.is_ending = True
        super().stop(sig)


def serve(
    export_dir: str, *, name: str, settings: BatchingSettings, port: int, grpc_port: int, has_page: bool = False
) -> None:
    """Serve the highest version of an export until SIGTERM or Ctrl-C; running requests are completed."""
    model_server.args.configure_logging = False  # route KServe's messages like all others
    model_server.args.grpc_max_receive_message_length = MOST_BYTES
    model_server.args.grpc_max_send_message_length = -1  # no limit, as over REST
    for logger in ("kserve", "kserve.trace", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    for logger in ("kserve", "uvicorn.error"):
        logging.getLogger(logger).addFilter(_on_one_line)
    warnings.filterwarnings("ignore", "ORJSONResponse is deprecated")  # the response class that KServe uses
    model = ExportModel(name, ServedModel(export_dir, settings, BatchMetrics()))
    server = _Server(
        http_port=port,
        grpc_port=grpc_port,
        enable_grpc=bool(grpc_port),
        grace_period=_GRACE_SECONDS,
        registered_models=_Repository(),
        enable_latency_logging=False,
    )
    _add_endpoints(model)
    if has_page:
        add_page(model_server.app, name)
    model.served.start_watching()
    logging.getLogger("absl").info("serving %s at http://localhost:%d/v1/models/%s", name, port, name)
    if has_page:
        logging.getLogger("absl").info("try it at http://localhost:%d/ui", port)
    uvloop.install()
    asyncio.set_event_loop(asyncio.new_event_loop())  # KServe gets the event loop before it creates its own
    server.start([model])


def _on_one_line(record: logging.LogRecord) -> bool:
    """Shorten the log of a client's mistake to one line, without terminal control characters."""
    message = record.getMessage()
    if record.exc_info and isinstance(record.exc_info[1], _REFUSALS):
        message, record.exc_info = str(record.exc_info[1]), None
    shown = "".join(character if character.isprintable() else repr(character)[1:-1] for character in message)
    record.msg, record.args = shown, ()
    return True


def _add_endpoints(model: ExportModel) -> None:
    """Add the endpoints that all servers have before those of KServe, so that they take precedence."""

    async def infer(request: Request) -> Response:
        return await named_model(model, request).answer_open(request)

    add_endpoints(model_server.app, lambda: model)
    for number in ("", "/versions/{number}"):
        model_server.app.add_route(f"/v2/models/{{model_name}}{number}/infer", infer, methods=["POST"])


def _signature_name(request: kserve.InferRequest) -> str:
    parameters = request.parameters
    if not parameters or _SIGNATURE_PARAMETER not in parameters:
        return TEXT
    value = parameters[_SIGNATURE_PARAMETER]
    return str(getattr(value, "string_param", value))  # a message over gRPC


def _open_call(request: kserve.InferRequest, version: ServedVersion) -> _Call:
    """Parse a request of the V2 protocol."""
    name = _signature_name(request)
    inputs = open_arrays(request, version.signature(name).input_types, version.most_examples)
    return _Call(version, name, inputs, request)


def _size(request: kserve.InferRequest) -> int:
    """Estimate the amount of data in a gRPC request."""
    return sum(len(tensor.data or ()) + len(tensor._raw_data or b"") for tensor in request.inputs)


def _infer_response(
    model_name: str, number: int, request: kserve.InferRequest, outputs: Mapping[str, np.ndarray]
) -> kserve.InferResponse:
    wanted = {output.name for output in request.request_outputs or ()}
    if unknown := wanted - set(outputs):
        raise errors.InvalidInput(f"there is no output {quoted_names(unknown)}; there are {', '.join(outputs)}")
    tensors = []
    for name, values in outputs.items():
        if values.dtype == object:  # strings that are not UTF-8 cannot be written as JSON
            values = np.vectorize(lambda text: text.decode("utf-8", "replace").encode(), otypes=[object])(values)
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
