"""Choose the masked-LM targets of a sequence, by wordpiece or whole word, and mask them."""

import bisect
from collections.abc import Iterator, MutableSequence, Sequence
from random import Random
from typing import NamedTuple

from official_bert.tokenization import vocab
from official_bert.tokenization.vocab import Vocabulary


def _steps(length: int) -> Iterator[tuple[int, int]]:
    """Return each index except the first, in descending order, with the number of random bits to draw for it."""
    return ((last, (last + 1).bit_length()) for last in range(length - 1, 0, -1))


_STEPS = list(_steps(512))  # for the longest usual sequence; its tail serves shorter ones


def shuffle(items: MutableSequence, rng: Random) -> None:
    """Shuffle in place, drawing the same bits and giving the same order as `rng.shuffle(items)`.

    `Random.shuffle` calls a Python method per element, which draws until the number is small enough. Here that loop is
    inlined, because shuffling positions takes most of the masking time.
    """
    getrandbits = rng.getrandbits
    for last, bits in _STEPS[1 - len(items) :] if 1 < len(items) <= len(_STEPS) else _steps(len(items)):
        chosen = getrandbits(bits)
        while chosen > last:
            chosen = getrandbits(bits)
        items[last], items[chosen] = items[chosen], items[last]


class MaskedSequence(NamedTuple):
    ids: list[int]  # the sequence, with masked wordpieces replaced
    positions: list[int]  # positions of the masked wordpieces, ascending
    labels: list[int]  # their original ids, one per position


class MaskingVocabulary(NamedTuple):
    kept: list[int]  # [CLS] and [SEP], which are never masked
    mask: int  # [MASK]
    wordpieces: list[int]  # candidates for random replacement, in file order without duplicates
    continues_word: set[int]  # wordpieces that continue the preceding word
    parts_texts: bool  # whether any wordpiece after [CLS] or [SEP] begins a word

    @classmethod
    def from_vocabulary(cls, vocabulary: Vocabulary) -> "MaskingVocabulary":
        *kept, mask = vocabulary.require(vocab.CLS, vocab.SEP, vocab.MASK)
        continues_word = {index for piece, index in vocabulary.token_to_id.items() if vocabulary.continues_word(piece)}
        wordpieces = list(vocabulary.token_to_id.values())
        return cls(kept, mask, wordpieces, continues_word, not vocabulary.marks_first_word)


class Replacements(NamedTuple):
    """Fractions of the chosen wordpieces that are masked, replaced and kept.

    Source: BERT paper, section 3.1, task 1; appendix C.2 compares other fractions.
    """

    mask: float = 0.8  # fraction replaced by [MASK]
    random: float = 0.1  # fraction replaced by a random wordpiece of the whole vocabulary

    @property
    def keep_probability(self) -> float:
        """Fraction kept among those not replaced by [MASK]; exactly one half at 80/10/10."""
        rest = 1 - self.mask
        return round((rest - self.random) / rest, 12) if rest > 0 else 0.0  # 0.5 and not 0.49999999999999989


BERT_REPLACEMENTS = Replacements()


def num_predictions(length: int, *, masked_lm_prob: float, max_predictions_per_seq: int) -> int:
    """At 15%, mask 4 of 30 wordpieces and 8 of 50, since Python rounds 4.5 and 7.5 to the even number."""
    return min(max_predictions_per_seq, max(1, round(length * masked_lm_prob)))


class Masker:
    """Random masking of wordpieces.

    Source: BERT paper, section 3.1, task 1, and the reference's whole-word variant; for n-grams ALBERT paper, section
      4.1.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        masked_lm_prob: float,
        max_predictions_per_seq: int,
        whole_word: bool,
        max_ngram_length: int = 1,
        replacements: Replacements = BERT_REPLACEMENTS,
    ):
        """With `whole_word`, n <= max_ngram_length adjacent words are masked together with a probability ~ 1/n."""
        (self._kept, self._mask, self._wordpieces, self._continues_word, self._parts_texts) = (
            MaskingVocabulary.from_vocabulary(vocabulary)
        )
        self._masked_share, self._kept_share = replacements.mask, replacements.keep_probability
        self._limits = {"masked_lm_prob": masked_lm_prob, "max_predictions_per_seq": max_predictions_per_seq}
        self._whole_word = whole_word
        lengths = [1 / length for length in range(1, max_ngram_length + 1)]
        self._ngram_limits = [sum(lengths[:number]) / sum(lengths) for number in range(1, max_ngram_length)]

    def mask(self, ids: Sequence[int], rng: Random) -> MaskedSequence:
        """Mask wordpieces of a sequence with [CLS] and [SEP], which are counted but never masked."""
        num_to_predict = num_predictions(len(ids), **self._limits)
        choose = self._choose
        if self._whole_word:
            choose = self._choose_ngrams if self._ngram_limits else self._choose_words
        chosen = choose(ids, num_to_predict, rng)
        masked = list(ids)
        random, wordpieces = rng.random, self._wordpieces
        masked_share, kept_share = self._masked_share, self._kept_share
        for position in chosen:
            if random() < masked_share:
                masked[position] = self._mask
            elif random() >= kept_share:
                masked[position] = wordpieces[rng.randint(0, len(wordpieces) - 1)]
        positions = sorted(chosen)
        return MaskedSequence(masked, positions, [ids[position] for position in positions])

    def _choose(self, ids: Sequence[int], num_to_predict: int, rng: Random) -> list[int]:
        cls_id, sep_id = self._kept
        candidates = [position for position, index in enumerate(ids) if index != cls_id and index != sep_id]
        shuffle(candidates, rng)
        return candidates[:num_to_predict]

    def _words(self, ids: Sequence[int]) -> list[list[int]]:
        words: list[list[int]] = []
        for position, index in enumerate(ids):
            if index in self._kept:
                continue
            begins = self._parts_texts and position > 0 and ids[position - 1] in self._kept
            if words and index in self._continues_word and not begins:
                words[-1].append(position)
            else:
                words.append([position])
        return words

    def _choose_words(self, ids: Sequence[int], num_to_predict: int, rng: Random) -> list[int]:
        words = self._words(ids)
        shuffle(words, rng)
        chosen: list[int] = []
        for word in words:
            if len(chosen) + len(word) <= num_to_predict:
                chosen += word
        return chosen

    def _choose_ngrams(self, ids: Sequence[int], num_to_predict: int, rng: Random) -> list[int]:
        """Choose words with their successors, up to [SEP] or chosen words, as many as fit."""
        words = self._words(ids)
        starts = list(range(len(words)))
        shuffle(starts, rng)
        chosen: list[int] = []
        is_open = [True] * len(words)
        for start in starts:
            if not is_open[start]:
                continue
            length = bisect.bisect_right(self._ngram_limits, rng.random()) + 1
            for number, word in enumerate(words[start : start + length], start):
                follows = number == start or word[0] == words[number - 1][-1] + 1
                if not (is_open[number] and follows and len(chosen) + len(word) <= num_to_predict):
                    break
                is_open[number] = False
                chosen += word
        return chosen
