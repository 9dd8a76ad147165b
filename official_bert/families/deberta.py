"""DeBERTa-v3, and -v2 without convolution: attention that compares words with distances."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from official_bert import lazy
from official_bert.config.bert_config import LARGEST_SIZE, BertConfig
from official_bert.families.family import (
    FIXED,
    Family,
    HuggingFace,
    Rule,
    architectures,
    dense,
    layer_norm,
    layer_rules,
    masked_lm_head,
    task_heads,
)
from official_bert.support.errors import UserError


@dataclasses.dataclass(frozen=True)
class DebertaConfig(BertConfig):
    """The architecture of a DeBERTa-v3, with BERT's keys and `position_buckets`; segment ids have no effect.

    Attributes:
      position_buckets: number of ranges of distances in each direction.

    Source: He et al., 2021 and 2023; the defaults are those of the base model of version 3.
    """

    family_name: ClassVar[str] = "deberta-v2"
    largest: ClassVar[Mapping[str, int]] = {
        **BertConfig.largest,
        "type_vocab_size": 0,
        "max_position_embeddings": 1 << 20,  # a table of distances has so many rows, and no parameters
        "position_buckets": LARGEST_SIZE // 2,
    }
    smallest: ClassVar[Mapping[str, int]] = {"type_vocab_size": 0, "max_position_embeddings": 2, "position_buckets": 4}

    hidden_act: str = "gelu_erf"
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-7

    position_buckets: int = 256

    def __post_init__(self):
        super().__post_init__()
        if self.position_buckets // 2 >= self.max_position_embeddings - 1:
            raise UserError(
                f"position_buckets {self.position_buckets} is too large for max_position_embeddings "
                f"{self.max_position_embeddings}: half of it must be below the largest distance"
            )

    @property
    def num_position_parameters(self) -> int:
        """Number of parameters for positions: the embeddings of distances and their normalization."""
        return 2 * (self.position_buckets + 1) * self.hidden_size

    @property
    def own_sizes(self) -> dict[str, int]:
        """Number of ranges of distances in both directions."""
        return {"R": 2 * self.position_buckets}


class _Keys(HuggingFace):
    """The keys of DeBERTa's `config.json`, of which some have several forms."""

    def to_bert_config(self, values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
        """Translate a `config.json` to our keys."""
        kinds, farthest = values.get("pos_att_type"), values.get("max_relative_positions")
        kinds = kinds.lower().split("|") if isinstance(kinds, str) else kinds
        if isinstance(kinds, list) and {str(kind).strip() for kind in kinds} == {*_KINDS}:
            values = {**values, "pos_att_type": _KINDS}
        if farthest == values.get("max_position_embeddings", BertConfig.max_position_embeddings):
            values = {**values, "max_relative_positions": -1}
        return super().to_bert_config(values, known)


_KINDS = ["p2c", "c2p"]
_CLASSIFIER_POOLER = dense("bert/pooler/dense", "pooler.dense", "DD")
_DETECTOR = "discriminator's head"
# What is supported, and the meaning of missing keys, in which it is something else.
_SUPPORTED = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": _KINDS,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
_MISSING = {**dict.fromkeys(_SUPPORTED, None), "position_buckets": -1}

DEBERTA_FAMILY = Family(
    name=DebertaConfig.family_name,
    title="a DeBERTa",
    config_class=DebertaConfig,
    own_key="position_buckets",
    tokenizer=lambda: lazy.DebertaTokenizer,
    parts=lambda: {"embeddings": lazy.WordEmbeddings, "stack": lazy.DisentangledStack},
    pooler_activation="gelu_erf",  # activation of the classifier's projection
    detects_beside_first=True,
    hugging_face=_Keys(
        defaults={
            **_MISSING,
            "vocab_size": 128100,
            "hidden_size": 1536,
            "num_hidden_layers": 24,
            "num_attention_heads": 24,
            "intermediate_size": 6144,
            "hidden_act": "gelu",
        },
        fixed={
            **FIXED,
            **_SUPPORTED,
            "max_relative_positions": -1,
            "conv_kernel_size": 0,
            "pooler_hidden_act": "gelu",
            "pad_token_id": 0,
        },
        tokenizer_class="DebertaV2Tokenizer",
        prefix="deberta.",
        parts={
            "encoder": (
                Rule("bert/embeddings/word_embeddings", "deberta.embeddings.word_embeddings.weight", "VD"),
                *layer_norm("bert/embeddings/LayerNorm", "deberta.embeddings.LayerNorm"),
                Rule("bert/encoder/distances/embeddings", "deberta.encoder.rel_embeddings.weight", "RD"),
                *layer_norm("bert/encoder/distances/LayerNorm", "deberta.encoder.LayerNorm"),
                *layer_rules(
                    "deberta.encoder.layer.{}",
                    "attention.self.query_proj attention.self.key_proj attention.self.value_proj "
                    "attention.output.dense attention.output.LayerNorm "
                    "intermediate.dense output.dense output.LayerNorm",
                ),
            ),
            "masked-LM head": masked_lm_head(
                "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
            ),
            # Of version 3's pretraining; no class in `transformers` has it. Source: microsoft/DeBERTa,
            # `replaced_token_detection_model.py`.
            _DETECTOR: (
                *layer_norm("discriminator_predictions/LayerNorm", "mask_predictions.LayerNorm"),
                *dense("discriminator_predictions/dense", "mask_predictions.dense", "DD"),
                *dense("discriminator_predictions/dense_1", "mask_predictions.classifier", "D1"),
            ),
            **task_heads(),
        },
        poolers=dict.fromkeys(("classifier", "multiple-choice head"), _CLASSIFIER_POOLER),
        left_out=("bert/pooler/", "cls/seq_relationship/"),
        ignored=("deberta.embeddings.position_embeddings.",),
        other_names={
            "mask_predictions.classifer.": "mask_predictions.classifier.",
            "lm_predictions.lm_head.bias": "cls.predictions.bias",
            "lm_predictions.lm_head.": "cls.predictions.transform.",
        },
        tied={
            "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        architectures={
            **architectures("DebertaV2"),
            (_DETECTOR,): "DebertaV2Model",
            ("masked-LM head", _DETECTOR): "DebertaV2ForMaskedLM",
        },
    ),
)
