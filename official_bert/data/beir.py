"""Collections for retrieval in the layout of the BEIR benchmark: `read_beir`.

A folder holds `corpus.jsonl` (`_id`, `text` and possibly `title` on each line), `queries.jsonl` (`_id`, `text`) and
`qrels/<split>.tsv`, a table of judgments with the columns `query-id`, `corpus-id` and `score`.
"""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from official_bert.data.tables import Keys, Row, column_number, parse_score, read_jsonl, read_tsv
from official_bert.support import files
from official_bert.support.errors import UserError, format_names

_KEYS = Keys(("_id", "text"), optional="title")
_COLUMNS = ("query-id", "corpus-id", "score")


class Passage(NamedTuple):
    """A document of a corpus.

    Attributes:
      id: its name in the judgments.
      text: its title, if it has one, and its text.
    """

    id: str
    text: str


class BeirCorpus:
    """Corpus that is read and checked in each iteration, and never held in memory."""

    def __init__(self, path: str, judged: Mapping[str, str]):
        """Read nothing yet.

        Args:
          path: `corpus.jsonl`.
          judged: the ids that must occur, once, each with the place of its first judgment for messages.
        """
        self._path, self._judged = path, judged

    def __iter__(self) -> Iterator[Passage]:
        """Yield the documents.

        Raises:
          UserError: a line cannot be read, or a judged document is missing or occurs twice.
        """
        missing = dict(self._judged)
        for row, passage in _texts(self._path):
            if passage.id in self._judged and missing.pop(passage.id, None) is None:
                raise UserError(f"{row.where}: another document has the _id {passage.id!r} above; remove one of them")
            yield passage
        for document, where in missing.items():
            raise UserError(f"{where}: {self._path} has no document with the _id {document!r}")


def read_beir(folder: str, split: str) -> tuple[dict[str, str], BeirCorpus, dict[str, dict[str, float]]]:
    """Read a collection.

    Args:
      folder: the collection.
      split: the name of the judgments, such as "test".

    Returns:
      queries: the text of each judged query by its id.
      corpus: the documents as an iterable; memory does not grow with their number.
      qrels: for each query, in the order of the file, the scores of its judged documents by their ids.

    Raises:
      UserError: a file is missing, or a line cannot be read or has an unknown query, a score that is not a number or a
        judgment that is there already.
    """
    qrels_path = os.path.join(folder, "qrels", f"{split}.tsv")
    if not files.exists(qrels_path):
        raise UserError(f"there is no file {qrels_path}; in BEIR's layout it has the judgments of the split {split!r}")
    texts: dict[str, str] = {}
    queries_path = os.path.join(folder, "queries.jsonl")
    for row, query in _texts(queries_path):
        if texts.setdefault(query.id, query.text) != query.text:
            raise UserError(f"{row.where}: another query has the _id {query.id!r} above; remove one of them")
    qrels: dict[str, dict[str, float]] = {}
    judged: dict[str, str] = {}
    for row, query, document, score in _judgments(qrels_path):
        if query not in texts:
            raise UserError(f"{row.where}: {queries_path} has no query with the _id {query!r}")
        if qrels.setdefault(query, {}).setdefault(document, score) != score:
            raise UserError(f"{row.where}: the query {query!r} and the document {document!r} have another score above")
        judged.setdefault(document, row.where)
    if not qrels:
        raise UserError(f"{qrels_path} has no judgments")
    return {query: texts[query] for query in qrels}, BeirCorpus(os.path.join(folder, "corpus.jsonl"), judged), qrels


def _texts(path: str) -> Iterator[tuple[Row, Passage]]:
    for row in read_jsonl(path, _KEYS):
        if row.mistake:
            raise UserError(f"{row.where}: {row.mistake}")
        if row.cells:
            name, text, title = row.cells
            yield row, Passage(name, f"{title} {text}".strip())


def _judgments(path: str) -> Iterator[tuple[Row, str, str, float]]:
    """Yield the row, the query's id, the document's id and the score of each judgment."""
    rows = read_tsv(path)
    header = next(rows, None)
    if header is None:
        raise UserError(f"{path} is empty; its first line must be the names of its columns: {format_names(_COLUMNS)}")
    columns = [column_number(name, header) for name in _COLUMNS]
    for row in rows:
        if not row.cells:
            continue
        if len(row.cells) != len(header.cells):
            raise UserError(f"{row.where}: {len(row.cells)} columns; the first line has {len(header.cells)}")
        query, document, score = (row.cells[column] for column in columns)
        yield row, query, document, parse_score(score, row.where)
