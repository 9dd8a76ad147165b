"""Examples and records of multiple choice: a reader of the files of data sets, and the schema."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert.config.bert_config import ENCODER_INPUTS, TEXT_LENGTHS
from official_bert.data.record_files import ExampleJoiner
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.data.tables import ID, find_table, read_objects
from official_bert.support import files
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.multiple_choice.options import Layout, MultipleChoiceConfig
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import JoinedSequence, Specials, join_pair

_ID_COLUMNS = (ID, "example_id", "idx")  # of which an example has at most one
LABEL = "label_ids"

# N: choices per example, S: positions of a sequence.


class Example(NamedTuple):
    context: str  # the first text of every sequence
    question: str  # the text before each choice; "" for none
    choices: tuple[str, ...]  # the choices, without line breaks
    label: int  # number of the right choice, from 0; 0 if unknown
    names: tuple[str, ...]  # the data set's names of the choices, such as "A"
    id: str  # id of the example; "" if it has none

    @property
    def second_texts(self) -> list[str]:
        """The second text of each sequence: the question and a choice."""
        return [f"{self.question} {choice}" if self.question else choice for choice in self.choices]


def find_files(data_dir: str, name: str) -> list[tuple[str, str]]:
    """Return the files of a split with their formats: one, or all `.txt` files in a folder and its subfolders."""
    path = os.path.join(data_dir, name)
    if not files.is_folder(path):
        if not os.path.splitext(name)[1]:
            path = f"{path}.jsonl"
        return [(path, find_table(path))]
    folders = [path, *(os.path.join(path, name) for name in sorted(files.list_folder(path)))]
    found = [
        (os.path.join(folder, name), "jsonl")
        for folder in filter(files.is_folder, folders)
        for name in sorted(files.list_folder(folder))
        if name.endswith(".txt")
    ]
    if not found:
        raise UserError(f"{path} has no .txt files, nor do its subfolders; check the path")
    return found


def read_examples(data_dir: str, layout: Layout, split: str) -> list[Example]:
    """Read the examples of a split, "train", "dev" or "test"; those of "test" need no label."""
    is_labelled = split != "test"
    name = layout.files[split]
    label_or_id = layout.label if is_labelled else layout.id
    columns = list(filter(None, (layout.context, layout.question, *layout.choices, label_or_id)))
    examples = [
        _example(row, layout, is_labelled, where)
        for path, table_format in find_files(data_dir, name)
        for where, values in read_objects(
            path,
            table_format,
            columns,
            optional=(layout.id,) if layout.id else _ID_COLUMNS,
            has_header=layout.has_header,
            delimiter=layout.delimiter,
        )
        for row in _rows(values, layout, where)
    ]
    if not examples:
        raise UserError(f"{os.path.join(data_dir, name)} has no examples; check the file")
    return examples


def read_data(config: MultipleChoiceConfig) -> list[list[Example] | None]:
    """Read the splits to train with, to evaluate and to predict, as far as they are needed."""
    needed = {"train": config.do_train, "dev": config.is_evaluated, "test": config.do_predict}
    layout = config.layout
    return [read_examples(config.data_dir, layout, split) if needed[split] else None for split in needed]


def _rows(values: Mapping[str, Any], layout: Layout, where: str) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each question of a row; most layouts have one."""
    if not (layout.shares_context and "questions" in values):
        yield values
        return
    lists = [values.get(name) for name in ("questions", "options", "answers")]
    if not all(isinstance(column, list) for column in lists) or len(set(map(len, lists))) > 1:
        raise UserError(f"{where}: questions, options and answers must be lists of the same length")
    for number, (question, options, answer) in enumerate(zip(*lists, strict=True)):
        name = f"{values.get('id', '')}-{number}"
        yield {**values, "question": question, "options": options, "answer": answer, "id": name}


def _example(row: Mapping[str, Any], layout: Layout, is_labelled: bool, where: str) -> Example:
    context = _text(row, layout.context, where)
    question = _text(row, layout.question, where) if layout.question else ""
    if layout.phrases is not None:
        if question not in layout.phrases:
            raise UserError(
                f"{where}: {layout.question!r} is {question!r}; it must be one of {format_names(layout.phrases)}"
            )
        question = layout.phrases[question]
    texts, names = [], []
    for column in layout.choices:
        for text, name in _choices(_value(row, column, where), column, where):
            texts.append(text.replace("\n", " ").strip())
            names.append(name)
    while texts and not texts[-1]:  # a row of a table with fewer choices than others
        del texts[-1], names[-1]
    empty = next((number for number, text in enumerate(texts) if not text), None)
    if empty is not None:
        raise UserError(f"{where}: choice {empty} (counted from 0) is empty, but later ones are not; fill it in")
    if len(texts) < 2:
        raise UserError(f"{where}: an example needs at least two choices, but this one has {len(texts)}")
    label = _label(_value(row, layout.label, where), names, where) if is_labelled else 0
    names = tuple(name or str(number) for number, name in enumerate(names))
    if layout.id:
        row = {ID: row.get(layout.id) if is_labelled else _value(row, layout.id, where)}
    found = next((row[name] for name in _ID_COLUMNS if row.get(name) is not None), "")
    return Example(context, question, tuple(texts), label, names, str(found))


