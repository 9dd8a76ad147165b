"""HTTP endpoints for vectors, rankings, classes and tokens, compatible with OpenAI and text-embeddings-inference (TEI).

The APIs are documented at https://platform.openai.com/docs/api-reference/embeddings and
https://huggingface.github.io/text-embeddings-inference. Each has its own error format and status codes.
"""

import asyncio
import base64
import itertools
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, ValidationInfo
from pydantic import model_validator as validator
from pydantic_core import PydanticCustomError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import official_bert
from official_bert.serving import text_answers
from official_bert.serving.batching import Hold, QueueFullError, TooLargeError
from official_bert.serving.rest_format import RequestError, quoted, read_object
from official_bert.serving.served_model import ServedVersion
from official_bert.serving.text_answers import EmptyError, FieldError, TooLongError, TooManyError, WrongModelError
from official_bert.tokenization.sequences import MOST_BYTES

_REMEDY = (
    "has token ids, which the client took from its own vocabulary; send texts (LangChain: OpenAIEmbeddings("
    "check_embedding_ctx_length=False)), or start the server with accept_token_ids if the ids are the model's"
)
_BYTES_PER_TOKEN = 100  # approximate size of a token in a response
_BYTES_PER_NUMBER = 22  # likewise of a component of a vector


class UnknownModelError(FieldError):
    """The request asks for a model that is not served."""


def _read_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise PydanticCustomError("text", "must be a string")
    return value.encode("utf-8", "ignore")  # as in the reference, lone surrogates are dropped


def _read_texts(value: Any) -> list[bytes]:
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise PydanticCustomError("texts", "must be a string or a list of strings")
    return list(map(_read_text, texts))


def _read_documents(value: Any) -> list[bytes]:
    """Return the texts of documents, which are strings or objects with the field `text`."""
    rows = [row.get("text") if isinstance(row, dict) else row for row in value] if isinstance(value, list) else [None]
    if not all(isinstance(row, str) for row in rows):
        raise PydanticCustomError("documents", "must be a list of strings, or of objects with the string text")
    return list(map(_read_text, rows))


def _read_ids(value: Any) -> list[list[int]]:
    rows = [value] if isinstance(value, list) and not any(isinstance(row, list) for row in value) else value
    if not (isinstance(rows, list) and all(isinstance(row, list) and set(map(type, row)) <= {int} for row in rows)):
        raise PydanticCustomError("ids", "must be a list of token ids, or such a list for each text")
    return rows


def _read_inputs(value: Any, info: ValidationInfo) -> list[bytes] | list[list[int]]:
    """Return the texts, or the token ids of each text."""
    if not (isinstance(value, list) and {int, list}.intersection(map(type, value))):
        return _read_texts(value)
    if info.context["accept_token_ids"]:
        return _read_ids(value)
    items = itertools.chain.from_iterable(row if isinstance(row, list) else [row] for row in value)
    if set(map(type, items)) <= {int}:
        raise PydanticCustomError("token_ids", _REMEDY)
    return _read_texts(value)


def _read_examples(value: Any) -> tuple[list[list[bytes]], bool]:
    """Return the one or two texts of each example, and whether there is a list of examples."""
    is_batch = isinstance(value, list) and any(isinstance(row, list) for row in value)
    rows = value if is_batch else [value if isinstance(value, list) else [value]]
    if not all(isinstance(row, list) and len(row) in (1, 2) for row in rows):
        raise PydanticCustomError("examples", "must be a text, a pair of texts, or a list of [text] or [text, text]")
    return [_read_texts(row) for row in rows], is_batch


_Text = Annotated[Any, PlainValidator(_read_text)]
_Texts = Annotated[Any, PlainValidator(_read_texts)]
_Documents = Annotated[Any, PlainValidator(_read_documents)]
_Inputs = Annotated[Any, PlainValidator(_read_inputs)]
_ANY_CASE = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


