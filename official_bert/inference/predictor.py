"""`Predictor`: loads a trained model once and predicts from Python."""

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.config.text_settings import TextSettings
from official_bert.serving.engine_model import USUAL_SIZES, load_engine_model
from official_bert.serving.signatures import MOST_CELLS, Arrays, RequestError, softmax
from official_bert.serving.versions import engine_version, find_export, folder_of_model, is_functional
from official_bert.support import files
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.classification.options import HYPOTHESIS, PLACE, check_labels
from official_bert.tasks.classification.reader import Classification, MultiLabelClassification
from official_bert.tasks.multiple_choice.reader import CHOICES, joined_choices
from official_bert.tokenization.sequences import BATCH_SIZE, compute_by_length

_NUM_SPECIALS = 4  # maximum number of positions of a pair that are not of its texts
# Beginnings of the names of labels of entailment, in lowercase.
_ENTAILED, _CONTRADICTED = ("entail",), ("contradict", "not_", "not-", "non")
_NO_TASK = (
    "this is an encoder without a task, or with a classifier, but without its labels.json, so it cannot predict; "
    "for vectors call embed(texts)"
)


class Predictor:
    """Predicts with an exported model, or a model in the output folder of a run.

    Examples:
      >>> predict = Predictor("out/reviews")
      >>> predict("the plot drags")
      Classification(label='negative', probability=0.93, probabilities={'negative': 0.93, 'positive': 0.07})
      >>> predict(["a gem", "two hours of my life"])   # a list for a list, in the same order
      >>> answer = Predictor("out/squad")
      >>> answer(("Who keeps bees?", "In spring Zoë Lindqvist keeps bees."))[0]
      Answer(text='Zoë Lindqvist', probability=0.93, start=10, end=23)
      >>> encoder = Predictor("uncased_L-12_H-768_A-12")
      >>> encoder.embed(["the plot drags", "a gem"]).shape
      (2, 768)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        use_best_checkpoint: bool = False,
        vocab_file: str | os.PathLike[str] | None = None,
        bert_config_file: str | os.PathLike[str] | None = None,
        mixed_precision: str = "none",
        top_k: int | None = None,
        engine: str | None = None,
        **text_settings: bool | str | None,
    ):
        """Load a model.

        Args:
          path: a version of an exported model; the folder of its versions (the last one is used); or the output folder
            of `run_classifier.py`, `run_squad.py`, `run_ner.py`, `run_multiple_choice`, `run_pretraining.py` or
            `save_model`. Or a Hugging Face folder, possibly `hf://owner/name`, whose `config.json` gives a class with a
            head for one of these tasks. Or, for `embed`, the folder of an encoder without a task, in BERT's or Hugging
            Face's format.
          use_best_checkpoint: for an output folder, whether to use the best checkpoint instead of the last.
          vocab_file: for an output folder, another path of its vocabulary; by default its copy in the folder or, in
            folders of earlier versions, the path used in training.
          bert_config_file: for an output folder, another path of its architecture; default as for the vocabulary.
          mixed_precision: number format of the computation, independent of that in training: "none" for float32,
            "bfloat16", "float16", or "auto" for the fastest on this machine. An export computes in float32.
          top_k: for an output folder of pretraining or question answering, the number of words for each [MASK], or of
            answers; 5 by default.
          engine: for an export for ONNX, the program that computes it, "onnxruntime" (the default) or "openvino".
          **text_settings: for the output folder of pretraining, arguments of `FullTokenizer`, such as `do_lower_case`;
            other scripts record them.

        Raises:
          UserError: there is no model at the path, or it cannot be loaded.
        """
        TextSettings(**text_settings)  # refuses other names
        path = files.local_folder(os.fspath(path))
        changes = {
            "vocab_file": vocab_file and os.fspath(vocab_file),
            "bert_config_file": bert_config_file and os.fspath(bert_config_file),
            **text_settings,
        }
        choices = {"use_best_checkpoint": use_best_checkpoint, "mixed_precision": mixed_precision, "top_k": top_k}
        changes = {name: value for name, value in changes.items() if value is not None}
        given = {**choices, "use_best_checkpoint": use_best_checkpoint or None}
        unused = [*changes, *(name for name, value in given.items() if value not in (None, "none", "auto"))]
        if version := engine_version(path):
            _check_unused(unused, f"{version} is an export")
            self._model: Any = load_engine_model(version, engine=engine)
            return
        if engine is not None:
            raise UserError(f"engine={engine} reads exports with export_format=onnx, and {path} is none")
        path = folder_of_model(path)
        version = find_export(path)
        from official_bert.inference import finished_runs  # imports Keras

        if version:
            _check_unused(unused, f"{version} is an export")
            self._model = finished_runs.SavedModel(version)
        elif is_functional(path):
            _check_unused(unused, f"{path} is a functional model")
            from official_bert.inference.user_models import KERAS, load_functional  # imports TensorFlow

            self._model = finished_runs.model_of(load_functional(path), row=KERAS)
        else:
            self._model = finished_runs.load_model(path, changes, **choices)

    @property
    def task(self) -> str | None:
        """The name of its task, such as "classification"; None for an encoder without a task."""
        return self._model.task

    @property
    def text_names(self) -> list[str]:
        """The names of an example's texts; empty for an encoder without a task."""
        return list(self._model.text_names)

    @property
    def returns_vectors(self) -> bool:
        """True for a sentence encoder, whose answer to a text is its vector."""
        return self.task == "sentence_encoder"

    def __call__(self, texts: str | tuple[str, str] | Sequence[str | tuple[str, str]]) -> Any:
        """Predict.

        Args:
          texts: one text; for a model that takes two, a tuple: (text_a, text_b), or (question, context). A Hugging Face
            classifier takes both forms, since its folder does not record which it was trained on. For multiple choice,
            (context, choices), or (context, question, choices) if it was trained with questions; choices are a list of
            strings, or a string with one per line. Or a list of these.

        Returns:
          A list in the same order for a list. For one text:
            a `Classification` from a classifier;
            a float from a regression;
            a list of `Answer` from question answering, best first; if answers may be missing, "no answer" is added
              unless included;
            a `Choice` from multiple choice, the best one with its number and the probabilities of all;
            a `TaggedText` from tagging, with words, tags, probabilities and entities;
            a list of `FilledMask` for each [MASK] from a pretrained model, most likely first;
            its vector, float32 [D], from a sentence encoder;
            a dict of arrays from a functional model, the outputs by name.

        Raises:
          UserError: the texts do not have the form that the model takes.
        """
        if self.task is None:
            raise UserError(_NO_TASK)
        if isinstance(texts, (str, tuple)):
            return self([texts])[0]
        _check_is_list(texts)
        return self._results(self._rows(texts), self._model.results)

    def classify(
        self,
        texts: str | Sequence[str],
        labels: Sequence[str],
        *,
        hypothesis: str = HYPOTHESIS,
        multi_label: bool = False,
    ) -> Any:
        """Classify texts by labels that a model of entailment was not trained on.

        Args:
          texts: a text or a list of them.
          labels: the classes in words.
          hypothesis: the sentence that follows from a text with a label, which takes the place of "{}".
          multi_label: whether several labels, or none, may be right for a text.

        Returns:
          A `Classification` for each text, or a `MultiLabelClassification`; a list for a list.

        Raises:
          UserError: an argument is invalid, or this is no classifier of pairs with a class "entailment".
        """
        if isinstance(texts, str):
            return self.classify([texts], labels, hypothesis=hypothesis, multi_label=multi_label)[0]
        _check_is_list(texts)
        if self.task != "classification" or len(self.text_names) < 2:
            raise UserError("labels need a classifier of pairs, trained on entailment, such as MNLI's")
        check_labels(labels, hypothesis)
        rows = self._rows((text, hypothesis.replace(PLACE, label)) for text in texts for label in labels)
        pairs = np.array(self._results(rows, _logits_of_both), np.float32).reshape(-1, len(labels), 2)
        # A softmax over contradiction and entailment of each label, or over all labels' entailment, as in transformers.
        # Source: Yin et al., "Benchmarking Zero-shot Text Classification", 2019.
        found = softmax(pairs)[..., 1] if multi_label or len(labels) == 1 else softmax(pairs[..., 1])
        results: list[Any] = []
        for row in found:
            best_first = np.argsort(-row, kind="stable")
            by_label = {labels[place]: float(row[place]) for place in best_first}
            result = Classification(labels[best_first[0]], float(row[best_first[0]]), by_label)
            above = [label for label, share in by_label.items() if share > 0.5]
            results.append(MultiLabelClassification(*result, above) if multi_label else result)
        return results

    def _rows(self, texts: Iterable[str | tuple[str, ...]]) -> list[tuple[str, ...]]:
        names, takes_one = self._model.text_names, self._model.takes_one_text
        return [_row(names, number, text, takes_one) for number, text in enumerate(texts)]

    def _results(
        self, rows: Sequence[tuple[str, ...]], read: Callable[[Arrays], list[Any]], batch_size: int | None = None
    ) -> list[Any]:
        """Predict texts of similar length together, as many as `batch_size` or the size of the model allow.

        Args:
          read: converts outputs of the signature `text` to a result for each row.
        """

        def most_rows(num_characters: int) -> int:
            num_positions = min(num_characters, self._model.num_positions)  # a wordpiece has a character or more
            most = USUAL_SIZES.most_sequences(num_positions)
            return max(min(batch_size or BATCH_SIZE, most, MOST_CELLS // num_characters), 1)

        def answer(batch: Sequence[int]) -> list[Any]:
            columns = zip(*(rows[row] for row in batch), strict=True)
            texts = dict(zip(self._model.text_names, map(_encoded, columns), strict=True))
            try:
                return read(self._model.answer(texts))
            except RequestError as error:
                raise UserError(str(error)) from error

        lengths = [sum(map(len, row)) + _NUM_SPECIALS for row in rows]
        return compute_by_length(lengths, most_rows, functools.partial(map, answer))

    def predict_records(self, records: Sequence[bytes]) -> list[Any]:
        """Predict records in the format that runs of this model's task write.

        Args:
          records: serialized tf.Examples of the sequence length used in training; labels are not needed.

        Returns:
          A list in the same order: the same results as for texts or, where these need more than the model (answers,
          tagged words), a dict with the output arrays of the signature `examples`.

        Raises:
          UserError: a record does not fit the model, or this is an encoder without a task.
        """
        if self.task is None:
            raise UserError(_NO_TASK)

        if wrong := [record for record in records if not isinstance(record, bytes)]:
            raise UserError(f"{wrong[0]!r:.80} is not a record; give serialized tf.Examples, as bytes")

        def most_rows(num_positions: int) -> int:
            return min(BATCH_SIZE, USUAL_SIZES.most_sequences(num_positions))

        def answer(batch: Sequence[int]) -> list[Any]:
            arrays = self._model.answer_records([records[row] for row in batch])
            if self._model.has_results_of_ids:
                return self._model.results(arrays)
            return [{name: values[row] for name, values in arrays.items()} for row in range(len(batch))]

        lengths = [self._model.num_positions] * len(records)
        return compute_by_length(lengths, most_rows, functools.partial(map, answer))

    def embed(
        self,
        texts: str | tuple[str, str] | Sequence[str | tuple[str, str]],
        *,
        pooling: str | None = None,
        max_seq_length: int | None = None,
        batch_size: int = BATCH_SIZE,
        prompt_name: str | None = None,
    ) -> np.ndarray:
        """Compute a vector for each text with the encoder.

        A sentence encoder, a run or an export, returns the vectors it was trained for, unless `pooling` is given.

        Args:
          texts: one text, or a tuple for a pair of texts; or a list of them.
          pooling: how wordpiece vectors are combined: "mean" or "max" (of the last layer), "cls" (the last layer at
            [CLS]), "pooler" (the pooled output, trained on sentence pairs), the means of other layers,
            "second_to_last", "sum_last_four", "concat_last_four", "splade" (weights of the vocabulary from the
            masked-LM head), or "model" (the modules of a sentence-transformers folder, including normalization and
            dense layers). Default: "model" if the folder has modules, otherwise "mean".
          max_seq_length: maximum number of wordpieces per text, by default the model's; longer texts are truncated.
          batch_size: number of texts of 64 wordpieces to compute together; more if shorter, fewer if longer.
          prompt_name: a prompt of the folder of a model, or "query" or "document" for inference-free SPLADE, which
            computes the vectors of queries without the encoder. Default: the folder's default prompt; documents.

        Returns:
          float32 [N, D] for a list, in order; [D] for one text. D is the encoder's hidden size, four times that for
          "concat_last_four", the size of the vocabulary for "splade", and defined by the modules for "model", and by
          its training for a sentence encoder.

        Raises:
          UserError: an argument is invalid, or this is an export that predicts another task.
        """
        if isinstance(texts, (str, tuple)):
            options = {"max_seq_length": max_seq_length, "batch_size": batch_size, "prompt_name": prompt_name}
            return self.embed([texts], pooling=pooling, **options)[0]
        _check_is_list(texts)
        if prompt_name is not None and self._model.text_encoder is None:
            raise UserError(f"prompt_name={prompt_name!r:.80} needs the folder of the model; an export has one prompt")
        if prompt_name is None and self.returns_vectors and pooling is None:
            if max_seq_length is not None:
                raise UserError(f"max_seq_length={max_seq_length} needs pooling; a sentence encoder has its own length")
            rows = self._rows(texts)
            vectors = self._results(rows or [("",)], self._model.results, batch_size)  # one, if none, for its width
            return np.array(vectors, np.float32)[: len(rows)]
        if self._model.text_encoder is None:
            raise UserError(
                "pooling: this export has only its own vectors; leave pooling out, or give the run's folder"
                if self.returns_vectors
                else "an export only predicts its task; for vectors give the run's folder"
            )
        return self._model.text_encoder.embed(
            list(texts), pooling=pooling, max_seq_length=max_seq_length, batch_size=batch_size, prompt_name=prompt_name
        )


def _check_unused(unused: Sequence[str], model: str) -> None:
    """Raise UserError if arguments for output folders are given with a model that has all its files."""
    if unused:
        raise UserError(f"{model}, which has all its files; leave out {format_names(unused)}")


def _logits_of_both(outputs: Arrays) -> list[np.ndarray]:
    """Return the logits of contradiction and entailment, [B, 2]."""
    names = [label.decode() for label in outputs["labels"][0].tolist()] if "labels" in outputs else []
    places = [
        [place for place, name in enumerate(names) if name.lower().startswith(beginnings)]
        for beginnings in (_CONTRADICTED, _ENTAILED)
    ]
    if any(len(found) != 1 for found in places):
        raise UserError(
            f"labels need a model of entailment, whose classes are named entailment and contradiction; this one has "
            f"{format_names(names) or 'no classes'}"
        )
    return list(outputs["logits"][:, [found[0] for found in places]])


def _check_is_list(texts: Any) -> None:
    if not isinstance(texts, Iterable) or isinstance(texts, (bytes, Mapping)):
        raise UserError(f"{texts!r:.80} is not a text; give a string, a tuple of two, or a list of them")


def _row(
    names: Sequence[str], number: int, text: str | tuple[str, str], takes_one_text: bool = False
) -> tuple[str, ...]:
    if CHOICES in names and isinstance(text, (tuple, list)) and len(text) == len(names):
        text = (*text[:-1], joined_choices(text[-1]))
    if takes_one_text and isinstance(text, str):
        text = (text, *[""] * (len(names) - 1))
    if len(names) == 1:
        if isinstance(text, tuple) and len(text) == 1:
            (text,) = text
        if not isinstance(text, str):
            raise UserError(f"text {number} is {text!r:.80}, but this model reads {names[0]}, a string")
        return (text,)
    if (
        not isinstance(text, (tuple, list))
        or len(text) != len(names)
        or not all(isinstance(part, str) for part in text)
    ):
        kinds = "a list of strings" if CHOICES in names else "each a string"
        raise UserError(f"text {number} is {text!r:.80}, but this model reads {' and '.join(names)}, {kinds}")
    return tuple(text)


def _encoded(texts: Iterable[str]) -> list[bytes]:
    # As in the reference, lone surrogates, which UTF-8 cannot encode, are dropped.
    return [text.encode("utf-8", "ignore") for text in texts]


def as_json(result: Any) -> Any:
    """Convert a result of `Predictor` for `json`: named tuples become dicts, arrays become lists."""
    if isinstance(result, (np.ndarray, np.generic)):
        result = result.tolist()
    if isinstance(result, bytes):
        return result.decode("utf-8", "replace")
    if isinstance(result, tuple) and hasattr(result, "_asdict"):
        result = result._asdict()
    if isinstance(result, dict):
        return {name: as_json(value) for name, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [as_json(value) for value in result]
    return result
