"""Vectors, rankings, classes and tokens of texts, computed by a served model; independent of the HTTP APIs.

Texts are UTF-8. They are tokenized first, so that batches can be filled by tokens and the tokens can be counted.
"""

import asyncio
import os
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.config.sentence_modules import QUERY
from official_bert.config.text_settings import TextSettings
from official_bert.serving.batching import Arrays, parts_by_positions
from official_bert.serving.rest_format import RequestError, quoted, quoted_names
from official_bert.serving.served_model import ServedVersion, by_rank
from official_bert.serving.signatures import MOST_CELLS, SERVING_DEFAULT, TOKEN_VECTORS, TOKENIZE
from official_bert.serving.versions import ASSETS_FOLDER, NUM_POSITIONS, read_query_weights
from official_bert.support.errors import UserError
from official_bert.tokenization import Tokenizer, load_tokenizer
from official_bert.tokenization.sequences import MOST_BYTES, join_texts, truncate_and_join
from official_bert.tokenization.tokenizer import pad

VECTORS, _CHOICES = "vectors", "choices"
_SCORES, _RAW, _CLASSES = "scores", "raw_scores", ("logits", "probabilities", "classes")
_PARTS = re.compile(r".{1,4000}\S{0,65536}", re.DOTALL)  # splits a text between words
_SMALLEST_LENGTH = 1e-12  # avoids a division by zero when a vector is normalized
_MOST_IDS = 1 << 31
_MOST_REPEATED_BYTES = 1 << 26  # of a query, over all texts that it is compared with in windows
_INPUTS_PER_EXAMPLE = 2  # 2,048 inputs, the limit of OpenAI's API, if a request may have 1,024 examples

Row = Sequence[bytes]  # the texts of an example
Inputs = Sequence[bytes] | Sequence[Sequence[int]]  # texts, or the token ids of each


class FieldError(RequestError):
    """The field `name` of the request is invalid."""

    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name


class TooManyError(RequestError):
    """The request has more texts than the server allows."""


class TooLongError(RequestError):
    """A text exceeds the model's maximum length and may not be truncated."""


class EmptyError(RequestError):
    """There is no text, or a text is empty."""


class WrongModelError(RequestError):
    """The served model does not support this kind of request."""


class InputOptions(NamedTuple):
    truncate: bool  # whether longer inputs are truncated instead of refused
    prompt_name: str | None = None  # None for the prefix of the export
    keeps_end: bool = False  # whether the end of a truncated input is kept instead of its beginning


class Vectors(NamedTuple):
    values: np.ndarray  # float32 [B, D]
    num_tokens: int  # total number of tokens that the model processed


class ModelReading(NamedTuple):
    text_names: Sequence[str]  # names of the text inputs of an example
    max_length: int  # maximum number of tokens of an example, including special tokens
    prefix: str  # the prefix of every text that comes without a prompt
    prompts: Mapping[str, str]  # the prefixes that a request may choose, by name
    labels: Sequence[str]  # the classes of a classifier in the order of its outputs; empty for other models
    is_windowed: bool  # whether the model reads longer texts in windows of `max_length`
    tokenizer: Tokenizer  # a tokenizer that does not truncate
    query_weights: np.ndarray | None  # float32 [V], of inference-free SPLADE


_READINGS: weakref.WeakKeyDictionary[ServedVersion, ModelReading] = weakref.WeakKeyDictionary()


def vector_size(version: ServedVersion) -> int | None:
    """Return the size of a version's vectors; None if it does not compute vectors."""
    vectors = _outputs(version).get(VECTORS)
    return None if vectors is None else vectors.shape[-1]


def ranks_texts(version: ServedVersion) -> bool:
    """Return True if a version scores pairs of texts with one number, or classifies them into two classes."""
    outputs = _outputs(version)
    is_of_one_score = _SCORES in outputs or (classifies_texts(version) and outputs[_CLASSES[0]].shape[-1] == 2)
    return is_of_one_score and len(version.signature(TOKENIZE).inputs) == 2


def classifies_texts(version: ServedVersion) -> bool:
    """Return True if a version gives a text, or a pair of texts, a score or classes."""
    outputs = _outputs(version)
    return _SCORES in outputs or all(name in outputs for name in _CLASSES)


def most_inputs(version: ServedVersion) -> int:
    """Return the maximum number of texts of a request; fewer for weights of a vocabulary or for classes."""
    most = _INPUTS_PER_EXAMPLE * version.most_examples
    is_wide = version.is_sparse or classifies_texts(version)
    return min(most, version.signature(SERVING_DEFAULT).most_rows) if is_wide else most


