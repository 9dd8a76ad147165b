"""The servable of sentence encoders, which maps each text to a vector."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import NO_PROMPTS, QUERY, Prompts
from official_bert.modeling.sentence import SentenceModel, normalized
from official_bert.options.groups import BINARY, FLOAT32, INT8, check_vector_size
from official_bert.serving.servable import IDS_SCHEMA, Servable, Tensors, TrainedModel, traced
from official_bert.serving.signatures import MOST_CELLS, TOKEN_VECTORS
from official_bert.serving.versions import QUERY_WEIGHTS
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.reader import SPARSE_QUERIES, SPARSE_VECTORS, VECTORS
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.graph_operations import truncate_and_join

_LARGEST_INT8 = 127


class SentenceServable(Servable):
    """A sentence model with its tokenizer; its vectors can be truncated, normalized and quantized."""

    task = "sentence_encoder"
    text_names = ("text",)

    def __init__(
        self,
        model: SentenceModel,
        config: BertConfig,
        tokenizer: Tokenizer,
        *,
        max_seq_length: int,
        size: int | None = None,
        normalize: bool = False,
        vector_types: Sequence[str] = (FLOAT32,),
        prompts: Prompts = NO_PROMPTS,
        query_weights: np.ndarray | None = None,
    ):
        """Keep the first `size` components of each vector; if the model ends in normalization, normalize them again.

        If pooling leaves the default prompt out, every sequence of ids must begin with it. `query_weights`, float32
        [V], are those of wordpieces of queries, for inference-free SPLADE.
        """
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length, name="sentence_encoder")
        if model.is_sparse and (size or normalize or tuple(vector_types) != (FLOAT32,)):
            raise UserError("sparse vectors are exported whole, in float32, and without normalization")
        check_vector_size(size or 0, model.width)
        prefix = prompts.default
        tokenizer.check_prefix(prefix, max_seq_length)
        if not model.is_sparse:
            self.described_signatures = (*self.described_signatures, TOKEN_VECTORS)
        self.width, self.is_sparse = size or model.width, model.is_sparse
        self._vector_types = tuple(vector_types)
        if query_weights is not None:
            self._arrays = lambda: {QUERY_WEIGHTS: query_weights}
        unpooled = (
            1 + len(tokenizer.encode(prefix)) if prefix and not prompts.are_pooled else 0
        )  # positions, with [CLS]
        self._unnormalized = lambda inputs: model.after_pooling(
            model.pooled(model.encoder(inputs, training=False), inputs), normalize=False
        )
        self._pooled = lambda encoded, inputs: model.after_pooling(model.pooled(encoded, inputs, unpooled))
        if unpooled:
            self._run_model = lambda inputs: self._pooled(model.encoder(inputs, training=False), inputs)
        self._prefix, self._query_prefix = (  # with morphemes, an export reads split texts
            f"{tokenizer.split_text(prompt)} " if prompt and tokenizer.settings.morphemes else prompt
            for prompt in (prefix, prompts.by_name.get(QUERY, ""))
        )
        details = {"pooling": ",".join(model.poolings), "prefix": prefix, "prompts": dict(prompts.by_name)}
        self._details = lambda: details
        self._normalizes = normalize or (model.is_normalized and self.width < model.width)

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

    def numbers(self, inputs: Tensors) -> Tensors:
        """Compute the same and the vectors of the tokens, unless the vectors are sparse, in one pass."""
        if self.is_sparse:
            return super().numbers(inputs)
        encoded = self._run_encoder(inputs)
        of_tokens = tf.cast(encoded["sequence_output"], tf.float32)
        return {**self._outputs(self._pooled(encoded, inputs)), TOKEN_VECTORS: of_tokens}

    def unnormalized(self, inputs: Tensors) -> tf.Tensor:
        """Compute the vectors of whole texts, float32 [B, D], without normalization."""
        return self._unnormalized(inputs)

    def _outputs(self, vectors: tf.Tensor) -> Tensors:
        vectors = vectors[:, : self.width]
        if self._normalizes:
            vectors = normalized(vectors)
        outputs = {VECTORS: vectors}
        if INT8 in self._vector_types:
            outputs["int8_vectors"] = _as_int8(vectors)
        if BINARY in self._vector_types:
            outputs["binary_vectors"] = _packed_bits(vectors)
        return outputs


def servable_of_run(run: TrainedModel) -> SentenceServable:
    config = run.config
    return SentenceServable(
        run.load(SentenceModel),
        run.bert_config,
        run.tokenizer,
        max_seq_length=config.max_seq_length,
        size=config.vector_size or None,
        vector_types=config.listed_vector_types,
        prompts=Prompts(config.prompts, config.query_prefix if config.prefix is None else config.prefix),
    )


def _weights_above_0(vectors: tf.Tensor) -> Tensors:
    """Return the ids of the wordpieces with a weight, ascending, and the weights, [B, K]; padded with zeros."""
    places = tf.where(vectors > 0)
    weights = tf.RaggedTensor.from_value_rowids(
        tf.gather_nd(vectors, places), places[:, 0], nrows=tf.shape(vectors, tf.int64)[0]
    )
    ids = weights.with_values(tf.cast(places[:, 1], tf.int32))
    return {"indices": ids.to_tensor(), "values": weights.to_tensor()}


def _as_int8(vectors: tf.Tensor) -> tf.Tensor:
    """Scale each vector so that its largest absolute component is 127, and round: cosine similarities stay."""
    largest = tf.reduce_max(tf.abs(vectors), axis=1, keepdims=True)
    return tf.cast(tf.round(tf.math.divide_no_nan(vectors, largest) * _LARGEST_INT8), tf.int8)


def _packed_bits(vectors: tf.Tensor) -> tf.Tensor:
    """Pack the signs of vectors, [B, D], into uint8 [B, ceil(D / 8)] as `numpy.packbits` does: 1 if positive."""
    width = vectors.shape[1]
    bits = tf.pad(tf.cast(vectors > 0, tf.int32), [[0, 0], [0, -width % 8]])
    bits = tf.reshape(bits, [-1, bits.shape[1] // 8, 8])
    return tf.cast(tf.reduce_sum(bits * [128, 64, 32, 16, 8, 4, 2, 1], axis=2), tf.uint8)
