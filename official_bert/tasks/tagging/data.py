"""Tagged text files: one word per line in columns, as in the CoNLL tasks, or one sentence per line with its tags.

The layouts "columns", "characters", "sentences" and "jsonl", documents and comments are those of docs/tagging.md:

    Anna     B-PER                 Anna rows<TAB>B-PER O                 {"tokens": ["Anna", "rows"], ...}
    rows     O

Only blanks, tabs and line ends separate: a no-break space or a control character is part of its word. A line that
contains only byte-order marks, as in concatenated files, is blank. JSON is converted to columns with tabs. A first
column that counts the words is skipped, with the ranges (1-2) and empty nodes (1.1) of CoNLL-U.
"""

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert.data.tables import format_of, read_objects
from official_bert.metrics.tagging import PREFIXES, has_entities, look_like_entities
from official_bert.support.errors import UserError, format_names, pluralize
from official_bert.support.text_files import LineReader, check_json, text_extension
from official_bert.tasks.tagging.options import CHARACTERS
from official_bert.tasks.tagging.spans import TaggedRow, read_spans, text_of

_DOCUMENT_START = re.compile(r" *-DOCSTART-(?![^ \t])")
_COMMENT = re.compile(
    r"# ?(?:(?:newdoc|newpar) +)?[^\s=]+ +=(?: |$)"  # CoNLL-U: "# text = She rows.", "# newdoc id = n01"
    r"|# ?(?:newdoc|newpar) *$"
    r"|# id \S+\s+domain="  # MultiCoNER
)
_COMMENT_BETWEEN_TABS = re.compile(
    r"# [^\t]*$"
    r"|## "  # KLUE: "## klue-ner-v1_dev_00000-wikitree", a tab, and the text
    r"|#\t[^\t]*\t\[\d{4}-\d\d-\d\d\]\s*$"  # GermEval 2014: "#", the source and "[2009-10-17]"
)
_NEW_DOCUMENT = re.compile(r"# ?newdoc(?: |$)")
_TOKEN_NUMBER, _NO_WORD = re.compile("[0-9]{1,9}"), re.compile("[0-9]+[-.][0-9]+")  # CoNLL-U: 1-2 is a range of words
_LINES_TO_RECOGNIZE = 1000
_JSON_KEYS = ("tokens", "words"), ("ner_tags", "tags", "labels")  # of the words, and of the tags
_SEPARATOR_NAMES = {"\t": "tabs", " ": "blanks"}


class TaggedSentence(NamedTuple):
    words: tuple[str, ...]  # its words, at least one
    tags: tuple[str, ...] | None  # the tag of each word, None if the file has no tags
    document: int  # index of its document in the file, from 0, not counting empty documents
    line: int  # number of the line with its first word, from 1


@dataclasses.dataclass(frozen=True)
class TaggedFile:
    r"""Contents of a file, with everything needed to rewrite it with an extra column."""

    path: str  # the file
    sentences: list[TaggedSentence]  # its sentences, in order; at least one
    lines: list[str]  # all lines, without line ends and byte-order marks; "" for a blank one
    layout: str  # "columns", "sentences" or "characters"
    separator: str  # separator of the columns: "\t" or " "
    num_columns: int  # number of columns
    comments: frozenset[int] = frozenset()  # numbers of the lines that are comments or no words, from 1


class _Row(NamedTuple):
    """A line with words: neither blank nor the start of a document."""

    line: int
    cells: list[str]


