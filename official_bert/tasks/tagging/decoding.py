"""The most likely tags of a sentence and their probabilities, in NumPy; `modeling/tagging.py` has them for batches.

Transitions are the scores of the first tag of a sentence, float32 [C]; of a tag (column) after another (row), [C, C];
and of the last tag, [C].
"""

import numpy as np

from official_bert.serving.readers import softmax

Transitions = tuple[np.ndarray, np.ndarray, np.ndarray]


def best_path(scores: np.ndarray, transitions: Transitions) -> list[int]:
    """Return the most likely tag numbers of a sentence from scores, [W, C]: `viterbi`, which is slow uncompiled."""
    if not len(scores):
        return []
    start, between, end = transitions
    best, sources = scores[0] + start, []
    for of_word in scores[1:]:
        through = best[:, None] + between  # [C, C], from a tag (row) into another (column)
        sources.append(through.argmax(axis=0))
        best = through.max(axis=0) + of_word
    path = [int((best + end).argmax())]
    for source in reversed(sources):
        path.append(int(source[path[-1]]))
    return path[::-1]


def marginals(scores: np.ndarray, transitions: Transitions) -> np.ndarray:
    """Return the probability of each tag at each word over all sequences, [W, C], from scores, [W, C]."""
    start, between, end = transitions
    before, after = np.zeros_like(scores), np.zeros_like(scores)
    for place, of_word in enumerate(scores):
        sums = start if place == 0 else _scaled_logsumexp(before[place - 1][:, None] + between, axis=0)
        before[place] = sums + of_word
    for place in reversed(range(len(scores))):
        is_last = place == len(scores) - 1
        after[place] = end if is_last else _scaled_logsumexp(between + scores[place + 1] + after[place + 1], axis=1)
    return softmax(before + after)


def _scaled_logsumexp(values: np.ndarray, axis: int) -> np.ndarray:
    """Return sums minus the largest: they do not grow with the length of a sentence, so that none loses digits."""
    highest = values.max(axis=axis, keepdims=True)
    sums = np.log(np.exp(values - highest).sum(axis=axis)) + np.squeeze(highest, axis)
    return sums - sums.max()
