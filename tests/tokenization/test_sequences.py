"""Joining, truncating and cutting texts, by hand and by plain rules, and in the graph as in Python."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_bert.tasks.classification.records import LabelledText, TextJoiner
from official_bert.tokenization import FullTokenizer
from official_bert.tokenization.graph_operations import SlidingWindows, join_windows
from official_bert.tokenization.graph_operations import truncate_and_join as truncate_and_join_in_graph
from official_bert.tokenization.sequences import (
    SlidingWindow,
    Specials,
    join_pair,
    split_windows,
    truncate_and_join,
    truncate_pair,
)
from tests.conftest import slow

SPECIALS = Specials(cls_id=2, sep_id=3)
DOUBLING = SPECIALS._replace(num_between=2, second_segment=0, pad_id=1)  # two [SEP] between texts of one segment


def test_pairs_lose_wordpieces_one_by_one_from_the_longer_text():
    rng = random.Random(1)
    for _ in range(300):
        first, second = list(range(rng.randrange(12))), list(range(100, 100 + rng.randrange(12)))
        limit = rng.randrange(24)
        expected = list(first), list(second)
        while len(expected[0]) + len(expected[1]) > limit:
            max(reversed(expected), key=len).pop()  # ties go to the second text
        assert truncate_pair(first, second, limit) == expected


@pytest.mark.parametrize(
    ("specials", "first", "second", "max_seq_length", "ids", "segments"),
    [
        (SPECIALS, [11, 12, 13], [], 5, [2, 11, 12, 13, 3], [0] * 5),
        (SPECIALS, [11, 12, 13], [], 4, [2, 11, 12, 3], [0] * 4),
        (SPECIALS, [11, 12, 13], [21], 6, [2, 11, 12, 3, 21, 3], [0, 0, 0, 0, 1, 1]),
        (SPECIALS, [11, 12], [21, 22], 6, [2, 11, 12, 3, 21, 3], [0, 0, 0, 0, 1, 1]),
        (SPECIALS, [11], [21], 4, [2, 11, 3], [0] * 3),  # nothing is left of the second text, so it is omitted
        (SPECIALS, [11], [21], 3, [2, 3], [0] * 2),
        (SPECIALS, [], [], 3, [2, 3], [0] * 2),
        (DOUBLING, [11, 12], [21], 8, [2, 11, 12, 3, 3, 21, 3], [0] * 7),
        (DOUBLING, [11, 12], [], 8, [2, 11, 12, 3], [0] * 4),
        (DOUBLING, [11], [21, 22], 6, [2, 11, 3, 3, 21, 3], [0] * 6),
        (DOUBLING, [11], [21, 22], 3, [2, 3], [0] * 2),
    ],
)
def test_sequences_by_hand(specials, first, second, max_seq_length, ids, segments):
    sequence = truncate_and_join(first, second, specials, max_seq_length=max_seq_length)
    assert sequence == (ids, bytes(segments))
    assert join_pair([11, 12], [], SPECIALS) == ([2, 11, 12, 3, 3], bytes([0, 0, 0, 0, 1]))  # an empty context
    assert sequence.input_mask == bytes([1] * len(ids))
    longer = [9] * max_seq_length  # beside it, the sequence is padded
    rows = tf.ragged.constant([first, longer], tf.int32), tf.ragged.constant([second, []], tf.int32)
    padded = truncate_and_join_in_graph(*rows, max_seq_length=max_seq_length, specials=specials)
    num_padding = max_seq_length - len(ids)
    assert padded["input_ids"][0].numpy().tolist() == ids + [specials.pad_id] * num_padding
    assert padded["input_mask"][0].numpy().tolist() == [1] * len(ids) + [0] * num_padding
    assert padded["segment_ids"][0].numpy().tolist() == segments + [0] * num_padding


# In the graph


class NumberTokenizer(FullTokenizer):
    """A tokenizer of numbers: the text n has n ids, distinct from its neighbours'."""

    specials = SPECIALS

    def encode(self, text):
        return [5 + index % 50 for index in range(int(text), 2 * int(text))]


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return NumberTokenizer(vocab_file)


