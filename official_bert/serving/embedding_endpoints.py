"""HTTP endpoints for vectors and rankings, compatible with OpenAI's embeddings API and text-embeddings-inference.

The APIs are documented at https://platform.openai.com/docs/api-reference/embeddings and
https://huggingface.github.io/text-embeddings-inference. Each has its own error format and status codes.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import official_bert
from official_bert.serving.batching import QueueFullError
from official_bert.serving.exports import description
from official_bert.serving.rest_format import RequestError, quoted, quoted_names, read_object
from official_bert.serving.served_model import ServedVersion
from official_bert.serving.text_answers import (
    EmptyError,
    TooLongError,
    TooManyError,
    WrongModelError,
    embed,
    ranks_texts,
    read_model,
    relevance,
    vector_size,
)

_REQUIRED = object()
_ANY = object
_KINDS = {bool: "true or false", int: "a whole number", str: "a string", dict: "an object"}

# The fields of requests: their type, and their value if they are missing or null.
_OPENAI = {
    "input": (_ANY, _REQUIRED),
    "model": (str, _REQUIRED),
    "encoding_format": (str, "float"),
    "dimensions": (int, None),
    "user": (str, None),
    "truncate": (bool, False),  # not part of OpenAI's API
}
_READING = {"truncate": (bool, True), "truncation_direction": (str, "right"), "prompt_name": (str, None)}
_EMBED = {"inputs": (_ANY, _REQUIRED), **_READING, "normalize": (bool, True), "dimensions": (int, None)}
_SIMILARITY = {"inputs": (dict, _REQUIRED), "parameters": (dict, {})}
_SENTENCES = {"source_sentence": (str, _REQUIRED), "sentences": (_ANY, _REQUIRED)}
_RERANK = {
    "query": (str, _REQUIRED),
    "texts": (_ANY, _REQUIRED),
    **_READING,
    "raw_scores": (bool, False),
    "return_text": (bool, False),
}
_RERANK.pop("prompt_name")

Fields = Mapping[str, tuple[type, Any]]
Answer = Callable[[ServedVersion, str, dict[str, Any]], Awaitable[Response]]


class _FieldError(RequestError):
    """The field `name` of the request is invalid."""

    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name


class _UnknownModelError(_FieldError):
    """The request asks for a model that is not served."""


class _Protocol(NamedTuple):
    # HTTP status and error type for each class of exceptions; the first match is used
    statuses: Mapping[type[Exception], tuple[int, str]]
    # creates the response body from the exception, its message and its error type
    body: Callable[[Exception, str, str], dict[str, Any]]

    def refuse(self, error: Exception) -> Response:
        message = error.detail if isinstance(error, HTTPException) else str(error)
        is_overload = isinstance(error, HTTPException) and error.status_code == 503
        shown = QueueFullError() if is_overload else error
        status, kind = next(value for group, value in self.statuses.items() if isinstance(shown, group))
        if isinstance(error, HTTPException) and not is_overload:
            status = error.status_code
        return JSONResponse(self.body(error, message, kind), status)


def _openai_body(error: Exception, message: str, kind: str) -> dict[str, Any]:
    is_of_input = isinstance(error, TooManyError | TooLongError | EmptyError)
    name = error.name if isinstance(error, _FieldError) else "input" if is_of_input else None
    codes = {_UnknownModelError: "model_not_found", TooLongError: "context_length_exceeded"}
    return {"error": {"message": message, "type": kind, "param": name, "code": codes.get(type(error))}}


OPENAI_ERRORS = _Protocol(
    {
        _UnknownModelError: (404, "invalid_request_error"),
        QueueFullError: (503, "server_error"),
        Exception: (400, "invalid_request_error"),
    },
    _openai_body,
)
TEI_ERRORS = _Protocol(
    {
        EmptyError: (400, "empty"),
        TooManyError: (413, "validation"),
        TooLongError: (413, "validation"),
        WrongModelError: (424, "backend"),
        QueueFullError: (429, "overloaded"),
        Exception: (422, "validation"),
    },
    lambda error, message, kind: {"error": message, "error_type": kind},
)


def add_embedding_endpoints(app: Starlette, served: Callable[[], tuple[str, ServedVersion]]) -> None:
    def endpoint(answer: Answer, errors: _Protocol) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            name, version = served()
            try:
                body = await request.body()
                content = await version.aside(len(body), lambda: read_object(body, version.most_values))
                return await answer(version, name, content)
            except (RequestError, QueueFullError, HTTPException) as error:
                return errors.refuse(error)

        return respond

    async def models(request: Request) -> Response:
        name, version = served()
        return JSONResponse({"object": "list", "data": [describe_model(name, version)], "models": [name]})

    async def info(request: Request) -> Response:
        name, version = served()
        return JSONResponse(await _info(name, version))

    async def health(request: Request) -> Response:
        return Response()

    app.add_route("/v1/embeddings", endpoint(_answer_openai, OPENAI_ERRORS), methods=["POST"])
    app.add_route("/v1/models", models, methods=["GET"])
    for path, answer in (
        ("/embed", _answer_embed),
        ("/similarity", _answer_similarity),
        ("/rerank", _answer_rerank),
        ("/", _answer_any),
    ):
        app.add_route(path, endpoint(answer, TEI_ERRORS), methods=["POST"])
    app.add_route("/info", info, methods=["GET"])
    app.add_route("/health", health, methods=["GET"])


def describe_model(name: str, version: ServedVersion) -> dict[str, Any]:
    """Describe a model as OpenAI's API does."""
    return {"id": name, "object": "model", "created": version.load_time, "owned_by": official_bert.__name__}


