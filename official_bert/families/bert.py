"""BERT and the families that differ from it in data: DistilBERT, ELECTRA, RoBERTa, XLM-RoBERTa and CamemBERT."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from official_bert import lazy
from official_bert.config.bert_config import LARGEST_SIZE, BertConfig
from official_bert.families.family import (
    BERT,
    FIXED,
    Family,
    HuggingFace,
    Rule,
    architectures,
    dense,
    encoder_rules,
    layer_norm,
    layer_rules,
    masked_lm_head,
    output,
    projection,
    task_heads,
)

BERT_FAMILY = Family(
    name=BERT,
    title="a BERT",
    config_class=BertConfig,
    hugging_face=HuggingFace(
        defaults={"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"},
        tokenizer_class="BertTokenizer",
        prefix="bert.",
        parts={
            "encoder": encoder_rules("bert"),
            "pooler": dense("bert/pooler/dense", "bert.pooler.dense", "DD"),
            "masked-LM head": masked_lm_head(
                "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
            ),
            "next-sentence head": output("cls/seq_relationship/", "cls.seq_relationship", "2"),
            **task_heads(),
        },
        ignored=("fit_denses.",),  # of the distillation of TinyBERT
        tied={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        architectures=architectures(
            "Bert",
            ForPreTraining=("masked-LM head", "next-sentence head"),
            ForNextSentencePrediction=("next-sentence head",),
        ),
    ),
)


@dataclasses.dataclass(frozen=True)
class DistilBertConfig(BertConfig):
    """The architecture of a DistilBERT, with BERT's keys; segment ids have no effect.

    Raises:
      UserError: a value has the wrong type or range, or two values do not fit together.
    Source: Sanh et al., 2019, section 3.
    """

    family_name: ClassVar[str] = "distilbert"
    largest: ClassVar[Mapping[str, int]] = {**BertConfig.largest, "type_vocab_size": 0}
    smallest: ClassVar[Mapping[str, int]] = {"type_vocab_size": 0}

    type_vocab_size: int = 0


DISTILBERT_FAMILY = Family(
    name=DistilBertConfig.family_name,
    title="a DistilBERT",
    config_class=DistilBertConfig,
    pooler_activation="relu",  # activation of the classifier's projection
    hugging_face=HuggingFace(
        defaults={"vocab_size": 30522, "activation": "gelu"},
        fixed={**FIXED, "layer_norm_eps": 1e-12},
        keys={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "type_vocab_size": None,
        },
        tokenizer_class="DistilBertTokenizer",
        prefix="distilbert.",
        parts={
            "encoder": (
                Rule("bert/embeddings/word_embeddings", "distilbert.embeddings.word_embeddings.weight", "VD"),
                Rule("bert/embeddings/position_embeddings", "distilbert.embeddings.position_embeddings.weight", "SD"),
                *layer_norm("bert/embeddings/LayerNorm", "distilbert.embeddings.LayerNorm"),
                *layer_rules(
                    "distilbert.transformer.layer.{}",
                    "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm "
                    "ffn.lin1 ffn.lin2 output_layer_norm",
                ),
            ),
            "masked-LM head": masked_lm_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
            **task_heads(),
        },
        poolers=dict.fromkeys(
            ("classifier", "multiple-choice head"), dense("bert/pooler/dense", "pre_classifier", "DD")
        ),
        left_out=("bert/pooler/", "cls/seq_relationship/"),
        tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        architectures=architectures("DistilBert"),
    ),
)


@dataclasses.dataclass(frozen=True)
class ElectraConfig(BertConfig):
    """The architecture of an ELECTRA: BERT's keys and the width of the embeddings, `embedding_size`.

    Raises:
      UserError: a value has the wrong type or range, or two values do not fit together.
    Source: Clark et al., 2020, section 3.2, and google-research/electra; the defaults are those of the small model.
    """

    family_name: ClassVar[str] = "electra"
    largest: ClassVar[Mapping[str, int]] = {**BertConfig.largest, "embedding_size": LARGEST_SIZE}

    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    hidden_act: str = "gelu_erf"
    type_vocab_size: int = 2

    embedding_size: int = 128

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, E."""
        return self.embedding_size

    def generator(self, size: float) -> "ElectraConfig":
        """Return the architecture of a generator of a fraction of this width, with heads as wide as these."""
        width = round(size * self.hidden_size)
        return dataclasses.replace(
            self,
            hidden_size=width,
            intermediate_size=round(self.intermediate_size * width / self.hidden_size),
            num_attention_heads=max(1, width * self.num_attention_heads // self.hidden_size),
        )


_PROJECTION = "bert/encoder/embedding_hidden_mapping_in"
GENERATOR, GENERATOR_HEAD = "generator/", "generator_predictions/"  # scopes in pretraining checkpoints

ELECTRA_FAMILY = Family(
    name=ElectraConfig.family_name,
    title="an ELECTRA",
    config_class=ElectraConfig,
    pooler_activation="gelu_erf",  # activation of the classifier's projection
    masked_lm_activation="gelu_erf",
    released_names={
        "electra/embeddings_project/": f"{_PROJECTION}/",
        "electra/": "bert/",
        "generator/embeddings_project/": f"{_PROJECTION}/".replace("bert/", GENERATOR),
        **{f"{GENERATOR_HEAD}{part}/": f"{GENERATOR_HEAD}transform/{part}/" for part in ("dense", "LayerNorm")},
    },
    own_scope=GENERATOR,
    hugging_face=HuggingFace(
        defaults={"vocab_size": 30522, "hidden_act": "gelu"},
        fixed={**FIXED, "summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
        tokenizer_class="ElectraTokenizer",
        prefix="electra.",
        parts={
            "encoder": (*encoder_rules("electra"), *projection(_PROJECTION, "electra.embeddings_project")),
            "masked-LM head": masked_lm_head(
                "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias", "E"
            ),
            "discriminator's head": (
                *dense("discriminator_predictions/dense", "discriminator_predictions.dense", "DD"),
                *dense("discriminator_predictions/dense_1", "discriminator_predictions.dense_prediction", "D1"),
            ),
            **task_heads("classifier.out_proj"),
        },
        poolers={
            "classifier": dense("bert/pooler/dense", "classifier.dense", "DD"),
            "multiple-choice head": dense("bert/pooler/dense", "sequence_summary.summary", "DD"),
        },
        left_out=("bert/pooler/", "cls/seq_relationship/", GENERATOR, GENERATOR_HEAD),
        tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
        architectures=architectures("Electra", ForPreTraining=("discriminator's head",)),
    ),
)


@dataclasses.dataclass(frozen=True)
class RobertaConfig(BertConfig):
    """The architecture of a RoBERTa, with BERT's keys; `max_position_embeddings` includes the two rows without text.

    Source: Liu et al., 2019, sections 2 and 4.
    """

    family_name: ClassVar[str] = "roberta"
    first_position: ClassVar[int] = 2

    @property
    def num_segments(self) -> int:
        """Number of valid segment ids, at least the two of a pair; they have no effect if the table has one row."""
        return max(2, self.type_vocab_size)


@dataclasses.dataclass(frozen=True)
class XlmRobertaConfig(RobertaConfig):
    """The architecture of an XLM-RoBERTa, equal to a RoBERTa's. Source: Conneau et al., 2020, section 3."""

    family_name: ClassVar[str] = "xlm-roberta"


@dataclasses.dataclass(frozen=True)
class CamembertConfig(RobertaConfig):
    """The architecture of a CamemBERT, equal to a RoBERTa's. Source: Martin et al., 2020, section 4."""

    family_name: ClassVar[str] = "camembert"


def roberta_family(
    title: str, config_class: type, classes: str, tokenizer: Callable[[], type], vocab_size: int, **theirs: Any
) -> Family:
    """Make a family with RoBERTa's embeddings and heads.

    `classes` is the prefix of its class names in `transformers`; `theirs` are the differences of its `HuggingFace`:
    `prefix`, further `fixed` keys, the rules of its `encoder`, and other fields.
    """
    prefix, fixed = theirs.pop("prefix", "roberta."), theirs.pop("fixed", {})
    encoder = theirs.pop("encoder", None) or encoder_rules("roberta")
    fields = {
        "defaults": {"vocab_size": vocab_size, "type_vocab_size": 2, "hidden_act": "gelu"},
        "tokenizer_class": f"{classes}Tokenizer",
        **theirs,
    }
    return Family(
        name=config_class.family_name,
        title=title,
        config_class=config_class,
        tokenizer=tokenizer,
        parts=lambda: {"embeddings": lazy.RobertaEmbeddings},
        masked_lm_activation="gelu_erf",
        hugging_face=HuggingFace(
            fixed={**FIXED, "pad_token_id": RobertaConfig.first_position - 1, **fixed},
            prefix=prefix,
            parts={
                "encoder": encoder,
                "pooler": dense("bert/pooler/dense", f"{prefix}pooler.dense", "DD"),
                "masked-LM head": masked_lm_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
                **task_heads("classifier.out_proj"),
            },
            poolers={"classifier": dense("bert/pooler/dense", "classifier.dense", "DD")},
            left_out=("cls/seq_relationship/",),
            tied={
                "lm_head.decoder.weight": f"{prefix}embeddings.word_embeddings.weight",
                "lm_head.decoder.bias": "lm_head.bias",
            },
            architectures=architectures(classes),
            **fields,
        ),
    )


ROBERTA = roberta_family("a RoBERTa", RobertaConfig, "Roberta", lambda: lazy.BpeTokenizer, 50265)
XLM_ROBERTA = roberta_family("an XLM-RoBERTa", XlmRobertaConfig, "XLMRoberta", lambda: lazy.XlmRobertaTokenizer, 30522)
CAMEMBERT = roberta_family("a CamemBERT", CamembertConfig, "Camembert", lambda: lazy.CamembertTokenizer, 30522)
