"""The sentence model: an encoder, pooling and optional dense layers, with one vector per text as output."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from official_bert.config.bert_config import TEXT_LENGTHS, BertConfig
from official_bert.config.poolings import BM25, HEAD, poolings_of
from official_bert.config.sentence_modules import LAYER_NORM, SPLADE_POOLINGS
from official_bert.modeling import pooling as layer_pooling
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import EncoderModel, OutputProjection
from official_bert.modeling.pretraining import MaskedLmHead
from official_bert.modeling.token_model import TokenModel, complete_inputs, unjoined_texts
from official_bert.modeling.transformer import gelu_erf
from official_bert.support.errors import UserError

_POOLINGS = dict.fromkeys((*poolings_of(HEAD), BM25, *SPLADE_POOLINGS))


def _layer_after(number: int, layer: tuple[int, Any] | str) -> keras.layers.Layer:
    if layer == LAYER_NORM:
        epsilon, name = 1e-5, f"layer_norm_{number}"  # PyTorch's default
        return keras.layers.LayerNormalization(epsilon=epsilon, dtype="float32", name=name)
    units, activation = layer
    activation = gelu_erf if activation == "gelu_erf" else activation
    return keras.layers.Dense(units, activation=activation, dtype="float32", name=f"dense_{number}")


@keras.saving.register_keras_serializable(package="official_bert")
class SentenceModel(EncoderModel):
    """A model of an encoder, pooling, dense layers and normalization.

    Attributes:
      width: D, the size of a vector.
      poolings: names of the poolings.
      bm25: with the pooling "bm25", the variables `idf`, float32 [V], and `average_length`; set them before use.
        Wordpieces with an idf of 0 are ignored; set that of [CLS] and [SEP] to 0.
      is_sparse: True for the poolings of SPLADE: a vector has a weight of at least 0 for each wordpiece of the
        vocabulary, and vectors are compared by their dot product.
    Source: Reimers and Gurevych, "Sentence-BERT" (2019), section 3.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        *,
        poolings: Sequence[str] = ("mean",),
        layers_after: Sequence[tuple[int, Any] | str | None] = (),
        size: int | None = None,
        name: str = "sentence",
        **kwargs: Any,
    ):
        """Create the layers after the encoder.

        Args:
          encoder: the encoder.
          poolings: names in `config.poolings`, whose vectors are concatenated. "second_to_last", "sum_last_four" and
            "concat_last_four" are means over the positions of other layers; those of SPLADE, only one of which is
            possible, use the masked-LM head; the others use the last layer.
          layers_after: the layers after pooling: the units and activation of each dense layer, "LayerNorm" for a layer
            normalization, or None for normalization to length 1.
          size: number of first components to which vectors are truncated at the end; None for all.
          name: name of the model.
          **kwargs: see `keras.Model`: dtype, trainable.

        Raises:
          UserError: a pooling is unknown, or the encoder has too few layers for it.
        """
        super().__init__(encoder, name=name, **kwargs)
        unknown = next((pooling for pooling in poolings if pooling not in _POOLINGS), None)
        if unknown is not None:
            raise UserError(f"pooling={unknown!r} is unknown; choose one of {', '.join(_POOLINGS)}")
        self.poolings = tuple(poolings)
        self._layers_after = [tuple(layer) if isinstance(layer, list) else layer for layer in layers_after]
        self._options = {"poolings": self.poolings, "layers_after": self._layers_after, "size": size}
        config = encoder.config
        counts = [layer_pooling.num_vectors(pooling, config.num_layers, parameter="pooling") for pooling in poolings]
        self.width = config.hidden_size * sum(counts)
        self.is_sparse = not SPLADE_POOLINGS.keys().isdisjoint(poolings)
        if self.is_sparse:
            if len(poolings) > 1 or layers_after:
                raise UserError(f"pooling={poolings[0]} excludes other poolings, dense layers and normalization")
            self.width = encoder.word_embeddings.shape[0]
            self.masked_lm = MaskedLmHead(
                config, *encoder.word_embeddings.shape, projection=encoder.head_projection, dtype=self.dtype_policy
            )
            with keras.name_scope("cls"):
                self.masked_lm.build((None, None, config.hidden_size))
        with keras.name_scope("sentence"):
            if BM25 in poolings:
                ones = keras.initializers.Ones()
                self.bm25 = {
                    name: keras.Variable(ones, shape=shape, name=f"bm25_{name}", trainable=False, autocast=False)
                    for name, shape in (("idf", (config.vocab_size,)), ("average_length", ()))
                }
            self.head_layers = [_layer_after(*layer) for layer in enumerate(filter(None, self._layers_after))]
            for layer in self.head_layers:
                layer.build((None, self.width))
                self.width = layer.compute_output_shape((None, self.width))[-1]
        self.width = min(self.width, size or self.width)
        self.build_for_any_length()

    @property
    def is_normalized(self) -> bool:
        """True if the last layer scales vectors to length 1, and they are not truncated then."""
        return bool(self._layers_after) and self._layers_after[-1] is None and self._options["size"] is None

    @property
    def head_weights(self) -> list[keras.Variable]:
        """The variables that are not the encoder's."""
        of_encoder = set(map(id, self.encoder.weights))
        return [weight for weight in self.weights if id(weight) not in of_encoder]

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Compute the vectors of texts.

        The arguments and errors are those of `BertEncoder.call`.

        Returns:
          float32 [B, D].
        """
        inputs = complete_inputs(input_ids, input_mask, segment_ids)
        return self.from_encoded(self.encoder(inputs, training=training), inputs._asdict(), training=training)

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training: bool = False) -> Any:
        """See `EncoderModel.from_encoded`."""
        return self.after_pooling(self.pooled(encoded, inputs, training=training))

    def pooled(
        self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], prompt_length: int = 0, training: bool = False
    ) -> Any:
        """Concatenate the vectors of all poolings, from position `prompt_length`: float32 [B, hidden size * K]."""
        if prompt_length:
            is_after = ops.cumsum(ops.ones_like(inputs["input_mask"]), axis=1) > prompt_length
            mask = inputs["input_mask"] * ops.cast(is_after, inputs["input_mask"].dtype)
            inputs = {**inputs, "input_mask": mask}
        vectors = [self._pooled(encoded, inputs, pooling, prompt_length, training) for pooling in self.poolings]
        return ops.cast(ops.concatenate(vectors, axis=-1), "float32")

    def after_pooling(self, vector: Any, *, normalize: bool = True) -> Any:
        """Apply the layers and, if asked, normalization, and truncate: float32 [B, hidden size * K] to [B, D]."""
        layers = iter(self.head_layers)
        for layer in self._layers_after:
            if layer or normalize:
                vector = next(layers)(vector) if layer else normalized(vector)
        return vector[..., : self.width]

    def _pooled(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], pooling: str, first: int, training: bool):
        """Pool the outputs of the encoder's layers: float [B, hidden size * K]."""
        sequence, input_mask = encoded["sequence_output"], inputs["input_mask"]
        if pooling in layer_pooling.OVER_POSITIONS:
            sequence = sequence[:, first:] if pooling == "cls" else sequence
            return ops.cast(layer_pooling.OVER_POSITIONS[pooling](sequence, input_mask), "float32")
        if pooling in SPLADE_POOLINGS:
            hidden = self.masked_lm.transform(sequence)
            words = ops.cast(self.encoder.word_embeddings, hidden.dtype)
            bias = self.masked_lm.output_bias.value
            return layer_pooling.splade(hidden, input_mask, words, bias, pooling, training)
        if pooling == BM25:
            weights = layer_pooling.bm25_weights(inputs["input_ids"], input_mask, **self.bm25)
            return layer_pooling.weighted_mean_over_positions(sequence, weights)
        features = layer_pooling.sequence_features(encoded["encoder_layers"], input_mask, pooling)  # [B, K, H]
        return ops.reshape(features, (-1, features.shape[1] * features.shape[2]))


