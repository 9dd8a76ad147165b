"""Writing, reading and checking records."""

import random

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.schema import Field, RecordSchema
from official_bert.support.errors import UserError

SCHEMA = RecordSchema(
    Field("ids", ("S",), "int32", below="V"), Field("weights", ("P",), "float32"), Field("label", (), "int32")
).sized(S=6, P=3, V=1000)


def as_example(values):
    """The same record, made with TensorFlow's own classes."""
    features = {}
    for name, numbers in values.items():
        if name == "weights":
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=numbers))
        else:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))
    return tf.train.Example(features=tf.train.Features(feature=features))


def test_encoded_records_are_those_of_tensorflow():
    rng = random.Random(1)
    for _ in range(300):
        ids = [rng.choice([0, 1, 127, 128, 999, 16384]) for _ in range(rng.randint(0, 6))]
        weights = [rng.choice([0.0, 1.0, -2.5, 1e-7]) for _ in range(rng.randint(0, 3))]
        label = rng.choice([0, 5, -1, -(2**63), 2**63 - 1])
        record = SCHEMA.encode({"ids": ids, "weights": weights, "label": [label]})
        padded = {"ids": ids + [0] * (6 - len(ids)), "weights": weights + [0.0] * (3 - len(weights)), "label": [label]}
        assert tf.train.Example.FromString(record) == as_example(padded)


def test_bytes_stand_for_small_integers():
    values = {"weights": [1.0], "label": [1]}
    assert SCHEMA.encode({"ids": b"\x01\x7f", **values}) == SCHEMA.encode({"ids": [1, 127], **values})


def test_decode_gives_back_what_was_encoded():
    records = [SCHEMA.encode({"ids": [7, 8 + n], "weights": [0.5], "label": [-3]}) for n in range(2)]
    decoded = SCHEMA.decode(tf.constant(records))
    assert {name: tensor.dtype.name for name, tensor in decoded.items()} == {
        "ids": "int32",
        "weights": "float32",
        "label": "int32",
    }
    np.testing.assert_array_equal(decoded["ids"], [[7, 8, 0, 0, 0, 0], [7, 9, 0, 0, 0, 0]])
    np.testing.assert_array_equal(decoded["weights"], [[0.5, 0, 0]] * 2)
    np.testing.assert_array_equal(decoded["label"], [-3, -3])


def test_too_many_values_are_refused():
    with pytest.raises(ValueError, match="ids has 7 values for a field of 6"):
        SCHEMA.encode({"ids": [0] * 7, "weights": [], "label": [0]})


@pytest.mark.parametrize("bad_id", [1000, -1])
def test_decode_refuses_ids_beyond_the_limit(bad_id):
    record = as_example({"ids": [1, 2, 3, bad_id, 5, 6], "weights": [0.0] * 3, "label": [0]}).SerializeToString()
    with pytest.raises(tf.errors.InvalidArgumentError, match="ids must be from 0 to 999"):
        SCHEMA.decode(tf.constant([record]))
    with pytest.raises(UserError, match=f"ids contains {bad_id}, which is not in the range from 0 to 999"):
        SCHEMA.check(record)


def test_check_says_what_is_wrong():
    good = {"ids": [1] * 6, "weights": [0.0] * 3, "label": [0]}
    SCHEMA.check(as_example(good).SerializeToString())
    with pytest.raises(UserError, match="ids has 4 values, expected 6"):
        SCHEMA.check(as_example({**good, "ids": [1] * 4}).SerializeToString())
    with pytest.raises(UserError, match=r"lacks the feature 'label' \(it has: ids, weights\)"):
        SCHEMA.check(as_example({"ids": [1] * 6, "weights": [0.0] * 3}).SerializeToString())
    with pytest.raises(UserError, match=r"not a serialized tf\.train\.Example"):
        SCHEMA.check(b"\xff\xff\xff")
