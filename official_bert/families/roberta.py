"""RoBERTa, XLM-RoBERTa and CamemBERT: BERTs whose positions start at 2; they differ in their tokenizers.

Row 0 of the position embeddings is unused, and row 1 belongs to padding. A pair of texts is one segment. KLUE's
RoBERTa has BERT's tokenizer, so the tokenizer is chosen by the files in the folder.
"""

import dataclasses
from typing import ClassVar

from official_bert.config.bert_config import BertConfig
from official_bert.families.family import Family
from official_bert.families.hugging_face import FIXED, HuggingFace, Rule, dense, encoder_rules, layer_norm, output


@dataclasses.dataclass(frozen=True)
class RobertaConfig(BertConfig):
    """The architecture of a RoBERTa, with BERT's keys; `max_position_embeddings` includes the two rows without text.

    Raises:
      UserError: a value has the wrong type or range, or two values do not fit together.
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


def _family(title: str, config_class: type, classes: str, tokenizer: str, vocab_size: int) -> Family:
    """Make a family; `classes` is the prefix of its class names in `transformers`."""
    return Family(
        name=config_class.family_name,
        title=title,
        config_class=config_class,
        tokenizer=tokenizer,
        parts={"embeddings": "official_bert.modeling.roberta.RobertaEmbeddings"},
        masked_lm_activation="gelu_erf",
        hugging_face=HuggingFace(
            defaults={"vocab_size": vocab_size, "type_vocab_size": 2, "hidden_act": "gelu"},
            fixed={**FIXED, "pad_token_id": RobertaConfig.first_position - 1},
            tokenizer_class=f"{classes}Tokenizer",
            prefix="roberta.",
            parts={
                "encoder": encoder_rules("roberta"),
                "pooler": dense("bert/pooler/dense", "roberta.pooler.dense", "DD"),
                "masked-LM head": (
                    *dense("cls/predictions/transform/dense", "lm_head.dense", "DD"),
                    *layer_norm("cls/predictions/transform/LayerNorm", "lm_head.layer_norm"),
                    Rule("cls/predictions/output_bias", "lm_head.bias", "V"),
                ),
                "classifier": output("", "classifier.out_proj", "C"),
                "tagger": output("tagging/", "classifier", "C"),
                "multiple-choice head": output("multiple_choice/", "classifier", "1"),
                "span head": output("cls/squad/", "qa_outputs", "2"),
            },
            poolers={"classifier": dense("bert/pooler/dense", "classifier.dense", "DD")},
            left_out=("cls/seq_relationship/",),
            tied={
                "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
                "lm_head.decoder.bias": "lm_head.bias",
            },
            architectures={
                (): f"{classes}Model",
                ("masked-LM head",): f"{classes}ForMaskedLM",
                ("classifier",): f"{classes}ForSequenceClassification",
                ("tagger",): f"{classes}ForTokenClassification",
                ("multiple-choice head",): f"{classes}ForMultipleChoice",
                ("span head",): f"{classes}ForQuestionAnswering",
            },
        ),
    )


_TOKENIZERS = "official_bert.tokenization"
ROBERTA = _family("a RoBERTa", RobertaConfig, "Roberta", f"{_TOKENIZERS}.bpe_tokenizer.BpeTokenizer", 50265)
XLM_ROBERTA = _family(
    "an XLM-RoBERTa",
    XlmRobertaConfig,
    "XLMRoberta",
    f"{_TOKENIZERS}.shifted_tokenizer.XlmRobertaTokenizer",
    30522,
)
CAMEMBERT = _family(
    "a CamemBERT", CamembertConfig, "Camembert", f"{_TOKENIZERS}.shifted_tokenizer.CamembertTokenizer", 30522
)
