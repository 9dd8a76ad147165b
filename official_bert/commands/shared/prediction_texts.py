"""Read the texts that `predict` predicts: lines, tables, and the files of question answering and tagging."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from official_bert.data.tables import COMMA, FORMATS, ID, format_of
from official_bert.data.text_inputs import LINES, Example, TextSource
from official_bert.options.groups import IdOptions
from official_bert.options.option import option, options
from official_bert.serving.versions import engine_version
from official_bert.support import text_files
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.inference.finished_runs import FinishedRun
    from official_bert.inference.predictor import Predictor

_CHOICES = "choices"  # the last text of multiple choice
_COLUMNS = "columns"  # input format of taggers: a word and further columns in each line


@options(group="input")
class PredictionInput(IdOptions):
    model_dir: str | None = option(
        None,
        "Output folder of a run, folder of a fine-tuned Hugging Face model, or exported model.",
        required=True,
        is_path=True,
    )
    input_file: str | None = option(
        None,
        "File to predict, or - for standard input.",
        required=True,
        is_path=True,
    )
    context_file: str | None = option(
        None, "Question answering: text file with the context; the lines of --input_file are questions.", is_path=True
    )
    text_columns: str | None = option(
        None,
        "Comma-separated names or numbers (from 0) of the columns of the texts, those of choices last. By default the "
        "columns of the run, otherwise text_a and text_b, question and context, context and choices, or text.",
    )
    input_format: str | None = option(
        None,
        "Format of the file; by default that of the file name's extension, or lines. columns: a word in each line, as "
        "run_ner reads them; recognized by their tags.",
        choices=(LINES, *FORMATS, _COLUMNS),
    )

    @property
    def has_columns_of_run(self) -> bool:
        """True if the texts are those that the run reads."""
        return True

    def __post_init__(self):
        super().__post_init__()
        if not self.reads_table:
            self.refuse("id_column", because="needs a table; give --input_format")

    @property
    def reads_table(self) -> bool:
        named = text_files.text_extension(self.input_file) != ".txt" and format_of(self.input_file)
        return (self.input_format or named or LINES) not in (LINES, _COLUMNS)


def read_examples(config: PredictionInput, predictor: "Predictor") -> "Iterator[Example]":
    from official_bert.tasks.question_answering.data import read_squad

    path, names = config.input_file, predictor.text_names
    ending = text_files.text_extension(path)
    if config.input_format is None and ending == ".json" and predictor.task == "question_answering":
        found = read_squad(path, for_training=False, version_2=False)
        for question in found.questions:
            texts = (question.text, found.contexts[question.context_index])
            yield Example(f"{path}, question {question.id}", question.id, texts)
        return
    sentences = _columns(config, predictor)
    if sentences is not None:
        yield from sentences
        return
    added = [] if config.context_file is None else [text_files.read_text(config.context_file)]
    table = table_of(config, names[: len(names) - len(added)])
    source = table if config.reads_table else TextSource(path)
    is_single = len(names) == 1
    examples = source.examples(max_splits=0 if is_single or added else -1, last_is_text=names[-1] != _CHOICES)
    for number, example in enumerate(examples):
        if not number and not config.reads_table:
            _warn_of_header(example, table)
        is_blank = not any(text.strip() if isinstance(text, str) else text for text in example.texts)
        yield example._replace(texts=[] if is_blank else _as_input(names, [*example.texts, *added]))


def _columns(config: PredictionInput, predictor: "Predictor") -> "list[Example] | None":
    """Return the sentences of a file of tagged words, which is read whole, as `run_ner` does; None for other files."""
    from official_bert.tasks.tagging.data import read_tagged_file, recognize_layout
    from official_bert.tasks.tagging.options import CHARACTERS
    from official_bert.training.run_folder import read_labels

    is_given, is_stream = config.input_format == _COLUMNS, TextSource(config.input_file).is_stream
    if predictor.task != "tagging":
        if is_given:
            raise UserError(
                f"input_format={_COLUMNS} needs a tagger; {config.model_dir} is a model of {predictor.task}"
            )
        return None
    if not is_given and (config.input_format or config.text_columns or config.id_column or is_stream):
        return None
    path = TextSource(config.input_file).readable_path
    run = _find_run(config.model_dir)
    flags = run.settings.flags if run and run.is_own else {}
    numbers = {"word_column": flags.get("word_column", 0), "tag_column": flags.get("tag_column", -1)}
    layout = None if is_stream else recognize_layout(path, read_labels(config.model_dir) or (), **numbers)
    if not (layout or is_given):
        return None
    of_characters = flags.get("file_layout") == CHARACTERS
    layout = CHARACTERS if of_characters and layout != "jsonl" else layout or _COLUMNS
    found = read_tagged_file(path, **numbers, is_tagged=False, file_layout=layout).sentences
    logging.info("%s: %d sentences of words in columns; for a text per line give input_format=lines", path, len(found))
    if not of_characters and any(len(word.split()) > 1 for sentence in found for word in sentence.words):
        logging.warning("%s: words with blanks are tagged in parts; run_ner --do_predict tags them whole", path)
    separator = "" if of_characters else " "
    return [Example(f"{path}, line {row.line}", None, separator.join(row.words)) for row in found]


def _find_run(path: str) -> "FinishedRun | None":
    if engine_version(path):
        return None
    from official_bert.inference.finished_runs import find_run

    return find_run(path)


def table_of(config: PredictionInput, names: Sequence[str] = ()) -> TextSource:
    """Describe the file as a table; what is not given is as in the run, or the columns are named like the texts."""
    run = _find_run(config.model_dir) if config.has_columns_of_run else None
    flags = run.settings.flags if run and run.is_own else {}
    of_run = ",".join(filter(None, (flags.get(flag) for flag in run.task.text_flags))) if flags else ""
    is_csv = (config.input_format or format_of(config.input_file) or "csv") == "csv"
    return TextSource(
        config.input_file,
        list(filter(None, (config.text_columns or of_run or ",".join(names)).split(","))),
        config.input_format,
        has_header=config.has_header and flags.get("has_header", True),
        delimiter=flags.get("delimiter", COMMA) if is_csv and config.delimiter == COMMA else config.delimiter,
        id_column=config.id_column or flags.get("id_column") or ID,
        needs_id=config.id_column is not None,
    )


def _warn_of_header(first: Example, table: TextSource) -> None:
    line = first.texts[0]
    if "\t" in line or not set(table.text_columns).isdisjoint(line.split(table.delimiter)):
        advice = f"give input_format, one of {', '.join(FORMATS)}"
        logging.warning("%s looks like a row of a table, but is read as a text; for a table %s", first.where, advice)


def _as_input(names: Sequence[str], texts: list[Any]) -> Any:
    """Return the texts of an example as `Predictor` takes them: all after those before `choices` are choices."""
    if names[-1] == _CHOICES and len(texts) > len(names):
        *before, _ = names
        texts = [*texts[: len(before)], [text for text in texts[len(before) :] if text]]
    return texts[0] if len(texts) == 1 else tuple(texts)
