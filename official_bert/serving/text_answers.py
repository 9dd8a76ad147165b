"""Vectors of texts and the relevance of texts to a query, computed by a served model; independent of the HTTP APIs.

Texts are tokenized first, so that batches can be filled by tokens and the tokens can be counted.
"""

import asyncio
import os
import re
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.config.text_settings import TextSettings
from official_bert.serving.batching import Arrays
from official_bert.serving.exports import ASSETS_FOLDER, description
from official_bert.serving.rest_format import RequestError, quoted, quoted_names
from official_bert.serving.servable import SERVING_DEFAULT, TOKENIZE
from official_bert.serving.served_model import ServedVersion
from official_bert.tokenization import Tokenizer, load_tokenizer
from official_bert.tokenization.sequences import join_texts
from official_bert.tokenization.tokenizer import pad

VECTORS = "vectors"
_SCORES, _CLASSES = "scores", ("logits", "probabilities", "classes")
_PARTS = re.compile(r".{1,4000}\S{0,65536}", re.DOTALL)  # splits a text between words
_SMALLEST_LENGTH = 1e-12  # avoids a division by zero when a vector is normalized
_MOST_IDS = 1 << 31


class TooManyError(RequestError):
    """The request has more texts than the server allows."""


class TooLongError(RequestError):
    """A text exceeds the model's maximum length and may not be truncated."""


class EmptyError(RequestError):
    """There is no text, or a text is empty."""


class WrongModelError(RequestError):
    """The served model does not support this kind of request."""


class Vectors(NamedTuple):
    values: np.ndarray  # float32 [B, D]
    num_tokens: int  # total number of tokens that the model processed


class ModelReading(NamedTuple):
    text_names: Sequence[str]  # names of the text inputs of an example
    max_length: int  # maximum number of tokens of an example, including special tokens
    prefix: str  # the prefix of every text that comes without a prompt
    prompts: Mapping[str, str]  # the prefixes that a request may choose, by name
    labels: Sequence[str]  # the classes of a classifier of pairs, in the order of its outputs; empty for others
    tokenizer: Tokenizer  # a tokenizer that does not truncate


_READINGS: weakref.WeakKeyDictionary[ServedVersion, ModelReading] = weakref.WeakKeyDictionary()


def vector_size(version: ServedVersion) -> int | None:
    """Return the size of a version's vectors; None if it does not compute vectors."""
    vectors = _outputs(version).get(VECTORS)
    return None if vectors is None else vectors.shape[-1]


def ranks_texts(version: ServedVersion) -> bool:
    """Return True if a version scores pairs of texts with one number, or classifies them into two classes."""
    outputs = _outputs(version)
    is_classifier = all(name in outputs and outputs[name].shape[-1] == 2 for name in _CLASSES)
    return (_SCORES in outputs or is_classifier) and len(version.signature(TOKENIZE).inputs) == 2


def _outputs(version: ServedVersion) -> dict[str, Any]:
    return version.signature(SERVING_DEFAULT).outputs if TOKENIZE in version.signatures else {}


async def read_model(version: ServedVersion) -> ModelReading:
    if version not in _READINGS:
        said = description(version.folder)
        if not said:
            raise WrongModelError("the served model does not describe its texts; export it again")
        labels: Sequence[str] = ()
        if ranks_texts(version) and _SCORES not in _outputs(version):
            outputs = await version.predict_ids(await _tokenize(version, said["text_names"], [["a", ""]]))
            best_first = [name.decode() for name in outputs["classes"][0]]
            labels = best_first if outputs["probabilities"][0].argmax() == 0 else best_first[::-1]
        settings = {name: said[name] for name in TextSettings._fields if name in said}
        folder = os.path.join(version.folder, ASSETS_FOLDER)
        _READINGS[version] = ModelReading(
            text_names=said["text_names"],
            max_length=said["max_seq_length"],
            prefix=said.get("prefix", ""),
            prompts=said.get("prompts", {}),
            labels=labels,
            tokenizer=await asyncio.to_thread(load_tokenizer, folder, **settings),
        )
    return _READINGS[version]


async def embed(
    version: ServedVersion,
    inputs: Sequence[str] | Sequence[Sequence[int]],
    *,
    truncate: bool,
    dimensions: int | None = None,
    normalize: bool = True,
    prompt_name: str | None = None,
    keeps_end: bool = False,
) -> Vectors:
    if vector_size(version) is None:
        raise WrongModelError("the served model has no vectors; it was not exported as a sentence encoder")
    _check_number(version, len(inputs))
    for number, text in enumerate(inputs):
        if not len(text):
            raise EmptyError(f"input {number} is empty; every input needs text")
    reading = await read_model(version)
    size = sum(map(len, inputs))
    if prompt_name is not None or keeps_end:
        inputs = await version.aside(size, lambda: _prompted(reading, inputs, prompt_name, keeps_end))
        reading = reading._replace(prefix="")
    if isinstance(inputs[0], str):
        ids = await _read_texts(version, reading, [[text] for text in inputs], truncate)
    else:
        ids = await version.aside(size, lambda: _add_special_tokens(reading, inputs, truncate, keeps_end))
    values = (await version.predict_ids(ids))[VECTORS][:, :dimensions].astype(np.float32)
    if normalize:
        values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), _SMALLEST_LENGTH)
    return Vectors(values, int(ids["input_mask"].sum()))


