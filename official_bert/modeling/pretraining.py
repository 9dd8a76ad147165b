"""The pretraining models: an encoder with BERT's two heads, and ELECTRA's discriminator, also with its generator."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from official_bert.config.bert_config import ENCODER_INPUTS, BertConfig
from official_bert.families.bert import GENERATOR, GENERATOR_HEAD
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import EncoderModel, OutputProjection
from official_bert.modeling.token_model import complete_inputs, named_inputs
from official_bert.modeling.transformer import ACTIVATIONS, EncoderLayer, LayerNorm, TransformerStack, dense
from official_bert.support.errors import UserError

_EVALUATION_SEED = 0


@keras.saving.register_keras_serializable(package="official_bert")
class PretrainingModel(EncoderModel):
    """Encoder, masked-LM head, and a next-sentence head: class 0 is the next sentence, class 1 a random one.

    Source: BERT paper, section 3.1.
    """

    INPUTS = (*ENCODER_INPUTS, "masked_lm_positions")

    def __init__(self, encoder: BertEncoder, *, name: str = "pretraining", **kwargs: Any):
        """Create the heads under the names of the reference's checkpoints.

        Args:
          encoder: the encoder.
          name: name of the model.
          **kwargs: see `keras.Model`: dtype, trainable.
        """
        super().__init__(encoder, name=name, **kwargs)
        config = encoder.config
        self.masked_lm = MaskedLmHead(
            config, *encoder.word_embeddings.shape, projection=encoder.head_projection, dtype=self.dtype_policy
        )
        with keras.name_scope("cls"):
            self.masked_lm.build((None, None, config.hidden_size))
            with keras.name_scope("seq_relationship"):
                self.next_sentence = OutputProjection(
                    config.hidden_size, 2, initializer_range=config.initializer_range, name="next_sentence"
                )
        self.build_for_any_length()

    def call(
        self,
        input_ids: Any,
        input_mask: Any = None,
        segment_ids: Any = None,
        masked_lm_positions: Any = None,
        training: bool = False,
    ) -> dict[str, Any]:
        """Score masked words and next sentences.

        Args:
          input_ids, input_mask, segment_ids, training: see `BertEncoder.call`.
          masked_lm_positions: int32 [B, P]; padding slots hold 0.

        Returns:
          A dict: masked_lm_logits float32 [B, P, V] and next_sentence_logits float32 [B, 2].
        """
        inputs = named_inputs(self.INPUTS, input_ids, input_mask, segment_ids, masked_lm_positions)
        if inputs["masked_lm_positions"] is None:
            raise UserError("the model was called without masked_lm_positions; give the positions to score")
        encoded = self.encoder(complete_inputs(inputs), training=training)
        return self.from_encoded(encoded, inputs)

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training: bool = False) -> Any:
        """See `EncoderModel.from_encoded`."""
        return {
            "masked_lm_logits": self.masked_lm(
                encoded["sequence_output"], inputs["masked_lm_positions"], self.encoder.word_embeddings
            ),
            "next_sentence_logits": self.next_sentence(encoded["pooled_output"]),
        }


@keras.saving.register_keras_serializable(package="official_bert")
class ReplacedTokenModel(EncoderModel):
    """Encoder and the head of the discriminator of ELECTRA or DeBERTa-v3, which detects replaced tokens.

    Source: Clark et al., 2020, section 2; microsoft/DeBERTa, `replaced_token_detection_model.py`.
    """

    def __init__(self, encoder: BertEncoder, *, name: str = "replaced_token", **kwargs: Any):
        """Create the head under the names of google-research/electra's checkpoints.

        Args:
          encoder: the encoder.
          name: name of the model.
          **kwargs: see `keras.Model`: dtype, trainable.
        """
        super().__init__(encoder, name=name, **kwargs)
        config, width = encoder.config, encoder.config.hidden_size
        self.layer_norm = LayerNorm(config, dtype=self.dtype_policy) if config.family.detects_beside_first else None
        self.dense = dense(width, config, dtype=self.dtype_policy, activation=ACTIVATIONS[config.hidden_act])
        self.prediction = dense(1, config, dtype=keras.DTypePolicy("float32"), name="dense_1")
        with keras.name_scope("discriminator_predictions"):
            if self.layer_norm is not None:
                self.layer_norm.build((None, None, width))
            self.dense.build((None, None, width))
            self.prediction.build((None, None, width))
        self.build_for_any_length()

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Score tokens.

        The arguments and errors are those of `BertEncoder.call`.

        Returns:
          float32 [B, S], logits; their sigmoid is the probability that the token was replaced.
        """
        inputs = complete_inputs(input_ids, input_mask, segment_ids)
        return self.from_encoded(self.encoder(inputs, training=training), inputs._asdict(), training=training)

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training: bool = False) -> Any:
        """See `EncoderModel.from_encoded`."""
        x = encoded["sequence_output"]
        return self.prediction(self.dense(x if self.layer_norm is None else self.layer_norm(x + x[:, :1])))[..., 0]


