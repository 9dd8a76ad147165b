"""Tags chosen together: compared with an enumeration of all sequences in plain Python."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from official_bert.metrics.tagging import invalid_tags
from official_bert.modeling import tagging
from official_bert.modeling.tagging import Transitions
from official_bert.support.errors import UserError
from official_bert.tasks.tagging import servable
from official_bert.tasks.tagging.reader import best_path
from official_bert.tasks.tagging.servable import decode_words
from official_bert.tasks.tagging.task import check_constrainable, scheme_transitions

IOB2, IOBES = ("O", "B-A", "I-A", "B-B", "I-B"), ("O", "B-A", "I-A", "E-A", "S-A", "S-B")


@pytest.mark.parametrize(("tags", "scheme"), [(IOB2, "IOB2"), (IOBES, "IOBES")])
def test_the_best_sequences_that_follow_the_rules_are_found(tags, scheme):
    rng = np.random.default_rng(1)
    lengths = [3, 0, 1, 4, 2]
    scores = rng.normal(size=[sum(lengths), len(tags)]).astype("float32") * 3
    splits = np.cumsum([0, *lengths])
    transitions = scheme_transitions(tags)
    numbers, probabilities = decode_words(tf.constant(scores), tf.constant(splits), transitions)
    num_breaks = 0
    for start, end in itertools.pairwise(splits):
        sequences = {
            numbers: math.exp(sum(map(float, scores[range(start, end), numbers])))
            for numbers in itertools.product(range(len(tags)), repeat=end - start)
            if not invalid_tags([tags[number] for number in numbers], scheme)
        }
        best, total = max(sequences, key=sequences.get), sum(sequences.values())
        assert tuple(numbers[start:end].numpy().tolist()) == best
        assert tuple(best_path(scores[start:end], transitions)) == best
        for word, number in enumerate(best):
            share = sum(value for one, value in sequences.items() if one[word] == number) / total
            assert float(probabilities[start + word]) == pytest.approx(share, abs=1e-5)
        num_breaks += len(invalid_tags([tags[number] for number in scores[start:end].argmax(axis=1)], scheme))
    assert num_breaks > 0  # tag by tag, rules would be broken


@pytest.mark.endurance
def test_long_and_short_sentences_are_not_padded_to_one_length(monkeypatch):
    rng, sizes = np.random.default_rng(2), []
    lengths = rng.permutation([*[1] * 90, *rng.integers(0, 30, 20), 300])
    scores, splits = rng.normal(size=[lengths.sum(), len(IOB2)]).astype("float32"), np.cumsum([0, *lengths])
    transitions = Transitions(*(rng.normal(size=[5] * rank).astype("float32") for rank in (1, 2, 1)))

    def viterbi(padded, *others):
        tf.py_function(lambda size: sizes.append(int(size)), [tf.size(padded)], [])
        return tagging.viterbi(padded, *others)

    monkeypatch.setattr(servable, "viterbi", viterbi)
    monkeypatch.setattr(servable, "_LARGEST_GROUP", 1000)
    numbers, _ = decode_words(tf.constant(scores), tf.constant(splits), transitions)
    assert max(sizes) == 300 * 5 and sum(sizes) < 2 * scores.size and len(sizes) > 6
    for start, end in itertools.pairwise(splits):
        assert numbers[start:end].numpy().tolist() == best_path(scores[start:end], transitions)


def test_sequences_that_cannot_follow_the_rules_break_as_few_as_possible():
    tags = ("B-A", "E-A")  # an odd number of words
    scores = tf.constant([[0.0, 9.0], [0.0, 1.0], [1.0, 0.0]])
    numbers, _ = decode_words(scores, tf.constant([0, 3], tf.int64), scheme_transitions(tags))
    assert [tags[number] for number in numbers] in (["E-A", "B-A", "E-A"], ["B-A", "E-A", "E-A"], ["B-A", "E-A", "B-A"])


def test_no_sentences_have_no_tags():
    transitions = Transitions(np.zeros(2, "float32"), np.zeros((2, 2), "float32"), np.zeros(2, "float32"))
    for splits in ([0], [0, 0]):
        numbers, shares = decode_words(tf.zeros([0, 2]), tf.constant(splits, tf.int64), transitions)
        assert numbers.shape == shares.shape == (0,)


def test_tags_without_rules_are_refused():
    check_constrainable(IOB2, [("B-A", "I-A", "B-A")])
    with pytest.raises(UserError, match="needs tags of entities, such as B-PER and I-PER; the tags are 'NN', 'VB'"):
        check_constrainable(["NN", "VB"])
    with pytest.raises(UserError, match="needs tags in IOB2 or IOBES; these are in IOB1"):
        check_constrainable(["O", "I-A", "B-A"], [("I-A", "O"), ("I-A", "B-A")])
