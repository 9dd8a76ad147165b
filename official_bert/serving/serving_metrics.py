"""Metrics of a server for Prometheus: its requests, its queue and its batches. Used by the servers of this package."""

import time

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, exposition
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from official_bert.serving.batching import BatchObserver

_REQUESTS = Counter("requests", "answered requests over REST", ["method", "path", "status"])
_SECONDS = Histogram("request_seconds", "time from a request over REST to the end of its answer", ["method", "path"])
_QUEUE = Gauge("queue_examples", "examples that wait to be computed")
_BATCH_EXAMPLES = Histogram("batch_examples", "examples computed together", buckets=[2**power for power in range(11)])
_BATCH_POSITIONS = Histogram(
    "batch_positions",
    "positions computed together, with padding; estimated for texts",
    buckets=[2**power for power in range(4, 16)],
)
_OTHER, _WRONG_METHOD, _CLIENT_LEFT = "other", 405, 499


class BatchMetrics(BatchObserver):
    """Metrics of all batches of the process."""

    def wait(self, change: int) -> None:
        """Count the examples that wait."""
        _QUEUE.inc(change)

    def compute(self, num_examples: int, num_positions: int) -> None:
        """Count a batch."""
        _BATCH_EXAMPLES.observe(num_examples)
        _BATCH_POSITIONS.observe(num_positions)


class RequestMetrics:
    """ASGI middleware: counts requests and their status, and measures their time."""

    def __init__(self, app: ASGIApp):
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start = _CLIENT_LEFT, time.perf_counter()

        async def send_some(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, send_some)
        finally:
            # Clients may not create labels, neither by addresses nor by methods.
            path = _template(scope) if "endpoint" in scope else _OTHER
            method = scope["method"] if path != _OTHER and status != _WRONG_METHOD else _OTHER
            _SECONDS.labels(method, path).observe(time.perf_counter() - start)
            _REQUESTS.labels(method, path, status).inc()


def _template(scope: Scope) -> str:
    """Return the path of a request with its parameters replaced by their names: "/v1/models/{model_name}:predict"."""
    names = {str(value): f"{{{name}}}" for name, value in scope.get("path_params", {}).items()}

    def named(part: str) -> str:
        name, colon, verb = part.rpartition(":")
        return names.get(part) or names.get(name, name) + colon + verb

    return "/".join(map(named, scope["path"].split("/")))


def add_metrics(app: Starlette) -> None:
    """Measure the requests to an application, and add `/metrics`."""

    async def metrics(request: Request) -> Response:
        encode, content_type = exposition.choose_encoder(request.headers.get("accept", ""))
        return Response(encode(REGISTRY), headers={"content-type": content_type})

    app.add_route("/metrics", metrics, methods=["GET"])
    app.add_middleware(RequestMetrics)
