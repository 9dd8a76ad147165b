"""ModernBERT: rotary positions, attention within a window in most layers, gated feed-forward blocks, and no biases."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from official_bert import lazy
from official_bert.config.bert_config import FIRST, LARGEST_SIZE, MEAN, BertConfig
from official_bert.families.family import (
    FIXED,
    Family,
    HuggingFace,
    Rule,
    architectures,
    kernel,
    output,
    scale,
    task_heads,
)
from official_bert.support.errors import UserError

CLS_POOLING, MEAN_POOLING = "cls", "mean"
_POOLINGS = {CLS_POOLING: FIRST, MEAN_POOLING: MEAN}
GLOBAL, LOCAL = "full_attention", "sliding_attention"  # the types of layers in `transformers` 5


@dataclasses.dataclass(frozen=True)
class ModernBertConfig(BertConfig):
    """The architecture of a ModernBERT, with BERT's keys and the following; segment ids have no effect.

    Attributes:
      local_attention: width of the window of local attention: a position attends to half of it in each direction.
      global_attn_every_n_layers: the first of so many layers attends to all positions, the others to their window.
      global_rope_theta, local_rope_theta: base of the rotation angles in either kind of layer.
      classifier_pooling: the vector that the classifier reads: "cls" for the first position, "mean" for the mean.

    Source: Warner et al., 2024; the defaults are those of the base model.
    """

    family_name: ClassVar[str] = "modernbert"
    has_biases: ClassVar[bool] = False
    largest: ClassVar[Mapping[str, int]] = {
        **BertConfig.largest,
        "type_vocab_size": 0,
        "max_position_embeddings": 1 << 20,  # the longest texts, since positions have no parameters
        "local_attention": LARGEST_SIZE,
        "global_attn_every_n_layers": LARGEST_SIZE,
    }
    smallest: ClassVar[Mapping[str, int]] = {"type_vocab_size": 0}

    num_hidden_layers: int = 22
    intermediate_size: int = 1152
    hidden_act: str = "gelu_erf"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 8192
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-5

    local_attention: int = 128
    global_attn_every_n_layers: int = 3
    global_rope_theta: float = 160000.0
    local_rope_theta: float = 10000.0
    classifier_pooling: str = CLS_POOLING

    def __post_init__(self):
        super().__post_init__()
        for name in ("global_rope_theta", "local_rope_theta"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 1 <= value <= LARGEST_SIZE:
                raise UserError(f"{name} is {value!r:.80}; it must be a number from 1 to {LARGEST_SIZE}")
        if self.classifier_pooling not in [*_POOLINGS]:
            raise UserError(f"classifier_pooling is {self.classifier_pooling!r:.80}; it must be cls or mean")
        if self.hidden_size // self.num_attention_heads % 2:
            raise UserError(
                f"hidden_size {self.hidden_size} is an odd multiple of num_attention_heads {self.num_attention_heads}: "
                "rotary positions need an even one"
            )

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the encoder, pooler included; heads add few."""
        width = self.hidden_size
        layer = 4 * width * width + 3 * width * self.intermediate_size + 2 * width
        # The first layer has one normalization less, which is that after the last layer.
        return (self.vocab_size + 1) * width + self.num_hidden_layers * layer + width * width + width

    @property
    def pooled(self) -> str:
        """The vector that the pooler reads; see `BertConfig.pooled`."""
        return super().pooled if self.is_left_to_right else _POOLINGS[self.classifier_pooling]

    def is_global(self, layer: int) -> bool:
        """Return True if a layer attends to all positions."""
        return layer % self.global_attn_every_n_layers == 0


