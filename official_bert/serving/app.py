"""The HTTP application of a served model: `make_app` returns it, with all endpoints, limits, metrics and access rules.

`server.py` runs it in a process, and Ray Serve in its replicas. TensorFlow Serving's REST API is documented at
https://www.tensorflow.org/tfx/serving/api_rest. Needs the extra `serve`.
"""

import asyncio
import hmac
import html
import logging
import pathlib
import ssl
import time
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, exposition
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from official_bert.serving.batching import Admission, BatchObserver, QueueFullError, TooLargeError, TooManyBytesError
from official_bert.serving.embedding_endpoints import add_embedding_endpoints, describe_model
from official_bert.serving.rest_format import RequestError, quoted
from official_bert.serving.served_model import ServedModel, ServedVersion
from official_bert.support import files
from official_bert.support.errors import UserError

_BYTES_AT_ONCE = 1 << 18  # of a compressed request, or an answer
_MOST_IN_A_NAME = 200  # characters between two slashes in a URL
AUTHORIZATION = b"authorization"  # the header
REFUSAL = "the API key is missing or wrong; send it in the header 'Authorization: Bearer KEY'"

_REQUESTS = Counter("requests", "Number of answered requests", ["method", "path", "status"])
_SECONDS = Histogram("request_seconds", "Time from a request to the end of its response", ["method", "path"])
_QUEUE = Gauge("queue_examples", "Number of examples waiting in the queue")
_BATCH_EXAMPLES = Histogram("batch_examples", "Number of examples per batch", buckets=[2**power for power in range(11)])
_BATCH_POSITIONS = Histogram(
    "batch_positions",
    "Number of positions per batch, including padding; estimated for texts",
    buckets=[2**power for power in range(4, 16)],
)
_OTHER, _WRONG_METHOD, _CLIENT_LEFT = "other", 405, 499

_FOLDER = pathlib.Path(__file__).parent / "ui"
_FILES = {"page.js": "text/javascript", "page.css": "text/css"}
# The page loads no external resources, and never executes the content of a text.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Access(NamedTuple):
    api_key: str | None = None  # that every request must have
    certfile: str | None = None  # of TLS, with `keyfile`
    keyfile: str | None = None
    cors_origins: tuple[str, ...] = ()  # of pages that may send requests, such as "https://example.org"

    def allows(self, authorization: bytes | None) -> bool:
        """Return True if the header has the key, in a time that does not depend on how much of it is right."""
        if self.api_key is None:
            return True
        scheme, _, key = (authorization or b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key.strip(), self.api_key.encode())

    def check_certificate(self) -> None:
        """Raise UserError unless the files of TLS belong together."""
        if self.certfile is None or self.keyfile is None:
            return
        for path in (self.certfile, self.keyfile):
            files.check_regular(path)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certfile, self.keyfile, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UserError(
                f"ssl_certfile={self.certfile}, ssl_keyfile={self.keyfile}: they must be a certificate and its key "
                f"without a password, in PEM ({error})"
            ) from error


NO_ACCESS_RULES = Access()


class BatchMetrics(BatchObserver):
    def wait(self, change: int) -> None:
        _QUEUE.inc(change)

    def compute(self, num_examples: int, num_positions: int) -> None:
        _BATCH_EXAMPLES.observe(num_examples)
        _BATCH_POSITIONS.observe(num_positions)


class _Decompressed:
    """Receives the body of a request that is compressed with gzip, decompressed in small parts."""

    def __init__(self, receive: Receive):
        self._receive, self._reader = receive, zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._compressed, self._has_more = b"", True

    async def __call__(self) -> Message:
        if self._compressed:
            await asyncio.sleep(0)  # other requests take their turn
        else:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            self._compressed, self._has_more = message.get("body", b""), message.get("more_body", False)
        try:
            part = self._reader.decompress(self._compressed, _BYTES_AT_ONCE)
            self._compressed = self._reader.unconsumed_tail
            is_last = not (self._compressed or self._has_more)
            if is_last:
                part += self._reader.flush()
        except zlib.error as error:
            raise HTTPException(400, "the request is not compressed with gzip, as its header says") from error
        if self._reader.unused_data or (is_last and not self._reader.eof):
            raise HTTPException(400, "the request is not one complete file of gzip, as its header says")
        return {"type": "http.request", "body": part, "more_body": not is_last}


