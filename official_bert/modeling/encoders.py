"""Decides which encoder an architecture is: another class of encoders is a module, and a branch here."""

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.model import Encoder


def create_encoder(config: BertConfig, **options) -> Encoder:
    """Makes the encoder of an architecture.

    Args:
      config: the architecture.
      **options: see `BertEncoder`: use_one_hot_embeddings, layout_maker, dtype.
    """
    return BertEncoder(config, **options)