class _Keys(HuggingFace):
    """The keys of ModernBERT's `config.json`; version 5 of `transformers` writes some in another form."""

    def to_bert_config(self, values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
        """Translate a `config.json` to our keys."""
        # No class reads the first key, and files of mmBERT have "sans_pos".
        values = {**values, "position_embedding_type": FIXED["position_embedding_type"]}
        rates = [values.get(key, 0.0) for key in ("mlp_dropout", "embedding_dropout")]
        if rates[0] != rates[1]:
            raise UserError(
                f"mlp_dropout is {rates[0]!r:.80} and embedding_dropout {rates[1]!r:.80}; they must be equal"
            )
        if (types := values.get("layer_types")) is not None:
            count = len(types) if isinstance(types, list) else 0
            every = types.index(GLOBAL, 1) if count and GLOBAL in types[1:] else max(count, 1)
            right = [LOCAL if layer % every else GLOBAL for layer in range(count)]
            if types != right or count != values.get("num_hidden_layers", ModernBertConfig.num_hidden_layers):
                raise UserError(f"layer_types is {types!r:.80}; it must be {GLOBAL} for each n-th of all layers")
            values["global_attn_every_n_layers"] = every
        ropes = values.get("rope_parameters") or {}
        for kind, key in ((GLOBAL, "global_rope_theta"), (LOCAL, "local_rope_theta")):
            rope = (ropes.get(kind) or {}) if isinstance(ropes, dict) else ropes
            if not isinstance(rope, dict) or rope.get("rope_type", rope.get("type", "default")) != "default":
                raise UserError(f"rope_parameters is {ropes!r:.120}; only the rope_type 'default' is supported")
            values |= {key: rope["rope_theta"]} if "rope_theta" in rope else {}
        return super().to_bert_config(values, known)

    def from_bert_config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Translate our config file to the keys that every version reads."""
        # Their defaults for these ids are beyond smaller vocabularies.
        ids = dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep"))
        return super().from_bert_config(values) | {"embedding_dropout": values["hidden_dropout_prob"], **ids}


_LAYER, _HF_LAYER = "bert/encoder/layer_{}", "model.layers.{}"
_HEAD = (*kernel("bert/pooler/dense", "head.dense", "DD"), *scale("bert/pooler/LayerNorm", "head.norm"))
_HEADS = task_heads() | {"span head": output("cls/squad/", "classifier", "2")}

MODERNBERT_FAMILY = Family(
    name=ModernBertConfig.family_name,
    title="a ModernBERT",
    config_class=ModernBertConfig,
    own_key="local_attention",
    tokenizer=lambda: lazy.BpeTokenizer,
    parts=lambda: {"embeddings": lazy.WordEmbeddings, "stack": lazy.RotaryStack, "pooler": lazy.PredictionHead},
    pooler_activation="gelu_erf",
    heads_read_pooler=True,
    hugging_face=_Keys(
        defaults={"vocab_size": 50368, "hidden_activation": "gelu"},
        fixed={
            **FIXED,
            **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), False),
            "decoder_bias": True,
            "classifier_activation": "gelu",
            "rope_scaling": None,
        },
        keys={
            "hidden_act": "hidden_activation",
            "hidden_dropout_prob": "mlp_dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "layer_norm_eps": "norm_eps",
            "type_vocab_size": None,
        },
        tokenizer_class="PreTrainedTokenizerFast",
        prefix="model.",
        parts={
            "encoder": (
                Rule("bert/embeddings/word_embeddings", "model.embeddings.tok_embeddings.weight", "VD"),
                *scale("bert/embeddings/LayerNorm", "model.embeddings.norm"),
                scale(f"{_LAYER}/attention/LayerNorm", f"{_HF_LAYER}.attn_norm")[0]._replace(skips_first=True),
                *kernel(f"{_LAYER}/attention/self/query", f"{_HF_LAYER}.attn.Wqkv", "DD", part=0),
                *kernel(f"{_LAYER}/attention/self/key", f"{_HF_LAYER}.attn.Wqkv", "DD", part=1),
                *kernel(f"{_LAYER}/attention/self/value", f"{_HF_LAYER}.attn.Wqkv", "DD", part=2),
                *kernel(f"{_LAYER}/attention/output/dense", f"{_HF_LAYER}.attn.Wo", "DD"),
                *scale(f"{_LAYER}/LayerNorm", f"{_HF_LAYER}.mlp_norm"),
                *kernel(f"{_LAYER}/intermediate/dense", f"{_HF_LAYER}.mlp.Wi", "DI", part=0),
                *kernel(f"{_LAYER}/intermediate/gate", f"{_HF_LAYER}.mlp.Wi", "DI", part=1),
                *kernel(f"{_LAYER}/output/dense", f"{_HF_LAYER}.mlp.Wo", "ID"),
                *scale("bert/encoder/LayerNorm", "model.final_norm"),
            ),
            "masked-LM head": (Rule("cls/predictions/output_bias", "decoder.bias", "V"),),
            **_HEADS,
        },
        poolers=dict.fromkeys(("masked-LM head", *_HEADS), _HEAD),
        joined={".Wqkv.weight": 3, ".Wi.weight": 2},
        left_out=("bert/pooler/", "cls/seq_relationship/"),
        tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
        architectures=architectures("ModernBert"),
    ),
)
