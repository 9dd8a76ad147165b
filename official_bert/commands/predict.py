"""`predict`: write the predictions of any trained or exported model for the texts of a file or of standard input."""

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from official_bert.commands.shared.prediction_rows import json_rows, table_rows
from official_bert.commands.shared.prediction_texts import PredictionInput, read_examples, table_of
from official_bert.commands.shared.text_options import OutputTableOptions
from official_bert.data.table_writers import table_writer
from official_bert.data.text_inputs import STANDARD_STREAM, Example
from official_bert.inference.zero_shot import HYPOTHESIS, check_labels
from official_bert.options.command import Command
from official_bert.options.groups import engine_option
from official_bert.options.option import MAX_AXIS, option, options
from official_bert.serving.versions import engine_version
from official_bert.support import files
from official_bert.support.console import MOST_LABEL_COLUMNS, NUM_LIKELY
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.inference.predictor import Predictor

_BATCH_SIZE = 64
# Tasks whose predictions are no rows of a table, and what to use instead.
_OTHER_COMMANDS = {
    "pretraining": "fill_mask predicts its words",
    "sentence_encoder": "run_sentence_encoder --do_predict writes its vectors, sentence_similarity compares them",
}


@options(group="output")
class PredictConfig(PredictionInput, OutputTableOptions):
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
        if self.labels is None:
            self.refuse("hypothesis", "multi_label", because="needs --labels")
        else:
            check_labels(self.listed_labels, self.hypothesis)

    @property
    def has_columns_of_run(self) -> bool:
        """See `PredictionInput`."""
        return self.labels is None

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
            found,
            has_ids=has_ids,
            top_k=config.top_k,
            labels=labels,
            is_rounded=table_format != "parquet",
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
    from official_bert.serving.signatures import RequestError

    try:
        return predictor([example.texts for example in batch])
    except (UserError, RequestError) as error:
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
