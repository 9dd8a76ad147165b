"""`BertEncoder`: maps ids to all intermediate results, by name. Read this file from top to bottom.

The layers are in `transformer`, the building blocks in `blocks`, and the handling of inputs in `token_model`.

Notable properties of the model:

- Three embeddings are added: words, positions (learned, up to `max_position_embeddings`), and segments, which
  distinguish the two texts of a pair.
- Layer normalization follows each residual sum ("post-norm") and the embeddings, with an epsilon of 1e-12.
- All projections have a bias, including those of query, key and value.
- The feed-forward layer is four times as wide as the hidden layer in all released models; its GELU is the tanh
  approximation used to train them.
- Padding is masked by adding -10000 to the attention scores instead of minus infinity, so that softmax is always
  defined.
- In training, attention probabilities are dropped out too, which hides whole positions from others.
- Weights are initialized from a truncated normal of small deviation, usually 0.02.
- `pooled_output` is a tanh projection of the last layer at [CLS]; next-sentence prediction trains it.
- The word embeddings are also the output weights of masked-LM prediction; see `pretraining`.
- Each variable's path and shape are those in the reference's checkpoints; attributes and name scopes are nested
  accordingly.
- Softmax, normalization and logits are float32 under every dtype policy.
"""

from typing import Any

import keras
import optree
from keras import ops

from official_bert.config.bert_config import FIRST, LAST, BertConfig
from official_bert.modeling.encoder_options import PLAIN, EncoderOptions, FlatLayout, LoraSettings, add_lora
from official_bert.modeling.pooling import mean_over_positions
from official_bert.modeling.token_model import ENCODER_SCOPE, EncoderInputs, TokenModel, complete_inputs, too_long
from official_bert.modeling.transformer import (
    ACTIVATIONS,
    Dropout,
    EncoderLayer,
    LayerNorm,
    TransformerStack,
    dense,
    initializer,
)
from official_bert.support.errors import UserError


def create_encoder(config: BertConfig, options: EncoderOptions = PLAIN) -> "BertEncoder":
    return BertEncoder(config, **vars(options))


class EncoderOutputs(dict):
    """The results of an encoder by name, also under the names in transformers, as keys or attributes."""

    def __missing__(self, name: str) -> Any:
        names = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}
        if name not in names:
            raise KeyError(f"{name!r}; the results are {', '.join(self)}")
        return self[names[name]]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(f"no attribute {error.args[0]}") from None


optree.register_pytree_node(  # for `keras.tree`, as a dict
    EncoderOutputs,
    lambda outputs: ([outputs[name] for name in sorted(outputs)], sorted(outputs)),
    lambda names, values: EncoderOutputs(zip(names, values, strict=True)),
    namespace="keras",
)