def _outputs(version: ServedVersion) -> dict[str, Any]:
    """Return the outputs of the model; none if it has no texts, or choices, whose scores are none of texts."""
    is_of_texts = TOKENIZE in version.signatures and _CHOICES not in version.signature(TOKENIZE).inputs
    return version.signature(SERVING_DEFAULT).outputs if is_of_texts else {}


async def read_model(version: ServedVersion) -> ModelReading:
    if version not in _READINGS:
        said = version.said
        if not said:
            raise WrongModelError("the served model does not describe its texts; export it again")
        labels, is_windowed = [], False
        if classifies_texts(version):
            ids = await _tokenize(version, said["text_names"], [[b"a", b""][: len(said["text_names"])]])
            # In earlier exports, the only sign is that even one letter gives whole windows.
            is_windowed = NUM_POSITIONS in said or ids["input_ids"].shape[1] >= said["max_seq_length"]
            outputs = await version.predict_ids(ids)
            if _SCORES not in outputs:
                rank_of_label = np.argsort(np.argsort(-outputs["probabilities"][0], kind="stable"))
                labels = [name.decode() for name in outputs["classes"][0][rank_of_label]]
        settings = {name: said[name] for name in TextSettings._fields if name in said}
        try:
            folder = os.path.join(version.folder, ASSETS_FOLDER)
            tokenizer = version.tokenizer or await asyncio.to_thread(load_tokenizer, folder, **settings)
        except UserError as error:
            logging.error("texts cannot be tokenized for their endpoints: %s", error)
            raise WrongModelError("the texts cannot be tokenized; the server's log says why") from error
        _READINGS[version] = ModelReading(
            text_names=said["text_names"],
            max_length=said["max_seq_length"],
            prefix=said.get("prefix", ""),
            prompts=said.get("prompts", {}),
            labels=labels,
            is_windowed=is_windowed,
            tokenizer=tokenizer,
            query_weights=read_query_weights(version.folder),
        )
    return _READINGS[version]


async def embed(
    version: ServedVersion,
    inputs: Inputs,
    options: InputOptions,
    *,
    dimensions: int | None = None,
    normalize: bool = True,
) -> Vectors:
    if version.is_sparse and normalize:
        raise WrongModelError("`normalize` is not available for SPLADE models")
    _check_inputs(version, inputs)
    width, reading = vector_size(version), await read_model(version)
    if dimensions is not None and not 1 <= dimensions <= width:
        raise FieldError("dimensions", f"dimensions must be from 1 to {width}")
    if options.prompt_name == QUERY and reading.query_weights is not None:
        queries = await version.aside(sum(map(len, inputs)), lambda: _of_queries(reading, inputs, options))
        return queries._replace(values=queries.values[:, :dimensions])
    ids = await _read_inputs(version, inputs, options)
    values = (await version.predict_ids(ids))[VECTORS][:, :dimensions].astype(np.float32)
    if normalize:
        values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), _SMALLEST_LENGTH)
    return Vectors(values, int(ids["input_mask"].sum()))