def read_tagged_file(
    path: str, *, word_column: int = 0, tag_column: int = -1, is_tagged: bool = True, file_layout: str = "auto"
) -> TaggedFile:
    """Read the sentences of a file; "auto" finds its layout by its name, then by its content."""
    layout, is_named_json = file_layout, format_of(path) == "jsonl"
    is_json = file_layout == "jsonl" or (file_layout in ("auto", CHARACTERS) and is_named_json)
    if is_json:
        is_of_spans = file_layout == CHARACTERS
        rows = read_spans(path, is_tagged=is_tagged) if is_of_spans else _json_rows(path, is_tagged)
        rows = list(rows)
        if not is_tagged and any(tags is None for *_, tags in rows):  # what some lack is not scored
            rows = [(where, words, None) for where, words, _ in rows]
        lines, numbers = _as_columns(rows)
        layout, word_column, tag_column = CHARACTERS if is_of_spans else "columns", 0, 1
    elif layout == "auto" and format_of(path) in ("csv", "parquet"):
        raise UserError(
            f"{path}: tags in {format_of(path)} are not read; write JSON Lines with the keys tokens and ner_tags, or "
            "give file_layout=columns if blanks or tabs separate the columns"
        )
    else:
        lines = _read_lines(path)
        numbers = range(1, len(lines) + 1)
    comments = frozenset() if is_json or layout == "sentences" else _find_comments(lines)
    if comments:
        logging.info("%s: %d lines are comments, the first of them line %d", path, len(comments), min(comments))
    content = _without_comments(lines, comments)
    has_tabs = is_json or any("\t" in line for line in content if not is_document_start(line))
    separator = "\t" if has_tabs or layout == "sentences" else " "
    ignored = None if is_json else _lines_without_number(content, separator, word_column, tag_column)
    if ignored is not None:
        content = [None if number in ignored else line for number, line in enumerate(content, start=1)]
        if ignored:
            logging.info(
                "%s: %d lines are ranges or empty nodes, the first of them line %d", path, len(ignored), min(ignored)
            )
        if word_column == 0:
            word_column = 1
            logging.warning("%s: column 0 counts the words, so column 1 is read as the words (word_column=1)", path)
    word_lines = {number: line for number, line in enumerate(content, start=1) if line and not is_document_start(line)}
    if not word_lines:
        raise UserError(f"{path} has no sentences; a file of tagged words has a word and its tag in each line")
    if layout == "auto" and has_tabs:
        layout = _tabbed_layout(list(word_lines.values()), word_column, tag_column, is_tagged)
    elif layout == "auto":
        if not is_tagged and ignored is None:
            _check_are_words(path, content, tag_column)
        layout = "columns"
    rows = [_Row(numbers[number - 1], split_columns(line, separator)) for number, line in word_lines.items()]
    _check_columns(path, rows, separator)
    words = _words(path, rows, word_column, layout)
    tags = _tags(path, rows, words, word_column, tag_column, layout, is_required=is_tagged)
    if tags and len(set(itertools.chain(*tags))) > len(set(itertools.chain(*words))):
        logging.warning("%s has more different tags than words; check word_column and tag_column", path)
    sentences = [
        sentence._replace(line=numbers[sentence.line - 1]) for sentence in _sentences(content, words, tags, layout)
    ]
    return TaggedFile(path, sentences, lines, layout, separator, len(rows[0].cells), comments | (ignored or set()))


def recognize_layout(path: str, labels: Collection[str], *, word_column: int, tag_column: int) -> str | None:
    """Return the layout of a file with words in columns or with tags; None if it is plain text or a table.

    It has documents, or tags: half of its lines end in `labels`, or all in those of entities. A file without tags has
    numbers between tabs, or a word in each line and blank lines between sentences.
    """
    if format_of(path) in ("csv", "parquet"):
        return None
    if format_of(path) == "jsonl":
        values = next((values for _, values in read_objects(path, "jsonl", ())), {})
        return "jsonl" if any(_are_strings(values.get(key)) for key in _JSON_KEYS[0]) else None
    lines = _read_lines(path, _LINES_TO_RECOGNIZE)
    content = _without_comments(lines, _find_comments(lines))
    word_lines = [line for line in content if line and not is_document_start(line)]
    separator = "\t" if any("\t" in line for line in word_lines) else " "
    rows = [split_columns(line, separator) for line in word_lines]
    cells = [row[tag_column].split() for row in rows if len(row) > 1 and _index(tag_column, len(row)) is not None]
    known = {label for label in labels if any(map(str.isalpha, label))}  # a sentence may end in a tag such as "."
    is_tagged = len(cells) == len(rows) and look_like_entities(set(itertools.chain(*cells)))
    is_tagged |= 0 < len(rows) <= 2 * sum(known.issuperset(tags) and bool(tags) for tags in cells)
    is_tagged |= any(map(is_document_start, content))
    is_untagged = False
    if not is_tagged and text_extension(path) != ".tsv":
        is_counted = _lines_without_number(content, separator, word_column, tag_column) is not None
        has_blank_lines = "" in content[:-1] and len(word_lines) > content.count("") + 1
        is_untagged = is_counted if separator == "\t" else has_blank_lines and all(len(row) == 1 for row in rows)
    if not (is_tagged or is_untagged):
        return None
    return _tabbed_layout(word_lines, word_column, tag_column, is_tagged) if separator == "\t" else "columns"


