"""The server's process: HTTP with limits that uvicorn does not have, gRPC beside it, and an orderly end."""

import asyncio
import contextlib
import functools
import json
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from official_bert.serving.app import NO_ACCESS_RULES, Access, count_request, make_app
from official_bert.serving.served_model import ServedModel

_GRACE_SECONDS = 30  # time for requests to finish after SIGTERM
_ARRIVAL_SECONDS = 0.2  # time for gRPC to accept the calls that have arrived, which it would cancel
_KEEP_ALIVE_SECONDS = 65  # longer than the usual 60 of proxies, so that these close idle connections

_MAX_HEAD_BYTES = 1 << 16  # of a request line and its headers, or of trailers
_MAX_HEADS_TOGETHER = 1 << 26  # bytes, of all connections
_MAX_HEADERS = 128  # each takes more memory than its bytes
_MAX_PIPELINED = 8  # requests that are sent before an earlier one is answered
_MAX_SECONDS = 10  # for the head of a request, for its first bytes, and for a body beyond what its rate needs
_MIN_RATE = 1 << 10  # bytes of a body per second
_MAX_SECONDS_UNREAD = 60  # time in which a client reads no part of an answer
_CHECK_SECONDS = 2
_LINGER_SECONDS = 1  # time to read a refusal; bytes that arrive meanwhile are dropped


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is refused with 431 or 408, or closed if an answer has begun, when it exceeds a limit."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._num_bytes = 0  # that have arrived and are not yet part of a head, or of a body
        self._deadline: float | None = self.loop.time() + _MAX_SECONDS  # for more of a request; None between requests
        self._num_unread, self._unread_since = 0, 0.0
        self._is_refused = False
        self._check = self.loop.call_later(_CHECK_SECONDS, self._check_time)

    def connection_lost(self, exc: Exception | None) -> None:
        self._check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._begin_waiting()  # also for line ends between requests, which begin no message
        self._num_bytes += len(data)
        super().data_received(data)
        if self._is_too_large(self._num_bytes):
            self._refuse(431)

    def on_message_begin(self) -> None:
        self._begin_waiting()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._num_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._is_too_large(size) or len(self.pipeline) >= _MAX_PIPELINED:
            self._refuse(431)
            raise ValueError("too large")  # stops the parser
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_bytes = 0
        self._deadline = min(self._deadline + len(body) / _MIN_RATE, self.loop.time() + _MAX_SECONDS)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_bytes, self._deadline = 0, None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self._is_refused:
            super().send_400_response(msg)

    def _begin_waiting(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.time() + _MAX_SECONDS

    def _is_too_large(self, num_bytes: int) -> bool:
        limit = min(_MAX_HEAD_BYTES, _MAX_HEADS_TOGETHER // max(1, len(self.connections)))
        return num_bytes > limit or len(self.headers or ()) > _MAX_HEADERS

    def _refuse(self, status: int) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_started:
            self.cycle.disconnected = True  # the application must not answer, too
            self.cycle.message_event.set()
        elif self.headers is None or (self.cycle is not None and not self.cycle.response_complete):
            self.transport.close()
            return
        reason = "the request arrives too slowly" if status == 408 else "the request has too long or too many headers"
        body = json.dumps({"error": reason}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.write_eof()  # closing it at once would discard the response while the client is sending
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _check_time(self) -> None:
        now = self.loop.time()
        self._check = self.loop.call_later(_CHECK_SECONDS, self._check_time)
        if self._deadline is not None and now > self._deadline:
            if self.flow.read_paused:  # by the server
                self._deadline = now + _MAX_SECONDS
            else:
                self._refuse(408)
        num_unread = self.transport.get_write_buffer_size()
        if num_unread != self._num_unread or not num_unread:
            self._num_unread, self._unread_since = num_unread, now
        elif now - self._unread_since > _MAX_SECONDS_UNREAD:
            self.transport.abort()


class _Server(uvicorn.Server):
    """A server of HTTP, and of gRPC beside it, which SIGTERM and Ctrl-C stop after the requests in progress."""

    def __init__(
        self, app: Starlette, port: int, started: str, start_grpc: Callable[[], Awaitable[Any]] | None, access: Access
    ):
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            host="0.0.0.0",
            port=port,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ssl_certfile=access.certfile,
            ssl_keyfile=access.keyfile,
        )
        super().__init__(config)
        self._message, self._start_grpc, self._grpc = started, start_grpc, None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals until the process has ended; uvicorn would raise them again after stopping."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield

    async def startup(self, sockets: list | None = None) -> None:
        if self._start_grpc is not None:
            self._grpc = await self._start_grpc()
        await super().startup(sockets)
        logging.getLogger("absl").info(self._message)

    async def shutdown(self, sockets: list | None = None) -> None:
        await asyncio.gather(self._end_grpc(), super().shutdown(sockets))

    async def _end_grpc(self) -> None:
        if self._grpc is not None:
            await asyncio.sleep(_ARRIVAL_SECONDS)
            await self._grpc.stop(_GRACE_SECONDS)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Shorten the log of a request that had to be cancelled to one line."""
    if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
        record.msg, record.args, record.exc_info = "a request was cut off when the server stopped", (), None
    return True


def serve(
    served: ServedModel,
    name: str,
    *,
    port: int,
    grpc_port: int,
    has_page: bool = False,
    accept_token_ids: bool = False,
    access: Access = NO_ACCESS_RULES,
) -> None:
    """Serve the highest version of a model until SIGTERM or Ctrl-C; running requests are completed."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # warnings are mistakes of clients
    logging.getLogger("uvicorn.error").addFilter(_without_traceback)
    served.start_watching()
    address = f"{'https' if access.certfile else 'http'}://localhost:{port}"
    message = f"serving {name} at {address}/v1/models/{name}"
    if has_page:
        message += f"; try it at {address}/ui"
    start = None
    if grpc_port:
        from official_bert.serving.grpc_endpoints import start_grpc  # imports TensorFlow

        start = functools.partial(start_grpc, name, served, grpc_port, count_request, access)
    app = make_app(served, name, has_page=has_page, accept_token_ids=accept_token_ids, access=access)
    _Server(app, port, message, start, access).run()
    served.close()
