"""DistilBERT: a BERT without segment embeddings and pooler; its classifier has its own projection."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from official_bert.config.bert_config import BertConfig
from official_bert.families.family import Family
from official_bert.families.hugging_face import FIXED, HuggingFace, Rule, dense, layer_norm, output


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


_LAYER, _HF_LAYER = "bert/encoder/layer_{}", "distilbert.transformer.layer.{}"

FAMILY = Family(
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
                *dense(f"{_LAYER}/attention/self/query", f"{_HF_LAYER}.attention.q_lin", "DD"),
                *dense(f"{_LAYER}/attention/self/key", f"{_HF_LAYER}.attention.k_lin", "DD"),
                *dense(f"{_LAYER}/attention/self/value", f"{_HF_LAYER}.attention.v_lin", "DD"),
                *dense(f"{_LAYER}/attention/output/dense", f"{_HF_LAYER}.attention.out_lin", "DD"),
                *layer_norm(f"{_LAYER}/attention/output/LayerNorm", f"{_HF_LAYER}.sa_layer_norm"),
                *dense(f"{_LAYER}/intermediate/dense", f"{_HF_LAYER}.ffn.lin1", "DI"),
                *dense(f"{_LAYER}/output/dense", f"{_HF_LAYER}.ffn.lin2", "ID"),
                *layer_norm(f"{_LAYER}/output/LayerNorm", f"{_HF_LAYER}.output_layer_norm"),
            ),
            "masked-LM head": (
                *dense("cls/predictions/transform/dense", "vocab_transform", "DD"),
                *layer_norm("cls/predictions/transform/LayerNorm", "vocab_layer_norm"),
                Rule("cls/predictions/output_bias", "vocab_projector.bias", "V"),
            ),
            "classifier": output("", "classifier", "C"),
            "tagger": output("tagging/", "classifier", "C"),
            "multiple-choice head": output("multiple_choice/", "classifier", "1"),
            "span head": output("cls/squad/", "qa_outputs", "2"),
        },
        poolers=dict.fromkeys(
            ("classifier", "multiple-choice head"), dense("bert/pooler/dense", "pre_classifier", "DD")
        ),
        left_out=("bert/pooler/", "cls/seq_relationship/"),
        tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        architectures={
            (): "DistilBertModel",
            ("masked-LM head",): "DistilBertForMaskedLM",
            ("classifier",): "DistilBertForSequenceClassification",
            ("tagger",): "DistilBertForTokenClassification",
            ("multiple-choice head",): "DistilBertForMultipleChoice",
            ("span head",): "DistilBertForQuestionAnswering",
        },
    ),
)