def _choices(value: Any, column: str, where: str) -> Iterator[tuple[str, str | None]]:
    """Yield the texts and names of the choices in a column."""
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        texts, names = value["text"], value.get("label")
        names = [None] * len(texts) if names is None else names
        if not isinstance(names, list) or len(names) != len(texts):
            raise UserError(f"{where}: the label of {column!r} is {names!r:.80}; give a list with one for each text")
        value = [{"text": text, "label": name} for text, name in zip(texts, names, strict=True)]
    for item in value if isinstance(value, list) else [value]:
        text, name = (item.get("text"), item.get("label")) if isinstance(item, dict) else (item, None)
        if text is None and item is None:  # a missing cell
            text = ""
        if not isinstance(text, str):
            raise UserError(f"{where}: {column!r} contains {item!r:.80}; a choice must be a string")
        yield text, None if name is None else str(name)


def _label(value: Any, names: Sequence[str | None], where: str) -> int:
    name = str(value).strip()
    if names.count(name) > 1:
        raise UserError(f"{where}: {names.count(name)} choices have the label {name!r:.80}; give each its own")
    if name in names:
        return names.index(name)
    number = -1
    if name.isdecimal() and len(name) < 10:
        number = int(name)
    elif len(name) == 1 and name.isascii():
        number = ord(name.upper()) - ord("A")
    if not 0 <= number < len(names) or any(names):
        known = format_names(names) if all(names) else f"0 to {len(names) - 1}, or a letter from A"
        raise UserError(f"{where}: the label {value!r:.80} is not one of the {len(names)} choices: {known}")
    return number


def _text(row: Mapping[str, Any], column: str, where: str) -> str:
    value = _value(row, column, where)
    if not isinstance(value, str):
        raise UserError(f"{where}: {column!r} is {value!r:.80}; a text must be a string")
    return value


def _value(row: Mapping[str, Any], column: str, where: str) -> Any:
    """Return the value of a column, possibly inside an object: `a.b`."""
    value: Any = row
    for key in [column] if column in row else column.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise UserError(f"{where}: there is no {column!r}; it has {format_names(row)}")
        value = value[key]
    return value


def label_fields(num_choices: int, max_seq_length: int) -> tuple[Field, ...]:
    """Return the fields of a record beside ids: the length of each sequence, 0 for a missing choice, and the label."""
    return (
        Field(TEXT_LENGTHS, (num_choices,), "int32", below=max_seq_length + 1),
        Field(LABEL, (), "int32", below=num_choices),
    )


def choice_schema(num_choices: int, max_seq_length: int, *, vocab_size: int, num_segments: int) -> RecordSchema:
    """Return the record schema of examples with up to `num_choices` choices."""
    fields = RecordSchema(*ENCODER_FIELDS, *label_fields(num_choices, max_seq_length))
    return fields.sized(S=num_choices * max_seq_length, V=vocab_size, T=num_segments)


def join_choice(context: list[int], choice: list[int], room: int, specials: Specials) -> JoinedSequence:
    """Join a context and a choice; see `ChoiceJoiner.join`."""
    return join_pair(context[: max(room - len(choice), 0)], choice[:room], specials)


class ChoiceJoiner(ExampleJoiner):
    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        super().__init__(tokenizer, max_seq_length=max_seq_length)
        self._specials = tokenizer.specials
        self._max_tokens = self._specials.room(max_seq_length, is_pair=True)

    def fingerprints(self, examples: Sequence[Example]) -> dict[str, str]:
        return super().fingerprints([(example.context, example.second_texts, example.label) for example in examples])

    def num_texts(self, example: Example) -> int:
        return len(example.choices)

    def labels(self, example: Example) -> dict[str, Sequence[int]]:
        """See `ExampleJoiner`; beside features only a length of 0 matters, that of a missing choice."""
        return {TEXT_LENGTHS: [1] * len(example.choices), LABEL: [example.label]}

    def report(self, counts: Counter) -> None:
        total, length = counts["sequences"], self.identity["max_seq_length"]
        if num_cut := counts["contexts"]:
            logging.info("%d of %d contexts were truncated to fit %d wordpieces", num_cut, total, length)
        if num_cut := counts["choices"]:
            message = "%d of %d choices are longer than max_seq_length=%d and were truncated, too; raise it"
            logging.warning(message, num_cut, total, length)

    def join(self, example: Example, counts: Counter) -> dict[str, Sequence[int]]:
        """See `ExampleJoiner`.

        A context that does not fit beside a choice is truncated at its end. A choice is truncated only if it is longer
        than a whole sequence.
        """
        first, inputs, lengths = self.tokenizer.encode(example.context), {name: [] for name in ENCODER_INPUTS}, []
        for text in example.second_texts:
            second = self.tokenizer.encode(text)
            room = max(self._max_tokens - len(second), 0)
            joined = join_choice(first, second, self._max_tokens, self._specials)
            for name, values in inputs.items():
                values += getattr(joined, name)
            lengths.append(len(joined.input_ids))
            counts["sequences"] += 1
            counts["contexts"] += len(first) > room
            counts["choices"] += len(second) > self._max_tokens
            counts["num_wordpieces"] += len(first) + len(second)
            counts["num_unknown"] += (first + second).count(self.tokenizer.unk_id)
        return {**inputs, TEXT_LENGTHS: lengths}
