"""`Family`: everything that the rest of the package needs to know about an encoder family."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from official_bert.families.hugging_face import HuggingFace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """The models that share an architecture but for its sizes. The defaults are what BERT has.

    Attributes:
      name: its name in `registry.FAMILIES`, which is the `model_type` of its `config.json`.
      title: its name in messages: "an ALBERT".
      config_class: the architecture, a `BertConfig`, whose fields are the keys of the config files. It says when two
        models are the same, too: `BertConfig.identity_values`.
      config_file: the config file's name in released archives.
      own_key: a key that only its config files have; None if nothing but our own key `family` tells it from BERT.
      constant_keys: keys of released config files that nothing computes with, and the one value that each may have.
      tokenizer: the class of its tokenizer, as a dotted path, which is imported when it is asked for.
      parts: the layers that are not BERT's, likewise: "embeddings" for ids to vectors, "stack" for the transformer
        layers, and "pooler". The names of their variables are those in our checkpoints.
      pooler_activation: what follows the projection in the pooler, one of `ACTIVATION_NAMES` of the config.
      masked_lm_activation: what follows the projection in the masked-LM head; None for that of the layers.
      released_names: what begins the names of variables in released checkpoints of TensorFlow 1, and what begins them
        here, where they differ.
      layers: its layers, in messages.
      layer_scope: what the names of the variables of its first layer hold.
      layer_keys: the keys whose product is the number of layers with weights of their own; the names of these layers
        have a number for each, too.
      shares_layers: whether several layers have the same weights, so that none can be treated in its own way.
      hugging_face: its `config.json` and the names of its tensors in `transformers`.
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
