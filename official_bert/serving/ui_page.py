"""The page of `official-bert serve --ui`: a form that sends requests to the server's own REST API."""

import html
import pathlib

from fastapi import FastAPI, Request, Response

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


def add_page(app: FastAPI, model_name: str) -> None:
    """Add `/ui` to a server.

    Args:
      app: the server's application.
      model_name: the model that the page queries.
    """
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