def is_document_start(line: str) -> bool:
    """Return True if a line begins a document, as in `-DOCSTART- -X- -X- O`."""
    return _DOCUMENT_START.match(line) is not None


def split_columns(line: str, separator: str) -> list[str]:
    """Return the columns of a line; the separator blank matches any run of blanks."""
    cells = line.split(separator)
    return cells if separator == "\t" else list(filter(None, cells))


def _find_comments(lines: Sequence[str]) -> frozenset[int]:
    """Return the comment line numbers, from 1, assuming that the file is in columns."""
    has_tabs = any("\t" in line and not _COMMENT.match(line) for line in lines)
    comments, is_between = set(), True
    for number, line in enumerate(lines, start=1):
        if is_between and (_COMMENT.match(line) or (has_tabs and _COMMENT_BETWEEN_TABS.match(line))):
            comments.add(number)
        else:
            is_between = not line or is_document_start(line)
    return frozenset(comments)


def _without_comments(lines: Sequence[str], comments: Collection[int]) -> list[str]:
    """Return the lines with comments blanked, except those that begin a document."""
    return [
        line if number not in comments else "-DOCSTART-" if _NEW_DOCUMENT.match(line) else ""
        for number, line in enumerate(lines, start=1)
    ]


def _lines_without_number(
    lines: Sequence[str], separator: str, word_column: int, tag_column: int
) -> frozenset[int] | None:
    """Return the numbers of the lines of ranges and empty nodes; None unless the first column counts the words.

    Of two columns, the first is no number but a word if the second has tags of entities.
    """
    ignored, rows, previous, is_counted = set(), [], None, False
    for number, line in enumerate(lines, start=1):
        if not line or is_document_start(line):
            previous = None
            continue
        cells = split_columns(line, separator)
        if _NO_WORD.fullmatch(cells[0]):
            ignored.add(number)
            continue
        if not _TOKEN_NUMBER.fullmatch(cells[0]) or previous not in (None, int(cells[0]) - 1):
            return None
        is_counted, previous = is_counted or previous is not None, int(cells[0])
        rows.append(cells)
    width = len(rows[0]) if is_counted else 1
    is_chosen = word_column == -width or _index(tag_column, width) == 0
    if width == 1 or is_chosen or (width == 2 and has_entities({row[-1] for row in rows})):
        return None
    return frozenset(ignored)


def _read_lines(path: str, most: int | None = None) -> list[str]:
    lines = itertools.islice(LineReader(path), most)
    return [line if line.strip(" \t\ufeff") else "" for line in lines]  # a mark, too, where files were joined


