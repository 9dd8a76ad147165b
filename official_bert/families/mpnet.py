"""MPNet: RoBERTa's embeddings without segments, and a bias for relative positions that all layers share."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from official_bert.config.bert_config import BertConfig
from official_bert.families.bert import RobertaConfig
from official_bert.families.family import (
    FIXED,
    Family,
    HuggingFace,
    Rule,
    architectures,
    dense,
    layer_norm,
    masked_lm_head,
    task_heads,
)


@dataclasses.dataclass(frozen=True)
class MPNetConfig(RobertaConfig):
    """The architecture of an MPNet, with RoBERTa's keys; segment ids have no effect.

    Source: Song et al., 2020, section 3.1, and the code that they published.
    """

    family_name: ClassVar[str] = "mpnet"
    largest: ClassVar[Mapping[str, int]] = {**BertConfig.largest, "type_vocab_size": 0}
    smallest: ClassVar[Mapping[str, int]] = {"type_vocab_size": 0}
    num_position_buckets: ClassVar[int] = 32

    type_vocab_size: int = 0

    @property
    def num_position_parameters(self) -> int:
        """Number of parameters for positions: of their embeddings, and a bias per head for each range of distances."""
        return super().num_position_parameters + self.num_position_buckets * self.num_attention_heads

    @property
    def own_sizes(self) -> dict[str, int]:
        """Number of ranges of distances."""
        return {"R": self.num_position_buckets}


_LAYER, _HF_LAYER = "bert/encoder/layer_{}", "mpnet.encoder.layer.{}"

MPNET_FAMILY = Family(
    name=MPNetConfig.family_name,
    title="an MPNet",
    config_class=MPNetConfig,
    parts={
        "embeddings": "official_bert.modeling.encoder.RobertaEmbeddings",
        "stack": "official_bert.modeling.transformer.RelativeStack",
    },
    masked_lm_activation="gelu_erf",
    hugging_face=HuggingFace(
        defaults={"vocab_size": 30527, "hidden_act": "gelu"},
        fixed={
            **FIXED,
            "pad_token_id": MPNetConfig.first_position - 1,
            "relative_attention_num_buckets": MPNetConfig.num_position_buckets,
        },
        keys={"type_vocab_size": None},
        tokenizer_class="BertTokenizer",  # of BERT's vocabularies; `MPNetVocabulary` has its own
        prefix="mpnet.",
        parts={
            "encoder": (
                Rule("bert/embeddings/word_embeddings", "mpnet.embeddings.word_embeddings.weight", "VD"),
                Rule("bert/embeddings/position_embeddings", "mpnet.embeddings.position_embeddings.weight", "SD"),
                *layer_norm("bert/embeddings/LayerNorm", "mpnet.embeddings.LayerNorm"),
                Rule("bert/encoder/relative_attention_bias", "mpnet.encoder.relative_attention_bias.weight", "RN"),
                *dense(f"{_LAYER}/attention/self/query", f"{_HF_LAYER}.attention.attn.q", "DD"),
                *dense(f"{_LAYER}/attention/self/key", f"{_HF_LAYER}.attention.attn.k", "DD"),
                *dense(f"{_LAYER}/attention/self/value", f"{_HF_LAYER}.attention.attn.v", "DD"),
                *dense(f"{_LAYER}/attention/output/dense", f"{_HF_LAYER}.attention.attn.o", "DD"),
                *layer_norm(f"{_LAYER}/attention/output/LayerNorm", f"{_HF_LAYER}.attention.LayerNorm"),
                *dense(f"{_LAYER}/intermediate/dense", f"{_HF_LAYER}.intermediate.dense", "DI"),
                *dense(f"{_LAYER}/output/dense", f"{_HF_LAYER}.output.dense", "ID"),
                *layer_norm(f"{_LAYER}/output/LayerNorm", f"{_HF_LAYER}.output.LayerNorm"),
            ),
            "pooler": dense("bert/pooler/dense", "mpnet.pooler.dense", "DD"),
            "masked-LM head": masked_lm_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
            **task_heads("classifier.out_proj"),
        },
        poolers={"classifier": dense("bert/pooler/dense", "classifier.dense", "DD")},
        left_out=("cls/seq_relationship/",),
        tied={
            "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        architectures=architectures("MPNet"),
    ),
)
