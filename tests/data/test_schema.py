"""Writing, reading and checking records."""

import dataclasses
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
    features = {}
    for name, numbers in values.items():
        if name == "weights":
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=numbers))
        else:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))
    return tf.train.Example(features=tf.train.Features(feature=features))


def decoded(schema, records):
    """Decode records with TensorFlow and with NumPy, which give the same."""
    expected, found = schema.decode(tf.constant(records)), schema.decode_numpy(records)
    assert list(expected) == list(found)
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype.as_numpy_dtype, tensor.shape)
        np.testing.assert_array_equal(found[name], tensor)
    return found


def test_encoded_records_are_those_of_tensorflow():
    rng, ids = random.Random(1), dataclasses.replace(SCHEMA.fields[0], below=None)
    unlimited = RecordSchema(ids, *SCHEMA.fields[1:])
    records = []
    for _ in range(300):
        ids = [rng.choice([0, 1, 127, 128, 999, 16384]) for _ in range(rng.randint(0, 6))]
        weights = [rng.choice([0.0, 1.0, -2.5, 1e-7]) for _ in range(rng.randint(0, 3))]
        label = rng.choice([0, 5, -1, -(2**63), 2**63 - 1])
        record = SCHEMA.encode({"ids": ids, "weights": weights, "label": [label]})
        padded = {"ids": ids + [0] * (6 - len(ids)), "weights": weights + [0.0] * (3 - len(weights)), "label": [label]}
        example = as_example(padded)
        assert tf.train.Example.FromString(record) == example
        example.features.feature["file"].bytes_list.value.extend([b"another", b"feature"])
        records += record, example.SerializeToString()
    decoded(unlimited, records)


def test_decode_inverts_encode():
    records = [SCHEMA.encode({"ids": [7, 8 + n], "weights": [0.5], "label": [-3]}) for n in range(2)]
    arrays = decoded(SCHEMA, records)
    assert [array.dtype.name for array in arrays.values()] == ["int32", "float32", "int32"]
    ids = [[7, 8, 0, 0, 0, 0], [7, 9, 0, 0, 0, 0]]
    expected = {"ids": ids, "weights": [[0.5, 0, 0]] * 2, "label": [-3, -3]}
    assert {name: array.tolist() for name, array in arrays.items()} == expected
    values = {"weights": [1.0], "label": [1]}
    assert SCHEMA.encode({"ids": b"\x01\x7f", **values}) == SCHEMA.encode({"ids": [1, 127], **values})
    with pytest.raises(ValueError, match="ids has 7 values for a field of 6"):
        SCHEMA.encode({"ids": [0] * 7, "weights": [], "label": [0]})


def test_check_says_what_is_wrong():
    good = {"ids": [1] * 6, "weights": [0.0] * 3, "label": [0]}
    SCHEMA.check(as_example(good).SerializeToString())
    for bad_id in (1000, -1):
        record = as_example({**good, "ids": [1, 2, 3, bad_id, 5, 6]}).SerializeToString()
        with pytest.raises(tf.errors.InvalidArgumentError, match="ids must be from 0 to 999"):
            SCHEMA.decode(tf.constant([record]))
        with pytest.raises(UserError, match=f"ids contains {bad_id}, which is not in the range from 0 to 999"):
            SCHEMA.check(record)
    floats = RecordSchema(dataclasses.replace(SCHEMA.fields[0], dtype="float32"), *SCHEMA.fields[1:])
    for record, message in (
        (as_example({**good, "ids": [1] * 4}).SerializeToString(), "ids has 4 values, expected 6"),
        (as_example({"ids": [1] * 6}).SerializeToString(), r"lacks the feature 'weights' \(it has: ids\)"),
        (b"\xff\xff\xff", r"not a serialized tf\.train\.Example"),
        (SCHEMA.encode({**good, "label": b"\x80"}), r"not a serialized tf\.train\.Example"),  # a varint without an end
        (floats.encode(good), "ids has values of another type, expected int32"),
    ):
        with pytest.raises(UserError, match=message):
            SCHEMA.check(record)


VECTORS = RecordSchema(
    Field("vectors", ("S", "W"), "float32", is_per_position=True, is_trimmed=True),
    Field("table", (2, 2), "int32", below=9),
    Field("mask", ("S",), "int32", below=2, is_per_position=True),
).sized(S=4, W=3)


def test_vectors_at_every_position_come_back_filled_up_with_zeros():
    rng = np.random.default_rng(1)
    rows = [rng.normal(size=(length, 3)).astype(np.float32) for length in (2, 4, 0, 1)]
    values = [{"vectors": row.ravel(), "table": [1, 2, 3, i], "mask": [1] * len(row)} for i, row in enumerate(rows)]
    records = list(map(VECTORS.encode, values))
    for record in records:
        VECTORS.check(record)
    arrays = decoded(VECTORS, records)
    shapes = {name: values.shape for name, values in arrays.items()}
    assert shapes == {"vectors": (4, 4, 3), "table": (4, 2, 2), "mask": (4, 4)}
    for row, found, mask in zip(rows, arrays["vectors"], arrays["mask"], strict=True):
        np.testing.assert_array_equal(found[: len(row)], row)
        assert not found[len(row) :].any()
        assert mask.sum() == len(row)
    assert arrays["table"].tolist() == [[[1, 2], [3, number]] for number in range(4)]
    values = {"table": [0] * 4, "mask": [1]}
    sizes = [len(VECTORS.encode({"vectors": np.ones(3 * count, np.float32), **values})) for count in (1, 2, 4)]
    assert [size - sizes[0] for size in sizes] == [0, 12, 36]  # only the vectors that there are take room
    plain, array = (VECTORS.encode({"vectors": numbers, **values}) for numbers in ([1.0] * 3, np.ones(3, np.float32)))
    assert plain == array


def test_vectors_of_another_width_are_refused():
    shaped = [dataclasses.replace(VECTORS.fields[0], shape=shape) for shape in ((4, 5), (5, 3))]
    wider, longer = (RecordSchema(field, *VECTORS.fields[1:]) for field in shaped)
    long = longer.encode({"vectors": np.ones(15, np.float32), "table": [0] * 4, "mask": [1] * 4})
    cut = wider.encode({"vectors": np.ones(5, np.float32), "table": [0] * 4, "mask": [1] * 4})
    small = RecordSchema(VECTORS.fields[0], Field("table", (3,), "int32"), VECTORS.fields[2])
    for record, message in (
        (long, "vectors has 15 values, expected at most 12"),
        (cut, "vectors has 5 values, expected a multiple of 3"),
        (small.encode({"vectors": [], "table": [0] * 3, "mask": []}), "table has 3 values, expected 4"),
    ):
        with pytest.raises(UserError, match=message):
            VECTORS.check(record)
    for record in (long, cut):
        with pytest.raises(tf.errors.InvalidArgumentError, match="vectors must have 3 values at each of up to 4 pos"):
            VECTORS.decode([record])
