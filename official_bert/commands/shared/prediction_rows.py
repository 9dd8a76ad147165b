"""Predictions as rows of tables and objects of JSON Lines."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from official_bert.data.text_inputs import Example
from official_bert.support.console import MOST_LABEL_COLUMNS, NUM_LIKELY, ranked_columns
from official_bert.support.errors import UserError

_ID, _PREDICTION = "id", "prediction"


class Row(NamedTuple):
    columns: Sequence[str]
    values: Sequence[Any]


def json_rows(predictions: Iterable[tuple[Example, Any]], top_k: int | None) -> Iterator[Row]:
    """Yield everything that the model returns; a text that is blank has no result, and the prediction None."""
    from official_bert.inference.predictor import as_json

    for example, result in predictions:
        found = as_json(result)
        if isinstance(found, dict) and isinstance(found.get("probabilities"), dict):
            found["probabilities"] = _likely(found["probabilities"], top_k) or found["probabilities"]
        found = found if isinstance(found, dict) else {"answers" if isinstance(found, list) else _PREDICTION: found}
        found = found if example.id is None else {_ID: example.id, **found}
        yield Row(list(found), list(found.values()))


def table_rows(
    predictions: Iterable[tuple[Example, Any]],
    *,
    has_ids: bool,
    top_k: int | None,
    labels: Sequence[str] | None,
    is_rounded: bool,
) -> Iterator[Row]:
    """Yield rows of equal columns; the cells of a blank text are None, except its id.

    The columns are those of the first result, with an id if `has_ids` or an example up to there has one.
    """

    def blank_row(example: Example) -> Row:
        ids = [example.id or ""] * has_ids
        return Row(columns, ids + [None] * (len(columns) - len(ids)))

    blank, columns = [], None
    for example, result in predictions:
        if columns is None:
            has_ids = has_ids or example.id is not None
        elif example.id and not has_ids:
            raise UserError(f"{example.where} has the first id, after the header was written; give output_format=jsonl")
        if result is None:
            if columns is None:
                blank.append(example)
            else:
                yield blank_row(example)
            continue
        cells, shares = _cells(result)
        if likely := _likely(shares, top_k):
            cells, shares = {**cells, **ranked_columns(likely.items())}, {}
        if columns is None:
            labels = [label for label in labels or sorted(shares) if label in shares]
            columns = [_ID] * has_ids + [*cells, *labels]
            yield from map(blank_row, blank)
        values = [*cells.values(), *(shares[label] for label in labels)]
        yield Row(columns, [example.id or ""] * has_ids + [_cell(value, is_rounded) for value in values])
    if columns is None:
        columns = [_ID] * has_ids + [_PREDICTION]
        yield from map(blank_row, blank)


def _likely(shares: dict[str, Any], top_k: int | None) -> dict[str, Any]:
    """Return the most likely labels, the first of `shares`, where not all are written."""
    number = top_k or (NUM_LIKELY if len(shares) > MOST_LABEL_COLUMNS else 0)
    return dict(itertools.islice(shares.items(), number))


def _cells(result: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the columns of a prediction, and those with the probability of each label; of answers only the best."""
    from official_bert.inference.predictor import as_json

    best = result[0] if isinstance(result, list) else result
    if isinstance(best, float):
        return {_PREDICTION: best}, {}
    named = as_json(best) if isinstance(best, dict) else best._asdict()
    cells = {name: value for name, value in named.items() if name != "entities"}
    shares = cells.pop("probabilities") if isinstance(cells.get("probabilities"), dict) else {}
    nested = {name: value for name, value in cells.items() if isinstance(value, dict)}  # columns of a model of users
    cells = {f"{name}_{key}": value for name, of in nested.items() for key, value in of.items()} | {
        name: value for name, value in cells.items() if name not in nested
    }
    if "labels" in cells:
        cells = {_PREDICTION: ",".join(cells["labels"])}
    return {_PREDICTION if name in ("label", "text") else name: value for name, value in cells.items()}, shares


def _cell(value: Any, is_rounded: bool) -> Any:
    if isinstance(value, list):
        return " ".join(str(_cell(item, True)) for item in value)
    return f"{value:.6f}" if isinstance(value, float) and is_rounded else value
