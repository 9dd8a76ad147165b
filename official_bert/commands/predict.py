"""`predict`: write the predictions of any trained or exported model for the texts of a file or of standard input."""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from official_bert.commands.shared.text_options import check_file, check_folder
from official_bert.data.tables import COMMA, FORMATS, format_of
from official_bert.data.text_inputs import ID, LINES, STANDARD_STREAM, Example, TextSource
from official_bert.options.command import Command
from official_bert.options.groups import TableOptions
from official_bert.options.option import MAX_AXIS, option, options
from official_bert.support import writing
from official_bert.support.console import MOST_LABEL_COLUMNS, NUM_LIKELY, ranked_columns, tsv_line
from official_bert.support.errors import UserError, plain_message

if TYPE_CHECKING:
    from official_bert.inference.predictor import Predictor

_BATCH_SIZE = 64
_CHOICES = "choices"  # the last text of multiple choice
_COLUMNS = "columns"  # input format of taggers: a word and further columns in each line
# Tasks whose predictions are no rows of a table, and what to use instead.
_OTHER_COMMANDS = {
    "pretraining": "fill_mask predicts its words",
    "sentence_encoder": "run_sentence_encoder --do_predict writes its vectors, sentence_similarity compares them",
}


@options(group="input")
class PredictConfig(TableOptions):
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
    id_column: str | None = option(None, "Name of the column that is kept with each prediction; by default id.")
    input_format: str | None = option(
        None,
        "Format of the file; by default that of the file name's extension, or lines. columns: a word in each line, as "
        "run_ner reads them; recognized by their tags.",
        choices=(LINES, *FORMATS, _COLUMNS),
    )
    output_file: str = option(STANDARD_STREAM, "File to write, - for standard output.", group="output", is_output=True)
    output_format: str | None = option(
        None,
        "tsv: a table with a header; jsonl: one JSON object per example, with everything that the model returns. By "
        "default that of the extension of --output_file, or tsv.",
        group="output",
        choices=("tsv", "jsonl"),
    )
    top_k: int | None = option(
        None,
        "Classification: number of labels to write with their probabilities, most likely first. By default all, or "
        f"{NUM_LIKELY} of more than {MOST_LABEL_COLUMNS}.",
        group="output",
        minimum=1,
        maximum=MAX_AXIS,
    )
    use_best_checkpoint: bool = option(False, "Use the best checkpoint of a run instead of the last.", group="model")

    @property
    def is_jsonl(self) -> bool:
        return (self.output_format or os.path.splitext(self.output_file)[1].removeprefix(".")) == "jsonl"


def check(config: PredictConfig) -> None:
    check_folder(config.model_dir, "model_dir")
    for name in ("input_file", "context_file"):
        if getattr(config, name) not in (None, STANDARD_STREAM):
            check_file(getattr(config, name), name)


def run(config: PredictConfig) -> None:
    from official_bert.inference.predictor import Predictor

    predictor = Predictor(config.model_dir, use_best_checkpoint=config.use_best_checkpoint)
    if not predictor.text_names:
        raise UserError(f"{config.model_dir} is an encoder without a task: extract_features writes its vectors")
    if predictor.task in _OTHER_COMMANDS:
        raise UserError(f"{config.model_dir} is a model of {predictor.task}: {_OTHER_COMMANDS[predictor.task]}")
    if config.top_k and predictor.task != "classification":
        raise UserError(f"top_k is for labels, but {config.model_dir} is a model of {predictor.task}")
    number, is_standard = 0, config.output_file == STANDARD_STREAM
    with contextlib.nullcontext(sys.stdout) if is_standard else writing.atomic_write(config.output_file) as sink:
        lines = (_jsonl_lines if config.is_jsonl else _tsv_lines)(config, _predictions(config, predictor))
        for line in lines:
            sink.write(line)
            number += 1
        if not number:
            raise UserError(f"{config.input_file} has no texts; give one per line or row")
    logging.info("predicted %d text(s)%s", number, "" if is_standard else f"; wrote {config.output_file}")


def _jsonl_lines(config: PredictConfig, predictions: "Iterator[tuple[Example, Any]]") -> Iterator[str]:
    from official_bert.inference.predictor import as_json

    for example, result in predictions:
        found = as_json(result)
        if isinstance(found, dict) and isinstance(found.get("probabilities"), dict):
            found["probabilities"] = _likely(config, found["probabilities"]) or found["probabilities"]
        found = found if isinstance(found, dict) else {"answers" if isinstance(found, list) else "prediction": found}
        identity = {} if example.id is None else {"id": example.id}
        yield json.dumps({**identity, **found}, ensure_ascii=False) + "\n"


