"""Endpoints of the servers of this package: TensorFlow Serving's REST API, and those of neighbouring modules.

TensorFlow Serving's API is documented at https://www.tensorflow.org/tfx/serving/api_rest.
"""

from collections.abc import Callable
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from official_bert.serving.embedding_endpoints import add_embedding_endpoints
from official_bert.serving.request_limits import RequestLimits
from official_bert.serving.rest_format import quoted
from official_bert.serving.served_model import ServedModel, ServedVersion
from official_bert.serving.serving_metrics import add_metrics


class RestModel(Protocol):
    """A model behind these URLs.

    Attributes:
      name: name of the model in URLs.
      served: the served versions.
    """

    name: str
    served: ServedModel

    async def answer(self, body: bytes, version: ServedVersion) -> bytes:
        """Handle a request body."""


def add_endpoints(app: Starlette, served: Callable[[], RestModel]) -> None:
    """Add the URLs, measure all requests to the application, and limit their size.

    Args:
      app: the application, Starlette or FastAPI.
      served: returns the model.
    """

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
    app.add_middleware(RequestLimits)
    add_metrics(app)
    app.add_exception_handler(HTTPException, _answer_http_error)


def named_model(model: RestModel, request: Request) -> RestModel:
    """Return the model.

    Raises:
      HTTPException: the URL names another one.
    """
    name = request.path_params["model_name"]
    if name != model.name:
        raise HTTPException(404, f"there is no model {quoted(name)}; {model.name} is served")
    return model


def find_version(model: RestModel, number: str | None) -> ServedVersion:
    """Return the served version.

    Raises:
      HTTPException: another version was requested.
    """
    version = model.served.version
    if number and number != str(version.number):
        served = f"version {version.number} is"
        raise HTTPException(404, f"version {quoted(number)} of {model.name} is not served; {served}")
    return version


async def _answer_http_error(_: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code)
