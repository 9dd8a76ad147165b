"""Texts whose entities are spans of characters, as annotation tools export them, as tagged characters.

Doccano: `{"text": ..., "label": [[0, 4, "PER"]]}`, also `labels`, or `entities` with `start_offset` and `end_offset`.
Prodigy: `spans` with `start`, `end` and `label`. Label Studio: the same with `labels`, under `label` (JSON-MIN) or in
`annotations`, of a JSON array.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from absl import logging

from official_bert.data.tables import ALL_COLUMNS, read_json_array, read_objects
from official_bert.support.errors import UserError
from official_bert.support.text_files import LineReader, check_json

_KEYS = ("spans", "entities", "label", "labels")  # of the list of spans
_TEXTS = ("text", "data.text")


# The place of a text, for messages; its words or characters; and their tags, None if it has none.
TaggedRow = tuple[str, list[str], list[str] | None]


class _Span(NamedTuple):
    start: int
    end: int
    label: str


def text_of(values: Mapping[str, Any]) -> str | None:
    """Return the text of a row of spans; None for other rows."""
    return next((values[key] for key in _TEXTS if isinstance(values.get(key), str)), None)


def read_spans(path: str, *, is_tagged: bool) -> Iterator[TaggedRow]:
    """Yield the characters of each text, with tags in IOB2 unless it has no spans."""
    lines = (line.lstrip(" \t") for line in LineReader(path))
    is_array = next(filter(None, lines), "").startswith("[")
    array = ((row.where, row.cells) for row in read_json_array(path, ALL_COLUMNS))
    rows = array if is_array else read_objects(path, "jsonl", ())
    number, inside, first, num_left_out = 0, 0, None, 0
    for where, values in rows:
        text = text_of(values)
        if not text:
            raise UserError(f"{where}: no key 'text' with a text; file_layout=characters reads a text and its spans")
        found = _spans(values, where)
        is_open = found is None and "annotations" in values  # in Label Studio; `answer` is Prodigy's
        if is_tagged and (is_open or values.get("answer") in ("reject", "ignore")):
            num_left_out += 1
            continue
        if found is None and is_tagged:
            raise UserError(f"{where}: no spans; give them under one of the keys {', '.join(_KEYS)}, [] for none")
        tags, end = ["O"] * len(text), 0
        for span in sorted(found or ()):
            if not 0 <= span.start < span.end <= len(text):
                raise UserError(f"{where}: {_shown(span)} is not a part of the text, which has {len(text)} characters")
            if span.start < end:
                raise UserError(f"{where}: {_shown(span)} overlaps the span before it; a character has one tag")
            tags[span.start : span.end] = [f"B-{span.label}"] + [f"I-{span.label}"] * (span.end - span.start - 1)
            end, number = span.end, number + 1
            if any(text[border - 1 : border + 1].isalnum() and 0 < border < len(text) for border in span[:2]):
                inside, first = inside + 1, first or f"{where}: {text[span.start : span.end]!r:.80}"
        columns = [" " if character in "\t\n\r" else character for character in text]
        yield where, columns, None if found is None else tags
    if num_left_out:
        logging.warning("%s: %d texts without a finished or accepted annotation are left out", path, num_left_out)
    if inside:
        logging.info("%s: %d of %d spans begin or end inside a word, first in %s", path, inside, number, first)


def _shown(span: _Span) -> str:
    return f"the span {span.label} from {span.start} to {span.end}"


def _spans(values: Mapping[str, Any], where: str) -> list[_Span] | None:
    listed = next((values[key] for key in _KEYS if isinstance(values.get(key), list)), None)
    if "annotations" in values:  # of Label Studio; each annotator has one
        check_json(values["annotations"], list[dict[str, Any]], where, "annotations")
        finished = [each for each in values["annotations"] if not each.get("was_cancelled")]
        if len(finished) > 1:
            raise UserError(f"{where}: {len(finished)} annotations; export the one to learn from")
        for annotation in finished:
            check_json(annotation.get("result"), list[dict[str, Any]], where, "result")
            listed = [each.get("value") for each in annotation["result"] if each.get("type") == "labels"]
    return None if listed is None else [_span(each, values, where) for each in listed]


def _span(given: Any, values: Mapping[str, Any], where: str) -> _Span:
    try:
        if isinstance(given, list):
            span = _Span(*given)
        else:
            start, end = (given[name] if name in given else given[f"{name}_offset"] for name in ("start", "end"))
            labels = [given["label"]] if "label" in given else given["labels"]
            (label,) = labels
            span = _Span(start, end, label)
        if list(map(type, span)) != [int, int, str] or not span.label or set(span.label) & set(" \t\n\r"):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"{where}: the span {given!r:.80} has no start, end and label without blanks; see docs/tagging.md"
        ) from None
    shown = given.get("text") if isinstance(given, dict) else None
    if shown is not None and shown != text_of(values)[span.start : span.end]:
        raise UserError(f"{where}: {_shown(span)} is not {shown!r:.80}; count in characters, not in bytes")
    return span
