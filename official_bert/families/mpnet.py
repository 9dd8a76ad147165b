"""MPNet: RoBERTa's embeddings without segments, and a bias for relative positions that all layers share."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from official_bert import lazy
from official_bert.config.bert_config import BertConfig
from official_bert.families.bert import RobertaConfig, roberta_family
from official_bert.families.family import Rule, layer_norm, layer_rules


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


_LIKE_ROBERTA = roberta_family(
    "an MPNet",
    MPNetConfig,
    "MPNet",
    lambda: lazy.FullTokenizer,
    30527,
    prefix="mpnet.",
    fixed={"relative_attention_num_buckets": MPNetConfig.num_position_buckets},
    keys={"type_vocab_size": None},
    tokenizer_class="BertTokenizer",  # of BERT's vocabularies; `MPNetVocabulary` has its own
    encoder=(
        Rule("bert/embeddings/word_embeddings", "mpnet.embeddings.word_embeddings.weight", "VD"),
        Rule("bert/embeddings/position_embeddings", "mpnet.embeddings.position_embeddings.weight", "SD"),
        *layer_norm("bert/embeddings/LayerNorm", "mpnet.embeddings.LayerNorm"),
        Rule("bert/encoder/relative_attention_bias", "mpnet.encoder.relative_attention_bias.weight", "RN"),
        *layer_rules(
            "mpnet.encoder.layer.{}",
            "attention.attn.q attention.attn.k attention.attn.v attention.attn.o attention.LayerNorm "
            "intermediate.dense output.dense output.LayerNorm",
        ),
    ),
)
MPNET_FAMILY = dataclasses.replace(_LIKE_ROBERTA, parts=lambda: {**_LIKE_ROBERTA.parts(), "stack": lazy.RelativeStack})