class _Requests:
    """ASGI middleware that limits, counts and measures the requests of an application.

    Reading more of a request than is admitted raises an error. Exceptions of the application are converted to
    responses.
    """

    def __init__(self, app: ASGIApp, admission: Admission):
        self._app, self._admission = app, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._admission.request() as scope["hold"]:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, start = None, time.perf_counter()
        encoding = dict(scope["headers"]).get(b"content-encoding", b"identity").lower()
        if encoding == b"gzip":
            receive = _Decompressed(receive)

        async def receive_some() -> Message:
            message = await receive()
            scope["hold"](len(message.get("body", b"")))
            return message

        async def send_some(message: Message) -> None:
            nonlocal status
            if message.get("status") == 200:  # the start of an answer
                size = dict(message["headers"]).get(b"content-length", b"0")
                scope["hold"](int(size), is_answer=True)
            status = message.get("status", status)
            if len(message.get("body", b"")) > _BYTES_AT_ONCE:
                await send({**message, "more_body": True})
                message = {**message, "body": b""}  # this is sent when the client has read almost all
            await send(message)

        try:
            if max(map(len, scope["path"].split("/"))) > _MOST_IN_A_NAME:
                await JSONResponse({"error": "there is nothing at this address"}, 404)(scope, receive, send_some)
            elif encoding not in (b"identity", b"gzip"):
                await JSONResponse({"error": "Content-Encoding must be gzip"}, 415)(scope, receive, send_some)
            else:
                await self._app(scope, receive_some, send_some)
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:
            if status is None:
                await JSONResponse({"error": "the server is stopping"}, 503)(scope, receive, send_some)
            raise
        except Exception as error:
            if isinstance(error.__cause__, TooManyBytesError):  # the answer is not admitted
                status = 503
                await _answer_error(None, error.__cause__)(scope, receive, send)
                return
            logging.getLogger("absl").exception("a request could not be answered")
            if status is None:
                await JSONResponse({"error": "the server failed; its log says why"}, 500)(scope, receive, send_some)
        finally:
            status = status or _CLIENT_LEFT
            # Clients must not be able to create labels with arbitrary paths or methods.
            path = _template(scope) if "endpoint" in scope else _OTHER
            method = scope["method"] if path != _OTHER and status != _WRONG_METHOD else _OTHER
            count_request(method, path, status, time.perf_counter() - start)


def count_request(method: str, path: str, status: int | str, seconds: float) -> None:
    _SECONDS.labels(method, path).observe(seconds)
    _REQUESTS.labels(method, path, status).inc()


def _template(scope: Scope) -> str:
    """Return the path of a request with parameters replaced by their names: "/v1/models/{model_name}:predict"."""
    fitting = (route for route in scope["app"].routes if route.endpoint == scope["endpoint"])
    return next((route.path for route in fitting if route.path_regex.match(scope["path"])), _OTHER)


