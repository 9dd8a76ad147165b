"""A limit of the size of requests: an ASGI server would otherwise read whatever a client sends into memory."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1 << 26  # of a request


class BodyLimit:
    """ASGI middleware: an application that reads more than `MOST_BYTES` of a request gets an HTTPException, 413."""

    def __init__(self, app: ASGIApp):
        """Stands before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        num_bytes = 0

        async def receive_some() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > MOST_BYTES:
                raise HTTPException(413, f"the request has more than {MOST_BYTES} bytes")
            return message

        await self._app(scope, receive_some, send)
