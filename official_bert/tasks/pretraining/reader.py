"""Reader of pretrained models, in Python and NumPy: texts with [MASK] to sequences, and outputs to words."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from official_bert.serving.signatures import Arrays, Reader, Reading, Specs
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import join_texts

SCORES = "scores"  # the output with the log probabilities of given wordpieces at masks


class FilledMask(NamedTuple):
    """A candidate wordpiece for a mask."""

    word: str  # the wordpiece
    probability: float  # probability over the whole vocabulary, from 0 to 1


class MaskReader(Reader):
    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer):
        super().__init__(said, tokenizer)
        self.num_logits = tokenizer.vocabulary.size
        self.num_read = 8 * self.max_seq_length  # "[MASK]" alone is a few wordpieces of a text
        tokens = tokenizer.convert_ids_to_tokens(list(range(self.num_logits)))
        self._wordpieces = np.array([tokenizer.vocabulary.shown(token).encode() for token in tokens], object)

    def encode(self, text: str) -> Reading:
        most, ids = self.max_seq_length - 2, []
        for part in self.tokenizer.mask_pattern.split(text, maxsplit=most):
            ids += [*self.tokenizer.encode(part), self.tokenizer.mask_id]
        return Reading([join_texts(ids[:-1][:most], (), self.specials).inputs])

    def named(self, outputs: Arrays) -> Arrays:
        probabilities = outputs["probabilities"]
        most = (probabilities > 0).any(axis=(0, 2)).sum()  # the largest number of masks
        probabilities = probabilities[:, :most]
        words = np.where(probabilities > 0, self._wordpieces[outputs["ids"][:, :most]], b"")
        return {"words": words, "probabilities": probabilities}

    def specs(self, numbers: Specs) -> dict[str, Specs]:
        probabilities = numbers["probabilities"]
        return super().specs({"words": probabilities._replace(dtype=np.dtype(object)), "probabilities": probabilities})


READER = MaskReader


def results(outputs: Mapping[str, np.ndarray]) -> list[list[list[FilledMask]]]:
    """Convert outputs of the signature `text` to the words for each mask of each text, most likely first."""
    texts = zip(outputs["words"].tolist(), outputs["probabilities"].tolist(), strict=True)
    return [
        [
            [FilledMask(word.decode(), share) for word, share in zip(words, shares, strict=True)]
            for words, shares in zip(*masks, strict=True)
            if any(shares)  # others are padding
        ]
        for masks in texts
    ]