async def embed_all(
    version: ServedVersion, inputs: Inputs, options: InputOptions, admit: Callable[[int], None]
) -> list[np.ndarray]:
    """Return the last layer's vectors of all tokens of each input, including special tokens: float32 [tokens, D].

    `admit` is called with the number of values before they are computed.
    """
    if version.is_sparse:
        raise WrongModelError("`embed_all` is not available for SPLADE models")
    _check_inputs(version, inputs)
    ids, reading = await _read_inputs(version, inputs, options), await read_model(version)
    if TOKEN_VECTORS not in version.signatures:
        raise WrongModelError("the export has no vectors of tokens; export the model again")
    lengths = ids["input_mask"].sum(axis=1)
    width = version.signature(TOKEN_VECTORS).outputs[TOKEN_VECTORS].shape[-1]
    most_tokens = max(MOST_CELLS // width, reading.max_length)
    if lengths.sum() > most_tokens:
        raise TooManyError(f"the inputs have {lengths.sum()} tokens in total; at most {most_tokens} are allowed here")
    admit(int(lengths.sum()) * width)
    order = np.argsort(lengths, kind="stable")
    ids, most_positions = {name: values[order] for name, values in ids.items()}, version.settings.max_positions
    found: list[np.ndarray] = []
    for part, *_ in parts_by_positions(ids, lengths[order], min(most_positions, most_tokens)):
        vectors = (await version.predict(TOKEN_VECTORS, part))[TOKEN_VECTORS]
        found += [row[mask == 1] for row, mask in zip(vectors, part["input_mask"], strict=True)]
    return [found[place] for place in np.argsort(order)]


async def relevance(version: ServedVersion, query: bytes, texts: Sequence[bytes], *, truncate: bool) -> np.ndarray:
    """Compute the relevance of texts to a query, float32 [B].

    It is the score of a model with one output; for a model with two classes, the difference of their logits, whose
    sigmoid is the probability of the relevant class. That is the second class, unless they are named "x" and "not_x".
    """
    if not ranks_texts(version):
        raise WrongModelError(
            "the served model cannot rank texts; it needs two text inputs and either one output or two classes"
        )
    check_number(version, texts)
    reading = await read_model(version)
    if reading.is_windowed:
        if len(query) * len(texts) > _MOST_REPEATED_BYTES:
            raise TooLongError(f"the query's bytes times the texts must be at most {_MOST_REPEATED_BYTES}")
        ids = await _read_texts(version, reading, [[query, text] for text in texts], truncate)
    else:  # the query is tokenized once, and has at most the model's length when it is joined with each text
        rows = [[b"", text] for text in texts]
        parts = await _tokenize(version, reading.text_names, [*rows, [query, b""]], reading.tokenizer)
        if not truncate:
            await _check_lengths(version, reading, rows, parts)
        ids = await version.aside(parts["input_ids"].size, lambda: _paired(reading, parts, truncate))
    outputs = await version.predict_ids(ids)
    if _SCORES in outputs:
        return outputs.get(_RAW, outputs[_SCORES]).astype(np.float32)
    first, second = reading.labels
    sign = -1 if second == f"not_{first}" else 1
    return sign * (outputs["logits"][:, 1] - outputs["logits"][:, 0]).astype(np.float32)


async def classify(
    version: ServedVersion, rows: Sequence[Row], *, truncate: bool, is_raw: bool
) -> list[list[tuple[str, float]]]:
    """Return the labels and probabilities of each example, the most likely first; if `is_raw`, labels and logits."""
    if not classifies_texts(version):
        raise WrongModelError("the served model does not classify texts")
    check_number(version, rows)
    reading = await read_model(version)
    if max(map(len, rows)) > len(reading.text_names):
        raise FieldError("inputs", "the served model classifies single texts, not pairs")
    rows = [[*row, *[b""] * (len(reading.text_names) - len(row))] for row in rows]
    outputs = await version.predict_ids(await _read_texts(version, reading, rows, truncate))
    if _SCORES in outputs:
        scores = outputs.get(_RAW, outputs[_SCORES]).astype(np.float64)
        return [[("LABEL_0", score)] for score in (scores if is_raw else sigmoid(scores)).tolist()]
    return by_rank(outputs["classes"], outputs["logits" if is_raw else "probabilities"])


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values.astype(np.float64)))


def check_number(version: ServedVersion, inputs: Sequence[Any]) -> None:
    if not inputs:
        raise EmptyError("the inputs must not be empty")
    if len(inputs) > most_inputs(version):
        raise TooManyError(f"the request has {len(inputs)} inputs; at most {most_inputs(version)} are allowed")


def find_prompt(reading: ModelReading, prompt_name: str | None) -> str:
    """Return the text before each input: that of a name, or else the prefix of the export."""
    if prompt_name is None:
        return reading.prefix
    if prompt_name not in reading.prompts:
        known = quoted_names(reading.prompts) if reading.prompts else "no prompts"
        raise FieldError("prompt_name", f"the prompt_name {quoted(prompt_name)} is unknown; the model has {known}")
    return reading.prompts[prompt_name]


def _check_inputs(version: ServedVersion, inputs: Inputs) -> None:
    if vector_size(version) is None:
        raise WrongModelError("the served model has no vectors; it was not exported as a sentence encoder")
    check_number(version, inputs)
    for number, text in enumerate(inputs):
        if not len(text):
            raise EmptyError(f"input {number} is empty; every input needs text")


async def _read_inputs(version: ServedVersion, inputs: Inputs, options: InputOptions) -> Arrays:
    """Convert texts or token ids to the ids of a model with vectors."""
    reading = await read_model(version)
    if isinstance(inputs[0], bytes) and options.prompt_name is None and not options.keeps_end:
        return await _read_texts(version, reading, [[text] for text in inputs], options.truncate)
    return await version.aside(sum(map(len, inputs)), lambda: _read_ends(reading, inputs, options))


async def _read_texts(version: ServedVersion, reading: ModelReading, rows: Sequence[Row], truncate: bool) -> Arrays:
    ids = await _tokenize(version, reading.text_names, rows, reading.tokenizer)
    if not truncate:
        await _check_lengths(version, reading, rows, ids)
    return ids


