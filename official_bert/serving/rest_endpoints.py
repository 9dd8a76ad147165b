"""Endpoints of the servers of this package: TensorFlow Serving's REST API, and those of neighbouring modules.

TensorFlow Serving's API is documented at https://www.tensorflow.org/tfx/serving/api_rest.
"""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, exposition
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from official_bert.serving.batching import BatchObserver
from official_bert.serving.embedding_endpoints import add_embedding_endpoints
from official_bert.serving.rest_format import quoted
from official_bert.serving.served_model import ServedModel, ServedVersion

MOST_BYTES = 1 << 26  # maximum size of a request
_MOST_BYTES_TOGETHER = 4 * MOST_BYTES  # total of large requests held at a time
_LARGE = 1 << 20  # minimum size in bytes of a large request
_MOST_IN_A_NAME = 200  # characters between two slashes in a URL
_REQUESTS = Counter("requests", "Number of answered REST requests", ["method", "path", "status"])
_SECONDS = Histogram("request_seconds", "Time from a REST request to the end of its response", ["method", "path"])
_QUEUE = Gauge("queue_examples", "Number of examples waiting in the queue")
_BATCH_EXAMPLES = Histogram("batch_examples", "Number of examples per batch", buckets=[2**power for power in range(11)])
_BATCH_POSITIONS = Histogram(
    "batch_positions",
    "Number of positions per batch, including padding; estimated for texts",
    buckets=[2**power for power in range(4, 16)],
)
_OTHER, _WRONG_METHOD, _CLIENT_LEFT = "other", 405, 499


class _Requests:
    """ASGI middleware that limits, counts and measures the requests of an application.

    Reading more than `MOST_BYTES` of a request raises an HTTPException, 413; while too many large requests are held,
    503. Exceptions of the application are converted to responses.
    """

    def __init__(self, app: ASGIApp):
        self._app, self._num_held = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        num_bytes, status, start = 0, None, time.perf_counter()

        async def receive_some() -> Message:
            nonlocal num_bytes
            message = await receive()
            held, num_bytes = _held(num_bytes), num_bytes + len(message.get("body", b""))
            self._num_held += _held(num_bytes) - held
            if num_bytes > MOST_BYTES:
                raise HTTPException(413, f"the request has more than {MOST_BYTES} bytes")
            if _held(num_bytes) and self._num_held > _MOST_BYTES_TOGETHER:
                raise HTTPException(503, "many large requests are being answered; try again later")
            return message

        async def send_some(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            if max(map(len, scope["path"].split("/"))) > _MOST_IN_A_NAME:
                await JSONResponse({"error": "there is nothing at this address"}, 404)(scope, receive, send_some)
            else:
                await self._app(scope, receive_some, send_some)
        except ClientDisconnect:
            pass
        except Exception:
            logging.getLogger("absl").exception("a request could not be answered")
            if status is None:
                await JSONResponse({"error": "the server failed; its log says why"}, 500)(scope, receive, send_some)
        finally:
            self._num_held -= _held(num_bytes)
            status = status or _CLIENT_LEFT
            # Clients must not be able to create labels with arbitrary paths or methods.
            path = _template(scope) if "endpoint" in scope else _OTHER
            method = scope["method"] if path != _OTHER and status != _WRONG_METHOD else _OTHER
            _SECONDS.labels(method, path).observe(time.perf_counter() - start)
            _REQUESTS.labels(method, path, status).inc()


def _held(num_bytes: int) -> int:
    """Return the number of a request's bytes that count towards the total of large requests."""
    return num_bytes if num_bytes > _LARGE else 0


class BatchMetrics(BatchObserver):
    def wait(self, change: int) -> None:
        _QUEUE.inc(change)

    def compute(self, num_examples: int, num_positions: int) -> None:
        _BATCH_EXAMPLES.observe(num_examples)
        _BATCH_POSITIONS.observe(num_positions)


def _template(scope: Scope) -> str:
    """Return the path of a request with parameters replaced by their names: "/v1/models/{model_name}:predict"."""
    names = {str(value): f"{{{name}}}" for name, value in scope.get("path_params", {}).items()}

    def named(part: str) -> str:
        name, colon, verb = part.rpartition(":")
        return names.get(part) or names.get(name, name) + colon + verb

    return "/".join(map(named, scope["path"].split("/")))


async def _metrics(request: Request) -> Response:
    encode, content_type = exposition.choose_encoder(request.headers.get("accept", ""))
    return Response(encode(REGISTRY), headers={"content-type": content_type})


class RestModel(Protocol):
    name: str  # name of the model in URLs
    served: ServedModel  # the served versions

    async def answer(self, body: bytes, version: ServedVersion) -> bytes:
        """Handle a request body."""


def add_endpoints(app: Starlette, served: Callable[[], RestModel]) -> None:
    """Add the URLs, measure all requests to the application, and limit their size."""

    def found(request: Request) -> tuple[RestModel, ServedVersion]:
        model = named_model(served(), request)
        return model, find_version(model, request.path_params.get("number"))

    async def predict(request: Request) -> Response:
        model, version = found(request)
        return Response(await model.answer(await request.body(), version), media_type="application/json")

    async def status(request: Request) -> Response:
        _, version = found(request)
        available = {"error_code": "OK", "error_message": ""}
        state = {"version": str(version.number), "state": "AVAILABLE", "status": available}
        return JSONResponse({"model_version_status": [state]})

    async def metadata(request: Request) -> Response:
        model, version = found(request)
        specification = {"name": model.name, "signature_name": "", "version": str(version.number)}
        signatures = {"signature_def": {"signature_def": version.definitions}}
        return JSONResponse({"model_spec": specification, "metadata": signatures})

    async def refuse(request: Request) -> Response:
        found(request)
        raise HTTPException(404, "this server does not explain, classify or regress; its models answer at :predict")

    for number in ("", "/versions/{number}"):
        path = f"/v1/models/{{model_name}}{number}"
        app.add_route(f"{path}:predict", predict, methods=["POST"])  # Starlette's routes are the fastest
        for verb in ("explain", "classify", "regress"):
            app.add_route(f"{path}:{verb}", refuse, methods=["POST"])
        app.add_route(path, status, methods=["GET"])
        app.add_route(f"{path}/metadata", metadata, methods=["GET"])
    add_embedding_endpoints(app, lambda: (served().name, served().served.version))
    app.add_route("/metrics", _metrics, methods=["GET"])
    app.add_middleware(_Requests)
    app.add_exception_handler(HTTPException, _answer_http_error)


def named_model(model: RestModel, request: Request) -> RestModel:
    name = request.path_params["model_name"]
    if name != model.name:
        raise HTTPException(404, f"there is no model {quoted(name)}; {model.name} is served")
    return model


def find_version(model: RestModel, number: str | None) -> ServedVersion:
    version = model.served.version
    if number and number != str(version.number):
        served = f"version {version.number} is"
        raise HTTPException(404, f"version {quoted(number)} of {model.name} is not served; {served}")
    return version


async def _answer_http_error(_: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code)