async def relevance(version: ServedVersion, query: str, texts: Sequence[str], *, truncate: bool) -> np.ndarray:
    """Compute the relevance of texts to a query, float32 [B].

    It is the score of a model with one output; for a model with two classes, the difference of their logits, whose
    sigmoid is the probability of the relevant class. That is the second class, unless they are named "x" and "not_x".
    """
    if not ranks_texts(version):
        raise WrongModelError(
            "the served model cannot rank texts; it needs two text inputs and either one output or two classes"
        )
    _check_number(version, len(texts))
    reading = await read_model(version)
    ids = await _read_texts(version, reading, [[query, text] for text in texts], truncate)
    outputs = await version.predict_ids(ids)
    if _SCORES in outputs:
        return outputs[_SCORES].astype(np.float32)
    first, second = reading.labels
    sign = -1 if second == f"not_{first}" else 1
    return sign * (outputs["logits"][:, 1] - outputs["logits"][:, 0]).astype(np.float32)


def _check_number(version: ServedVersion, number: int) -> None:
    if not number:
        raise EmptyError("the inputs must not be empty")
    if number > version.most_examples:
        raise TooManyError(f"the request has {number} inputs; at most {version.most_examples} are allowed")


async def _read_texts(
    version: ServedVersion, reading: ModelReading, rows: Sequence[Sequence[str]], truncate: bool
) -> Arrays:
    ids = await _tokenize(version, reading.text_names, rows)
    if not truncate:
        room = _room(reading, is_pair=len(rows[0]) == 2)
        for number in np.flatnonzero(ids["input_mask"].sum(axis=1) >= reading.max_length).tolist():
            texts = rows[number]
            tokens = await version.aside(
                sum(map(len, texts)), lambda texts=texts: [_tokens(reading.tokenizer, text, room) for text in texts]
            )
            if sum(map(len, tokens)) > room:
                raise _too_long(number, reading.max_length)
    return ids


def _room(reading: ModelReading, *, is_pair: bool = False) -> int:
    """Return the number of tokens of texts that fit beside the special ones and the prefix."""
    prefix = reading.tokenizer.encode(reading.prefix)
    return max(reading.tokenizer.specials.room(reading.max_length, is_pair=is_pair) - len(prefix), 0)


async def _tokenize(version: ServedVersion, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Arrays:
    columns = zip(*([text.encode("utf-8", "ignore") for text in row] for row in rows), strict=True)
    inputs = {name: np.array(column, dtype=object) for name, column in zip(names, columns, strict=True)}
    return await version.predict(TOKENIZE, inputs)


def _tokens(tokenizer: Tokenizer, text: str, most: int, keeps_end: bool = False) -> list[int]:
    """Return the token ids of a text or, from its beginning or its end, more than `most` of them."""
    tokens: list[int] = []
    for part in _PARTS.findall(text)[:: -1 if keeps_end else 1]:
        read = tokenizer.encode(part)
        tokens = [*read, *tokens] if keeps_end else [*tokens, *read]
        if len(tokens) > most:
            break
    return tokens


def _prompted(
    reading: ModelReading, inputs: Sequence[str] | Sequence[Sequence[int]], prompt_name: str | None, keeps_end: bool
) -> list[list[int]]:
    """Return the token ids of inputs with their prompt."""
    prompt, tokenizer = reading.prefix, reading.tokenizer
    if prompt_name is not None:
        if prompt_name not in reading.prompts:
            known = quoted_names(reading.prompts) if reading.prompts else "no prompts"
            raise RequestError(f"the prompt_name {quoted(prompt_name)} is unknown; the model has {known}")
        prompt = reading.prompts[prompt_name]
    return [
        _tokens(tokenizer, prompt + text, reading.max_length, keeps_end)
        if isinstance(text, str)
        else [*tokenizer.encode(prompt), *text]
        for text in inputs
    ]


def _add_special_tokens(
    reading: ModelReading, inputs: Sequence[Sequence[int]], truncate: bool, keeps_end: bool
) -> Arrays:
    most, prefix, sequences = _room(reading), reading.tokenizer.encode(reading.prefix), []
    for number, tokens in enumerate(inputs):
        if len(tokens) > most and not truncate:
            raise _too_long(number, reading.max_length)
        if not all(0 <= token < _MOST_IDS for token in tokens):
            raise RequestError(f"the tokens of input {number} must be ids from 0")
        kept = tokens[max(len(tokens) - most, 0) :] if keeps_end else tokens[:most]
        sequences.append(join_texts([*prefix, *kept], [], reading.tokenizer.specials))
    return pad(sequences, None)


def _too_long(number: int, max_length: int) -> TooLongError:
    return TooLongError(f"this model's maximum context length is {max_length} tokens; input {number} has more")
