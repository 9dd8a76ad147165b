"""`Family`: the description of an encoder family for the rest of the package."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from official_bert.families.hugging_face import HuggingFace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A family of models that differ only in their sizes. The defaults are BERT's.

    Attributes:
      name: key in `family_registry.FAMILIES`, equal to `model_type` in a Hugging Face `config.json`.
      title: name in messages: "an ALBERT".
      config_class: `BertConfig` or a subclass; its fields are the keys of the config files.
      config_file: name of the config file in released archives.
      own_key: a key that only config files of this family have; None if only our key `family` distinguishes it.
      constant_keys: unused keys of released config files, each with its only supported value.
      tokenizer: dotted path of the tokenizer class, which is imported on demand.
      parts: dotted paths of the layers that differ from BERT's: "embeddings", "stack" (the transformer layers) and
        "pooler". Their variables are named as in our checkpoints.
      pooler_activation: activation after the pooler's projection, one of `ACTIVATION_NAMES` of the config.
      masked_lm_activation: activation after the masked-LM head's projection; None for that of the layers.
      released_names: prefixes of variable names in released TensorFlow 1 checkpoints, each with its prefix here.
      layers: description of the layers in messages.
      layer_scope: a part of the variable names of the first layer.
      layer_keys: keys whose product is the number of layers with separate weights; the variable names of a layer hold
        a number for each key.
      shares_layers: whether layers share weights, so that none can be treated separately.
      hugging_face: the family's `config.json` keys and tensor names in `transformers`.
    """

    name: str
    title: str
    config_class: type
    config_file: str = "bert_config.json"
    own_key: str | None = None
    constant_keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tokenizer: str = "official_bert.tokenization.full_tokenizer.FullTokenizer"
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pooler_activation: str = "tanh"
    masked_lm_activation: str | None = None
    released_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    layers: str = "the layers of a BERT, each with weights of its own"
    layer_scope: str = "encoder/layer_0/"
    layer_keys: tuple[str, ...] = ("num_hidden_layers",)
    shares_layers: bool = False
    hugging_face: HuggingFace