async def _answer_openai(version: ServedVersion, name: str, content: dict[str, Any]) -> Response:
    fields = _read_fields(content, _OPENAI)
    if fields["model"] != name:
        raise _UnknownModelError("model", f"the model {quoted(fields['model'])} does not exist; this server has {name}")
    if fields["encoding_format"] not in ("float", "base64"):
        shown = quoted(fields["encoding_format"])
        raise _FieldError("encoding_format", f"encoding_format must be 'float' or 'base64', not {shown}")
    vectors = await embed(
        version,
        _inputs("input", fields["input"]),
        truncate=fields["truncate"],
        dimensions=_dimensions(fields, version),
    )

    def written() -> bytes:
        if fields["encoding_format"] == "float":
            rows = vectors.values.tolist()
        else:
            rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors.values]
        return _json(
            {
                "object": "list",
                "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
                "model": name,
                "usage": {"prompt_tokens": vectors.num_tokens, "total_tokens": vectors.num_tokens},
            }
        )

    return await _respond(version, vectors.values.size, written)


async def _answer_any(version: ServedVersion, name: str, content: dict[str, Any]) -> Response:
    """Answer requests to "/", where `huggingface_hub` sends all of its requests; the fields determine the kind."""
    if isinstance(content.get("inputs"), dict):
        return await _answer_similarity(version, name, content)
    return await (_answer_rerank if "query" in content else _answer_embed)(version, name, content)


async def _answer_embed(version: ServedVersion, name: str, content: dict[str, Any]) -> Response:
    fields = _read_fields(content, _EMBED)
    inputs, dimensions = _inputs("inputs", fields["inputs"]), _dimensions(fields, version)
    vectors = await embed(version, inputs, dimensions=dimensions, normalize=fields["normalize"], **_reading(fields))
    return await _respond(version, vectors.values.size, lambda: _json(vectors.values.tolist()))


async def _answer_similarity(version: ServedVersion, name: str, content: dict[str, Any]) -> Response:
    fields = _read_fields(content, _SIMILARITY)
    texts = _read_fields(fields["inputs"], _SENTENCES, "inputs")
    options = _read_fields(fields["parameters"], _READING, "parameters")
    reading, sentences = _reading(options), _texts("sentences", texts["sentences"])
    source, others = await asyncio.gather(
        embed(version, [texts["source_sentence"]], **reading), embed(version, sentences, **reading)
    )
    return JSONResponse((others.values @ source.values[0]).tolist())