def _json_rows(path: str, is_tagged: bool) -> Iterator[TaggedRow]:
    for where, values in read_objects(path, "jsonl", ()):
        columns = []
        for known in _JSON_KEYS:
            key = next((key for key in known if key in values), None)
            if key is None and (not columns or is_tagged):
                advice = "; file_layout=characters reads texts with spans" if text_of(values) else ""
                raise UserError(f"{where}: no key {known[0]!r}; the keys are {format_names(values)}{advice}")
            columns.append(None if key is None else values[key])
            if key is not None and (is_tagged or len(columns) == 1):
                check_json(values[key], list[str], where, key)
        words, tags = columns
        if not (is_tagged or (_are_strings(tags) and len(tags) == len(words))):
            tags = None
        if tags is not None and len(words) != len(tags):
            number = pluralize(len(words), "word")
            raise UserError(f"{where}: {number} but {pluralize(len(tags), 'tag')}; correct the line")
        for cells in zip(words, tags or words, strict=True):
            if not cells[0] or any(set(cell) & set("\t\n\r") for cell in cells):
                raise UserError(f"{where}: {cells[0]!r:.80} is empty or contains a tab or line end; correct the word")
        yield where, words, tags


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _as_columns(rows: Iterable[TaggedRow]) -> tuple[list[str], list[int]]:
    """Return the lines in columns, and for each the line of the file that has it."""
    lines, numbers = [], []
    for where, words, tags in rows:
        lines += map("\t".join, zip(words, tags, strict=True)) if tags is not None else words
        lines.append("")
        numbers += [int(where.rpartition(" ")[2])] * (len(lines) - len(numbers))
    return lines, numbers


def _index(column: int, num_columns: int) -> int | None:
    """Return a column's number from 0; None if it does not exist."""
    index = column if column >= 0 else num_columns + column
    return index if 0 <= index < num_columns else None


def _tabbed_layout(word_lines: Sequence[str], word_column: int, tag_column: int, is_tagged: bool) -> str:
    """Detect the layout of a file with tabs: "sentences" if at least half of its lines have several tags, or words.

    Tags contain no blanks. A file of one-word sentences is read as columns.
    """
    rows = [split_columns(line, "\t") for line in word_lines]
    word, tag = _index(word_column, len(rows[0])), _index(tag_column, len(rows[0]))
    deciding = [row[tag] for row in rows if tag is not None and tag < len(row)]
    if not is_tagged and (tag == word or not all(cell.strip(" ") for cell in deciding)):
        deciding = [row[word] for row in rows if word is not None and word < len(row)]
    num_several = sum(len(split_columns(cell, " ")) > 1 for cell in deciding)
    return "sentences" if 2 * num_several >= len(rows) else "columns"


def _check_are_words(path: str, lines: Sequence[str], tag_column: int) -> None:
    """Raise unless the lines of a file without tabs are words: a word each, or with documents or entity tags."""
    rows = [split_columns(line, " ") for line in lines if line and not is_document_start(line)]
    tags = {row[tag_column] for row in rows if _index(tag_column, len(row)) is not None}
    has_documents = any(map(is_document_start, lines))
    if not (has_documents or has_entities(tags) or all(len(row) == 1 for row in rows)):
        raise UserError(
            f"{path}: a line may be a word with further columns or a whole sentence; give file_layout=columns or "
            "file_layout=sentences"
        )


def _check_columns(path: str, rows: Sequence[_Row], separator: str) -> None:
    first = rows[0]
    for row in rows:
        if len(row.cells) != len(first.cells):
            raise UserError(
                f"{path}, line {row.line}: {pluralize(len(row.cells), 'column')}, but line {first.line} has "
                f"{len(first.cells)} (separated by {_SEPARATOR_NAMES[separator]}); correct the line"
            )


