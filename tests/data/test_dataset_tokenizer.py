"""`DatasetTokenizer` in `dataset.map`, compared with the Python tokenizer."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.pipeline import DatasetTokenizer
from official_bert.support.errors import UserError
from official_bert.tokenization import FullTokenizer

TEXTS = ["the baker woke before the town did .", "", "Zoë’s harbour", "the " * 30]
PAIRS = ["the town", "the baker", "", "woke " * 9]


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert values.dtype == np.int32
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


def _first(text, _):
    return text


@pytest.mark.endurance
def test_the_ids_are_those_of_the_tokenizer(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    length = {"max_seq_length": 16}
    tokenize = DatasetTokenizer(tokenizer, **length)
    texts = tf.data.Dataset.from_tensor_slices((TEXTS, PAIRS))

    def mapped(dataset, function):
        dataset = dataset.map(function)
        gc.collect()  # a dataset keeps its tables alive
        return list(dataset.as_numpy_iterator())

    assert_same(mapped(texts.batch(4), tokenize)[0], tokenizer(TEXTS, PAIRS, **length))
    alone = mapped(texts.map(_first).batch(3), tokenize)
    assert_same(alone[0], tokenizer(TEXTS[:3], **length))
    assert_same(alone[1], tokenizer(TEXTS[3:], **length))
    padded = tokenizer(TEXTS, PAIRS, **length, padding="max_length")
    single = texts.map(tokenize)
    for number, found in enumerate(single.as_numpy_iterator()):
        assert_same(found, {name: values[number] for name, values in padded.items()})
    assert single.batch(2).element_spec["input_ids"].shape.as_list() == [None, 16]
    tokenize = DatasetTokenizer(tokenizer, **length, padding="max_length")
    assert_same(mapped(texts.batch(4), tokenize)[0], padded)

    for dataset, function in ((texts.map(_first), tokenizer), (texts.map(_first).batch(2), tokenizer.encode)):
        with pytest.raises(Exception, match="use the graph tokenizer: tokenize = official_bert.DatasetTokenizer"):
            dataset.map(function)
    with pytest.raises(UserError, match=r"reads strings of shape \[B\] or \[\], not int32 \(\); if the dataset also"):
        tokenize(TEXTS[0], tf.constant(1))
    for wrong, message in (
        ({"tokenizer": 3}, "tokenizer is 3; give a FullTokenizer, or the folder"),
        ({"max_seq_length": 2}, "max_seq_length=2 must be a whole number of at least 3"),
        ({"padding": "none"}, "padding='none' must be"),
    ):
        with pytest.raises(UserError, match=message):
            DatasetTokenizer(**{"tokenizer": tokenizer, **wrong})
