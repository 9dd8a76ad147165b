"""Sequence layout shared by the tokenizers of RoBERTa, XLM-RoBERTa and CamemBERT."""

import re
from typing import ClassVar

from official_bert.tokenization.joining import Specials
from official_bert.tokenization.vocab import CLS, MASK, PAD, SEP, UNK

NAMES = {PAD: "<pad>", UNK: "<unk>", CLS: "<s>", SEP: "</s>", MASK: "<mask>"}
LAYOUT = {"num_between": 2, "second_segment": 0}


class RobertaSequences:
    """Tokenizer mixin for sequences `<s> first </s></s> second </s>`, all of one segment."""

    # The mask includes the space before it.
    mask_pattern: ClassVar[re.Pattern[str]] = re.compile(rf"[ \t\r\n]*(?:{re.escape(MASK)}|{re.escape(NAMES[MASK])})")

    @property
    def specials(self) -> Specials:
        """The special tokens of its sequences."""
        return Specials(self.cls_id, self.sep_id, **LAYOUT, pad_id=self.pad_id)
