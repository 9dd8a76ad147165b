"""Masking of batches for training and evaluation."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.batches import TokenBudget
from official_bert.data.graph_masking import GraphMasker
from official_bert.data.pipeline import evaluation_batches, training_batches
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.data import PRETRAINING_SCHEMA, UNMASKED_SCHEMA
from official_bert.tasks.pretraining.job import PretrainingRecords
from official_bert.tokenization import Vocabulary, load_vocab
from tests.conftest import UNMASKED_RECORDS as NUM_RECORDS

pytestmark = pytest.mark.slow

LENGTHS = {"max_seq_length": 64, "max_predictions_per_seq": 10}
MASKED = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
BATCH_SIZE = 8


@pytest.fixture(scope="module")
def make(vocab_file, unmasked_records_file):
    """Return a function that creates records with maskers of changed settings."""
    vocabulary = Vocabulary.from_file(vocab_file)

    def make(**changes):
        settings = {"masked_lm_prob": 0.15, "whole_word": False, "random_seed": 3, **changes}
        maskers = {
            purpose: GraphMasker(vocabulary, purpose=purpose, **LENGTHS, **settings)
            for purpose in ("training", "evaluation")
        }
        schema = UNMASKED_SCHEMA.sized(S=64, V=vocabulary.size, T=2)
        return PretrainingRecords([unmasked_records_file], schema, NUM_RECORDS, settings["random_seed"], maskers)

    return make


@pytest.fixture
def training(make):
    """The first batches of training, as arrays."""

    def batches(count, start_record=0, batch_size=BATCH_SIZE, **changes):
        dataset = make(**changes).training_batches(batch_size=batch_size, start_record=start_record)
        return list(dataset.take(count).as_numpy_iterator())

    return batches


def evaluation(records, batch_size=BATCH_SIZE):
    return list(records.evaluation_batches(batch_size=batch_size).as_numpy_iterator())


def joined(batches):
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def unmasked(batch):
    ids = batch["input_ids"].copy()
    for row, (positions, labels, weights) in enumerate(
        zip(batch["masked_lm_positions"], batch["masked_lm_ids"], batch["masked_lm_weights"], strict=True)
    ):
        used = weights > 0
        ids[row, positions[used]] = labels[used]
    return {**{name: values for name, values in batch.items() if name not in MASKED}, "input_ids": ids}


def test_only_the_masks_differ_from_what_is_on_the_disk(make, training):
    stored = make()._replace(maskers={}).training_batches(batch_size=BATCH_SIZE, start_record=0)
    found = training(30, whole_word=True)
    np.testing.assert_equal([unmasked(batch) for batch in found], list(stored.take(30).as_numpy_iterator()))
    assert all(np.all(batch["masked_lm_weights"].sum(axis=1) > 0) for batch in found)


def test_batches_are_of_the_kind_that_records_with_masks_give(make, records_file):
    schema = PRETRAINING_SCHEMA.sized(S=64, P=10, V=2000, T=2)
    with_masks = training_batches([records_file], schema, batch_size=4, num_records=110, seed=1)
    without = make().training_batches(batch_size=4, start_record=0)
    assert without.element_spec == with_masks.element_spec
    with_masks = evaluation_batches([records_file], schema, batch_size=4)
    assert make().evaluation_batches(batch_size=4, max_batches=9).element_spec == with_masks.element_spec


def test_the_masks_of_a_visit_are_those_of_its_number_in_resumed_runs_and_batches_of_any_size(training):
    whole = training(32)
    np.testing.assert_equal(training(19, start_record=13 * BATCH_SIZE), whole[13:])
    np.testing.assert_equal(joined(training(16, batch_size=16)), joined(whole))


@pytest.mark.endurance
def test_shorter_batches_within_a_budget_have_the_masks_of_whole_ones(make):
    records = make(whole_word=True)

    def batches(count, start_record=0):
        dataset = records.training_batches(batch_size=TokenBudget(256), start_record=start_record, lengths=[32, 48, 64])
        assert dataset.element_spec["masked_lm_positions"].shape.as_list() == [None, 10]
        return list(dataset.take(count).as_numpy_iterator())

    found = batches(12)
    assert len({batch["input_ids"].shape[1] for batch in found}) > 1
    num_used = 0
    for number, batch in enumerate(found):
        num_examples, width = batch["input_ids"].shape
        visits = num_used + np.arange(num_examples, dtype=np.int64)
        restored = {
            name: tf.constant(np.pad(unmasked(batch)[name], [(0, 0), (0, 64 - width)]))
            for name in ("input_ids", "input_mask")
        }
        again = records.maskers["training"].mask(restored, tf.constant(visits))
        np.testing.assert_array_equal(again["input_ids"][:, :width], batch["input_ids"])
        for name in MASKED[1:]:
            np.testing.assert_array_equal(again[name], batch[name], err_msg=name)
        num_used += num_examples
        if number in (3, 7):
            np.testing.assert_equal(batches(12 - number - 1, num_used), found[number + 1 :])


def test_each_visit_and_each_seed_has_masks_of_its_own(training):
    seen = {}
    for batch in training(2 * NUM_RECORDS // BATCH_SIZE):
        for ids, positions in zip(unmasked(batch)["input_ids"], batch["masked_lm_positions"], strict=True):
            seen.setdefault(ids.tobytes(), []).append(positions.tobytes())
    counts = [(len(visits), len(set(visits))) for visits in seen.values() if len(visits) == 2]
    assert len(counts) > 50
    assert sum(different for _, different in counts) > 0.98 * sum(visits for visits, _ in counts)
    np.testing.assert_equal(training(3), training(3))
    first, second = training(1), training(1, random_seed=4)
    assert not np.array_equal(first[0]["masked_lm_positions"], second[0]["masked_lm_positions"])


def test_evaluations_have_the_same_masks_each_time_which_are_not_those_of_training(make):
    records = make()
    whole = evaluation(records)
    np.testing.assert_equal(evaluation(make()), whole)
    real, of_larger = (
        {name: values[:NUM_RECORDS] for name, values in joined(batches).items()}
        for batches in (whole, evaluation(records, batch_size=60))
    )
    np.testing.assert_equal(of_larger, real)
    last = whole[-1]["is_real_example"] == 0
    assert last.any() and not whole[-1]["masked_lm_weights"][last].any()
    # The same records with the same visit numbers, in training.
    numbers = np.arange(NUM_RECORDS)
    trained = records.maskers["training"].mask(unmasked(real), numbers)
    is_equal = np.all(trained["masked_lm_positions"].numpy() == real["masked_lm_positions"], axis=1)
    assert np.mean(is_equal) < 0.05


def test_another_vocabulary_is_refused(make, vocab_file):
    make().check_vocabulary(Vocabulary.from_file(vocab_file))
    token_to_id = load_vocab(vocab_file)
    token_to_id["[CLS]"], token_to_id["[SEP]"] = token_to_id["[SEP]"], token_to_id["[CLS]"]
    message = (
        r"record 0 .* begins with the id \d+, but \[CLS\] is \d+ in other.txt; give the vocabulary that the records"
    )
    with pytest.raises(UserError, match=message):
        make().check_vocabulary(Vocabulary(token_to_id, "other.txt"))
