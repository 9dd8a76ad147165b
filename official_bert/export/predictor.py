"""`Predictor`: a trained model, loaded once, answers from Python."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from official_bert import files
from official_bert.checkpoints.names import BEST_FOLDER
from official_bert.checkpoints.state_file import latest_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.config.run_configs import ClassifierConfig, PretrainingConfig, SquadConfig
from official_bert.config.saved_flags import config_from_saved
from official_bert.errors import UserError, listed
from official_bert.export.saved_model import SAVED_MODEL_FILE, check_whole, versions
from official_bert.export.servable import TEXT, Servable
from official_bert.export.trained import classifier_servable, mask_servable, span_servable
from official_bert.tasks.dataset_choice import configured_dataset
from official_bert.tasks.model_files import read_model_files
from official_bert.tokenization import FullTokenizer
from official_bert.training.run_folder import (
    BERT_CONFIG_FILE,
    RUN_CONFIG_FILE,
    VOCAB_FILE,
    RunConfig,
    check_same_model,
    model_file,
    read_run_config,
)

_BATCH_SIZE = 32
_INPUTS = ("text", "text_a", "text_b", "question", "context")  # a SavedModel names its inputs, but in no order
# What `tf.saved_model.load` was seen to raise at damaged files of exports that have no checksums.
_LOADING_ERRORS = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, tf.errors.OpError)

_Config = TypeVar("_Config", ClassifierConfig, SquadConfig, PretrainingConfig)


class Classification(NamedTuple):
    """What a classifier says of a text.

    Attributes:
      label: the likeliest.
      probability: of that label.
      probabilities: of every label, the likeliest first.
    """

    label: str
    probability: float
    probabilities: dict[str, float]


class Answer(NamedTuple):
    """A part of a text that may answer a question.

    Attributes:
      text: `context[start:end]`; "" is that there is no answer.
      probability: its share among the question's best answers.
      start: the character of the context at which it begins, not counting any that UTF-8 cannot encode; 0 of no answer.
      end: the character after it.
    """

    text: str
    probability: float
    start: int
    end: int


class FilledMask(NamedTuple):
    """A wordpiece that may stand for a mask.

    Attributes:
      word: the wordpiece.
      probability: from 0 to 1, over the whole vocabulary.
    """

    word: str
    probability: float


class Predictor:
    """Answers with an exported model, or with what a run of a script left in its output folder.

    Example:
      >>> predict = Predictor("out/reviews")
      >>> predict("the plot drags")
      Classification(label='negative', probability=0.93, probabilities={'negative': 0.93, 'positive': 0.07})
      >>> predict(["a gem", "two hours of my life"])   # a list for a list, in the same order
      >>> answer = Predictor("out/squad")
      >>> answer(("Who keeps bees?", "In spring Zoë Lindqvist keeps bees."))[0]
      Answer(text='Zoë Lindqvist', probability=0.93, start=10, end=23)
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        use_best_checkpoint: bool = False,
        vocab_file: str | os.PathLike | None = None,
        bert_config_file: str | os.PathLike | None = None,
        do_lower_case: bool | None = None,
    ):
        """Loads a model.

        Args:
          path: a version of an exported model, the folder of its versions (the last one is taken), or the output folder
            of `run_classifier.py`, `run_squad.py` or `run_pretraining.py`.
          use_best_checkpoint: of an output folder, take the best checkpoint and not the last.
          vocab_file: of an output folder, another place of its vocabulary; by default its copy in the folder or, in the
            folders of earlier versions, where it was in training.
          bert_config_file: of an output folder, another place of its architecture; by default as for the vocabulary.
          do_lower_case: of the output folder of pretraining, whether the vocabulary is uncased; other scripts know.

        Raises:
          UserError: there is no model at the path, or it cannot be loaded.
        """
        path = os.fspath(path)
        changes = {
            "vocab_file": vocab_file and os.fspath(vocab_file),
            "bert_config_file": bert_config_file and os.fspath(bert_config_file),
            "do_lower_case": do_lower_case,
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        saved = _saved_model_folder(path)
        if saved:
            if changes or use_best_checkpoint:
                unused = [*changes, "use_best_checkpoint"] if use_best_checkpoint else changes
                raise UserError(f"{saved} is an export, which needs nothing else; leave out {listed(unused)}")
            self._source = _load_export(saved)
            self._ask = self._source.signatures[TEXT]
            self._names = sorted(self._ask.structured_input_signature[1], key=_INPUTS.index)
        else:
            self._source = _servable_of_run(path, use_best_checkpoint, changes)
            self._ask, self._names = self._source.signature(TEXT), self._source.text_names

    @classmethod
    def of(cls, servable: Servable) -> "Predictor":
        """Answers with a model that is there already."""
        predictor = cls.__new__(cls)
        predictor._source = servable  # holds the weights and tables
        predictor._ask, predictor._names = servable.signature(TEXT), servable.text_names
        return predictor

    def __call__(self, texts: str | tuple[str, str] | Sequence[str | tuple[str, str]]) -> Any:
        """Answers.

        Args:
          texts: one text; for a model that reads two, a tuple: (text_a, text_b), or (question, context). Or a list of
            them.

        Returns:
          For a list a list in the same order. For one text
            of a classifier a `Classification`;
            of a regression a float;
            of question answering a list of `Answer`, the best first; where there may be none, that comes in addition if
              it is not among them;
            of a pretrained model a list for each [MASK] of `FilledMask`, the likeliest first.

        Raises:
          UserError: the texts are not what the model reads.
        """
        if isinstance(texts, (str, tuple)):
            return self([texts])[0]
        if not isinstance(texts, Iterable) or isinstance(texts, (bytes, Mapping)):
            raise UserError(f"{texts!r:.80} is no text; give a string, a tuple of two, or a list of them")
        names, results = self._names, []
        rows = [_row(names, number, text) for number, text in enumerate(texts)]
        for start in range(0, len(rows), _BATCH_SIZE):
            columns = zip(*rows[start : start + _BATCH_SIZE], strict=True)
            inputs = dict(zip(names, map(_encoded, columns), strict=True))
            results += _results({name: values.numpy() for name, values in self._ask(**inputs).items()})
        return results


def _row(names: Sequence[str], number: int, text: str | tuple[str, str]) -> tuple[str, ...]:
    row = tuple(text) if isinstance(text, (tuple, list)) else (text,)
    if len(row) != len(names) or not all(isinstance(part, str) for part in row):
        raise UserError(f"text {number} is {text!r:.80}, but this model reads {' and '.join(names)}, each a string")
    return row


def _saved_model_folder(path: str) -> str | None:
    """The folder of an exported version; None if the path is no export."""
    if not files.is_folder(path):
        raise UserError(f"there is no folder {path}; give an export or the output folder of a run")
    if files.exists(os.path.join(path, SAVED_MODEL_FILE)):
        return path
    for version in reversed(versions(path)):
        folder = os.path.join(path, str(version))
        if files.exists(os.path.join(folder, SAVED_MODEL_FILE)):
            return folder
    return None


def _load_export(folder: str) -> Any:
    check_whole(folder)
    try:
        export = tf.saved_model.load(folder)
    except tf.errors.ResourceExhaustedError:
        raise
    except _LOADING_ERRORS as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"{folder} cannot be loaded ({reason}); is it damaged? Export the model again") from error
    ask = export.signatures.get(TEXT)
    if ask is None or not set(ask.structured_input_signature[1]) <= set(_INPUTS):
        raise UserError(f"{folder} does not read texts as models do that were exported with --do_export")
    return export


