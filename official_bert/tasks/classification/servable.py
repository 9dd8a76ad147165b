"""Servable classifiers: map a text or text pair to labels with probabilities, or to a score."""

from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from official_bert.serving.servable import Servable, Tensors, traced
from official_bert.serving.signatures import CLASSIFY, REGRESS
from official_bert.tasks.classification.task import ClassificationTextModel
from official_bert.tokenization.graph_operations import MOST_BYTES, join_windows, truncate_and_join


class ClassificationServable(ClassificationTextModel, Servable):
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
        """Return `numbers`, and for classes their labels, in the same order and, as `classes`, by rank, [B, C]."""
        outputs = self.numbers(inputs)
        if "scores" in outputs:
            return outputs
        labels = tf.constant(self.details["labels"], tf.string)
        best_first = tf.argsort(outputs["probabilities"], direction="DESCENDING", stable=True)
        named = {"labels": tf.broadcast_to(labels, tf.shape(best_first)), "classes": tf.gather(labels, best_first)}
        return {**outputs, **named}


def _example(names: Iterable[str], texts: Iterable[bytes]) -> bytes:
    lists = (tf.train.BytesList(value=[text]) for text in texts)
    features = {name: tf.train.Feature(bytes_list=values) for name, values in zip(names, lists, strict=True)}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


servable_of_run = ClassificationServable.of_run
