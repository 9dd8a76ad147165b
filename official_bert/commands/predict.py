"""`predict`: write the predictions of any trained or exported model for the texts of a file or of standard input."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from official_bert.commands.shared.models import OutputTableOptions
from official_bert.data.table_writers import table_writer
from official_bert.data.tables import COMMA, FORMATS, ID, format_of, id_of, read_objects
from official_bert.data.text_inputs import LINES, STANDARD_STREAM, Example, TextSource
from official_bert.options.command import Command
from official_bert.options.groups import IdOptions, engine_option
from official_bert.options.option import MAX_AXIS, option, options
from official_bert.serving.versions import description, engine_version, find_version
from official_bert.support import files, text_files
from official_bert.support.console import MOST_LABEL_COLUMNS, NUM_LIKELY, ranked_columns
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import HYPOTHESIS, check_labels

if TYPE_CHECKING:
    from official_bert.inference.finished_runs import FinishedRun
    from official_bert.inference.predictor import Predictor

_CHOICES = "choices"  # the last text of multiple choice
_COLUMNS = "columns"  # input format of taggers: a word and further columns in each line
_ID, _PREDICTION = "id", "prediction"  # columns of the output
_BATCH_SIZE = 64
# Tasks whose predictions are no rows of a table, and what to use instead.
_OTHER_COMMANDS = {
    "pretraining": "fill_mask predicts its words",
    "sentence_encoder": "run_sentence_encoder --do_predict writes its vectors, sentence_similarity compares them",
}


@options(group="output")
class PredictConfig(IdOptions, OutputTableOptions):
    model_dir: str | None = option(
        None,
        "Output folder of a run, folder of a fine-tuned Hugging Face model, or exported model.",
        group="input",
        required=True,
        is_path=True,
    )
    input_file: str | None = option(
        None, "File to predict, or - for standard input.", group="input", required=True, is_path=True
    )
    context_file: str | None = option(
        None,
        "Question answering: text file with the context; the lines of --input_file are questions.",
        group="input",
        is_path=True,
    )
    text_columns: str | None = option(
        None,
        "Comma-separated names or numbers (from 0) of the columns of the texts, those of choices last. By default the "
        "columns of the run, otherwise text_a and text_b, question and context, context and choices, or text.",
        group="input",
    )
    input_format: str | None = option(
        None,
        "Format of the file; by default that of the file name's extension, or lines. columns: a word in each line, as "
        "run_ner reads them; recognized by their tags.",
        group="input",
        choices=(LINES, *FORMATS, _COLUMNS),
    )
    output_file: str = option(STANDARD_STREAM, "File to write, - for standard output.", is_output=True)
    top_k: int | None = option(
        None,
        "Classification: number of labels to write with their probabilities, most likely first. By default all, or "
        f"{NUM_LIKELY} of more than {MOST_LABEL_COLUMNS}.",
        minimum=1,
        maximum=MAX_AXIS,
    )
    labels: str | None = option(
        None,
        "Zero-shot classification by a model of entailment, such as a run of MNLI: the labels in words, separated by "
        "commas.",
    )
    hypothesis: str = option(
        HYPOTHESIS, "With --labels: the sentence that follows from a text with a label, which is written {}."
    )
    multi_label: bool = option(False, "With --labels: several labels, or none, may be right for a text.")
    use_best_checkpoint: bool = option(False, "Use the best checkpoint of a run instead of the last.", group="model")
    engine: str | None = engine_option()

    def __post_init__(self):
        super().__post_init__()
        if not self.reads_table:
            self.refuse("id_column", because="needs a table; give --input_format")
        if self.labels is None:
            self.refuse("hypothesis", "multi_label", because="needs --labels")
        else:
            check_labels(self.listed_labels, self.hypothesis)

    @property
    def reads_table(self) -> bool:
        named = text_files.text_extension(self.input_file) != ".txt" and format_of(self.input_file)
        return (self.input_format or named or LINES) not in (LINES, _COLUMNS)

    @property
    def listed_labels(self) -> list[str]:
        return [label.strip() for label in (self.labels or "").split(",")]


class _ZeroShot:
    """A model of entailment as a classifier of single texts by the labels of the flags."""

    task, text_names = "classification", ["text"]

    def __init__(self, predictor: "Predictor", config: PredictConfig):
        self._options = {"hypothesis": config.hypothesis, "multi_label": config.multi_label}
        self._predictor, self._labels = predictor, config.listed_labels

    def __call__(self, texts: Sequence[str]) -> list[Any]:
        return self._predictor.classify(texts, self._labels, **self._options)


def read_examples(config: PredictConfig, predictor: "Predictor") -> "Iterator[Example]":
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


def _columns(config: PredictConfig, predictor: "Predictor") -> "list[Example] | None":
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
    version = find_version(config.model_dir) if files.is_folder(config.model_dir) else None
    said = description(version) if version else {}
    tags = said.get("tags") or read_labels(config.model_dir) or ()
    layout = None if is_stream else recognize_layout(path, tags, **numbers)
    if not (layout or is_given):
        return None
    of_characters = said.get("of_characters") or flags.get("file_layout") == CHARACTERS
    layout = CHARACTERS if of_characters and layout != "jsonl" else layout or _COLUMNS
    found = read_tagged_file(path, **numbers, is_tagged=False, file_layout=layout).sentences
    logging.info("%s: %d sentences of words in columns; for a text per line give input_format=lines", path, len(found))
    if not of_characters and any(len(word.split()) > 1 for sentence in found for word in sentence.words):
        logging.warning("%s: words with blanks are tagged in parts; run_ner --do_predict tags them whole", path)
    separator = "" if of_characters else " "
    if layout == "jsonl":  # whose objects have ids, and may have no words
        words = {row.line: separator.join(row.words) for row in found}
        rows = read_objects(path, "jsonl", ())
        return [Example(where, id_of(row, ID), words.get(int(where.rpartition(" ")[2]), "")) for where, row in rows]
    return [Example(f"{path}, line {row.line}", None, separator.join(row.words)) for row in found]


def _find_run(path: str) -> "FinishedRun | None":
    if engine_version(path):
        return None
    from official_bert.inference.finished_runs import find_run

    return find_run(path)


def table_of(config: PredictConfig, names: Sequence[str] = ()) -> TextSource:
    """Describe the file as a table; what is not given is as in the run, or the columns are named like the texts."""
    run = _find_run(config.model_dir) if config.labels is None else None
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
        choices = texts[len(before) :]
        while choices and not choices[-1]:
            choices.pop()
        texts = [*texts[: len(before)], choices]
    return texts[0] if len(texts) == 1 else tuple(texts)


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


def check(config: PredictConfig) -> None:
    files.check_folder(config.model_dir, "model_dir")
    for name in ("input_file", "context_file"):
        if getattr(config, name) not in (None, STANDARD_STREAM):
            files.check_file(getattr(config, name), name)


def run(config: PredictConfig) -> None:
    from official_bert.inference.predictor import Predictor
    from official_bert.training.run_folder import read_labels

    table = table_of(config)
    has_ids = config.id_column is not None
    if config.reads_table and table.text_columns and not table.is_stream:  # before the model is loaded
        has_ids |= sum(example.id is not None for example in table.examples(last_is_text=False)) > 0
    predictor = Predictor(config.model_dir, use_best_checkpoint=config.use_best_checkpoint, engine=config.engine)
    if not predictor.text_names:
        raise UserError(f"{config.model_dir} is an encoder without a task: extract_features writes its vectors")
    labels = read_labels(config.model_dir)
    if config.labels is not None:
        predictor, labels = _ZeroShot(predictor, config), config.listed_labels
    if predictor.task in _OTHER_COMMANDS:
        raise UserError(f"{config.model_dir} is a model of {predictor.task}: {_OTHER_COMMANDS[predictor.task]}")
    if config.top_k and predictor.task != "classification":
        raise UserError(f"top_k is for labels, but {config.model_dir} is a model of {predictor.task}")
    found, number, table_format = _predictions(config, predictor), 0, config.table_format
    if table_format == "jsonl":
        rows = json_rows(found, config.top_k)
    else:
        rows = table_rows(
            found, has_ids=has_ids, top_k=config.top_k, labels=labels, is_rounded=table_format != "parquet"
        )
    with table_writer(config.output_file, table_format, config.delimiter) as write:
        for row in rows:
            write(*row)
            number += 1
        if not number:
            raise UserError(f"{config.input_file} has no texts; give one per line or row")
    is_standard = config.output_file == STANDARD_STREAM
    logging.info("predicted %d text(s)%s", number, "" if is_standard else f"; wrote {config.output_file}")


def _predictions(config: PredictConfig, predictor: "Predictor") -> "Iterator[tuple[Example, Any]]":
    """Yield examples with their results in the order of the file; None for blank texts."""
    examples, num_blank = read_examples(config, predictor), 0
    # A question that is typed is answered before the next one.
    size = 1 if config.context_file or (config.input_file == STANDARD_STREAM and sys.stdin.isatty()) else _BATCH_SIZE
    while batch := list(itertools.islice(examples, size)):
        with_text = [example for example in batch if example.texts]
        num_blank += len(batch) - len(with_text)
        results = iter(_predict(predictor, with_text) if with_text else ())
        for example in batch:
            yield example, next(results) if example.texts else None
        sys.stdout.flush()
    if num_blank:
        logging.warning("%s: %d blank texts have no prediction", config.input_file, num_blank)


def _predict(predictor: "Predictor", batch: Sequence[Example]) -> list[Any]:
    """Predict examples; an error is that of the first one that causes it alone."""
    try:
        return predictor([example.texts for example in batch])
    except UserError as error:
        if len(batch) > 1:
            for example in batch:
                _predict(predictor, [example])
        raise UserError(f"{batch[0].where}: {error}") from error


COMMAND = Command(
    config_class=PredictConfig,
    positional=("model_dir", "input_file"),
    summary="Predicts the texts of a file with any trained or exported model: labels, tags, answers, choices.",
    usage=r"""
  {command} out/reviews new.tsv --output_file=predictions.tsv
  {command} serving/reviews/1 new.jsonl --text_columns=review --output_file=predictions.jsonl
  echo "Who keeps the bees?" | {command} out/squad - --context_file=letters.txt

Reads one text per line, with ` ||| ` between the texts of a pair or of choices; tables (.tsv, .csv, .jsonl, .parquet),
with the columns of the run; for question answering, SQuAD's format (.json); and, for taggers, the files of run_ner,
recognized by their tags. Files of any size and pipes are read and predicted a few texts at a time, those of run_ner at
once.
""",
    check=check,
    run=run,
    uses_tensorflow=lambda config: engine_version(config.model_dir) is None,
)