async def _tokenize(
    version: ServedVersion, names: Sequence[str], rows: Sequence[Row], splitter: Tokenizer | None = None
) -> Arrays:
    if splitter and splitter.settings.morphemes and version.reads_split_texts:
        given, size = rows, sum(len(text) for row in rows for text in row)
        rows = await version.aside(
            size, lambda: [[splitter.split_text(text).encode() for text in row] for row in given]
        )
    columns = ([text[: MOST_BYTES + 1] for text in column] for column in zip(*rows, strict=True))  # no more is read
    inputs = {name: np.array(column, dtype=object) for name, column in zip(names, columns, strict=True)}
    return await version.predict(TOKENIZE, inputs)


async def _check_lengths(version: ServedVersion, reading: ModelReading, rows: Sequence[Row], ids: Arrays) -> None:
    """Raise TooLongError for an example of which a part was cut off: count the tokens of those that fill the model."""
    tokenizer = reading.tokenizer

    def check() -> None:
        for number in full:
            texts = [text for text in rows[number] if text]
            room = tokenizer.specials.room(reading.max_length, is_pair=bool(rows[number][1:] and rows[number][1]))
            lengths = (len(_tokens(tokenizer, reading.prefix, text, room)) for text in texts)
            if max(map(len, texts)) > MOST_BYTES or sum(lengths) > room:
                raise _too_long(reading, number)

    num_tokens = ids["input_mask"][: len(rows)].sum(axis=1)
    if full := np.flatnonzero(num_tokens >= reading.max_length).tolist():
        await version.aside(sum(len(text) for number in full for text in rows[number]), check)


def _tokens(tokenizer: Tokenizer, prompt: str, text: bytes, most: int, keeps_end: bool = False) -> list[int]:
    """Return the token ids of a text or, from its beginning or its end, more than `most` of them."""
    read = prompt + (text[-MOST_BYTES:] if keeps_end else text[:MOST_BYTES]).decode("utf-8", "ignore")
    tokens: list[int] = []
    for part in _PARTS.findall(read)[:: -1 if keeps_end else 1]:
        more = tokenizer.encode(part)
        tokens = [*more, *tokens] if keeps_end else [*tokens, *more]
        if len(tokens) > most:
            break
    return tokens


def _of_queries(reading: ModelReading, inputs: Inputs, options: InputOptions) -> Vectors:
    """Return the static weights of the tokens of queries, which have no special tokens."""
    queries = list(_ends(reading, inputs, options, reading.max_length))
    values = np.zeros((len(queries), len(reading.query_weights)), np.float32)
    for row, ids in zip(values, queries, strict=True):
        if max(ids, default=0) >= len(row):
            raise RequestError(f"the tokens must be ids from 0 to {len(row) - 1}")
        row[ids] = reading.query_weights[ids]
    return Vectors(values, sum(map(len, queries)))


def _read_ends(reading: ModelReading, inputs: Inputs, options: InputOptions) -> Arrays:
    """Convert texts or token ids with a prompt to sequences, of which the beginning or the end is kept."""
    specials = reading.tokenizer.specials
    kept = _ends(reading, inputs, options, specials.room(reading.max_length, is_pair=False))
    return pad([join_texts(ids, [], specials) for ids in kept], None)


def _ends(reading: ModelReading, inputs: Inputs, options: InputOptions, room: int) -> Iterator[list[int]]:
    """Yield the token ids of each input with its prompt, truncated to a number of tokens."""
    tokenizer, keeps_end = reading.tokenizer, options.keeps_end
    prompt = find_prompt(reading, options.prompt_name)
    prompt_ids = tokenizer.encode(prompt)
    for number, given in enumerate(inputs):
        if isinstance(given, bytes):
            tokens = _tokens(tokenizer, prompt, given, room, keeps_end)
        elif all(0 <= token < _MOST_IDS for token in given):
            tokens = [*prompt_ids, *given]
        else:
            raise RequestError(f"the tokens of input {number} must be ids from 0")
        if len(tokens) > room and not options.truncate:
            raise _too_long(reading, number)
        yield tokens[max(len(tokens) - room, 0) :] if keeps_end else tokens[:room]


def _paired(reading: ModelReading, ids: Arrays, truncate: bool) -> Arrays:
    """Join the first text of the last example with the second text of each other one, as the export would."""
    specials = reading.tokenizer.specials
    rows = [row[:length].tolist() for row, length in zip(ids["input_ids"], ids["input_mask"].sum(axis=1), strict=True)]
    query, sequences = rows.pop()[1:-1], []
    for number, row in enumerate(rows):
        text = row[specials.num_before_second : -1]
        if len(query) + len(text) > specials.room(reading.max_length, is_pair=True) and not truncate:
            raise _too_long(reading, number)
        sequences.append(truncate_and_join(query, text, specials, max_seq_length=reading.max_length))
    return pad(sequences, None, specials.pad_id)


def _too_long(reading: ModelReading, number: int) -> TooLongError:
    return TooLongError(f"this model's maximum context length is {reading.max_length} tokens; input {number} has more")
