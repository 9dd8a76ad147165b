"""ELECTRA: a BERT with narrower embeddings and without a pooler, trained to detect replaced tokens.

A discriminator is fine-tuned like a BERT; its head for replaced-token detection is kept, but no task uses it. A
generator has a masked-LM head. A checkpoint of google-research/electra holds both; as there, only the discriminator is
read.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from official_bert.config.bert_config import LARGEST_SIZE, BertConfig
from official_bert.families.family import Family
from official_bert.families.hugging_face import HuggingFace, Rule, dense, encoder_rules, layer_norm, output


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


_PROJECTION = "bert/encoder/embedding_hidden_mapping_in"

FAMILY = Family(
    name=ElectraConfig.family_name,
    title="an ELECTRA",
    config_class=ElectraConfig,
    pooler_activation="gelu_erf",  # activation of the classifier's projection
    masked_lm_activation="gelu_erf",
    released_names={"electra/embeddings_project/": f"{_PROJECTION}/", "electra/": "bert/"},
    hugging_face=HuggingFace(
        defaults={"vocab_size": 30522, "hidden_act": "gelu"},
        tokenizer_class="ElectraTokenizer",
        prefix="electra.",
        parts={
            "encoder": (
                *encoder_rules("electra"),
                *(rule._replace(is_projection=True) for rule in dense(_PROJECTION, "electra.embeddings_project", "ED")),
            ),
            "masked-LM head": (
                *dense("cls/predictions/transform/dense", "generator_predictions.dense", "DE"),
                *layer_norm("cls/predictions/transform/LayerNorm", "generator_predictions.LayerNorm", "E"),
                Rule("cls/predictions/output_bias", "generator_lm_head.bias", "V"),
            ),
            "discriminator's head": (
                *dense("discriminator_predictions/dense", "discriminator_predictions.dense", "DD"),
                *dense("discriminator_predictions/dense_1", "discriminator_predictions.dense_prediction", "D1"),
            ),
            "classifier": output("", "classifier.out_proj", "C"),
            "tagger": output("tagging/", "classifier", "C"),
            "multiple-choice head": output("multiple_choice/", "classifier", "1"),
            "span head": output("cls/squad/", "qa_outputs", "2"),
        },
        poolers={
            "classifier": dense("bert/pooler/dense", "classifier.dense", "DD"),
            "multiple-choice head": dense("bert/pooler/dense", "sequence_summary.summary", "DD"),
        },
        left_out=("bert/pooler/", "cls/seq_relationship/", "generator/", "generator_predictions/"),
        tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
        architectures={
            (): "ElectraModel",
            ("masked-LM head",): "ElectraForMaskedLM",
            ("discriminator's head",): "ElectraForPreTraining",
            ("classifier",): "ElectraForSequenceClassification",
            ("tagger",): "ElectraForTokenClassification",
            ("multiple-choice head",): "ElectraForMultipleChoice",
            ("span head",): "ElectraForQuestionAnswering",
        },
    ),
)
