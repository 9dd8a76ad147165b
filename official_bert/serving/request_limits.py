"""Limits on the size of requests to a server, and one-sentence error responses.

Without this middleware, an ASGI server reads requests of any size into memory, and logs a traceback when a client
disconnects.
"""

import logging

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1 << 26  # maximum size of a request
_MOST_BYTES_TOGETHER = 4 * MOST_BYTES  # total of large requests held at a time
_LARGE = 1 << 20  # minimum size in bytes of a large request
_MOST_IN_A_NAME = 200  # characters between two slashes in a URL


class RequestLimits:
    """ASGI middleware: reading more than `MOST_BYTES` of a request raises an HTTPException, 413.

    It raises 503 while too many large requests are held. Exceptions of the application are converted to responses.
    """

    def __init__(self, app: ASGIApp):
        """Wrap an application."""
        self._app, self._num_held = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        num_bytes, has_begun = 0, False

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
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            if max(map(len, scope["path"].split("/"))) > _MOST_IN_A_NAME:
                await JSONResponse({"error": "there is nothing at this address"}, 404)(scope, receive, send)
            else:
                await self._app(scope, receive_some, send_some)
        except ClientDisconnect:
            pass
        except Exception:
            logging.getLogger("absl").exception("a request could not be answered")
            if not has_begun:
                await JSONResponse({"error": "the server failed; its log says why"}, 500)(scope, receive, send)
        finally:
            self._num_held -= _held(num_bytes)


def _held(num_bytes: int) -> int:
    """Return the number of a request's bytes that count towards the total of large requests."""
    return num_bytes if num_bytes > _LARGE else 0
