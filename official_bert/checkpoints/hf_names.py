"""Names of the variables of BERT and ALBERT in Hugging Face's files, and the heads of each class of `transformers`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from official_bert.config.bert_config import BertConfig

EMBEDDING_PROJECTION = "bert/encoder/embedding_hidden_mapping_in"


class Rule(NamedTuple):
    """One variable; with `{}` in its names, which stand for the numbers of a layer, one of each layer.

    Attributes:
      source: its name, in the table below ours.
      target: its other name.
      shape: under the first name, a letter for each dimension as in `sizes`.
      is_transposed: whether the two layouts are transposes of each other; PyTorch's linear layers keep [output, input].
    """

    source: str
    target: str
    shape: str
    is_transposed: bool = False

    def mirrored(self) -> "Rule":
        """The same rule from the other side."""
        shape = self.shape[::-1] if self.is_transposed else self.shape
        return Rule(self.target, self.source, shape, self.is_transposed)

    def of_each_layer(self, layers: Iterable[tuple[int, ...]]) -> list["Rule"]:
        """The rule for each layer of these numbers; the rule itself if it is of no layer."""
        if "{}" not in self.source:
            return [self]
        return [self._replace(source=self.source.format(*layer), target=self.target.format(*layer)) for layer in layers]


def _dense(name: str, hf_name: str, shape: str) -> tuple[Rule, ...]:
    kernel = Rule(f"{name}/kernel", f"{hf_name}.weight", shape, is_transposed=True)
    return kernel, Rule(f"{name}/bias", f"{hf_name}.bias", shape[1])


def _layer_norm(name: str, hf_name: str, shape: str = "D") -> tuple[Rule, ...]:
    return Rule(f"{name}/gamma", f"{hf_name}.weight", shape), Rule(f"{name}/beta", f"{hf_name}.bias", shape)


def _output(folder: str, hf_name: str, classes: str) -> tuple[Rule, ...]:
    weights = Rule(f"{folder}output_weights", f"{hf_name}.weight", f"{classes}D")
    return weights, Rule(f"{folder}output_bias", f"{hf_name}.bias", classes)


class Family(NamedTuple):
    """The models of one architecture, as `transformers` knows them.

    Attributes:
      prefix: what begins the names of the encoder's tensors, but in a model that is an encoder alone.
      mark: what the names of each model of this family hold, and of no other.
      parts: the variables of each part of a model; of a part, all are there or none.
      tied: tensors that are the same variable as another one.
      architectures: the class in `transformers` for the heads that a model may have.
    """

    prefix: str
    mark: str
    parts: Mapping[str, Sequence[Rule]]
    tied: Mapping[str, str]
    architectures: Mapping[tuple[str, ...], str]

    @classmethod
    def of(cls, config: BertConfig) -> "Family":
        """The family of an architecture."""
        return _ALBERT if config.is_albert else _BERT

    @classmethod
    def of_names(cls, names: Iterable[str]) -> "Family":
        """The family whose tensors have these names; BERT if none is known to have them."""
        return _ALBERT if any(_ALBERT.mark in name for name in names) else _BERT


def layer_numbers(config: BertConfig) -> list[tuple[int, ...]]:
    """The numbers in the names of the layers that have weights of their own: of ALBERT, group and inner layer."""
    if not config.is_albert:
        return [(layer,) for layer in range(config.num_hidden_layers)]
    return [(group, inner) for group in range(config.num_hidden_groups) for inner in range(config.inner_group_num)]


def sizes(config: BertConfig) -> dict[str, int]:
    """The meanings of the letters of a shape; C, the number of classes, is what the first array that has it says."""
    return {
        "V": config.vocab_size,
        "T": config.type_vocab_size,
        "S": config.max_position_embeddings,
        "E": config.embedding_width,
        "D": config.hidden_size,
        "I": config.intermediate_size,
        "2": 2,
    }


_BERT_PARTS = {
    "encoder": (
        Rule("bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings.weight", "VD"),
        Rule("bert/embeddings/token_type_embeddings", "bert.embeddings.token_type_embeddings.weight", "TD"),
        Rule("bert/embeddings/position_embeddings", "bert.embeddings.position_embeddings.weight", "SD"),
        *_layer_norm("bert/embeddings/LayerNorm", "bert.embeddings.LayerNorm"),
        *_dense("bert/encoder/layer_{}/attention/self/query", "bert.encoder.layer.{}.attention.self.query", "DD"),
        *_dense("bert/encoder/layer_{}/attention/self/key", "bert.encoder.layer.{}.attention.self.key", "DD"),
        *_dense("bert/encoder/layer_{}/attention/self/value", "bert.encoder.layer.{}.attention.self.value", "DD"),
        *_dense("bert/encoder/layer_{}/attention/output/dense", "bert.encoder.layer.{}.attention.output.dense", "DD"),
        *_layer_norm(
            "bert/encoder/layer_{}/attention/output/LayerNorm", "bert.encoder.layer.{}.attention.output.LayerNorm"
        ),
        *_dense("bert/encoder/layer_{}/intermediate/dense", "bert.encoder.layer.{}.intermediate.dense", "DI"),
        *_dense("bert/encoder/layer_{}/output/dense", "bert.encoder.layer.{}.output.dense", "ID"),
        *_layer_norm("bert/encoder/layer_{}/output/LayerNorm", "bert.encoder.layer.{}.output.LayerNorm"),
    ),
    "pooler": _dense("bert/pooler/dense", "bert.pooler.dense", "DD"),
    "masked-LM head": (
        *_dense("cls/predictions/transform/dense", "cls.predictions.transform.dense", "DD"),
        *_layer_norm("cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm"),
        Rule("cls/predictions/output_bias", "cls.predictions.bias", "V"),
    ),
    "next-sentence head": _output("cls/seq_relationship/", "cls.seq_relationship", "2"),
    "classifier": _output("", "classifier", "C"),
    "span head": _output("cls/squad/", "qa_outputs", "2"),
}
_BERT_ARCHITECTURES = {
    (): "BertModel",
    ("masked-LM head", "next-sentence head"): "BertForPreTraining",
    ("masked-LM head",): "BertForMaskedLM",
    ("next-sentence head",): "BertForNextSentencePrediction",
    ("classifier",): "BertForSequenceClassification",
    ("span head",): "BertForQuestionAnswering",
}
_BERT = Family(
    "bert.",
    "bert.encoder.layer.",
    _BERT_PARTS,
    {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    _BERT_ARCHITECTURES,
)

_SHARED, _HF_SHARED = (
    "bert/encoder/transformer/group_{}/inner_group_{}",
    "albert.encoder.albert_layer_groups.{}.albert_layers.{}",
)
_ALBERT = Family(
    "albert.",
    "encoder.albert_layer_groups.",
    {
        "encoder": (
            Rule("bert/embeddings/word_embeddings", "albert.embeddings.word_embeddings.weight", "VE"),
            Rule("bert/embeddings/token_type_embeddings", "albert.embeddings.token_type_embeddings.weight", "TE"),
            Rule("bert/embeddings/position_embeddings", "albert.embeddings.position_embeddings.weight", "SE"),
            *_layer_norm("bert/embeddings/LayerNorm", "albert.embeddings.LayerNorm", "E"),
            *_dense(EMBEDDING_PROJECTION, "albert.encoder.embedding_hidden_mapping_in", "ED"),
            *_dense(f"{_SHARED}/attention_1/self/query", f"{_HF_SHARED}.attention.query", "DD"),
            *_dense(f"{_SHARED}/attention_1/self/key", f"{_HF_SHARED}.attention.key", "DD"),
            *_dense(f"{_SHARED}/attention_1/self/value", f"{_HF_SHARED}.attention.value", "DD"),
            *_dense(f"{_SHARED}/attention_1/output/dense", f"{_HF_SHARED}.attention.dense", "DD"),
            *_layer_norm(f"{_SHARED}/LayerNorm", f"{_HF_SHARED}.attention.LayerNorm"),
            *_dense(f"{_SHARED}/ffn_1/intermediate/dense", f"{_HF_SHARED}.ffn", "DI"),
            *_dense(f"{_SHARED}/ffn_1/intermediate/output/dense", f"{_HF_SHARED}.ffn_output", "ID"),
            *_layer_norm(f"{_SHARED}/LayerNorm_1", f"{_HF_SHARED}.full_layer_layer_norm"),
        ),
        "pooler": _dense("bert/pooler/dense", "albert.pooler", "DD"),
        "masked-LM head": (
            *_dense("cls/predictions/transform/dense", "predictions.dense", "DE"),
            *_layer_norm("cls/predictions/transform/LayerNorm", "predictions.LayerNorm", "E"),
            Rule("cls/predictions/output_bias", "predictions.bias", "V"),
        ),
        "next-sentence head": _output("cls/seq_relationship/", "sop_classifier.classifier", "2"),
        "classifier": _output("", "classifier", "C"),
        "span head": _output("cls/squad/", "qa_outputs", "2"),
    },
    {
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    {
        (): "AlbertModel",
        ("masked-LM head", "next-sentence head"): "AlbertForPreTraining",
        ("masked-LM head",): "AlbertForMaskedLM",
        ("classifier",): "AlbertForSequenceClassification",
        ("span head",): "AlbertForQuestionAnswering",
    },
)