class StaticEncoder(TokenModel):
    """A table with a vector of each wordpiece, in place of an encoder; Keras cannot save it."""

    transformer = None

    def __init__(self, config: BertConfig, table: np.ndarray):
        """Create the variable, float32 [V, D]."""
        super().__init__(name="static")
        self.config = config
        self.table = keras.Variable(table, name="vectors", trainable=False)

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Return `sequence_output`, float32 [B, S, D]."""
        inputs = complete_inputs(input_ids, input_mask, segment_ids)
        return {"sequence_output": ops.take(self.table, inputs.input_ids, axis=0)}


class SentenceGroupModel(EncoderModel):
    """A model for training that applies a sentence model to the K texts of an example; Keras cannot save it."""

    def __init__(
        self,
        sentence: SentenceModel,
        *,
        max_seq_length: int,
        num_classes: int = 0,
        is_padded_to_longest: bool = True,
        name: str = "sentence_group",
        **kwargs: Any,
    ):
        """Create the classifier, if it has classes, on (u, v, |u - v|) of the vectors of the first two texts."""
        super().__init__(sentence.encoder, name=name, **kwargs)
        self.sentence, self.classifier = sentence, None
        self._fixed_length = None if is_padded_to_longest else max_seq_length
        if num_classes:
            range_ = sentence.encoder.config.initializer_range
            with keras.name_scope("sentence"):
                self.classifier = OutputProjection(3 * sentence.width, num_classes, initializer_range=range_)

    def call(self, inputs, training=False):
        """Compute `vectors`, float32 [B, K, D], of K joined texts, and with a classifier `logits` of pairs."""
        num_texts = inputs[TEXT_LENGTHS].shape[1]
        texts = unjoined_texts(inputs, self._fixed_length)
        if self._fixed_length is None and num_texts > 1:
            # First texts, such as questions, are often much shorter than the others.
            first, others = _shortened(texts, 0, 1), _shortened(texts, 1, num_texts)
            parts = [self._vectors(first, 1, training), self._vectors(others, num_texts - 1, training)]
            vectors = ops.concatenate(parts, axis=1)
        else:
            vectors = self._vectors(texts, num_texts, training)
        if self.classifier is None or num_texts == 1:
            return {"vectors": vectors}
        return {"vectors": vectors, "logits": self.classify(vectors[:, 0], vectors[:, 1])}

    def _vectors(self, texts: Mapping[str, Any], num_texts: int, training: bool):
        """Compute the vectors of some texts of each example: int32 [B, K, S] by name to float32 [B, K, D]."""
        rows = {name: ops.reshape(tensor, (-1, ops.shape(tensor)[-1])) for name, tensor in texts.items()}
        return ops.reshape(self.sentence(rows, training=training), (-1, num_texts, self.sentence.width))

    def classify(self, u, v):
        """Map pairs of vectors, float32 [B, D], to logits of their classes, float32 [B, num_classes]."""
        return self.classifier(ops.concatenate([u, v, ops.abs(u - v)], axis=-1))


def _shortened(texts: Mapping[str, Any], start: int, end: int) -> dict[str, Any]:
    """Select texts of each example, and remove the padding that none of them needs: int32 [B, K, S] to [B, k, s]."""
    length = ops.maximum(ops.max(ops.sum(texts["input_mask"][:, start:end], axis=-1)), 1)
    return {name: tensor[:, start:end, :length] for name, tensor in texts.items()}


def normalized(vectors):
    """Scale vectors, float [..., D], to length 1; a zero vector stays zero.

    In JAX, the gradient of Keras's `normalize` at 0 is NaN.
    """
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-24))
