"""Fills in masked words: what the masked-LM head thinks, as words and probabilities."""

from typing import NamedTuple

import keras
import numpy as np

from official_bert.errors import UserError
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.tasks.vocabulary_check import check_vocabulary
from official_bert.tokenization import FullTokenizer, vocab


class Candidate(NamedTuple):
    """A wordpiece for a masked position.

    Attributes:
      piece: the wordpiece.
      probability: from 0 to 1, over the whole vocabulary.
    """

    piece: str
    probability: float


class MaskFiller:
    """Fills in the masks of a text."""

    def __init__(self, model: PretrainingModel, tokenizer: FullTokenizer):
        """Joins a trained model with its tokenizer.

        Raises:
          UserError: the vocabulary lacks a special piece, or has more ids than the model.
        """
        self._model, self._tokenizer = model, tokenizer
        self._classifier, self._separator, self._mask = tokenizer.vocabulary.require(
            vocab.CLASSIFIER, vocab.SEPARATOR, vocab.MASK
        )
        check_vocabulary(tokenizer.vocabulary, model.encoder)

    def encode(self, text: str) -> list[int]:
        """Turns a text into ids: `"a [MASK] c"` becomes [CLS] a [MASK] c [SEP].

        Args:
          text: any text; each `[MASK]` in it stands for one hidden wordpiece.

        Returns:
          Its ids.
        """
        ids = [self._classifier]
        for index, part in enumerate(text.split(vocab.MASK)):
            if index:
                ids.append(self._mask)
            ids += self._tokenizer.encode(part)
        return [*ids, self._separator]

    def fill(self, text: str, top_k: int) -> list[list[Candidate]]:
        """Finds the likeliest wordpieces for each mask of a text.

        Args:
          text: a text with at least one `[MASK]`.
          top_k: how many candidates for each.

        Returns:
          For each mask, from left to right, its candidates, likeliest first.

        Raises:
          UserError: the text has no mask, or is longer than the model allows.
        """
        ids = self.encode(text)
        positions = [position for position, index in enumerate(ids) if index == self._mask]
        if not positions:
            raise UserError(f"the text has no {vocab.MASK}: {text!r}")
        limit = self._model.encoder.max_length
        if len(ids) > limit:
            raise UserError(f"the text has {len(ids)} wordpieces, the model takes {limit}; shorten it")
        outputs = self._model(
            {
                "input_ids": np.array([ids], np.int32),
                "input_mask": np.ones([1, len(ids)], np.int32),
                "segment_ids": np.zeros([1, len(ids)], np.int32),
                "masked_lm_positions": np.array([positions], np.int32),
            },
            training=False,
        )
        probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(outputs["masked_lm_logits"][0]))  # [P, V]
        return [self._best(row[: self._tokenizer.vocabulary.size], top_k) for row in probabilities]

    def _best(self, probabilities: np.ndarray, top_k: int) -> list[Candidate]:
        best = np.argsort(-probabilities, kind="stable")[:top_k]
        pieces = self._tokenizer.convert_ids_to_tokens(best.tolist())
        return [Candidate(piece, float(probabilities[index])) for piece, index in zip(pieces, best, strict=True)]
