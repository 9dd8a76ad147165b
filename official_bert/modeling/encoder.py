"""`BertEncoder`: ids in, every intermediate result out, by name."""

from typing import Any

import keras
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.albert import SharedStack
from official_bert.modeling.blocks import Configured, dense
from official_bert.modeling.embeddings import Embeddings
from official_bert.modeling.inputs import completed, named_inputs, refuse_within_sequential
from official_bert.modeling.layout import LayoutMaker, padded_sequences
from official_bert.modeling.masks import attention_bias, last_real_position
from official_bert.modeling.model import TokenModel
from official_bert.modeling.transformer import TransformerStack

_SCOPE = "bert"  # what the names of an encoder's variables begin with in a checkpoint


def is_of_encoder(name: str) -> bool:
    """Tells whether a checkpoint's name is one of the encoder's."""
    return name.startswith(f"{_SCOPE}/")


@keras.saving.register_keras_serializable(package="official_bert")
class Pooler(Configured, keras.layers.Layer):
    """A vector for the whole sequence: a tanh projection of one of its vectors, mostly that at [CLS]."""

    def __init__(self, config: BertConfig, *, name: str = "pooler", **kwargs):
        """Creates the projection; for `**kwargs` see `keras.layers.Layer`."""
        super().__init__(config, name=name, **kwargs)
        self.dense = dense(config.hidden_size, config.initializer_range, dtype=self.dtype_policy, activation="tanh")

    def build(self, input_shape=None):
        """Creates the variables."""
        self.dense.build((None, self.config.hidden_size))

    def compute_output_shape(self, input_shape):
        """(B, D), as it came."""
        return tuple(input_shape)

    def call(self, first):
        """Maps vectors, one of each sequence, float [B, D], to float [B, D]."""
        return self.dense(first)


