"""Servable classifiers: map a text or text pair to labels with probabilities, or to a score."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from official_bert.checkpoints.locate import hugging_face_folder
from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import score_activation
from official_bert.modeling.heads import ClassificationModel
from official_bert.serving.servable import Servable, Tensors, TrainedModel, traced
from official_bert.serving.signatures import CLASSIFY, REGRESS
from official_bert.serving.versions import NUM_POSITIONS
from official_bert.tasks.classification.data import THRESHOLD
from official_bert.tasks.classification.reader import IS_PREDICTED, PREDICTED, RAW
from official_bert.tasks.classification.records import configured_dataset, reads_pairs
from official_bert.tasks.classification.report import with_stored_thresholds
from official_bert.tasks.classification.task import PROBLEMS
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.graph_operations import MOST_BYTES, join_windows, truncate_and_join


class ClassOutputs(NamedTuple):
    problem: str  # as in `Dataset`
    labels: Sequence[str]
    thresholds: Sequence[float] | None = None  # as in `Dataset`
    activation: str = "Identity"  # of the score of a regression; see `score_activation`


class ClassificationServable(Servable):
    task = "classification"

    def __init__(
        self,
        model: ClassificationModel,
        config: BertConfig,
        tokenizer: Tokenizer,
        *,
        outputs: ClassOutputs,
        is_pair: bool,
        max_seq_length: int,
        max_windows: int = 1,
        doc_stride: int | None = None,
    ):
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length, name="classifier")
        self.text_names = ("text_a", "text_b") if is_pair else ("text_a",)
        problem, labels, self._thresholds, self._activation = outputs
        self._problem, self._max_windows, self._doc_stride = problem, max_windows, doc_stride
        self._labels = tf.constant(labels, tf.string)
        details = {"problem": problem, "labels": list(labels), "max_windows": max_windows, "doc_stride": doc_stride}
        if max_windows > 1:
            details[NUM_POSITIONS] = self.num_example_positions
        self._details = lambda: details

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """Add `classify` or `regress`, which TensorFlow Serving's method of this name calls."""
        if not self.reads_texts:
            return super().signatures()
        function = traced(self._answer_examples, ["inputs"], tf.TensorSpec([None], tf.string))
        return {**super().signatures(), self._method: function}

    @property
    def _method(self) -> str:
        return REGRESS if self._problem == "regression" else CLASSIFY

    def more_warmup_requests(self, texts: Mapping[str, tf.Tensor]) -> list[tuple[str, Tensors]]:
        rows = zip(*(values.numpy() for values in texts.values()), strict=True)
        return [(self._method, {"inputs": tf.constant([_example(texts, row) for row in rows])})]

    def _answer_examples(self, inputs: tf.Tensor) -> Tensors:
        """Answer tf.Examples, string [B], whose features are the texts."""
        features = dict.fromkeys(self.text_names, tf.io.FixedLenFeature([], tf.string))
        outputs = self.answer(**tf.io.parse_example(inputs, features))
        if self._problem == "regression":
            return {"outputs": outputs["scores"]}
        scores = tf.sort(outputs["probabilities"], direction="DESCENDING")
        return {"classes": outputs["classes"], "scores": scores}

    @property
    def most_positions(self) -> int:
        return self.num_example_positions if self._max_windows > 1 else super().most_positions

    @property
    def num_example_positions(self) -> int:
        return self._max_windows * self.max_seq_length

    def tokenize(self, text_a: tf.Tensor, text_b: tf.Tensor | None = None) -> Tensors:
        """Convert texts to model inputs, int32 [B, S], or [B, W * S] with windows; a missing second text is ""."""
        if text_b is None:
            first, second = self._encode(text_a), None
        else:
            first, second = self._encode_pairs(text_a, text_b)
        if self._max_windows == 1:
            return truncate_and_join(first, second, specials=self._specials, max_seq_length=self.max_seq_length)
        return join_windows(
            first,
            second,
            specials=self._specials,
            max_seq_length=self.max_seq_length,
            max_windows=self._max_windows,
            doc_stride=self._doc_stride,
        )

    def _encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenize texts up to the length that an example can hold."""
        # The text of a pair to split into windows depends on both lengths.
        has_all = self._max_windows > 1 and len(self.text_names) > 1
        num_wordpieces = MOST_BYTES if has_all else self.num_example_positions
        return self._graph_tokenizer().encode_beginnings(texts, num_wordpieces)

    def _encode_pairs(self, text_a: tf.Tensor, text_b: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Tokenize both texts of all pairs in one call; two calls of such small operations would take twice as long."""
        with tf.device("CPU:0"):
            encoded = self._encode(tf.concat([text_a, text_b], axis=0))
            num_pairs = tf.size(text_a)
            return encoded[:num_pairs], encoded[num_pairs:]

    def predict(self, inputs: Tensors) -> Tensors:
        """Return scores [B]; or labels with logits and probabilities in the same order, and `classes` by rank, [B, C].

        Scores that passed through a sigmoid have the logits beside them, as `raw_scores`, [B].
        For several labels also the predictions, `is_predicted`, bool [B, C]; for single labels with a threshold
        `predicted`, int32 [B], the number of the label.
        """
        if self._max_windows > 1:
            inputs = _whole_windows(inputs, self.max_seq_length)
        logits = self._run_model(inputs)
        if self._problem == "regression":
            scores = logits[:, 0]
            return {"scores": tf.sigmoid(scores), RAW: scores} if self._activation == "Sigmoid" else {"scores": scores}
        probabilities = PROBLEMS[self._problem].probabilities(logits)
        best_first = tf.argsort(probabilities, direction="DESCENDING", stable=True)
        outputs = {
            "labels": tf.broadcast_to(self._labels, tf.shape(logits)),
            "logits": logits,
            "probabilities": probabilities,
            "classes": tf.gather(self._labels, best_first),
        }
        if self._problem == "multi_label":
            outputs[IS_PREDICTED] = probabilities > (self._thresholds or THRESHOLD)
        elif self._thresholds:
            outputs[PREDICTED] = tf.cast(probabilities[:, 1] > self._thresholds[0], tf.int32)
        return outputs


def _example(names: Iterable[str], texts: Iterable[bytes]) -> bytes:
    lists = (tf.train.BytesList(value=[text]) for text in texts)
    features = {name: tf.train.Feature(bytes_list=values) for name, values in zip(names, lists, strict=True)}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def _whole_windows(inputs: Tensors, window_length: int) -> Tensors:
    last = (tf.shape(inputs["input_ids"])[1] - 1) % window_length  # never negative: converters divide toward zero
    num_missing = window_length - 1 - last
    return {name: tf.pad(values, [[0, 0], [0, num_missing]]) for name, values in inputs.items()}


def servable_of_run(run: TrainedModel) -> ClassificationServable:
    config, dataset = run.config, with_stored_thresholds(configured_dataset(run.config), run.checkpoint)
    hf_folder = hugging_face_folder(run.checkpoint)
    activation = score_activation(hf_folder, dataset.problem) if hf_folder else "Identity"
    return ClassificationServable(
        run.load(ClassificationModel, num_outputs=len(dataset.labels) or 1),
        run.bert_config,
        run.tokenizer,
        outputs=ClassOutputs(dataset.problem, dataset.labels, dataset.thresholds, activation),
        is_pair=reads_pairs(config),
        max_seq_length=config.max_seq_length,
        max_windows=config.max_windows if config.long_text == "window" else 1,
        doc_stride=config.doc_stride,
    )
