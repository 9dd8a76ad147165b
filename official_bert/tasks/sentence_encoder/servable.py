"""The servable of sentence encoders, which maps each text to a vector."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from official_bert.serving.servable import IDS_SCHEMA, Servable, Tensors, traced
from official_bert.serving.signatures import MOST_CELLS, TOKEN_VECTORS
from official_bert.serving.versions import QUERY_WEIGHTS
from official_bert.tasks.sentence_encoder.reader import SPARSE_QUERIES, SPARSE_VECTORS, VECTORS
from official_bert.tasks.sentence_encoder.task import SentenceTextModel
from official_bert.tokenization.graph_operations import truncate_and_join

_LARGEST_INT8 = 127


class SentenceServable(SentenceTextModel, Servable):
    """A sentence model whose vectors are computed by TensorFlow."""

    def tokenize(self, text: tf.Tensor) -> Tensors:
        if self._prefix:
            text = tf.strings.join([self._prefix, text])
        encoded = self._graph_tokenizer().encode_beginnings(text, self.max_seq_length)
        return truncate_and_join(encoded, specials=self._specials, max_seq_length=self.max_seq_length)

    def signature(self, name: str) -> Callable[..., Tensors]:
        """See `Servable.signature`; also for `token_vectors`."""
        if name != TOKEN_VECTORS:
            return super().signature(name)
        return traced(self._token_vectors, IDS_SCHEMA.names, tf.TensorSpec([None, None], tf.int32))

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """Add `token_vectors`, for the vectors of the tokens, and for a sparse model `sparse_vectors`."""
        signatures = super().signatures()
        texts = tf.TensorSpec([None], tf.string)
        function = self.signature(TOKEN_VECTORS)
        self._variables = [*self._variables, *function.variables]
        if self.is_sparse and self.reads_texts:
            signatures[SPARSE_VECTORS] = traced(self._sparse_vectors, self.text_names, texts)
        if self.arrays and self.reads_texts:
            signatures[SPARSE_QUERIES] = traced(self._sparse_queries, self.text_names, texts)
        return {**signatures, TOKEN_VECTORS: function}

    def more_warmup_requests(self, texts: Mapping[str, tf.Tensor]) -> list[tuple[str, Tensors]]:
        of_texts = [(SPARSE_VECTORS, texts)] if self.is_sparse else []
        ids = self.tokenize(**texts)
        most = max(MOST_CELLS // (ids["input_ids"].shape[1] * self.bert_config.hidden_size), 1)  # of such rows
        return [(TOKEN_VECTORS, {name: values[:most] for name, values in ids.items()}), *of_texts]

    def _token_vectors(self, **inputs: tf.Tensor) -> Tensors:
        ids = self._checked(inputs)
        num_examples, length = tf.unstack(tf.shape(ids["input_ids"], tf.int64))
        check = self._check_table_of_positions(num_examples, length, self.bert_config.hidden_size)
        with tf.control_dependencies([check]):
            vectors = self._run_encoder({name: tf.identity(values) for name, values in ids.items()})["sequence_output"]
        return {TOKEN_VECTORS: tf.cast(vectors, tf.float32), "lengths": tf.reduce_sum(ids["input_mask"], axis=1)}

    def _sparse_vectors(self, **texts: tf.Tensor) -> Tensors:
        return _weights_above_0(self.answer(**texts)[VECTORS])

    def _sparse_queries(self, text: tf.Tensor) -> Tensors:
        text = tf.strings.join([self._query_prefix, text])
        ids = self._graph_tokenizer().encode_beginnings(text, self.max_seq_length)[:, : self.max_seq_length]
        places = tf.stack([ids.value_rowids(), tf.cast(ids.values, tf.int64)], axis=1)
        weights = self.arrays[QUERY_WEIGHTS]
        counts = tf.scatter_nd(places, tf.ones_like(ids.values), [ids.nrows(), len(weights)])
        return _weights_above_0(tf.where(counts > 0, weights, 0.0))

    def predict(self, inputs: Tensors) -> Tensors:
        """Compute the vectors of texts, float32 [B, D], and on request int8 and binary ones."""
        return self._outputs(self._run_model(inputs))


servable_of_run = SentenceServable.of_run


def _weights_above_0(vectors: tf.Tensor) -> Tensors:
    """Return the ids of the wordpieces with a weight, ascending, and the weights, [B, K]; padded with zeros."""
    places = tf.where(vectors > 0)
    weights = tf.RaggedTensor.from_value_rowids(
        tf.gather_nd(vectors, places), places[:, 0], nrows=tf.shape(vectors, tf.int64)[0]
    )
    ids = weights.with_values(tf.cast(places[:, 1], tf.int32))
    return {"indices": ids.to_tensor(), "values": weights.to_tensor()}