def _servable_of_run(path: str, use_best_checkpoint: bool, changes: dict[str, Any]) -> Servable:
    run = read_run_config(path)
    if run is None:
        raise UserError(f"{path} holds neither an exported model nor the {RUN_CONFIG_FILE} of a run; check the path")
    folder = os.path.join(path, BEST_FOLDER) if use_best_checkpoint else path
    checkpoint = latest_checkpoint(folder)
    if checkpoint is None:
        raise UserError(f"there is no checkpoint in {folder}; train{' with --eval_steps' * use_best_checkpoint} first")
    run.flags.update(output_dir=path, **_model_files(path, run, changes), **changes)
    if "task_name" in run.flags:
        config = config_from_saved(ClassifierConfig, run.flags, run.path)
        model_files = _checked_model_files(path, config)
        return classifier_servable(config, *model_files, configured_dataset(config), checkpoint, "checkpoint")
    if "max_query_length" in run.flags:
        config = config_from_saved(SquadConfig, run.flags, run.path)
        model_files = _checked_model_files(path, config)
        return span_servable(config, *model_files, checkpoint, "checkpoint", top_k=config.export_top_k)
    if run.flags.get("vocab_file") is None:
        raise UserError(f"{path} is of pretraining, which does not know the vocabulary; give vocab_file")
    run.flags.update(do_export=True, export_dir=path)  # which give the vocabulary a use
    config = config_from_saved(PretrainingConfig, run.flags, run.path)
    return mask_servable(
        *_checked_model_files(path, config),
        checkpoint,
        "checkpoint",
        max_seq_length=config.max_seq_length,
        top_k=config.export_top_k,
    )


