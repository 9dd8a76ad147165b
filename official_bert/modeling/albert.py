"""The layers of ALBERT, which share their weights."""

import keras

from official_bert.modeling.transformer import TransformerLayer, TransformerStack


class SharedLayer(TransformerLayer):
    """BERT's transformer layer with the variable names of google-research/albert's checkpoints."""

    NORM_NAME = "LayerNorm_1"

    def build(self, input_shape=None):
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
                SharedLayer(
                    config, self_attention=self._make_attention(), name=f"inner_group_{number}", dtype=self.dtype_policy
                )
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