def _tsv_lines(config: PredictConfig, predictions: "Iterator[tuple[Example, Any]]") -> Iterator[str]:
    """Yield the rows of a table, the first one with the header."""
    from official_bert.training.run_folder import read_labels

    labels = None
    for example, result in predictions:
        cells, shares = _cells(result)
        if likely := _likely(config, shares):
            cells, shares = {**cells, **ranked_columns(likely.items())}, {}
        header = ""
        if labels is None:
            has_id, known = example.id is not None, read_labels(config.model_dir) or sorted(shares)
            labels = [label for label in known if label in shares]
            header = tsv_line([*(["id"] if has_id else []), *cells, *labels])
        identity = [example.id or ""] if has_id else []
        yield header + tsv_line([*identity, *cells.values(), *(shares[label] for label in labels)])


def _likely(config: PredictConfig, shares: dict[str, Any]) -> dict[str, Any]:
    """Return the most likely labels, the first of `shares`, where not all are written."""
    number = config.top_k or (NUM_LIKELY if len(shares) > MOST_LABEL_COLUMNS else 0)
    return dict(itertools.islice(shares.items(), number))


def _cells(result: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns of a prediction, and those with the probability of each label; of answers only the best."""
    from official_bert.inference.predictor import as_json

    best = result[0] if isinstance(result, list) else result
    if isinstance(best, float):
        return {"prediction": _cell(best)}, {}
    named = as_json(best) if isinstance(best, dict) else best._asdict()
    cells = {name: value for name, value in named.items() if name != "entities"}
    shares = cells.pop("probabilities") if isinstance(cells.get("probabilities"), dict) else {}
    if "labels" in cells:
        cells = {"prediction": ",".join(cells["labels"])}
    cells = {"prediction" if name in ("label", "text") else name: _cell(value) for name, value in cells.items()}
    return cells, {label: _cell(share) for label, share in shares.items()}


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_cell, value))
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _predictions(config: PredictConfig, predictor: "Predictor") -> "Iterator[tuple[Example, Any]]":
    """Yield examples with their results in the order of the file."""
    import tensorflow as tf

    examples = _examples(config, predictor)
    # A question that is typed is answered before the next one.
    size = 1 if config.context_file or (config.input_file == STANDARD_STREAM and sys.stdin.isatty()) else _BATCH_SIZE
    while batch := list(itertools.islice(examples, size)):
        try:
            results = predictor([example.texts for example in batch])
        except (UserError, tf.errors.InvalidArgumentError) as error:
            message = str(error) if isinstance(error, UserError) else plain_message(error)
            raise UserError(f"{batch[0].where}, or below it: {message}") from error
        yield from zip(batch, results, strict=True)
        sys.stdout.flush()


def _examples(config: PredictConfig, predictor: "Predictor") -> "Iterator[Example]":
    from official_bert.support import text_files
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
    is_table = (config.input_format or (ending != ".txt" and format_of(path)) or LINES) != LINES
    table = _table(config, names[: len(names) - len(added)])
    source = table if is_table else TextSource(path)
    is_single = len(names) == 1
    examples = source.examples(max_splits=0 if is_single or added else -1, last_is_text=names[-1] != _CHOICES)
    for number, example in enumerate(examples):
        if not number and not is_table:
            _warn_of_header(example, table)
        if config.id_column and example.id is None:
            raise UserError(f"{example.where}: there is no {config.id_column}, the column that id_column names")
        if is_single or any(example.texts):  # otherwise a blank line has no text
            yield example._replace(texts=_as_input(names, [*example.texts, *added]))


def _columns(config: PredictConfig, predictor: "Predictor") -> "list[Example] | None":
    """Return the sentences of a file of tagged words, which is read whole, as `run_ner` does; None for other files."""
    from official_bert.inference.finished_runs import find_run
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
    if not is_given and (config.input_format or config.text_columns or is_stream):
        return None
    path = TextSource(config.input_file).readable_path
    run = find_run(config.model_dir)
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


def _table(config: PredictConfig, names: Sequence[str]) -> TextSource:
    """Describe the file as a table; what is not given is as in the run, or the columns are named like the texts."""
    from official_bert.inference.finished_runs import find_run

    run = find_run(config.model_dir)
    flags = run.settings.flags if run and run.is_own else {}
    of_run = ",".join(filter(None, (flags.get(flag) for flag in run.task.text_flags))) if flags else ""
    return TextSource(
        config.input_file,
        (config.text_columns or of_run or ",".join(names)).split(","),
        config.input_format,
        has_header=config.has_header and flags.get("has_header", True),
        delimiter=flags.get("delimiter", COMMA) if config.delimiter == COMMA else config.delimiter,
        id_column=config.id_column or ID,
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
)