def _model_files(path: str, run: RunConfig, changes: dict[str, Any]) -> dict[str, str]:
    """Where the model's files are, but for those in `changes`: copies in the folder, otherwise where training had them.

    Raises:
      UserError: one is not there.
    """
    found = {}
    for flag, name in (("bert_config_file", BERT_CONFIG_FILE), ("vocab_file", VOCAB_FILE)):
        if flag in changes:
            continue
        place = model_file(path, name) or run.flags.get(flag)
        if isinstance(place, str):
            if not files.exists(place):
                raise UserError(f"{path} was trained with {place}, which is not there; give {flag}=, where it is now")
            found[flag] = place
    return found


def _checked_model_files(path: str, config: _Config) -> tuple[BertConfig, FullTokenizer]:
    bert_config, tokenizer = read_model_files(config)
    check_same_model(path, bert_config, tokenizer.vocabulary)
    return bert_config, tokenizer


def _encoded(texts: Iterable[str]) -> tf.Tensor:
    # As in the reference, what cannot be encoded (a lone surrogate) is dropped.
    return tf.constant([text.encode("utf-8", "ignore") for text in texts])


def _results(outputs: dict[str, np.ndarray]) -> list[Any]:
    """Turns the outputs of the signature `text` into one result an example."""
    if "scores" in outputs:
        return outputs["scores"].tolist()
    if "classes" in outputs:
        best_first = -np.sort(-outputs["probabilities"], axis=1)
        return [_classification(*row) for row in zip(outputs["classes"].tolist(), best_first.tolist(), strict=True)]
    if "answers" in outputs:
        names = ("answers", "probabilities", "starts", "ends")
        null = outputs.get("null_probabilities", np.array([None] * len(outputs["answers"])))
        rows = zip(*(outputs[name].tolist() for name in names), null.tolist(), strict=True)
        return [_answers(*row) for row in rows]
    return [
        [
            [FilledMask(word.decode(), probability) for word, probability in zip(*mask, strict=True)]
            for mask in zip(*row, strict=True)
            if any(mask[1])
        ]
        for row in zip(outputs["words"].tolist(), outputs["probabilities"].tolist(), strict=True)
    ]


def _classification(classes: list[bytes], probabilities: list[float]) -> Classification:
    by_label = {label.decode(): probability for label, probability in zip(classes, probabilities, strict=True)}
    label = next(iter(by_label))
    return Classification(label, by_label[label], by_label)


def _answers(
    texts: list[bytes], probabilities: list[float], starts: list[int], ends: list[int], null: float | None
) -> list[Answer]:
    rows = zip(texts, probabilities, starts, ends, strict=True)
    answers = [Answer(text.decode(), *values) for text, *values in rows if values[0]]
    if null is not None and all(answer.text for answer in answers):
        answers.append(Answer("", null, 0, 0))
    return answers
