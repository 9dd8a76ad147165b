"""Chooses the masked-LM targets of a sequence and masks them: BERT's 80/10/10 rule, by wordpiece or whole word."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from official_bert.data.randomness import shuffle
from official_bert.tokenization import vocab
from official_bert.tokenization.vocab import Vocabulary


class MaskedSequence(NamedTuple):
    """A sequence with some wordpieces masked, and their original ids.

    Attributes:
      ids: the sequence, with masked pieces replaced.
      positions: positions of the masked pieces, ascending.
      labels: their original ids, one per position.
    """

    ids: list[int]
    positions: list[int]
    labels: list[int]


class MaskingVocabulary(NamedTuple):
    """The ids that masking needs.

    Attributes:
      kept: [CLS] and [SEP], which are never masked.
      mask: [MASK].
      replacements: the pieces of which a random one is taken, as the file first names them, a repeated one once.
      continues_word: the pieces that belong to the word before them.
    """

    kept: list[int]
    mask: int
    replacements: list[int]
    continues_word: set[int]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "MaskingVocabulary":
        """Looks them up.

        Raises:
          UserError: the vocabulary lacks [CLS], [SEP] or [MASK].
        """
        *kept, mask = vocabulary.require(vocab.CLS, vocab.SEP, vocab.MASK)
        continues_word = {index for piece, index in vocabulary.token_to_id.items() if piece.startswith("##")}
        return cls(kept, mask, list(vocabulary.token_to_id.values()), continues_word)


def number_to_predict(length: int, *, masked_lm_prob: float, max_predictions_per_seq: int) -> int:
    """The maximum number of wordpieces to mask in a sequence of some length, [CLS] and [SEP] included; at least one.

    Example: at 15%, of 30 pieces 4 and of 50 pieces 8, since Python rounds 4.5 and 7.5 to the even number.
    """
    return min(max_predictions_per_seq, max(1, round(length * masked_lm_prob)))


class Masker:
    """Masks wordpieces at random.

    Source: BERT paper, section 3.1, task 1, and the reference's whole-word variant.
    """

    def __init__(
        self, vocabulary: Vocabulary, *, masked_lm_prob: float, max_predictions_per_seq: int, whole_word: bool
    ):
        """Prepares the ids that masking needs.

        Args:
          vocabulary: its [CLS] and [SEP] are never masked.
          masked_lm_prob: fraction of the wordpieces to mask, including [CLS] and [SEP] in the count.
          max_predictions_per_seq: maximum number of masked wordpieces per sequence.
          whole_word: mask either all pieces of a word or none.

        Raises:
          UserError: the vocabulary lacks [CLS], [SEP] or [MASK].
        """
        self._kept, self._mask, self._replacements, self._continues_word = MaskingVocabulary.of(vocabulary)
        self._limits = {"masked_lm_prob": masked_lm_prob, "max_predictions_per_seq": max_predictions_per_seq}
        self._whole_word = whole_word

    def mask(self, ids: Sequence[int], rng: Random) -> MaskedSequence:
        """Masks wordpieces of one sequence.

        Of the chosen pieces, 80% become [MASK], 10% stay and 10% become a random piece of the whole vocabulary.

        Args:
          ids: the sequence, including [CLS] and [SEP].
          rng: drawn from in the reference's order.

        Returns:
          At most `max_predictions_per_seq` masked pieces; none if every word is longer than what may be masked.
        """
        num_to_predict = number_to_predict(len(ids), **self._limits)
        chosen = (
            self._choose_words(ids, num_to_predict, rng) if self._whole_word else self._choose(ids, num_to_predict, rng)
        )
        masked = list(ids)
        random, replacements = rng.random, self._replacements
        for position in chosen:
            if random() < 0.8:
                masked[position] = self._mask
            elif random() >= 0.5:
                masked[position] = replacements[rng.randint(0, len(replacements) - 1)]
        positions = sorted(chosen)
        return MaskedSequence(masked, positions, [ids[position] for position in positions])

    def _choose(self, ids: Sequence[int], num_to_predict: int, rng: Random) -> list[int]:
        cls_id, sep_id = self._kept
        candidates = [position for position, index in enumerate(ids) if index != cls_id and index != sep_id]
        shuffle(candidates, rng)
        return candidates[:num_to_predict]

    def _choose_words(self, ids: Sequence[int], num_to_predict: int, rng: Random) -> list[int]:
        words: list[list[int]] = []
        for position, index in enumerate(ids):
            if index in self._kept:
                continue
            if words and index in self._continues_word:
                words[-1].append(position)
            else:
                words.append([position])
        shuffle(words, rng)
        chosen: list[int] = []
        for word in words:
            if len(chosen) + len(word) <= num_to_predict:
                chosen += word
        return chosen