@keras.saving.register_keras_serializable(package="official_bert")
class BertEncoder(Configured, TokenModel):
    """Embeddings, transformer layers and pooler; those of ALBERT, too, where the config is one of it.

    Example:
      >>> encoder = BertEncoder(BertConfig.from_json_file("bert_config.json"))
      >>> encoder(input_ids=[[2, 75, 9, 3]])["pooled_output"]   # float [1, D]

    Source: BERT paper, section 3; ALBERT paper, section 3.1.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        use_one_hot_embeddings: bool = False,
        layout_maker: LayoutMaker = padded_sequences,
        recompute_layers: bool = False,
        name: str = _SCOPE,
        trainable: bool = True,
        **kwargs,
    ):
        """Creates all variables; none waits for a first call.

        Args:
          config: the architecture.
          use_one_hot_embeddings: look words up by multiplying with one-hot vectors, which is faster on TPU.
          layout_maker: how the layers lay out a batch; what is returned at padding may depend on it. It changes the
            speed alone, and is no part of what Keras stores.
          recompute_layers: whether training computes the activations of each layer again in the backward pass, and
            stores only what enters it; no part of what Keras stores either.
          name: the first part of the variables' paths; "bert" in checkpoints.
          trainable: whether training changes the variables.
          **kwargs: see `keras.Model`: dtype.
        """
        super().__init__(config, name=name, **kwargs)
        self._use_one_hot_embeddings, self._layout_maker = use_one_hot_embeddings, layout_maker
        self.embeddings = Embeddings(config, use_one_hot_embeddings=use_one_hot_embeddings, dtype=self.dtype_policy)
        stack = SharedStack if config.is_albert else TransformerStack
        self.transformer = stack(config, recompute_layers=recompute_layers, dtype=self.dtype_policy)
        self.pooler = Pooler(config, dtype=self.dtype_policy)
        self._at_inference: tuple[Any, LayoutMaker] | None = None
        self.build_for_any_length()
        self.trainable = trainable  # only when the parts are there does it reach them

    def build(self, input_shape=None):
        """Creates the variables of the parts."""
        if self.built:
            return
        hidden_size = self.config.hidden_size
        self.embeddings.build((None, None))
        self.transformer.build((None, None, hidden_size))
        self.pooler.build((None, hidden_size))

    @property
    def word_embeddings(self):
        """Variable [V, E]."""
        return self.embeddings.word_embeddings

    @property
    def max_length(self) -> int:
        """Maximum number of positions of a sequence."""
        return self.config.max_position_embeddings

    @property
    def output_shape(self):
        """The shape of `sequence_output`, which stands for all in `summary()`."""
        return (None, None, self.config.hidden_size)

    def checkpoint_variables(self) -> dict[str, keras.Variable]:
        """The variables under their names in a checkpoint, where every encoder is called "bert"."""
        return {_SCOPE + weight.path.removeprefix(self.path): weight for weight in self.weights}

    @property
    def _architecture(self) -> BertConfig:
        return self.config

    @classmethod
    def from_checkpoint(cls, path, *, bert_config=None, **options) -> "BertEncoder":
        """Makes an encoder with the weights that a path means.

        Example:
          >>> encoder = BertEncoder.from_checkpoint("uncased_L-12_H-768_A-12")

        Args:
          path: a folder as BERT was released in (`bert_config.json` and `bert_model.ckpt.*`) or as ALBERT was
            (`albert_config.json`), the output folder of a run or `best` in it, the prefix of a checkpoint in one of
            these (`out/model.ckpt-1000`), or a folder of Hugging Face's (`config.json` and `model.safetensors`). Heads
            that are there, too, are left alone.
          bert_config: the architecture, or its file, if it is not the `bert_config.json` beside the checkpoint.
          **options: see the constructor.

        Raises:
          UserError: a file is missing or damaged, the two do not belong together, or the model is too large for this
            machine.
        """
        from official_bert.checkpoints.pretrained import load_pretrained, open_pretrained  # imports TensorFlow

        arrays, config = open_pretrained(path, bert_config)
        encoder = cls(config, **options)
        load_pretrained(arrays, encoder.checkpoint_variables(), required=is_of_encoder)
        return encoder

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, but for what concerns speed and memory alone."""
        return {**super().get_config(), "use_one_hot_embeddings": self._use_one_hot_embeddings}

    def replace_at_inference(self, stack: Any, layout_maker: LayoutMaker) -> None:
        """Lets something else compute the layers at inference; training, and what Keras stores, stay as they are.

        Attention probabilities may then be missing from the results.

        Args:
          stack: called as `TransformerStack`, of which it has `num_heads`.
          layout_maker: makes the layouts that it works in.
        """
        self._at_inference = (stack, layout_maker)

    def compute_output_spec(self, input_ids, input_mask=None, segment_ids=None, training=False):
        """Symbolic outputs; see `call`."""
        refuse_within_sequential(self)
        shape = named_inputs(self.INPUTS, input_ids, input_mask, segment_ids)["input_ids"].shape
        self.embeddings.compute_output_shape(shape)  # raises for a shape that does not fit
        embedded = keras.KerasTensor((*shape, self.config.hidden_size), self.compute_dtype)
        layers = self.transformer.compute_output_spec(embedded)
        return self._outputs(embedded, layers, keras.KerasTensor((shape[0], embedded.shape[2]), self.compute_dtype))

    def call(self, input_ids, input_mask=None, segment_ids=None, training=False):
        """Encodes sequences.

        Args:
          input_ids: int32 [B, S]; or all three inputs, as a dict by name or as a list in this order.
          input_mask: int32 [B, S], 1 for a real position and 0 for padding; all real if not given.
          segment_ids: int32 [B, S]; all 0 if not given.
          training: whether to drop out.

        Returns:
          A dict:
            sequence_output: float [B, S, D], the last layer's output.
            pooled_output: float [B, D].
            encoder_layers: list of L float [B, S, D], first layer first.
            embedding_output: float [B, S, D], what enters the first layer.
            attention_probabilities: list of L float [B, N, S, S]; of None in training with `recompute_layers`, and
              where `replace_at_inference` was given a stack without them.

        Raises:
          UserError: the sequences are longer than `max_length`, or the inputs are not these.
        """
        inputs = completed(named_inputs(self.INPUTS, input_ids, input_mask, segment_ids))
        stack, embedding_output, bias, layout = self._begin(inputs, training)
        layers = stack(layout.pack(embedding_output), bias, layout=layout, training=training)
        layers = [layer._replace(context=layout.unpack(layer.context)) for layer in layers]  # [B, S, D]
        last = layers[-1].context
        pooled_output = self.pooler(self._last_read(last, inputs) if self.config.is_left_to_right else last[:, 0])
        return self._outputs(embedding_output, layers, pooled_output)

    @staticmethod
    def _last_read(x, inputs):
        """Selects the vector of each sequence that has seen all of it: float [B, S, D] to [B, D]."""
        positions = last_real_position(inputs["input_mask"])
        return ops.take_along_axis(x, positions[:, None, None], axis=1)[:, 0]

    @staticmethod
    def _outputs(embedding_output, layers, pooled_output) -> dict[str, Any]:
        """The results by name, whether tensors or symbolic ones."""
        contexts = [layer.context for layer in layers]
        return {
            "sequence_output": contexts[-1],
            "pooled_output": pooled_output,
            "encoder_layers": contexts,
            "embedding_output": embedding_output,
            "attention_probabilities": [layer.probabilities for layer in layers],
        }

    def pool(self, input_ids, input_mask=None, segment_ids=None, training=False):
        """Computes `pooled_output` alone, for which the last layer is wanted at one position only.

        The arguments are those of `call`, and so is the result, but for other places of dropout.

        Returns:
          float [B, D].
        """
        inputs = completed(named_inputs(self.INPUTS, input_ids, input_mask, segment_ids))
        if self.config.is_left_to_right:
            return self(**inputs, training=training)["pooled_output"]
        stack, embedding_output, bias, layout = self._begin(inputs, training)
        layers = stack(layout.pack(embedding_output), bias, layout=layout, first_only=True, training=training)
        return self.pooler(ops.reshape(layers[-1].context, (-1, self.config.hidden_size)))

    def _begin(self, inputs, training):
        """Gives the layers, what enters the first of them, float [B, S, D], the attention bias, and the layout."""
        stack, layout_maker = self.transformer, self._layout_maker
        if self._at_inference and not training:
            stack, layout_maker = self._at_inference
        embedded = self.embeddings(inputs["input_ids"], inputs["segment_ids"], training=training)  # [B, S, E]
        layout = layout_maker(inputs["input_mask"], stack.num_heads)
        bias = attention_bias(inputs["input_mask"], is_left_to_right=self.config.is_left_to_right)
        return stack, self.transformer.project(embedded), bias, layout
