"""Prometheus metrics of the servers of this package: requests, queue and batches."""

import time

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, exposition
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from official_bert.serving.batching import BatchObserver

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


class BatchMetrics(BatchObserver):
    """Metrics of all batches of the process."""

    def wait(self, change: int) -> None:
        """Update the number of waiting examples."""
        _QUEUE.inc(change)

    def compute(self, num_examples: int, num_positions: int) -> None:
        """Count a batch."""
        _BATCH_EXAMPLES.observe(num_examples)
        _BATCH_POSITIONS.observe(num_positions)


class RequestMetrics:
    """ASGI middleware that counts requests by status and measures their duration."""

    def __init__(self, app: ASGIApp):
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
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
            # Clients must not be able to create labels with arbitrary paths or methods.
            path = _template(scope) if "endpoint" in scope else _OTHER
            method = scope["method"] if path != _OTHER and status != _WRONG_METHOD else _OTHER
            _SECONDS.labels(method, path).observe(time.perf_counter() - start)
            _REQUESTS.labels(method, path, status).inc()


def _template(scope: Scope) -> str:
    """Return the path of a request with parameters replaced by their names: "/v1/models/{model_name}:predict"."""
    names = {str(value): f"{{{name}}}" for name, value in scope.get("path_params", {}).items()}

    def named(part: str) -> str:
        name, colon, verb = part.rpartition(":")
        return names.get(part) or names.get(name, name) + colon + verb

    return "/".join(map(named, scope["path"].split("/")))


def add_metrics(app: Starlette) -> None:
    """Record metrics of an application's requests, and add the endpoint `/metrics`."""

    async def metrics(request: Request) -> Response:
        encode, content_type = exposition.choose_encoder(request.headers.get("accept", ""))
        return Response(encode(REGISTRY), headers={"content-type": content_type})

    app.add_route("/metrics", metrics, methods=["GET"])
    app.add_middleware(RequestMetrics)
