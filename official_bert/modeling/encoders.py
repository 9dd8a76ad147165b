"""Decides which encoder an architecture is, and how it computes: another class is a module, and a branch here."""

import dataclasses
from typing import Any

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.layout import FlatSequences, LayoutMaker, padded_sequences
from official_bert.modeling.model import Encoder
from official_bert.modeling.unpadding import UnpaddedLayout


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """How an encoder computes; the same weights go with all of these.

    Attributes:
      use_one_hot_embeddings: see `BertEncoder`.
      layout_maker: see `BertEncoder`.
      recompute_layers: see `BertEncoder`.
      dtype: Keras's dtype policy, such as "mixed_bfloat16"; models on the encoder have the same. None for the default.
    """

    use_one_hot_embeddings: bool = False
    layout_maker: LayoutMaker = padded_sequences
    dtype: str | None = None
    recompute_layers: bool = False

    def as_arguments(self) -> dict[str, Any]:
        """The options as arguments of `BertEncoder`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


PLAIN = EncoderOptions()
UNPADDED = EncoderOptions(layout_maker=UnpaddedLayout.of)
FLAT = EncoderOptions(layout_maker=FlatSequences.of)


def create_encoder(config: BertConfig, options: EncoderOptions = PLAIN) -> Encoder:
    """Makes the encoder of an architecture, which computes as the options say."""
    return BertEncoder(config, **options.as_arguments())