class _Asked(BaseModel):
    """The fields of a request; unknown ones are ignored, and null stands for the default."""

    model_config = ConfigDict(strict=True)

    @validator(mode="before")
    @classmethod
    def _without_nulls(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            raise PydanticCustomError("object", "must be an object")
        return {name: value for name, value in content.items() if value is not None}

    @classmethod
    def read(cls, content: dict[str, Any], accept_token_ids: bool) -> "_Asked":
        try:
            return cls.model_validate(content, context={"accept_token_ids": accept_token_ids})
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
            message = wrong["msg"][0].lower() + wrong["msg"][1:]
            raise FieldError(str(wrong["loc"][0]), f"{'.'.join(map(str, wrong['loc']))} {message}") from None

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        """Answer the request to the model of this name; `hold` counts the bytes of a large answer."""
        raise NotImplementedError


def _check_model(asked: str, name: str) -> None:
    if asked != name:
        raise UnknownModelError("model", f"the model {quoted(asked)} does not exist; this server has {name}")


class _OpenAi(_Asked):
    input: _Inputs
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    truncate: bool = False  # not part of OpenAI's API

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        _check_model(self.model, name)
        options = text_answers.InputOptions(self.truncate)
        vectors = await text_answers.embed(version, self.input, options, dimensions=self.dimensions)
        is_base64 = self.encoding_format == "base64"

        def item(number: int, row: np.ndarray) -> dict[str, Any]:
            vector = base64.b64encode(row.astype("<f4").tobytes()).decode() if is_base64 else row.tolist()
            return {"object": "embedding", "index": number, "embedding": vector}

        def written() -> bytes:
            usage = {"prompt_tokens": vectors.num_tokens, "total_tokens": vectors.num_tokens}
            start = _json({"object": "list", "model": name, "usage": usage})[:-1]
            return start + b', "data": ' + _json_list(itertools.starmap(item, enumerate(vectors.values))) + b"}"

        return await _respond(version, vectors.values.size, written)


class _Reading(_Asked):
    truncate: bool = True
    truncation_direction: Annotated[Literal["left", "right"], _ANY_CASE] = "right"
    prompt_name: str | None = None

    @property
    def options(self) -> text_answers.InputOptions:
        return text_answers.InputOptions(self.truncate, self.prompt_name, self.truncation_direction == "left")


class _Embed(_Reading):
    inputs: _Inputs
    normalize: bool = True
    dimensions: int | None = None

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        shape = {"dimensions": self.dimensions, "normalize": self.normalize}
        vectors = await text_answers.embed(version, self.inputs, self.options, **shape)
        rows = map(np.ndarray.tolist, vectors.values)
        return await _respond(version, vectors.values.size, lambda: _json_list(rows))


class _EmbedSparse(_Reading):
    inputs: _Inputs

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        if not version.is_sparse:
            raise WrongModelError("Model is not an embedding model with SPLADE pooling")
        vectors = await text_answers.embed(version, self.inputs, self.options, normalize=False)

        def weights(vector: np.ndarray) -> list[dict[str, Any]]:
            (indices,) = np.nonzero(vector)
            rows = zip(indices.tolist(), vector[indices].tolist(), strict=True)
            return [{"index": index, "value": value} for index, value in rows]

        return await _respond(version, vectors.values.size, lambda: _json_list(map(weights, vectors.values)))


class _EmbedAll(_Reading):
    inputs: _Inputs

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        def admit(num_values: int) -> None:
            hold(num_values * _BYTES_PER_NUMBER, is_answer=True)

        found = await text_answers.embed_all(version, self.inputs, self.options, admit)
        texts = (map(np.ndarray.tolist, vectors) for vectors in found)
        num_values = sum(vectors.size for vectors in found)
        response = await _respond(version, num_values, lambda: _json_list(texts, _json_list))
        admit(-num_values)  # its bytes are counted when it is sent
        return response


class _Sentences(_Asked):
    source_sentence: _Text
    sentences: _Texts


class _Similarity(_Asked):
    inputs: _Sentences
    parameters: _Reading = _Reading()

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        options = self.parameters.options
        source, others = await asyncio.gather(
            text_answers.embed(version, [self.inputs.source_sentence], options),
            text_answers.embed(version, self.inputs.sentences, options),
        )
        return JSONResponse((others.values @ source.values[0]).tolist())


class _Judge(_Asked):
    truncate: bool = True
    truncation_direction: Annotated[Literal["right"], _ANY_CASE] = "right"
    raw_scores: bool = False


class _Rerank(_Judge):
    query: _Text
    texts: _Texts
    return_text: bool = False
    top_n: int | None = Field(None, ge=1)

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        scores = await text_answers.relevance(version, self.query, self.texts, truncate=self.truncate)
        scores = scores if self.raw_scores else text_answers.sigmoid(scores)
        best = np.argsort(-scores, kind="stable")[: self.top_n].tolist()
        size = sum(map(len, self.texts)) if self.return_text else len(best)
        rows = (self.result(index, float(scores[index])) for index in best)
        return await _respond(version, size, lambda: self.written(_json_list(rows), name))

    def result(self, index: int, score: float) -> dict[str, Any]:
        text = {"text": self.texts[index].decode()} if self.return_text else {}
        return {"index": index, **text, "score": score}

    def written(self, results: bytes, name: str) -> bytes:
        return results


class _RerankDocuments(_Rerank):
    """The form of Cohere, Jina and vLLM."""

    texts: _Documents = Field(alias="documents")
    model: str
    return_text: bool = Field(False, alias="return_documents")

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        _check_model(self.model, name)
        return await super().answer(version, name, hold)

    def result(self, index: int, score: float) -> dict[str, Any]:
        document = {"document": {"text": self.texts[index].decode()}} if self.return_text else {}
        return {"index": index, "relevance_score": score, **document}

    def written(self, results: bytes, name: str) -> bytes:
        return _json({"id": str(uuid.uuid4()), "model": name})[:-1] + b', "results": ' + results + b"}"


class _Predict(_Judge):
    inputs: Annotated[Any, PlainValidator(_read_examples)]

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        rows, is_batch = self.inputs
        found = await text_answers.classify(version, rows, truncate=self.truncate, is_raw=self.raw_scores)
        answers = ([{"label": label, "score": score} for label, score in labels] for labels in found)
        size = sum(map(len, found)) * _BYTES_PER_TOKEN
        return await _respond(version, size, lambda: _json_list(answers if is_batch else next(answers)))


class _Tokenize(_Asked):
    inputs: _Texts
    add_special_tokens: bool = True
    prompt_name: str | None = None

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        text_answers.check_number(version, self.inputs)
        if (size := sum(map(len, self.inputs))) > MOST_BYTES:
            raise TooLongError(f"the inputs must have at most {MOST_BYTES} bytes in total here")
        reading = await text_answers.read_model(version)
        tokenizer, prompt = reading.tokenizer, text_answers.find_prompt(reading, self.prompt_name)

        def token(number: int, text: str, start: int | None = None, stop: int | None = None) -> dict[str, Any]:
            return {"id": number, "text": text, "special": start is None, "start": start, "stop": stop}

        names, is_whole = tokenizer.vocabulary.id_to_token, self.add_special_tokens
        cls, sep = ([token(number, names[number])][:is_whole] for number in (tokenizer.cls_id, tokenizer.sep_id))

        def tokens(text: bytes) -> Iterable[dict[str, Any]]:
            read = prompt + text.decode()
            places = zip(*tokenizer.encode_with_offsets(read), strict=True)
            pieces = (token(number, read[start:stop], start, stop) for number, start, stop in places)
            return itertools.chain(cls, pieces, sep)

        lists = map(tokens, self.inputs)
        return await _respond(version, size * _BYTES_PER_TOKEN, lambda: _json_list(lists, _json_list))


class _Decode(_Asked):
    ids: Annotated[Any, PlainValidator(_read_ids)]
    skip_special_tokens: bool = True

    async def answer(self, version: ServedVersion, name: str, hold: Hold) -> Response:
        text_answers.check_number(version, self.ids)
        tokenizer = (await text_answers.read_model(version)).tokenizer

        def texts() -> list[str]:
            try:
                return [tokenizer.decode(row, self.skip_special_tokens) for row in self.ids]
            except KeyError as error:
                raise FieldError("ids", f"ids must be those of tokens, from 0 to {len(tokenizer) - 1}") from error

        size = sum(map(len, self.ids)) * _BYTES_PER_TOKEN
        return await _respond(version, size, lambda: _json_list(texts()))


# HTTP status of an error at OpenAI's API; status and error type at TEI
_STATUSES: Mapping[type[Exception], tuple[int, int, str]] = {
    UnknownModelError: (404, 404, "validation"),
    EmptyError: (400, 400, "empty"),
    TooManyError: (400, 413, "validation"),
    TooLongError: (400, 413, "validation"),
    WrongModelError: (400, 424, "backend"),
    TooLargeError: (413, 413, "validation"),
    QueueFullError: (503, 429, "overloaded"),
    RequestError: (400, 422, "validation"),
}


def refuse(error: Exception, is_openai: bool) -> Response:
    """Return the response to a request that raised an error."""
    kind = type(error)
    of_openai, of_tei, kind_of_tei = next(row for group, row in _STATUSES.items() if issubclass(kind, group))
    if not is_openai:
        return JSONResponse({"error": str(error), "error_type": kind_of_tei}, of_tei)
    is_of_input = issubclass(kind, TooManyError | TooLongError | EmptyError)
    content = {
        "message": str(error),
        "type": "server_error" if of_openai == 503 else "invalid_request_error",
        "param": getattr(error, "name", "input" if is_of_input else None),
        "code": {UnknownModelError: "model_not_found", TooLongError: "context_length_exceeded"}.get(kind),
    }
    return JSONResponse({"error": content}, of_openai)


def add_embedding_endpoints(
    app: Starlette, served: Callable[[], tuple[str, ServedVersion]], *, accept_token_ids: bool = False
) -> None:
    """Add the URLs; `served` returns the name of the model and its current version."""

    def add(
        path: str, choose: Callable[[dict[str, Any], ServedVersion], type[_Asked]], is_openai: bool = False
    ) -> None:
        async def respond(request: Request) -> Response:
            name, version = served()

            def read() -> _Asked:
                content = read_object(body, version.most_values)
                return choose(content, version).read(content, accept_token_ids)

            try:
                body = b"".join([part async for part in request.stream()])  # `request.body()` would keep it
                asked = await version.aside(len(body), read)
                body = b""
                return await asked.answer(version, name, request.scope["hold"])
            except tuple(_STATUSES) as error:
                return refuse(error, is_openai)

        app.add_route(path, respond, methods=["POST"])

    async def models(request: Request) -> Response:
        name, version = served()
        return JSONResponse({"object": "list", "data": [describe_model(name, version)], "models": [name]})

    async def info(request: Request) -> Response:
        return JSONResponse(await _information(*served()))

    async def health(request: Request) -> Response:
        return Response()

    add("/v1/embeddings", lambda *_: _OpenAi, is_openai=True)
    for path in ("/v1/rerank", "/v2/rerank"):
        add(path, lambda *_: _RerankDocuments, is_openai=True)
    add("/rerank", lambda content, _: _RerankDocuments if "documents" in content else _Rerank)  # vLLM's, or TEI's
    add("/", _kind)
    add("/embed_all", lambda *_: _EmbedAll)
    add("/embed_sparse", lambda *_: _EmbedSparse)
    for kind in (_Embed, _Similarity, _Predict, _Tokenize, _Decode):
        add(f"/{kind.__name__[1:].lower()}", lambda *_, kind=kind: kind)
    for path, answer in (("/v1/models", models), ("/info", info), ("/health", health)):
        app.add_route(path, answer, methods=["GET"])


def describe_model(name: str, version: ServedVersion) -> dict[str, Any]:
    """Describe a model as OpenAI's API does."""
    return {"id": name, "object": "model", "created": version.load_time, "owned_by": official_bert.__name__}


def _kind(content: dict[str, Any], version: ServedVersion) -> type[_Asked]:
    """Determine the kind of a request to "/", where `huggingface_hub` sends all of its requests."""
    if isinstance(content.get("inputs"), dict):
        return _Similarity
    if "query" in content:
        return _Rerank
    of_vectors = _EmbedSparse if version.is_sparse else _Embed
    return _Predict if text_answers.classifies_texts(version) else of_vectors


async def _information(name: str, version: ServedVersion) -> dict[str, Any]:
    said, settings, size = version.said, version.settings, text_answers.vector_size(version)
    reading = await text_answers.read_model(version) if said else None
    labels = dict(enumerate(reading.labels if reading else ()))
    names = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
    if size:
        model_type: dict[str, Any] = {"embedding": {"pooling": said.get("pooling")}}
    elif text_answers.classifies_texts(version):
        model_type = {"reranker" if text_answers.ranks_texts(version) else "classifier": names}
    else:
        model_type = {said.get("task", "other"): {}}
    return {
        "model_id": name,
        "served_model_name": name,
        "model_sha": None,
        "model_dtype": "float32",
        "model_type": model_type,
        "max_concurrent_requests": settings.max_enqueued_batches * settings.max_execution_batch_size,
        "max_input_length": reading and reading.max_length,
        "max_batch_tokens": settings.max_positions,
        "max_batch_requests": None,
        "max_client_batch_size": text_answers.most_inputs(version),
        "auto_truncate": True,
        "tokenization_workers": settings.num_batch_threads,
        "version": official_bert.__version__,
        "model_version": version.number,
        "dimensions": size,
    }


async def _respond(version: ServedVersion, size: int, write: Callable[[], bytes]) -> Response:
    return Response(await version.aside(size, write), media_type="application/json")


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def _json_list(items: Iterable[Any], write: Callable[[Any], bytes] = _json) -> bytes:
    """Write a list item by item, because Python writes each one without giving way to other threads."""
    return b"[" + b", ".join(map(write, items)) + b"]"