@keras.saving.register_keras_serializable(package="official_bert")
class BertEncoder(TokenModel):
    """Embeddings, transformer layers and pooler, of the family that the config belongs to.

    Examples:
      >>> encoder = BertEncoder(BertConfig.from_json_file("bert_config.json"))
      >>> encoder(input_ids=[[2, 75, 9, 3]])["pooled_output"]   # float [1, D]

    Source: BERT paper, section 3; ALBERT paper, section 3.1.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        use_one_hot_embeddings: bool = False,
        layout: Any = FlatLayout,
        recompute_layers: bool = False,
        lora: LoraSettings | None = None,
        name: str = ENCODER_SCOPE,
        trainable: bool = True,
        **kwargs: Any,
    ):
        """Create all variables at once, not at the first call.

        Args:
          config: the architecture.
          use_one_hot_embeddings: look words up by multiplying with one-hot vectors, which is faster on TPU.
          layout: storage layout of a batch's vectors, a class of `encoder_options`. It affects only speed and the
            outputs at padding, and Keras does not store it.
          recompute_layers: whether training stores only the input of each layer and recomputes its activations in the
            backward pass; Keras does not store it.
          lora: low-rank updates to train instead of the weights; see `add_lora`. Keras merges them into the
            kernels when it saves the encoder.
          name: the first part of the variables' paths; "bert" in checkpoints.
          trainable: whether training changes the variables.
          **kwargs: see `keras.Model`: dtype.
        """
        super().__init__(name=name, **kwargs)
        if not isinstance(config, BertConfig):
            raise UserError(f"config={config!r:.80} is no BertConfig; for a trained model use from_checkpoint(folder)")
        self.config = config
        self._use_one_hot_embeddings, self.layout = use_one_hot_embeddings, layout
        parts = {"embeddings": Embeddings, "stack": TransformerStack, "pooler": Pooler}
        parts |= config.family.parts()
        self.embeddings = parts["embeddings"](
            config, use_one_hot_embeddings=use_one_hot_embeddings, dtype=self.dtype_policy
        )
        self.transformer = parts["stack"](config, recompute_layers=recompute_layers, dtype=self.dtype_policy)
        self.pooler = parts["pooler"](config, dtype=self.dtype_policy)
        self.build_for_any_length()
        self.trainable = trainable  # after the sublayers exist, so that it reaches them
        if lora is not None:
            add_lora(self, lora)

    def build(self, input_shape: Any = None) -> None:
        """Create the variables of the sublayers."""
        if self.built:
            return
        hidden_size = self.config.hidden_size
        self.embeddings.build((None, None))
        self.transformer.build((None, None, hidden_size))
        self.pooler.build((None, hidden_size))

    @property
    def word_embeddings(self) -> keras.Variable:
        """Variable [V, E]."""
        return self.embeddings.word_embeddings

    @property
    def max_length(self) -> int:
        """Maximum number of positions per sequence."""
        return self.config.max_length

    @property
    def output_shape(self) -> tuple[None, None, int]:
        """The shape of `sequence_output`, shown by `summary()`."""
        return (None, None, self.config.hidden_size)

    def checkpoint_variables(self) -> dict[str, keras.Variable]:
        """Return the variables under their names in a checkpoint, where every encoder is called "bert"."""
        return {ENCODER_SCOPE + weight.path.removeprefix(self.path): weight for weight in self.weights}

    @classmethod
    def _of_architecture(cls, config: BertConfig, **options: Any) -> "BertEncoder":
        return cls(config, **options)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments, except those that affect only speed and memory."""
        own = {"config": self.config.to_dict(), "use_one_hot_embeddings": self._use_one_hot_embeddings}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "BertEncoder":
        """Create the encoder from the result of `get_config`."""
        return cls(**{**config, "config": BertConfig.from_dict(config["config"])})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model; outside of graphs, the results have the names in transformers, too."""
        outputs = super().__call__(*args, **kwargs)
        is_eager = type(outputs["sequence_output"]).__name__ == "EagerTensor"
        return EncoderOutputs(outputs) if is_eager else outputs

    def call(
        self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False
    ) -> dict[str, Any]:
        """Encode sequences.

        Args:
          input_ids: int32 [B, S]; or all three inputs, as a dict by name or as a list in this order.
          input_mask: int32 [B, S], 1 for a real position and 0 for padding; default: all real.
          segment_ids: int32 [B, S]; default: all 0.
          training: whether to apply dropout.

        Returns:
          A dict:
            sequence_output: float [B, S, D], the last layer's output.
            pooled_output: float [B, D].
            encoder_layers: list of L float [B, S, D], first layer first.
            embedding_output: float [B, S, D], the input of the first layer.
            attention_probabilities: list of L float [B, N, S, S], or up to the longest sequence of the batch with
              `UnpaddedLayout`; None for each layer in training with `recompute_layers`. In long texts, ModernBERT's
              local layers have blocks: see `modernbert.RotaryStack`.

        Raises:
          UserError: the sequences are longer than `max_length`, or the inputs are invalid.
        """
        inputs = complete_inputs(input_ids, input_mask, segment_ids)
        embedding_output, bias, layout = self._begin(inputs, training, self.transformer)
        layers = self.transformer(layout.pack(embedding_output), bias, layout=layout, training=training)
        contexts = [layout.unpack(layer.context) for layer in layers]  # [B, S, D]
        last = contexts[-1]
        if self.config.pooled == FIRST:
            pooled = last[:, 0]
        else:
            pool = last_token_vector if self.config.pooled == LAST else mean_over_positions
            pooled = pool(last, inputs.input_mask)
        return {
            "sequence_output": last,
            "pooled_output": self.pooler(pooled),
            "encoder_layers": contexts,
            "embedding_output": embedding_output,
            "attention_probabilities": [layer.probabilities for layer in layers],
        }

    def pool(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Compute only `pooled_output`, which usually needs the last layer at one position only.

        Arguments and result are those of `call`, except that dropout masks differ.

        Returns:
          float [B, D].
        """
        inputs = complete_inputs(input_ids, input_mask, segment_ids)
        if self.config.pooled != FIRST:
            return self(inputs, training=training)["pooled_output"]
        x, bias, layout = self._begin(inputs, training, self.transformer)
        layers = self.transformer(layout.pack(x), bias, layout=layout, first_only=True, training=training)
        return self.pooler(ops.reshape(layers[-1].context, (-1, self.config.hidden_size)))

    def encode_with(self, stack: TransformerStack, inputs: EncoderInputs, training: bool = False) -> Any:
        """Encode with the embeddings of this encoder and other layers: float [B, S, D of the stack]."""
        x, bias, layout = self._begin(inputs, training, stack)
        return layout.unpack(stack(layout.pack(x), bias, layout=layout, training=training)[-1].context)

    @property
    def head_projection(self) -> "Pooler | None":
        """The layer from which all heads read `sequence_output`; None if they read it directly."""
        return self.pooler if self.config.family.heads_read_pooler else None

    def for_heads(self, x: Any) -> Any:
        """Map vectors of `sequence_output`, float [..., D], to those that heads read, float [..., D]."""
        return x if self.head_projection is None else self.head_projection(x)

    def _begin(self, inputs, training, stack):
        """Return the input of the first layer, float [B, S, D], the attention bias, and the layout."""
        embedded = self.embeddings(inputs.input_ids, inputs.segment_ids, training=training)  # [B, S, E]
        layout = self.layout.from_mask(inputs.input_mask, stack)
        bias = attention_bias(layout.attended(inputs.input_mask), is_left_to_right=self.config.is_left_to_right)
        return stack.project(embedded), stack.with_positions(bias), layout