async def _answer_rerank(version: ServedVersion, name: str, content: dict[str, Any]) -> Response:
    fields = _read_fields(content, _RERANK)
    if _reading(fields)["keeps_end"]:
        raise _FieldError("truncation_direction", "truncation_direction must be 'right' for pairs of texts")
    texts = _texts("texts", fields["texts"])
    scores = await relevance(version, fields["query"], texts, truncate=fields["truncate"])
    if not fields["raw_scores"]:
        scores = 1 / (1 + np.exp(-scores.astype(np.float64)))

    def written() -> bytes:
        best_first = np.argsort(-scores, kind="stable").tolist()
        added = [{"text": texts[index]} if fields["return_text"] else {} for index in best_first]
        return _json(
            [
                {"index": index, **text, "score": float(scores[index])}
                for index, text in zip(best_first, added, strict=True)
            ]
        )

    return await _respond(version, sum(map(len, texts)) if fields["return_text"] else scores.size, written)


async def _info(name: str, version: ServedVersion) -> dict[str, Any]:
    size, settings, said = vector_size(version), version.settings, description(version.folder)
    reading = await read_model(version) if size or ranks_texts(version) else None
    if size:
        model_type: dict[str, Any] = {"embedding": {"pooling": said.get("pooling")}}
    elif reading:
        labels = dict(enumerate(reading.labels))
        by_label = {label: number for number, label in labels.items()}
        model_type = {"reranker": {"id2label": labels, "label2id": by_label}}
    else:
        model_type = {said.get("task", "other"): {}}
    return {
        "model_id": name,
        "model_sha": None,
        "model_dtype": "float32",
        "model_type": model_type,
        "max_concurrent_requests": settings.max_enqueued_batches * settings.max_execution_batch_size,
        "max_input_length": reading and reading.max_length,
        "max_batch_tokens": settings.max_positions,
        "max_batch_requests": None,
        "max_client_batch_size": version.most_examples,
        "auto_truncate": True,
        "tokenization_workers": settings.num_batch_threads,
        "version": official_bert.__version__,
        "model_version": version.number,
        "dimensions": size,
    }


def _read_fields(content: Mapping[str, Any], fields: Fields, where: str = "the request") -> dict[str, Any]:
    """Check the fields of a request and fill in the missing ones."""
    if unknown := [name for name in content if name not in fields]:
        raise _FieldError(unknown[0], f"{where} has an unknown key: {quoted_names(unknown)}")
    found = {}
    for name, (kind, default) in fields.items():
        value = content.get(name)
        if value is None:
            if default is _REQUIRED:
                raise _FieldError(name, f'{where} must have "{name}"')
            value = default
        elif kind is not _ANY and type(value) is not kind:
            raise _FieldError(name, f"{name} must be {_KINDS[kind]}")
        found[name] = value
    return found


def _reading(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `embed` that the fields in `_READING` give."""
    direction = fields["truncation_direction"].lower()
    if direction not in ("left", "right"):
        raise _FieldError("truncation_direction", "truncation_direction must be 'left' or 'right'")
    return {
        "truncate": fields["truncate"],
        "keeps_end": direction == "left",
        "prompt_name": fields.get("prompt_name"),
    }


def _texts(name: str, value: Any) -> list[str]:
    if not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
        raise _FieldError(name, f"{name} must be a list of strings")
    return value


def _inputs(name: str, value: Any) -> list[str] | list[list[int]]:
    """Return the texts, or the token ids of each text."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        kinds = set(map(type, value))
        if kinds <= {str}:
            return value
        if kinds == {int}:
            return [value]
        if kinds == {list} and all(type(token) is int for tokens in value for token in tokens):
            return value
    raise _FieldError(name, f"{name} must be a string, a list of strings, or a list of token ids for each text")


def _dimensions(fields: Mapping[str, Any], version: ServedVersion) -> int | None:
    size, dimensions = vector_size(version), fields["dimensions"]
    if size is not None and dimensions is not None and not 1 <= dimensions <= size:
        raise _FieldError("dimensions", f"dimensions must be from 1 to {size}, not {quoted(str(dimensions))}")
    return dimensions


async def _respond(version: ServedVersion, size: int, write: Callable[[], bytes]) -> Response:
    return Response(await version.aside(size, write), media_type="application/json")


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()
