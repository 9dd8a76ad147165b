"""ALBERT: layers that share weights, and embeddings that are narrower than the layers.

The layers are in `modeling/albert.py`. Variables are named as in the checkpoints of google-research/albert.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from official_bert import lazy
from official_bert.config.bert_config import LARGEST_SIZE, MOST_LAYERS, BertConfig
from official_bert.families.family import (
    Family,
    HuggingFace,
    Rule,
    architectures,
    dense,
    layer_norm,
    masked_lm_head,
    output,
    projection,
    task_heads,
)
from official_bert.support.errors import UserError


@dataclasses.dataclass(frozen=True)
class AlbertConfig(BertConfig):
    """The architecture of an ALBERT.

    The layers are divided into `num_hidden_groups` groups, and the layers of a group share their weights. Each of the
    `num_hidden_layers` consists of `inner_group_num` layers in sequence. The embeddings have width `embedding_size`
    and are projected to `hidden_size`.

    Raises:
      UserError: a value has the wrong type or range, or two values do not fit together.
    Source: Lan et al., 2020, section 3.1, and google-research/albert's AlbertConfig, whose defaults these are.
    """

    family_name: ClassVar[str] = "albert"
    largest: ClassVar[Mapping[str, int]] = {
        **BertConfig.largest,
        "embedding_size": LARGEST_SIZE,
        "num_hidden_groups": LARGEST_SIZE,
        "inner_group_num": MOST_LAYERS,
    }

    hidden_size: int = 4096
    num_attention_heads: int = 64
    intermediate_size: int = 16384
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    type_vocab_size: int = 2

    embedding_size: int = 128
    num_hidden_groups: int = 1
    inner_group_num: int = 1

    def __post_init__(self):
        super().__post_init__()
        if self.num_hidden_layers % self.num_hidden_groups:
            raise UserError(
                f"num_hidden_layers {self.num_hidden_layers} is not a multiple of num_hidden_groups "
                f"{self.num_hidden_groups}"
            )

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, E."""
        return self.embedding_size

    @property
    def num_layers(self) -> int:
        """Number of layers that are computed one after the other, L, inner layers included."""
        return self.num_hidden_layers * self.inner_group_num


_PROJECTION = "bert/encoder/embedding_hidden_mapping_in"
_LAYER = "bert/encoder/transformer/group_{}/inner_group_{}"
_HF_LAYER = "albert.encoder.albert_layer_groups.{}.albert_layers.{}"

ALBERT_FAMILY = Family(
    name=AlbertConfig.family_name,
    title="an ALBERT",
    config_class=AlbertConfig,
    config_file="albert_config.json",
    own_key="num_hidden_groups",
    constant_keys={
        "down_scale_factor": 1,
        "gap_size": 0,
        "layers_to_keep": [],
        "net_structure_type": 0,
        "num_memory_blocks": 0,
    },
    tokenizer=lambda: lazy.SentencePieceTokenizer,
    parts=lambda: {"stack": lazy.SharedStack},
    layers="ALBERT's shared layers",
    layer_scope="encoder/transformer/group_0/",
    layer_keys=("num_hidden_groups", "inner_group_num"),
    shares_layers=True,
    hugging_face=HuggingFace(
        defaults={"vocab_size": 30000, "hidden_act": "gelu_new"},
        tokenizer_class="AlbertTokenizer",
        prefix="albert.",
        parts={
            "encoder": (
                Rule("bert/embeddings/word_embeddings", "albert.embeddings.word_embeddings.weight", "VE"),
                Rule("bert/embeddings/token_type_embeddings", "albert.embeddings.token_type_embeddings.weight", "TE"),
                Rule("bert/embeddings/position_embeddings", "albert.embeddings.position_embeddings.weight", "SE"),
                *layer_norm("bert/embeddings/LayerNorm", "albert.embeddings.LayerNorm", "E"),
                *projection(_PROJECTION, "albert.encoder.embedding_hidden_mapping_in"),
                *dense(f"{_LAYER}/attention_1/self/query", f"{_HF_LAYER}.attention.query", "DD"),
                *dense(f"{_LAYER}/attention_1/self/key", f"{_HF_LAYER}.attention.key", "DD"),
                *dense(f"{_LAYER}/attention_1/self/value", f"{_HF_LAYER}.attention.value", "DD"),
                *dense(f"{_LAYER}/attention_1/output/dense", f"{_HF_LAYER}.attention.dense", "DD"),
                *layer_norm(f"{_LAYER}/LayerNorm", f"{_HF_LAYER}.attention.LayerNorm"),
                *dense(f"{_LAYER}/ffn_1/intermediate/dense", f"{_HF_LAYER}.ffn", "DI"),
                *dense(f"{_LAYER}/ffn_1/intermediate/output/dense", f"{_HF_LAYER}.ffn_output", "ID"),
                *layer_norm(f"{_LAYER}/LayerNorm_1", f"{_HF_LAYER}.full_layer_layer_norm"),
            ),
            "pooler": dense("bert/pooler/dense", "albert.pooler", "DD"),
            "masked-LM head": masked_lm_head("predictions.dense", "predictions.LayerNorm", "predictions.bias", "E"),
            "next-sentence head": output("cls/seq_relationship/", "sop_classifier.classifier", "2"),
            **task_heads(),
        },
        tied={
            "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
            "predictions.decoder.bias": "predictions.bias",
        },
        architectures=architectures("Albert", ForPreTraining=("masked-LM head", "next-sentence head")),
        always_projects=True,
    ),
)