class _KeyCheck:
    """ASGI middleware that answers requests without the API key with 401, except those for /health."""

    def __init__(self, app: ASGIApp, access: Access):
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer, is_open = self._app, scope["type"] != "http" or scope["path"] == "/health"
        if not (is_open or self._access.allows(dict(scope["headers"]).get(AUTHORIZATION))):
            content = {"message": REFUSAL, "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
            answer = JSONResponse({"error": content}, 401, {"WWW-Authenticate": "Bearer"})  # in OpenAI's form
        await answer(scope, receive, send)


class _Endpoints:
    """The endpoints of TensorFlow Serving's REST API."""

    def __init__(self, served: ServedModel, name: str):
        self._served, self._name = served, name

    def routes(self) -> Iterator[Route]:
        for number in ("", "/versions/{number}", "/labels/{label}"):
            path = f"/v1/models/{{model_name}}{number}"
            for verb, answer in (("predict", self._predict), ("classify", self._classify), ("regress", self._regress)):
                yield Route(f"{path}:{verb}", answer, methods=["POST"])
            yield Route(path, self._status, methods=["GET"])
            yield Route(f"{path}/metadata", self._metadata, methods=["GET"])

    def _version(self, request: Request) -> ServedVersion:
        """Return the version that a request's address names, by default the served one."""
        name, number = request.path_params["model_name"], request.path_params.get("number")
        version = self._served.version
        if name != self._name:
            raise HTTPException(404, f"there is no model {quoted(name)}; {self._name} is served")
        if number and number != str(version.number):
            raise HTTPException(404, f"version {quoted(number)} of {name} is not served; version {version.number} is")
        if "label" in request.path_params:
            raise RequestError(f"there is no version label {quoted(request.path_params['label'])}; use its number")
        return version

    async def _predict(self, request: Request) -> Response:
        version = self._version(request)
        call, inputs = await version.read(await request.body())
        outputs = await version.predict(call.signature_name, inputs)
        return Response(await version.write(outputs, call.is_in_rows), media_type="application/json")

    async def _classify(self, request: Request) -> Response:
        version = self._version(request)
        return JSONResponse({"results": await version.classify(*await version.read_examples(await request.body()))})

    async def _regress(self, request: Request) -> Response:
        version = self._version(request)
        return JSONResponse({"results": await version.regress(*await version.read_examples(await request.body()))})

    async def _status(self, request: Request) -> Response:
        """Describe the model to clients of TensorFlow Serving, of OpenAI's API and of KServe's V1 protocol."""
        version = self._version(request)
        available = {"error_code": "OK", "error_message": ""}
        state = {"version": str(version.number), "state": "AVAILABLE", "status": available}
        readiness = {"name": self._name, "ready": True}
        return JSONResponse({"model_version_status": [state], **describe_model(self._name, version), **readiness})

    async def _metadata(self, request: Request) -> Response:
        version = self._version(request)
        specification = {"name": self._name, "signature_name": "", "version": str(version.number)}
        signatures = {"signature_def": {"signature_def": version.definitions}}
        return JSONResponse({"model_spec": specification, "metadata": signatures})


def _page_routes(model_name: str) -> Iterator[Route]:
    """Return the routes of the page to try the model."""
    name = html.escape(model_name)
    heading = f'<h1 id="name" data-path="v1/models/{name}">{name}</h1>'
    page = (_FOLDER / "index.html").read_text("utf-8").replace('<h1 id="name"></h1>', heading)
    contents = {file_name: (_FOLDER / file_name).read_bytes() for file_name in _FILES}

    async def show(request: Request) -> Response:
        return Response(page, media_type="text/html", headers=_PAGE_HEADERS)

    async def send_file(request: Request) -> Response:
        file_name = request.url.path.rpartition("/")[2]
        return Response(contents[file_name], media_type=_FILES[file_name], headers=_PAGE_HEADERS)

    yield Route("/ui", show)
    for file_name in _FILES:
        yield Route(f"/ui/{file_name}", send_file)


async def _metrics(request: Request) -> Response:
    encode, content_type = exposition.choose_encoder(request.headers.get("accept", ""))
    return Response(encode(REGISTRY), headers={"content-type": content_type})


def _answer_error(_: Request | None, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    status = 503 if isinstance(error, QueueFullError) else 413 if isinstance(error, TooLargeError) else 400
    return JSONResponse({"error": str(error)}, status)


def make_app(
    served: ServedModel,
    name: str,
    *,
    has_page: bool = False,
    accept_token_ids: bool = False,
    access: Access = NO_ACCESS_RULES,
) -> Starlette:
    """Return the application that answers all HTTP requests to a model, at its name."""
    pointer = f"POST /v1/models/{name}:predict asks the model {name}; GET /v1/models/{name}/metadata describes it\n"

    async def start_page(request: Request) -> Response:
        return RedirectResponse("ui") if has_page else PlainTextResponse(pointer)

    # Browsers ask without the key whether a page of another server may send requests.
    pages = {"allow_origins": access.cors_origins, "allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
    app = Starlette(
        routes=[
            *_Endpoints(served, name).routes(),
            Route("/", start_page),
            Route("/metrics", _metrics),
            *(_page_routes(name) if has_page else ()),
        ],
        middleware=[
            Middleware(_Requests, admission=served.admission),
            *([Middleware(CORSMiddleware, **pages)] if access.cors_origins else []),
            Middleware(_KeyCheck, access=access),
        ],
        exception_handlers=dict.fromkeys((HTTPException, RequestError, QueueFullError, TooLargeError), _answer_error),
    )
    add_embedding_endpoints(app, lambda: (name, served.version), accept_token_ids=accept_token_ids)
    return app
