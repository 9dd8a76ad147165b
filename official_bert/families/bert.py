"""BERT, the base of all other families; its config is `BertConfig`, its layers are in `modeling/transformer.py`."""

from official_bert.config.bert_config import BertConfig
from official_bert.families.family import Family
from official_bert.families.family_registry import BERT
from official_bert.families.hugging_face import HuggingFace, Rule, dense, encoder_rules, layer_norm, output

FAMILY = Family(
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
            "masked-LM head": (
                *dense("cls/predictions/transform/dense", "cls.predictions.transform.dense", "DD"),
                *layer_norm("cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm"),
                Rule("cls/predictions/output_bias", "cls.predictions.bias", "V"),
            ),
            "next-sentence head": output("cls/seq_relationship/", "cls.seq_relationship", "2"),
            "classifier": output("", "classifier", "C"),
            "tagger": output("tagging/", "classifier", "C"),
            "multiple-choice head": output("multiple_choice/", "classifier", "1"),
            "span head": output("cls/squad/", "qa_outputs", "2"),
        },
        tied={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        architectures={
            (): "BertModel",
            ("masked-LM head", "next-sentence head"): "BertForPreTraining",
            ("masked-LM head",): "BertForMaskedLM",
            ("next-sentence head",): "BertForNextSentencePrediction",
            ("classifier",): "BertForSequenceClassification",
            ("tagger",): "BertForTokenClassification",
            ("multiple-choice head",): "BertForMultipleChoice",
            ("span head",): "BertForQuestionAnswering",
        },
    ),
)