class Embeddings(EncoderLayer):
    """The three embedding tables, layer normalization and dropout. Source: BERT paper, figure 2."""

    def __init__(
        self, config: BertConfig, *, use_one_hot_embeddings: bool = False, name: str = "embeddings", **kwargs: Any
    ):
        super().__init__(config, name=name, **kwargs)
        self._use_one_hot_embeddings = use_one_hot_embeddings
        self.layer_norm = LayerNorm(config, dtype=self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy)

    def build(self, input_shape: Any = None) -> None:
        config = self.config
        # variable [V, E]; the masked-LM head shares it. E equals D except in families that project it
        self.word_embeddings = self._table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = None  # for models without segments
        if config.type_vocab_size:
            self.token_type_embeddings = self._table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = self._table("position_embeddings", config.max_position_embeddings)
        self.layer_norm.build((None, None, config.embedding_width))

    def _table(self, name: str, rows: int):
        config = self.config
        return self.add_weight(
            name=name,
            shape=(rows, config.embedding_width),
            initializer=initializer(config.initializer_range),
            autocast=False,  # gradients of common words sum thousands of terms, too many for bfloat16
        )

    @property
    def output_shape(self):
        return (None, None, self.config.embedding_width)

    def call(self, input_ids, segment_ids, training=False):
        """Look up and add the embeddings of ids and segments, int32 [B, S]: float [B, S, E]."""
        self._check_shape(input_ids.shape)
        if self._use_one_hot_embeddings:
            words = _one_hot_lookup(self.word_embeddings, input_ids)
        else:
            words = ops.take(self.word_embeddings, input_ids, axis=0)  # [B, S, E]
        segments = self._segments(segment_ids, training)
        positions = self._positions(input_ids)
        embedded = words + positions if segments is None else words + segments + positions
        return self.dropout(self.layer_norm(embedded), training=training)

    def _positions(self, input_ids):
        """Look up the embeddings of positions, float [S, E]."""
        length = ops.shape(input_ids)[1]
        if keras.backend.backend() == "jax":  # it cannot bound a slice by the unknown length of a `keras.Input`
            return ops.take(self.position_embeddings, ops.arange(length), axis=0)
        return self.position_embeddings[:length]

    def _segments(self, segment_ids, training):
        """Look up the embeddings of segments, float [B, S, E]; None for a model without them."""
        if self.token_type_embeddings is None:
            return None
        if training or self._use_one_hot_embeddings:  # few rows: a matrix product has a faster gradient
            return _one_hot_lookup(self.token_type_embeddings, segment_ids)
        return ops.take(self.token_type_embeddings, segment_ids, axis=0)

    def _check_shape(self, shape) -> None:
        """Raise for ids with an unsupported shape; an unknown length is accepted."""
        if len(shape) != 2:
            raise UserError(f"input_ids has the shape {tuple(shape)}; it must be [batch, positions]")
        if isinstance(shape[1], int) and shape[1] > self.config.max_length:
            raise UserError(too_long(shape[1], self.config))


