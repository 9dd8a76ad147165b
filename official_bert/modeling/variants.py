"""Layers of families that differ from BERT's: ALBERT's shared layers and RoBERTa's positions.

ALBERT's variables are named as in google-research/albert's checkpoints.
"""

import keras
from keras import ops

from official_bert.modeling.encoder import Embeddings
from official_bert.modeling.transformer import TransformerLayer, TransformerStack


@keras.saving.register_keras_serializable(package="official_bert")
class SharedLayer(TransformerLayer):
    """BERT's transformer layer with ALBERT's variable names."""

    NORM_NAME = "LayerNorm_1"

    def build(self, input_shape=None):
        """Create the variables of the parts."""
        width, inner_width = (None, self.config.hidden_size), (None, self.config.intermediate_size)
        attention, attention_output, output = self.attention, self.attention.residual_output, self.residual_output
        with keras.name_scope("attention_1"):
            attention.self_attention.build(width)
            with keras.name_scope("output"):
                attention_output.dense.build(width)
        attention_output.layer_norm.build(width)
        with keras.name_scope("ffn_1"), keras.name_scope("intermediate"):
            self.intermediate.dense.build(width)
            with keras.name_scope("output"):
                output.dense.build(inner_width)
        output.layer_norm.build(width)
        for part in (attention, attention_output, self.intermediate, output):
            part.built = True  # otherwise it would create its variables again, under BERT's names


@keras.saving.register_keras_serializable(package="official_bert")
class SharedStack(TransformerStack):
    """All layers in sequence; the layers of a group share their weights.

    With 12 layers in 3 groups, layers 0 to 3 share their weights, as do 4 to 7 and 8 to 11. If a group has several
    inner layers, each of the 12 layers applies all of them. Source: ALBERT paper, section 3.1; google-research/albert
    for the inner layers.
    """

    def _make_layers(self) -> list[TransformerLayer]:
        config = self.config
        self._groups = [
            [
                SharedLayer(config, name=f"inner_group_{number}", dtype=self.dtype_policy)
                for number in range(config.inner_group_num)
            ]
            for _ in range(config.num_hidden_groups)
        ]
        groups = [
            index * config.num_hidden_groups // config.num_hidden_layers for index in range(config.num_hidden_layers)
        ]
        return [layer for group in groups for layer in self._groups[group]]

    def _build_layers(self) -> None:
        with keras.name_scope("transformer"):
            for number, group in enumerate(self._groups):
                with keras.name_scope(f"group_{number}"):
                    for layer in group:
                        layer.build((None, None, self.config.hidden_size))


@keras.saving.register_keras_serializable(package="official_bert")
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
