"""The addresses of TensorFlow Serving's REST API, for the servers of this package.

The API is that of https://www.tensorflow.org/tfx/serving/api_rest.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol

from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tensorflow.core.protobuf import saved_model_pb2

from official_bert.serving.body_limit import BodyLimit
from official_bert.serving.served_model import ServedModel, ServedVersion
from official_bert.serving.versions import SAVED_MODEL_FILE
from official_bert.support import files


class RestModel(Protocol):
    """A model behind these addresses.

    Attributes:
      name: of the model, in the addresses.
      served: its versions.
    """

    name: str
    served: ServedModel

    async def answer(self, body: bytes, version: ServedVersion) -> bytes:
        """Answers the body of a request."""


def add_endpoints(app: Starlette, find: Callable[[str], RestModel]) -> None:
    """Adds the addresses, and limits the size of all requests to the application.

    Args:
      app: the application; those of FastAPI are some, too.
      find: finds a model by its name, or raises what the application answers.
    """

    def found(request: Request) -> tuple[RestModel, ServedVersion]:
        model = find(request.path_params["model_name"])
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
        signatures = {"signature_def": {"signature_def": _signature_definitions(version)}}
        return JSONResponse({"model_spec": specification, "metadata": signatures})

    for number in ("", "/versions/{number:int}"):
        path = f"/v1/models/{{model_name}}{number}"
        app.add_route(f"{path}:predict", predict, methods=["POST"])  # Starlette's, which are the fastest
        app.add_route(path, status, methods=["GET"])
        app.add_route(f"{path}/metadata", metadata, methods=["GET"])
    app.add_middleware(BodyLimit)
    app.add_exception_handler(HTTPException, _answer_http_error)


def find_version(model: RestModel, number: int | None) -> ServedVersion:
    """The version that is served.

    Raises:
      HTTPException: another one was asked for.
    """
    version = model.served.version
    if number not in (None, version.number):
        raise HTTPException(404, f"version {number} of {model.name} is not served; version {version.number} is")
    return version


async def _answer_http_error(_: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code)


def _signature_definitions(version: ServedVersion) -> dict[str, Any]:
    """The signatures as TensorFlow Serving shows them."""
    with files.open_file(os.path.join(version.folder, SAVED_MODEL_FILE), "rb") as source:
        definitions = saved_model_pb2.SavedModel.FromString(source.read()).meta_graphs[0].signature_def
    return {
        name: json_format.MessageToDict(
            definitions[name], preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        for name in version.signatures
    }
