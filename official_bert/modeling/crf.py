"""A linear-chain conditional random field (CRF): the scores of whole sequences of tags.

A sequence of tags has the sum of its tags' scores at each word and of the scores of its transitions. All functions take
words at the beginning of each row: `is_word` is True up to the row's number of words, which may be 0.

B: sequences, S: words of the longest, C: tags.

Source: Lafferty, McCallum and Pereira, "Conditional Random Fields" (2001), section 3.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops


class Transitions(NamedTuple):
    """Scores of transitions, float32.

    Attributes:
      start: [C], of the first tag of a sequence.
      between: [C, C], of a tag (column) after another (row).
      end: [C], of the last tag.
    """

    start: Any
    between: Any
    end: Any


def path_scores(scores, tags, is_word, transitions: Transitions):
    """Score given sequences of tags.

    Args:
      scores: float32 [B, S, C], of each tag at each word.
      tags: int32 [B, S], each in [0, C).
      is_word: bool [B, S].
      transitions: the scores of transitions.

    Returns:
      float32 [B]; 0 without words.
    """
    start, between, end = transitions
    num_tags = scores.shape[-1]
    of_words = ops.sum(scores * ops.one_hot(tags, num_tags), axis=-1)  # [B, S]
    pairs = tags[:, :-1] * num_tags + tags[:, 1:]
    of_pairs = ops.take(ops.reshape(between, (-1,)), pairs)  # [B, S - 1]
    total = ops.sum(ops.where(is_word, of_words, 0.0), axis=1)
    total += ops.sum(ops.where(is_word[:, 1:], of_pairs, 0.0), axis=1)
    is_last = is_word & ~ops.concatenate([is_word[:, 1:], ops.zeros_like(is_word[:, :1])], axis=1)
    last = ops.sum(ops.where(is_last, tags, 0), axis=1)
    return ops.where(is_word[:, 0], total + ops.take(start, tags[:, 0]) + ops.take(end, last), 0.0)


def log_partition(scores, is_word, transitions: Transitions):
    """Return the logarithm of the sum over all sequences of the exponentials of their scores.

    Args:
      scores: float32 [B, S, C].
      is_word: bool [B, S].
      transitions: the scores of transitions.

    Returns:
      float32 [B]; 0 without words.
    """
    last = _forward(scores, is_word, transitions, ops.logsumexp)[:, -1]  # [B, C]
    return ops.where(is_word[:, 0], ops.logsumexp(last + transitions.end, axis=-1), 0.0)


def marginals(scores, is_word, transitions: Transitions):
    """Return the probability of each tag at each word, over all sequences: float32 [B, S, C].

    Args:
      scores: float32 [B, S, C].
      is_word: bool [B, S].
      transitions: the scores of transitions.
    """
    before = _forward(scores, is_word, transitions, ops.logsumexp)
    last = ops.zeros_like(scores[:, 0]) + transitions.end  # [B, C]

    def step(after, word):
        scores, is_word = word[:, :-1], word[:, -1:] > 0
        earlier = ops.logsumexp(transitions.between + (scores + after)[:, None, :], axis=-1)
        earlier = ops.where(is_word, earlier, after)
        return earlier, earlier

    _, after = ops.scan(step, last, _by_word(scores[:, 1:], is_word[:, 1:]), reverse=True)  # [S - 1, B, C]
    after = ops.transpose(ops.concatenate([after, last[None]], axis=0), (1, 0, 2))
    return ops.softmax(before + after, axis=-1)


def viterbi(scores, is_word, transitions: Transitions):
    """Return the sequences with the highest scores: int32 [B, S]; after the last word, its tag again.

    Args:
      scores: float32 [B, S, C].
      is_word: bool [B, S].
      transitions: the scores of transitions.
    """
    best = _forward(scores, is_word, transitions, ops.max)  # [B, S, C], of the best sequence up to each tag
    last = ops.cast(ops.argmax(best[:, -1] + transitions.end, axis=-1), "int32")  # [B]
    into = ops.transpose(transitions.between)  # [C, C], from a tag (column) into another (row)

    def step(tag, word):
        scores, is_word = word[:, :-1], word[:, -1] > 0  # the scores up to the word before
        earlier = ops.cast(ops.argmax(scores + ops.take(into, tag, axis=0), axis=-1), "int32")
        earlier = ops.where(is_word, earlier, tag)
        return earlier, earlier

    _, tags = ops.scan(step, last, _by_word(best[:, :-1], is_word[:, 1:]), reverse=True)  # [S - 1, B]
    return ops.transpose(ops.concatenate([tags, last[None]], axis=0))


def _forward(scores, is_word, transitions: Transitions, combine: Callable):
    """Combine, by `logsumexp` or `max`, the scores of all sequences up to each tag: float32 [B, S, C].

    After the last word, its row is repeated.
    """

    def step(before, word):
        scores, is_word = word[:, :-1], word[:, -1:] > 0
        new = combine(before[:, :, None] + transitions.between, axis=1) + scores  # [B, C]
        new = ops.where(is_word, new, before)
        return new, new

    first = scores[:, 0] + transitions.start
    _, others = ops.scan(step, first, _by_word(scores[:, 1:], is_word[:, 1:]))  # [S - 1, B, C]
    return ops.transpose(ops.concatenate([first[None], others], axis=0), (1, 0, 2))


def _by_word(scores, is_word):
    """Return the inputs of the steps, float32 [S, B, C + 1]; Keras scans two tensors only if their length is known."""
    words = ops.concatenate([scores, ops.cast(is_word[..., None], scores.dtype)], axis=-1)
    return ops.transpose(words, (1, 0, 2))