def assert_graph_joins_as_python(tokenizer, pairs, max_seq_length, **windows):
    """Compare a batch with examples joined one by one, padded to the longest; return their length."""
    joiner = TextJoiner(tokenizer, max_seq_length=max_seq_length, **windows)
    examples = [joiner.join(LabelledText(pair, 0), Counter()) for pair in pairs]
    longest = max(len(example["input_ids"]) for example in examples)
    if windows:
        longest = -(-longest // max_seq_length) * max_seq_length
    columns = [[tokenizer.encode(text or "0") for text in texts] for texts in zip(*pairs, strict=True)]
    first, second = (tf.ragged.constant(column, tf.int32) for column in columns)
    second = None if all(text is None for _, text in pairs) else second
    function = join_windows if windows else truncate_and_join_in_graph
    options = {"specials": tokenizer.specials, "max_seq_length": max_seq_length, **windows}
    found = tf.function(lambda *texts: function(*texts, **options))(first, second)
    assert found.keys() == {"input_ids", "input_mask", "segment_ids"}
    for name, values in found.items():
        assert values.dtype == tf.int32
        expected = [[*example[name], *[0] * (longest - len(example[name]))] for example in examples]
        np.testing.assert_array_equal(values, expected, err_msg=name)
    return longest


@pytest.mark.parametrize(
    ("max_seq_length", "windows"),
    [(128, {}), (5, {"max_windows": 6, "doc_stride": 3}), *slow((3, {}), (5, {"max_windows": 6, "doc_stride": None}))],
)
def test_texts_of_all_lengths(tokenizer, max_seq_length, windows):
    pairs = [(str(first), str(second)) for first in range(18) for second in range(18)]
    singles = [(text, None) for text, _ in pairs[::18]]
    batches = pairs, pairs[:1], pairs[::-5], pairs[15:17], singles, singles[:1]
    lengths = {assert_graph_joins_as_python(tokenizer, batch, max_seq_length, **windows) for batch in batches}
    assert max(lengths) <= max_seq_length * windows.get("max_windows", 1)
    assert not windows or {max_seq_length, 6 * max_seq_length} <= lengths


def test_random_batches(tokenizer, vocab_file):
    rng, doubling = random.Random(5), NumberTokenizer(vocab_file)
    doubling.specials = DOUBLING._replace(pad_id=0)
    for joining in (tokenizer, tokenizer, doubling):
        for least, windows in (
            (3, {}),
            (5, {"max_windows": rng.randint(2, 9), "doc_stride": rng.choice([None, rng.randint(1, 60)])}),
        ):
            pairs = [(str(rng.randint(0, 300)), rng.choice([None, str(rng.randint(0, 300))])) for _ in range(8)]
            assert_graph_joins_as_python(joining, pairs, rng.randint(least, 200), **windows)


def test_no_examples():
    nothing = tf.RaggedTensor.from_row_splits(tf.constant([], tf.int32), [0])
    for second in (None, nothing):
        joined = truncate_and_join_in_graph(nothing, second, max_seq_length=7, specials=SPECIALS)
        assert [values.shape.as_list() for values in joined.values()] == [[0, 2]] * 3
        joined = join_windows(nothing, second, max_seq_length=7, max_windows=3, doc_stride=None, specials=SPECIALS)
        assert [values.shape.as_list() for values in joined.values()] == [[0, 7]] * 3


# Windows


@pytest.mark.parametrize("max_tokens", [4, 7, 10])
def test_windows_hold_every_id_of_the_longer_text_and_fit(max_tokens):
    for numbers in itertools.product(range(14), repeat=2):
        windows = split_windows(*numbers, max_tokens)
        assert all(len(first) + len(second) <= max_tokens for first, second in windows)
        longer, shorter = (0, 1) if numbers[0] > numbers[1] else (1, 0)
        assert {place for window in windows for place in window[longer]} == set(range(numbers[longer]))
        assert {window[shorter] for window in windows} == {range(min(numbers[shorter], max_tokens // 2))}
        starts = [window[longer].start for window in windows]
        assert starts == sorted(set(starts))


def test_windows_by_hand():
    assert split_windows(7, 0, 4) == [(range(4), range(0)), (range(2, 6), range(0)), (range(4, 7), range(0))]
    assert split_windows(7, 0, 4, stride=3) == [(range(4), range(0)), (range(3, 7), range(0))]
    assert split_windows(1, 5, 4, stride=9) == [(range(1), range(3)), (range(1), range(3, 5))]
    # The best window of a wordpiece has more on its poorer side.
    assert SlidingWindow(10, 6, 3).best_windows(range(10)).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]
    assert SlidingWindow.from_lengths(0, 6).windows() == [range(0)]


@pytest.mark.parametrize("length_weight", [0.0, 0.01])
def test_windows_and_the_best_of_them_are_the_same_in_the_graph(length_weight):
    strides = (20, 131, None, 300)
    cuts = [SlidingWindow.from_lengths(size, 250, stride) for size in (1, 250, 251, 700) for stride in strides]
    wordpieces = [2 * cut.num_wordpieces // 3 for cut in cuts]
    best = [int(cut.best_windows([piece], length_weight)[0]) for cut, piece in zip(cuts, wordpieces, strict=True)]
    in_graph = SlidingWindows(*map(tf.constant, np.array(cuts, np.int64).T))
    wordpieces = tf.constant(wordpieces, tf.int64)
    assert in_graph.best_windows(wordpieces, length_weight).numpy().tolist() == best
    table = in_graph.as_rows().best_windows(tf.stack([wordpieces, wordpieces], axis=1), length_weight)
    assert table.numpy().tolist() == [[number] * 2 for number in best]
    windows = [(text, *window) for text, cut in enumerate(cuts) for window in enumerate(cut.windows())]
    assert tf.stack(in_graph.windows(), axis=1).numpy().tolist() == [
        [text, number, wordpieces.start, len(wordpieces)] for text, number, wordpieces in windows
    ]
