"""Batches that double in size."""

import tensorflow as tf

from official_bert.tasks.pretraining.job import growing_batches


def sequence(start_record, count):
    """Return batches of consecutive record numbers, from `start_record`."""

    def make(batch_size, start):
        return tf.data.Dataset.counter(start).batch(batch_size, drop_remainder=True)

    batches = growing_batches(make, batch_size=16, num_steps=7, start_record=start_record)
    return [batch.tolist() for batch in batches.take(count).as_numpy_iterator()]


def test_each_record_comes_once_in_batches_that_double():
    batches = sequence(0, 10)
    assert [len(batch) for batch in batches] == [2, 2, 4, 4, 8, 8, 8, 16, 16, 16]
    assert [number for batch in batches for number in batch] == list(range(84))


def test_a_later_start_gives_the_remaining_batches():
    whole = sequence(0, 10)
    for number, batch in enumerate(whole):
        assert sequence(batch[0], 10 - number) == whole[number:]