@keras.saving.register_keras_serializable(package="official_bert")
class ReplacedTokenPretrainingModel(EncoderModel):
    """A generator, whose samples replace masked tokens, and a discriminator, which detects them.

    Both share the embeddings. Gradients of the discriminator do not reach the generator's layers.

    Source: Clark et al., 2020, sections 2 and 3.2.
    """

    INPUTS = (*ENCODER_INPUTS, "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")

    def __init__(
        self, encoder: BertEncoder, *, generator_size: float, name: str = "replaced_token_pretraining", **kwargs: Any
    ):
        """Create the generator under the names of google-research/electra's checkpoints.

        Args:
          encoder: the discriminator's encoder, of an ELECTRA.
          generator_size: width of the generator, as a fraction of the discriminator's.
          name: name of the model.
          **kwargs: see `keras.Model`: dtype, trainable.
        """
        super().__init__(encoder, name=name, **kwargs)
        self._options = {"generator_size": generator_size}
        config, recompute_layers = encoder.config.generator(generator_size), encoder.transformer.recompute_layers
        self.discriminator = ReplacedTokenModel(encoder, dtype=self.dtype_policy)
        self.generator = TransformerStack(config, recompute_layers=recompute_layers, dtype=self.dtype_policy)
        with keras.name_scope(GENERATOR[:-1]):
            self.generator.build((None, None, config.hidden_size))
        self.masked_lm = MaskedLmHead(
            config, *encoder.word_embeddings.shape, name=GENERATOR_HEAD[:-1], dtype=self.dtype_policy
        )
        self.masked_lm.build((None, None, config.hidden_size))
        self.noise_seed = keras.random.SeedGenerator()  # set by the training step
        self.build_for_any_length()

    def call(self, inputs: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        """Predict masked tokens, sample replacements for them, and score all tokens.

        Args:
          inputs: by name, those of `BertEncoder.call`, masked; masked_lm_positions and masked_lm_ids, int32 [B, P];
            and masked_lm_weights, float32 [B, P], 0 for padding slots, which have position 0.
          training: whether to apply dropout. Otherwise the noise of the samples is the same in each call.

        Returns:
          A dict: masked_lm_logits float32 [B, P, V], sampled_ids int32 [B, P], is_replaced bool [B, S], and
          replaced_token_logits float32 [B, S].
        """
        masked = complete_inputs({name: inputs.get(name) for name in ENCODER_INPUTS})
        hidden = self.encoder.encode_with(self.generator, masked, training=training)
        logits = self.masked_lm(hidden, inputs["masked_lm_positions"], self.encoder.word_embeddings)
        sampled_ids = sample(logits, self.noise_seed if training else _EVALUATION_SEED)
        original_ids = put_tokens(masked.input_ids, inputs["masked_lm_ids"], inputs)
        input_ids = put_tokens(original_ids, sampled_ids, inputs)
        return {
            "masked_lm_logits": logits,
            "sampled_ids": sampled_ids,
            "is_replaced": input_ids != original_ids,
            "replaced_token_logits": self.discriminator(masked._replace(input_ids=input_ids), training=training),
        }


def sample(logits: Any, seed: Any) -> Any:
    """Draw from the softmax of logits, float32 [B, P, V], by adding Gumbel noise: int32 [B, P]."""
    noise = -ops.log(-ops.log(keras.random.uniform(ops.shape(logits), dtype="float32", seed=seed)))
    return ops.cast(ops.argmax(ops.stop_gradient(logits) + noise, axis=-1), "int32")


def put_tokens(input_ids: Any, tokens: Any, masks: Mapping[str, Any]) -> Any:
    """Put tokens, int32 [B, P], at the masked positions of ids, int32 [B, S]."""
    rows = ops.reshape(_rows(masks["masked_lm_positions"], input_ids), (-1,))  # [B * P]
    flat = ops.reshape(input_ids, (-1,))
    is_masked = ops.reshape(masks["masked_lm_weights"], (-1,)) > 0
    tokens = ops.where(
        is_masked, ops.cast(ops.reshape(tokens, (-1,)), "int32"), ops.take(flat, rows)
    )  # unchanged at padding slots
    return ops.reshape(ops.scatter_update(flat, rows[:, None], tokens), ops.shape(input_ids))


class MaskedLmHead(EncoderLayer):
    """Scores every wordpiece of the vocabulary at the masked positions.

    It projects them first, or uses a `projection` of the encoder's.

    Source: BERT paper, section 3.1, task 1; the output weights are the word embeddings.
    """

    def __init__(
        self,
        config: BertConfig,
        vocab_size: int,
        embedding_size: int,
        *,
        projection: keras.layers.Layer | None = None,
        name: str = "predictions",
        **kwargs: Any,
    ):
        super().__init__(config, name=name, **kwargs)
        self._vocab_size, self._embedding_size, self.projection = vocab_size, embedding_size, projection
        if projection is None:
            activation = ACTIVATIONS[config.family.masked_lm_activation or config.hidden_act]
            self.dense = dense(embedding_size, config, dtype=self.dtype_policy, activation=activation)
            self.layer_norm = LayerNorm(config, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        if self.projection is None:
            with keras.name_scope("transform"):
                self.dense.build((None, self.config.hidden_size))
                self.layer_norm.build((None, self._embedding_size))
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self._vocab_size,), initializer="zeros", dtype="float32", autocast=False
        )

    @property
    def output_shape(self):
        return (None, None, self._vocab_size)

    def call(self, sequence_output, positions, word_embeddings):
        """Score the vocabulary at positions, int32 [B, P], of float [B, S, D]: logits, float32 [B, P, V]."""
        hidden = self.transform(gather_positions(sequence_output, positions))  # [B, P, E]
        # By far the largest product of the head; mixed policies compute it in the lower precision.
        return ops.cast(ops.matmul(hidden, ops.transpose(word_embeddings)), "float32") + self.output_bias  # [B, P, V]

    def transform(self, hidden):
        """Map float [..., D] to what is multiplied with the word embeddings, [..., E]."""
        return self.layer_norm(self.dense(hidden)) if self.projection is None else self.projection(hidden)


def gather_positions(sequence, positions):
    """Select the hidden vectors at the masked positions.

    Args:
      sequence: float [B, S, D], encoder output.
      positions: int32 [B, P], each in [0, S); padding slots hold 0.

    Returns:
      float [B, P, D], dtype of `sequence`.
    """
    flat = ops.reshape(sequence, (-1, ops.shape(sequence)[2]))
    return ops.take(flat, _rows(positions, sequence), axis=0)  # [B, P, D]


def _rows(positions, sequence):
    """Return the places of positions, int32 [B, P], in the flattened sequences [B, S, ...]."""
    batch_size, length = ops.shape(sequence)[:2]
    return ops.cast(positions, "int32") + ops.arange(batch_size, dtype="int32")[:, None] * length
