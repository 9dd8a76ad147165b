"""TFRecord files of question answering: one record per window, for training or prediction."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

from official_bert.data.records import RecordFile, write_cached
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.support.errors import UserError
from official_bert.support.manifest import fingerprint
from official_bert.support.progress import Progress
from official_bert.tasks.question_answering.examples import SquadSet
from official_bert.tasks.question_answering.windows import TokenizedSquad, Window, WindowOptions
from official_bert.tokenization import Tokenizer

FIRST_UNIQUE_ID = 1_000_000_000  # reference value

_SHUFFLE_SEED = 12345  # reference value

# S: positions per window, V: vocabulary size, T: number of segment types.
PREDICTION_SCHEMA = RecordSchema(
    Field("unique_ids", (), "int32"),
    *ENCODER_FIELDS,
)
TRAINING_SCHEMA = RecordSchema(
    *PREDICTION_SCHEMA.fields,
    Field("start_positions", (), "int32", below="S"),
    Field("end_positions", (), "int32", below="S"),
    Field("is_impossible", (), "int32", below=2),
)


def write_training_records(
    file: RecordFile,
    squad: SquadSet,
    tokenizer: Tokenizer,
    options: WindowOptions,
    *,
    version_2: bool,
    num_processes: int | None = None,
) -> int:
    """Write the training records, in the reference's order, unless an existing file is up to date.

    Returns:
      The number of records.

    Raises:
      UserError: there are no training windows.
    """

    def records() -> Iterator[bytes]:
        tokenized = TokenizedSquad(squad, tokenizer, options, num_processes=num_processes)
        order = list(range(len(squad.questions)))
        Random(_SHUFFLE_SEED).shuffle(order)
        return _records(tokenized, tokenized.training_windows(order, version_2=version_2), TRAINING_SCHEMA)

    provenance = training_provenance(squad, tokenizer, options, version_2=version_2)
    num_records = write_cached(file, provenance, records)
    if not num_records:
        raise UserError(f"{file.path}: there are no windows to train on; are the contexts empty?")
    return num_records


def training_provenance(
    squad: SquadSet, tokenizer: Tokenizer, options: WindowOptions, *, version_2: bool
) -> dict[str, Any]:
    """Return everything that determines the training records, as in a `Manifest`."""
    return {**_provenance(squad, tokenizer, options, TRAINING_SCHEMA), "version_2_with_negative": version_2}


def write_prediction_records(file: RecordFile, tokenized: TokenizedSquad, windows: Sequence[Window]) -> int:
    """Write the prediction records, one per window, unless an existing file is up to date.

    Returns:
      The number of records.
    """
    provenance = _provenance(tokenized.squad, tokenized.tokenizer, tokenized.options, PREDICTION_SCHEMA)
    return write_cached(file, provenance, lambda: _records(tokenized, windows, PREDICTION_SCHEMA))


def _records(tokenized: TokenizedSquad, windows: Iterable[Window], schema: RecordSchema) -> Iterator[bytes]:
    """Serialize windows; the windows of a question are consecutive."""
    schema = schema.sized(S=tokenized.options.max_seq_length)
    num_questions = len(tokenized.squad.questions)
    num_done, question = 0, None
    with Progress("writing records", num_questions, "questions") as progress:
        for number, window in enumerate(windows):
            if window.question_index != question:
                question = window.question_index
                progress.update(num_done, f"{number:,} windows")
                num_done += 1
            joined = tokenized.join(window)
            yield schema.encode(
                {
                    "unique_ids": [FIRST_UNIQUE_ID + number],
                    "input_ids": joined.input_ids,
                    "input_mask": joined.input_mask,
                    "segment_ids": joined.segment_ids,
                    "start_positions": [window.start_position],
                    "end_positions": [window.end_position],
                    "is_impossible": [int(window.is_impossible)],
                }
            )
        progress.update(num_questions)


def _provenance(squad: SquadSet, tokenizer: Tokenizer, options: WindowOptions, schema: RecordSchema) -> dict[str, Any]:
    examples = {"contexts": fingerprint(squad.contexts), "questions": fingerprint(squad.questions)}
    return {**tokenizer.identity, **dataclasses.asdict(options), "fields": schema.names, **examples}
