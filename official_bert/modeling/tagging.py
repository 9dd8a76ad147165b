"""The tagging model: an encoder with tag scores at every position, and a conditional random field over them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert.config.bert_config import FEATURES
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import (
    CRF,
    HEAD_DROPOUT,
    LINEAR,
    EncoderModel,
    OutputProjection,
    bilstm_layers,
    holds_features,
    make_layer_weights,
    width_after,
)
from official_bert.modeling.pooling import LAST, is_weighted, num_vectors, position_features
from official_bert.modeling.token_model import complete_inputs
from official_bert.modeling.transformer import Dropout

# Of the variables. An Adam step changes a variable by about the learning rate, so that without a factor the scores of
# transitions would stay near 0 in a fine-tuning run.
TRANSITION_SCALE = 100.0


class Transitions(NamedTuple):
    """Scores of transitions, float32."""

    start: Any  # [C], of the first tag of a sequence
    between: Any  # [C, C], of a tag (column) after another (row)
    end: Any  # [C], of the last tag


def path_scores(scores, tags, is_word, transitions: Transitions):
    """Score sequences of tags, int32 [B, S], by float32 [B, S, C] at words, bool [B, S]: float32 [B]; 0 without."""
    start, between, end = transitions
    num_tags = scores.shape[-1]
    of_words = ops.sum(scores * ops.one_hot(tags, num_tags), axis=-1)  # [B, S]
    pairs = tags[:, :-1] * num_tags + tags[:, 1:]
    of_pairs = ops.take(ops.reshape(between, (-1,)), pairs)  # [B, S - 1]
    total = ops.sum(ops.where(is_word, of_words, 0.0), axis=1)
    total += ops.sum(ops.where(is_word[:, 1:], of_pairs, 0.0), axis=1)
    is_last = is_word & ~ops.concatenate([is_word[:, 1:], ops.zeros_like(is_word[:, :1])], axis=1)
    last = ops.sum(ops.where(is_last, tags, 0), axis=1)
    return ops.where(is_word[:, 0], total + ops.take(start, tags[:, 0]) + ops.take(end, last), 0.0)


def log_partition(scores, is_word, transitions: Transitions):
    """Return the logarithm of the sum over all sequences of the exponentials of their scores: float32 [B]."""
    last = _forward(scores, is_word, transitions, ops.logsumexp)[:, -1]  # [B, C]
    return ops.where(is_word[:, 0], ops.logsumexp(last + transitions.end, axis=-1), 0.0)


def marginals(scores, is_word, transitions: Transitions):
    """Return the probability of each tag at each word, over all sequences: float32 [B, S, C]."""
    before = _forward(scores, is_word, transitions, _scaled_logsumexp)
    last = ops.zeros_like(scores[:, 0]) + transitions.end  # [B, C]

    def step(after, word):
        scores, is_word = word[:, :-1], word[:, -1:] > 0
        earlier = _scaled_logsumexp(transitions.between + (scores + after)[:, None, :], axis=-1)
        earlier = ops.where(is_word, earlier, after)
        return earlier, earlier

    _, after = ops.scan(step, last, _by_word(scores[:, 1:], is_word[:, 1:]), reverse=True)  # [S - 1, B, C]
    after = ops.transpose(ops.concatenate([after, last[None]], axis=0), (1, 0, 2))
    return ops.softmax(before + after, axis=-1)


def _scaled_logsumexp(values, axis):
    """Return sums minus the largest of a sentence: they do not grow with its length, so that none loses digits."""
    sums = ops.logsumexp(values, axis=axis)  # [B, C]
    return sums - ops.max(sums, axis=-1, keepdims=True)


def viterbi(scores, is_word, transitions: Transitions):
    """Return the sequences with the highest scores: int32 [B, S]; after the last word, its tag again."""
    best = _forward(scores, is_word, transitions, ops.max)  # [B, S, C], of the best sequence up to each tag
    last = ops.cast(ops.argmax(best[:, -1] + transitions.end, axis=-1), "int32")  # [B]
    into = ops.transpose(transitions.between)  # [C, C], from a tag (column) into another (row)

    def step(tag, word):
        scores, is_word = word[:, :-1], word[:, -1] > 0  # the scores up to the word before
        earlier = ops.cast(ops.argmax(scores + ops.take(into, tag, axis=0), axis=-1), "int32")
        earlier = ops.where(is_word, earlier, tag)
        return earlier, earlier

    _, tags = ops.scan(step, last, _by_word(best[:, :-1], is_word[:, 1:]), reverse=True)  # [S - 1, B]
    return ops.transpose(ops.concatenate([tags, last[None]], axis=0))


def _forward(scores, is_word, transitions: Transitions, combine: Callable):
    """Combine, by `logsumexp` or `max`, the scores of all sequences up to each tag: float32 [B, S, C].

    After the last word, its row is repeated.
    """

    def step(before, word):
        scores, is_word = word[:, :-1], word[:, -1:] > 0
        new = combine(before[:, :, None] + transitions.between, axis=1) + scores  # [B, C]
        new = ops.where(is_word, new, before)
        return new, new

    first = scores[:, 0] + transitions.start
    _, others = ops.scan(step, first, _by_word(scores[:, 1:], is_word[:, 1:]))  # [S - 1, B, C]
    return ops.transpose(ops.concatenate([first[None], others], axis=0), (1, 0, 2))


def _by_word(scores, is_word):
    """Return the inputs of the steps, float32 [S, B, C + 1]; Keras scans two tensors only if their length is known."""
    words = ops.concatenate([scores, ops.cast(is_word[..., None], scores.dtype)], axis=-1)
    return ops.transpose(words, (1, 0, 2))


@keras.saving.register_keras_serializable(package="official_bert")
class TaggingModel(EncoderModel):
    """Encoder and tagging head, which scores the tags at every position.

    An encoder whose `trainable` is False is frozen: training changes only the head.

    Attributes:
      feature_shape: (K, D), shape of the tagger's input per position.
    Source: BERT paper, section 4.3; the bidirectional LSTM on a frozen encoder: section 5.3.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        *,
        num_outputs: int,
        feature_layers: str = LAST,
        head: str = LINEAR,
        lstm_units: int | None = None,
        head_dropout: float = HEAD_DROPOUT,
        name: str = "tagger",
        **kwargs: Any,
    ):
        """Create the tagger, with its variables under `tagging/`.

        Args:
          encoder: the encoder.
          num_outputs: number of tags.
          feature_layers: input of the tagger; see `pooling.position_features`.
          head: "linear" for one layer; "bilstm" for two bidirectional LSTM layers before it; "crf" for one layer and
            `transitions`, which are trained and used outside of the model: see `crf`.
          lstm_units: LSTM units per direction; None for D.
          head_dropout: dropout rate of the tagger's input, independent of the encoder's.
          name: name of the model.
          **kwargs: see `keras.Model`: dtype, trainable.

        Raises:
          UserError: the encoder has too few layers for `feature_layers`.
        """
        super().__init__(encoder, name=name, **kwargs)
        self._options = {
            "num_outputs": num_outputs,
            "feature_layers": feature_layers,
            "head": head,
            "lstm_units": lstm_units,
            "head_dropout": head_dropout,
        }
        config = encoder.config
        num_read = num_vectors(feature_layers, config.num_layers)
        self.feature_shape = (num_read, config.hidden_size)
        self._feature_layers = feature_layers
        self.dropout = Dropout(head_dropout, dtype=self.dtype_policy)
        with keras.name_scope("tagging"):
            if is_weighted(feature_layers):
                self.layer_weights = make_layer_weights(num_read)
                num_read = 1
            width = num_read * config.hidden_size
            self.dropout.build((None, None, width))
            units = lstm_units or config.hidden_size
            self.lstm_layers = bilstm_layers(head, units, width, self.dtype_policy)
            width = width_after(self.lstm_layers, width)
            self.head = OutputProjection(width, num_outputs, name="tags")
            if head == CRF:
                self.start_transitions, self.between_transitions, self.end_transitions = (
                    keras.Variable(keras.initializers.Zeros(), shape=shape, name=f"{name}_transitions", autocast=False)
                    for name, shape in zip(
                        Transitions._fields, ([num_outputs], [num_outputs] * 2, [num_outputs]), strict=True
                    )
                )
        self.build_for_any_length()

    @property
    def transitions(self) -> Transitions | None:
        """The scores of neighbouring tags of the head "crf"; None for others."""
        if self._options["head"] != CRF:
            return None
        variables = (self.start_transitions, self.between_transitions, self.end_transitions)
        return Transitions(*(TRANSITION_SCALE * ops.convert_to_tensor(variable) for variable in variables))

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Score the tags.

        Args:
          input_ids: as the others, see `BertEncoder.call`; or a dict of input_mask and `features`,
            float [B, S, K * D], precomputed by `features`.

        Returns:
          float32 [B, S, num_outputs], logits.
        """
        if holds_features(input_ids):
            return self.tag(input_ids[FEATURES], input_ids["input_mask"], training=training)
        inputs = complete_inputs(input_ids, input_mask, segment_ids)
        return self.tag(self.features(inputs, training=training), inputs.input_mask, training=training)

    def features(self, inputs: Any, training: bool = False) -> Any:
        """Compute the tagger's input.

        Args:
          inputs: the encoder's, as a dict by name or as a list in order; see `call`.
          training: whether to apply dropout; a frozen encoder never does.

        Returns:
          float [B, S, K * D].
        """
        encoded = self.encoder(complete_inputs(inputs), training=training and self.encoder.trainable)
        return self._features(encoded)

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training: bool = False) -> Any:
        """See `EncoderModel.from_encoded`."""
        return self.tag(self._features(encoded), inputs["input_mask"], training=training)

    def _features(self, encoded: Mapping[str, Any]):
        """Select the tagger's input: float [B, S, K * D]."""
        features = position_features(encoded["embedding_output"], encoded["encoder_layers"], self._feature_layers)
        if self._feature_layers == LAST:
            features = self.encoder.for_heads(features)
        batch_size, length = ops.shape(features)[:2]
        return ops.reshape(features, (batch_size, length, self.feature_shape[0] * self.feature_shape[1]))

    def tag(self, features: Any, input_mask: Any, training: bool = False) -> Any:
        """Map the result of `features`, float [B, S, K * D], to logits, float32 [B, S, num_outputs]."""
        x = ops.cast(features, self.compute_dtype)
        if is_weighted(self._feature_layers):
            batch_size, length = ops.shape(x)[:2]
            x = ops.reshape(x, (batch_size, length, *self.feature_shape))  # [B, S, K, D]
            x = ops.einsum("bskd,k->bsd", x, ops.cast(ops.softmax(self.layer_weights), x.dtype))
        x = self.dropout(x, training=training)
        for layer in self.lstm_layers:
            x = layer(x, mask=ops.cast(input_mask, "bool"), training=training)
        return self.head(x)
