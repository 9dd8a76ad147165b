"""Joining texts in the graph, compared with Python."""

import random
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_bert.tasks.classification.records import LabelledText, TextJoiner
from official_bert.tokenization import FullTokenizer
from official_bert.tokenization.graph_operations import join_windows, truncate_and_join
from official_bert.tokenization.sequences import Specials

SPECIALS = Specials(cls_id=2, sep_id=3)


class NumberTokenizer(FullTokenizer):
    """A tokenizer of numbers: the text n has n ids, distinct from its neighbours'."""

    specials = SPECIALS

    def encode(self, text):
        return [5 + index % 50 for index in range(int(text), 2 * int(text))]


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return NumberTokenizer(vocab_file)


@pytest.fixture(scope="module")
def doubling(vocab_file):
    """Return the special tokens of pairs with two [SEP] between the texts, in one segment."""
    tokenizer = NumberTokenizer(vocab_file)
    tokenizer.specials = SPECIALS._replace(num_between=2, second_segment=0)
    return tokenizer


def joined_by_python(tokenizer, pairs, max_seq_length):
    """Return the examples joined one by one, padded with zeros to the longest."""
    joiner = TextJoiner(tokenizer, max_seq_length=max_seq_length)
    examples = [joiner.join(LabelledText(pair, 0), Counter()) for pair in pairs]
    longest = max(len(example["input_ids"]) for example in examples)
    return {
        name: np.array([[*example[name], *[0] * (longest - len(example[name]))] for example in examples])
        for name in ("input_ids", "input_mask", "segment_ids")
    }


def joined_in_graph(tokenizer, pairs, max_seq_length, **windows):
    first, second = (
        tf.ragged.constant([tokenizer.encode(text or "0") for text in texts], tf.int32)
        for texts in zip(*pairs, strict=True)
    )
    second = None if all(text is None for _, text in pairs) else second
    function = join_windows if windows else truncate_and_join
    options = {"specials": tokenizer.specials, "max_seq_length": max_seq_length, **windows}
    run = tf.function(lambda *texts: function(*texts, **options))
    return {name: values.numpy() for name, values in run(first, second).items()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert values.dtype == np.int32
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


@pytest.mark.parametrize(
    "max_seq_length",
    [3, 8, 128, *(pytest.param(length, marks=pytest.mark.slow) for length in (4, 5, 6, 7, *range(9, 14)))],
)
def test_pairs_of_all_lengths(tokenizer, max_seq_length):
    pairs = [(str(first), str(second)) for first in range(14) for second in range(14)]
    for batch in (pairs, pairs[:1], pairs[::-5], pairs[15:17]):
        expected = joined_by_python(tokenizer, batch, max_seq_length)
        assert_same(joined_in_graph(tokenizer, batch, max_seq_length), expected)
        assert expected["input_ids"].shape[1] <= max_seq_length


@pytest.mark.parametrize("max_seq_length", [3, 8, 128])
def test_single_texts(tokenizer, max_seq_length):
    texts = [(str(number), None) for number in range(14)]
    for batch in (texts, texts[:1], texts[3:5]):
        expected = joined_by_python(tokenizer, batch, max_seq_length)
        assert_same(joined_in_graph(tokenizer, batch, max_seq_length), expected)


def test_random_batches(tokenizer, doubling):
    rng = random.Random(5)
    for joining in [tokenizer] * 9 + [doubling] * 3:
        pairs = [(str(rng.randint(0, 300)), rng.choice([None, str(rng.randint(0, 300))])) for _ in range(8)]
        max_seq_length = rng.randint(3, 400)
        expected = joined_by_python(joining, pairs, max_seq_length)
        assert_same(joined_in_graph(joining, pairs, max_seq_length), expected)


def test_by_hand():
    first, second = tf.ragged.constant([[11, 12, 13], [14]], tf.int32), tf.ragged.constant([[21, 22], []], tf.int32)
    joined = truncate_and_join(first, second, max_seq_length=7, specials=SPECIALS)
    assert joined["input_ids"].numpy().tolist() == [[2, 11, 12, 3, 21, 22, 3], [2, 14, 3, 0, 0, 0, 0]]
    assert joined["input_mask"].numpy().tolist() == [[1] * 7, [1, 1, 1, 0, 0, 0, 0]]
    assert joined["segment_ids"].numpy().tolist() == [[0, 0, 0, 0, 1, 1, 1], [0] * 7]
    doubled = SPECIALS._replace(num_between=2, second_segment=0, pad_id=1)
    joined = truncate_and_join(first, second, max_seq_length=8, specials=doubled)
    assert joined["input_ids"].numpy().tolist() == [[2, 11, 12, 3, 3, 21, 22, 3], [2, 14, 3, 1, 1, 1, 1, 1]]
    assert joined["input_mask"].numpy().tolist() == [[1] * 8, [1] * 3 + [0] * 5]
    assert not joined["segment_ids"].numpy().any()


def test_no_examples():
    nothing = tf.RaggedTensor.from_row_splits(tf.constant([], tf.int32), [0])
    for second in (None, nothing):
        joined = truncate_and_join(nothing, second, max_seq_length=7, specials=SPECIALS)
        assert [values.shape.as_list() for values in joined.values()] == [[0, 2]] * 3
        joined = join_windows(nothing, second, max_seq_length=7, max_windows=3, doc_stride=None, specials=SPECIALS)
        assert [values.shape.as_list() for values in joined.values()] == [[0, 7]] * 3


def assert_windows_are_those_of_python(tokenizer, pairs, max_seq_length, max_windows, doc_stride):
    joiner = TextJoiner(tokenizer, max_seq_length=max_seq_length, max_windows=max_windows, doc_stride=doc_stride)
    examples = [joiner.join(LabelledText(pair, 0), Counter()) for pair in pairs]
    longest = max(-(-len(example["input_ids"]) // max_seq_length) for example in examples) * max_seq_length
    expected = {
        name: np.array([[*example[name], *[0] * (longest - len(example[name]))] for example in examples])
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    found = joined_in_graph(tokenizer, pairs, max_seq_length, max_windows=max_windows, doc_stride=doc_stride)
    assert_same(found, expected)
    return longest // max_seq_length


@pytest.mark.parametrize("doc_stride", [None, 3, *(pytest.param(stride, marks=pytest.mark.slow) for stride in (1, 5))])
@pytest.mark.parametrize("max_seq_length", [5, pytest.param(8, marks=pytest.mark.slow)])
def test_windows_of_all_lengths(tokenizer, max_seq_length, doc_stride):
    pairs = [(str(first), str(second)) for first in range(18) for second in range(18)]
    numbers = {
        assert_windows_are_those_of_python(tokenizer, batch, max_seq_length, 6, doc_stride)
        for batch in (pairs, pairs[:1], pairs[40:42], [(text, None) for text, _ in pairs[::18]])
    }
    assert {1, 6} <= numbers


def test_windows_of_random_batches(tokenizer, doubling):
    rng = random.Random(6)
    for joining in [tokenizer] * 9 + [doubling] * 3:
        pairs = [(str(rng.randint(0, 300)), rng.choice([None, str(rng.randint(0, 300))])) for _ in range(8)]
        settings = rng.randint(5, 200), rng.randint(2, 9), rng.choice([None, rng.randint(1, 60)])
        assert_windows_are_those_of_python(joining, pairs, *settings)