def _words(path: str, rows: Sequence[_Row], word_column: int, layout: str) -> list[tuple[str, ...]]:
    """Return the words of each line; raise if they are tags."""
    index = _required(path, rows[0], "word_column", word_column)
    words = []
    for row in rows:
        cell = row.cells[index]
        found = tuple(cell.split()) if layout == "sentences" or not cell else (cell,)
        if layout == CHARACTERS and len(cell) != 1:
            raise UserError(f"{path}, line {row.line}: {cell[:40]!r} is not one character; correct it or file_layout")
        if not found:
            raise UserError(f"{path}, line {row.line}: no word in column {index}, counted from 0; correct the line")
        words.append(found)
    distinct = set(itertools.chain(*words))
    may_count = word_column == 0 and len(rows) > 1 and len(rows[0].cells) > 2  # but -3 is a chosen column
    if look_like_entities(distinct) or (may_count and all(map(str.isdecimal, distinct))):
        raise UserError(
            f"{path}: the words are tags or numbers: {format_names(sorted(distinct)[:5])}; word_column={word_column} "
            "is the wrong column, or words and tags are swapped"
        )
    if layout == "columns" and " " in distinct:
        logging.warning("%s has blanks as words; to read characters as text, give file_layout=characters", path)
    return words


def _required(path: str, row: _Row, name: str, column: int) -> int:
    index = _index(column, len(row.cells))
    if index is None:
        number = pluralize(len(row.cells), "column")
        raise UserError(f"{path}, line {row.line}: {number}, so there is no {name}={column} (counted from 0)")
    return index


def _tags(
    path: str,
    rows: Sequence[_Row],
    words: Sequence[tuple[str, ...]],
    word_column: int,
    tag_column: int,
    layout: str,
    *,
    is_required: bool,
) -> list[tuple[str, ...]] | None:
    """Return the tags of each line; None if there are none and none are required."""
    first, word = rows[0], _index(word_column, len(rows[0].cells))
    if not is_required and _index(tag_column, len(first.cells)) in (None, word):
        return None
    try:
        index = _required(path, first, "tag_column", tag_column)
        if index == word:
            raise UserError(
                f"{path}, line {first.line}: column {index} cannot be both the word and the tag; check word_column="
                f"{word_column}, tag_column={tag_column} and what separates columns"
            )
        return [
            _tags_of_row(f"{path}, line {row.line}", row.cells[index], row_words, layout)
            for row, row_words in zip(rows, words, strict=True)
        ]
    except UserError as error:
        if is_required:
            raise
        logging.warning("%s; until then the file is tagged, but not scored", error)
        return None


def _tags_of_row(where: str, cell: str, words: tuple[str, ...], layout: str) -> tuple[str, ...]:
    tags = tuple(split_columns(cell, " "))
    if not tags:
        raise UserError(f"{where}: the tag of {words[0][:40]!r} is empty; correct the line")
    if layout != "sentences" and len(tags) > 1:
        raise UserError(
            f"{where}: the tag {cell[:40]!r} contains a blank; correct the line, or give file_layout=sentences if each "
            "line is a sentence"
        )
    if len(tags) != len(words):
        numbers = f"{pluralize(len(words), 'word')} but {pluralize(len(tags), 'tag')}"
        raise UserError(f"{where}: {numbers}; correct the line, or give file_layout=columns if each line is a word")
    for tag in tags:
        if tag[-1] == "-" and tag[:-1] in PREFIXES:
            raise UserError(f"{where}: the tag {tag!r} has no type; add it, or write {tag[:-1]!r} for none")
    return tags


def _sentences(
    lines: Iterable[str | None], words: Sequence[tuple[str, ...]], tags: Sequence[tuple[str, ...]] | None, layout: str
) -> list[TaggedSentence]:
    sentences: list[TaggedSentence] = []
    rows = zip(words, tags or [()] * len(words), strict=True)
    document, first_line, parts = 0, 0, []
    for number, line in enumerate([*lines, ""], start=1):
        if line is None:  # no word, but no end of a sentence
            continue
        is_word = line and not is_document_start(line)
        if parts and (not is_word or layout == "sentences"):
            all_words, all_tags = (tuple(itertools.chain(*column)) for column in zip(*parts, strict=True))
            sentences.append(TaggedSentence(all_words, None if tags is None else all_tags, document, first_line))
            parts = []
        if is_word:
            first_line = first_line if parts else number
            parts.append(next(rows))
        elif line and sentences and sentences[-1].document == document:
            document += 1
    return sentences
