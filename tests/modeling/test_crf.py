"""The CRF compared with an enumeration of all sequences in plain Python."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from official_bert.modeling.tagging import Transitions, log_partition, marginals, path_scores, viterbi

C, LENGTHS = 3, (4, 1, 0, 3, 4)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(1)
    transitions = Transitions(*(rng.normal(size=shape).astype("float32") * 2 for shape in ([C], [C, C], [C])))
    scores = rng.normal(size=[len(LENGTHS), max(LENGTHS), C]).astype("float32") * 2
    is_word = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    return scores, is_word, transitions


def plain_score(scores, tags, transitions):
    if not len(tags):
        return 0.0
    total = float(transitions.start[tags[0]]) + float(transitions.end[tags[-1]])
    total += sum(float(scores[word][tag]) for word, tag in enumerate(tags))
    return total + sum(float(transitions.between[pair]) for pair in itertools.pairwise(tags))


def plain_sequences(scores, length, transitions):
    """Return all sequences with their scores."""
    return {tags: plain_score(scores, tags, transitions) for tags in itertools.product(range(C), repeat=length)}


def test_scores_and_probabilities_are_those_of_all_sequences(case):
    scores, is_word, transitions = case
    totals = log_partition(*case).numpy()
    probabilities = marginals(*case).numpy()
    tags = np.random.default_rng(2).integers(0, C, is_word.shape).astype("int32")
    found = path_scores(scores, tags, is_word, transitions).numpy()
    for row, length in enumerate(LENGTHS):
        sequences = plain_sequences(scores[row], length, transitions)
        assert found[row] == pytest.approx(sequences[tuple(tags[row, :length].tolist())], abs=1e-4)
        total = math.log(sum(map(math.exp, sequences.values())))
        assert totals[row] == pytest.approx(total, abs=1e-4)
        for word, tag in itertools.product(range(length), range(C)):
            share = sum(math.exp(score - total) for one, score in sequences.items() if one[word] == tag)
            assert probabilities[row, word, tag] == pytest.approx(share, abs=1e-5)


def test_the_decoded_sequence_is_the_best_of_all(case):
    scores, _, transitions = case
    decode = tf.function(viterbi, input_signature=[
        tf.TensorSpec([None, None, C]), tf.TensorSpec([None, None], tf.bool),
        Transitions(tf.TensorSpec([C]), tf.TensorSpec([C, C]), tf.TensorSpec([C])),
    ])  # fmt: skip
    tags = decode(*map(tf.constant, case[:2]), Transitions(*map(tf.constant, transitions))).numpy()
    greedy = scores.argmax(axis=-1)
    best = [max(one := plain_sequences(scores[row], n, transitions), key=one.get) for row, n in enumerate(LENGTHS)]
    assert [tuple(tags[row, :length].tolist()) for row, length in enumerate(LENGTHS)] == best
    assert [tuple(greedy[row, :length].tolist()) for row, length in enumerate(LENGTHS)] != best


def test_the_gradient_of_the_partition_is_the_marginals(case):
    scores, is_word, transitions = case
    variable = tf.Variable(scores)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(log_partition(variable, is_word, transitions))
    expected = np.where(is_word[..., None], marginals(*case), 0)
    np.testing.assert_allclose(tape.gradient(total, variable), expected, atol=1e-5)


def test_one_word_needs_no_transition(case):
    scores, _, transitions = case
    one = scores[:, :1]
    is_word = np.ones([len(one), 1], bool)
    expected = (one[:, 0] + transitions.start + transitions.end).argmax(axis=-1)
    assert viterbi(one, is_word, transitions).numpy()[:, 0].tolist() == expected.tolist()
