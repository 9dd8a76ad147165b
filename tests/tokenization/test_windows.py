"""Windows of texts, in Python and in the graph; for ids see `test_graph_joining.py`."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_bert.tokenization.graph_operations import SlidingWindows
from official_bert.tokenization.sequences import SlidingWindow, split_windows


@pytest.mark.parametrize("max_tokens", [4, 7, 10])
def test_windows_hold_every_id_of_the_longer_text_and_fit(max_tokens):
    for num_first, num_second in itertools.product(range(14), repeat=2):
        windows = split_windows(num_first, num_second, max_tokens)
        assert all(len(first) + len(second) <= max_tokens for first, second in windows)
        longer, shorter = (0, 1) if num_first > num_second else (1, 0)
        numbers = num_first, num_second
        assert {place for window in windows for place in window[longer]} == set(range(numbers[longer]))
        assert {window[shorter] for window in windows} == {range(min(numbers[shorter], max_tokens // 2))}
        starts = [window[longer].start for window in windows]
        assert starts == sorted(set(starts))


def test_windows_by_hand():
    assert split_windows(7, 0, 4) == [(range(4), range(0)), (range(2, 6), range(0)), (range(4, 7), range(0))]
    assert split_windows(7, 0, 4, stride=3) == [(range(4), range(0)), (range(3, 7), range(0))]
    assert split_windows(1, 5, 4, stride=9) == [(range(1), range(3)), (range(1), range(3, 5))]


@pytest.mark.parametrize("length_weight", [0.0, 0.01])
def test_windows_and_the_best_of_them_are_the_same_in_the_graph(length_weight):
    cuts = [
        SlidingWindow.from_lengths(size, 250, stride) for size in (1, 250, 251, 700) for stride in (20, 131, None, 300)
    ]
    wordpieces = [2 * cut.num_wordpieces // 3 for cut in cuts]
    best = [int(cut.best_windows([piece], length_weight)[0]) for cut, piece in zip(cuts, wordpieces, strict=True)]
    in_graph, wordpieces = (
        SlidingWindows(*map(tf.constant, np.array(cuts, np.int64).T)),
        tf.constant(wordpieces, tf.int64),
    )
    assert in_graph.best_windows(wordpieces, length_weight).numpy().tolist() == best
    table = in_graph.as_rows().best_windows(tf.stack([wordpieces, wordpieces], axis=1), length_weight)
    assert table.numpy().tolist() == [[number] * 2 for number in best]
    windows = [(text, *window) for text, cut in enumerate(cuts) for window in enumerate(cut.windows())]
    assert tf.stack(in_graph.windows(), axis=1).numpy().tolist() == [
        [text, number, wordpieces.start, len(wordpieces)] for text, number, wordpieces in windows
    ]


def test_the_best_window_of_a_piece_has_more_on_its_poorer_side():
    assert SlidingWindow(10, 6, 3).best_windows(range(10)).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]
    assert SlidingWindow.from_lengths(0, 6).windows() == [range(0)]