def _one_hot_lookup(table, ids):
    return ops.matmul(ops.one_hot(ids, table.shape[0], dtype=table.dtype), table)  # [B, S, E]


class RobertaEmbeddings(Embeddings):
    """BERT's three tables, with positions counted from 2 over non-padding tokens; padding has position 1.

    Source: transformers, `create_position_ids_from_input_ids`, after fairseq's `make_positions`.
    """

    def _positions(self, input_ids):
        """Look up the embeddings of positions, float [B, S, E]."""
        pad_id = self.config.first_position - 1
        is_real = ops.cast(input_ids != pad_id, "int32")
        positions = ops.cumsum(is_real, axis=1) * is_real + pad_id
        return ops.take(self.position_embeddings, positions, axis=0)

    def _segments(self, segment_ids, training):
        if self.config.type_vocab_size == 1:  # pairs from BERT's tokenizer have two segments
            segment_ids = ops.zeros_like(segment_ids)
        return super()._segments(segment_ids, training)


class WordEmbeddings(Embeddings):
    """Word embeddings, layer normalization and dropout; segments have no effect, and positions only in attention."""

    token_type_embeddings = None

    def build(self, input_shape=None):
        self.word_embeddings = self._table("word_embeddings", self.config.vocab_size)
        self.layer_norm.build((None, None, self.config.embedding_width))

    def _positions(self, input_ids):
        return 0


MASKED_SCORE = -10000.0  # reference value; far below any score, and finite


def attention_bias(input_mask, *, is_left_to_right: bool = False):
    """Turn a padding mask into a bias of the attention scores.

    Args:
      input_mask: int32 [B, T], 1 for a real position and 0 for padding.

    Returns:
      float32 [B, 1, 1, T], or [B, 1, T, T] left to right: 0 at visible positions, -10000 at padding and at later
      positions; broadcasts over heads and query positions.
    """
    bias = (1.0 - ops.cast(input_mask, "float32")) * MASKED_SCORE  # [B, T]
    bias = bias[:, None, None, :]  # [B, 1, 1, T]
    if not is_left_to_right:
        return bias
    positions = ops.arange(ops.shape(input_mask)[1])
    is_later = ops.cast(positions[None, :] > positions[:, None], "float32")  # [T, T]
    return ops.minimum(bias, is_later * MASKED_SCORE)  # [B, 1, T, T]


def last_token_vector(x, input_mask):
    """Select x, float [B, S, D], at the last non-padding position, or 0 if there is none: float [B, D]."""
    positions = ops.max(input_mask * ops.arange(ops.shape(input_mask)[1], dtype="int32"), axis=1, initial=0)  # [B]
    return ops.take_along_axis(x, positions[:, None, None], axis=1)[:, 0]


class Pooler(EncoderLayer):
    """A vector for the whole sequence: a projection of one of its vectors, usually at [CLS] and with tanh."""

    def __init__(self, config: BertConfig, *, name: str = "pooler", **kwargs: Any):
        super().__init__(config, name=name, **kwargs)
        activation = ACTIVATIONS[config.family.pooler_activation]
        self.dense = dense(config.hidden_size, config, dtype=self.dtype_policy, activation=activation)

    def build(self, input_shape: Any = None) -> None:
        self.dense.build((None, self.config.hidden_size))

    @property
    def output_shape(self):
        return (None, self.config.hidden_size)

    def call(self, first):
        """Map one vector per sequence, float [B, D], to float [B, D]."""
        return self.dense(first)
