"""Records of sentence tasks: compared with the reference's, and with windows."""

import json
import re
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data import record_files
from official_bert.data.record_files import ExampleSplit, RecordFile, write_split
from official_bert.tasks.classification.records import LabelledText, TextJoiner, classification_schema
from official_bert.tokenization import FullTokenizer
from tests.conftest import GOLDEN, golden_arrays


def test_records_are_those_of_the_reference(tokenizer, tmp_path):
    case = json.loads((GOLDEN / "classifier" / "classifier_pairs.json").read_text())
    length = case["max_seq_length"]
    joiner = TextJoiner(tokenizer, max_seq_length=length)
    schema = classification_schema("single_label").sized(S=length, V=tokenizer.vocabulary.size, T=2, C=2)
    texts = [(text_a, text_b) for text_a, text_b, _ in case["examples"]]
    labels = [case["labels"].index(label) for _, _, label in case["examples"]]
    assert write_split(RecordFile(str(tmp_path / "r"), schema), labelled(joiner, texts, labels)) == 5
    batches = tf.data.TFRecordDataset([str(tmp_path / "r")]).batch(5).map(schema.decode)
    (records,) = batches.as_numpy_iterator()
    for name, expected in golden_arrays("classifier/classifier_pairs.npz").items():
        np.testing.assert_array_equal(records[name].reshape(expected.shape), expected, err_msg=name)


def labelled(joiner, texts, labels):
    return ExampleSplit(joiner, list(map(LabelledText, texts, labels)))


def joined(joiner, *texts, counts=None):
    return joiner.join(LabelledText(texts, 0), Counter() if counts is None else counts)


def words(count, start=0):
    """Return a text of `count` distinct pieces."""
    return " ".join(f"w{number}" for number in range(start, start + count))


@pytest.fixture
def word_tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(200))]) + "\n")
    return FullTokenizer(vocab_file=str(path))


def windows_of(joined, length):
    """Return the windows of an example, each as word indices with segment ids."""
    ids, mask, segments = (list(joined[name]) for name in ("input_ids", "input_mask", "segment_ids"))
    assert len(ids) == len(mask) == len(segments)
    for start in range(0, len(ids), length):
        num_real = sum(mask[start : start + length])
        assert not any(ids[start + num_real : start + length])
        window = ids[start : start + num_real]
        assert window[0] == 2 and window[-1] == 3
        yield [index - 4 for index in window if index > 3], segments[start : start + len(window)]


def test_windows_cover_a_long_text_and_overlap(word_tokenizer):
    joiner, counts = TextJoiner(word_tokenizer, max_seq_length=12, max_windows=20, doc_stride=4), Counter()
    for count in (1, 9, 10, 11, 14, 15, 37):
        windows = [window for window, _ in windows_of(joined(joiner, words(count), None, counts=counts), 12)]
        assert all(window == list(range(window[0], window[0] + len(window))) for window in windows)
        assert [window[0] for window in windows] == list(range(0, 4 * len(windows), 4))
        assert windows[-1][-1] == count - 1
        assert len(windows) == 1 or windows[-2][-1] < count - 1  # no window is superfluous
    assert counts["num_shortened"] == 0
    joiner = TextJoiner(word_tokenizer, max_seq_length=12, max_windows=2, doc_stride=10)
    for count, num_shortened in ((20, 0), (21, 1)):
        assert len(joined(joiner, words(count), None, counts=counts)["input_ids"]) == 24 == joiner.max_length
        assert counts["num_shortened"] == num_shortened


def test_windows_of_a_pair_keep_the_shorter_text_whole(word_tokenizer):
    joiner = TextJoiner(word_tokenizer, max_seq_length=13, max_windows=20, doc_stride=3)
    windows = list(windows_of(joined(joiner, words(3), words(20, start=100)), 13))
    assert all(window[:3] == [0, 1, 2] for window, _ in windows)
    assert [window[3] for window, _ in windows] == list(range(100, 100 + 3 * len(windows), 3))
    assert windows[-1][0][-1] == 119
    assert all(segments == [0] * 5 + [1] * (len(window) - 3 + 1) for window, segments in windows)
    windows = list(windows_of(joined(joiner, words(20), words(9, start=100)), 13))
    assert all(window[-5:] == [100, 101, 102, 103, 104] for window, _ in windows)  # the half that fits


def test_windows_overlap_by_half_by_default(word_tokenizer):
    joiner = TextJoiner(word_tokenizer, max_seq_length=12, max_windows=20)
    windows = windows_of(joined(joiner, words(21), None), 12)
    assert [window[0] for window, _ in windows] == [0, 5, 10, 15]  # 10 words fit
    windows = windows_of(joined(joiner, words(3), words(13, start=100)), 12)
    assert [window[3] for window, _ in windows] == [100, 103, 106, 109]  # 6 words fit beside the 3
    tiny = TextJoiner(word_tokenizer, max_seq_length=4, max_windows=20)
    assert len(joined(tiny, words(5), words(5, start=100))["input_ids"]) == 20  # one word per window


def test_many_unknown_wordpieces_are_warned_of(tokenizer, tmp_path, caplog):
    schema = classification_schema("single_label").sized(S=16, C=2)

    def write(texts):
        caplog.clear()
        write_split(RecordFile(str(tmp_path / "r"), schema), labelled(joiner, texts, [0] * len(texts)))
        return caplog.text

    joiner = TextJoiner(tokenizer, max_seq_length=16)
    assert "[UNK]" not in write([("the " * 4, "\u2603")])  # 1 of 5
    warning = write([("the " * 40, "\u2603 " * 12), ("the", None), ("the the", None)])  # 12 of 55
    assert f"{tmp_path}/r: 22% of the wordpieces are [UNK]; is {tokenizer.vocabulary.source} the vocabulary" in warning
    assert "do_lower_case=true fit it?" in warning
    assert "[UNK]" not in write([("the", None)])  # each file separately


def test_records_are_made_again_only_if_something_changed(tokenizer, tmp_path):
    path = str(tmp_path / "r")

    def write(texts=(("The harbour woke.", None),), labels=(1,), length=16, **text):
        other = FullTokenizer(vocab_file=tokenizer.vocabulary.source, **text)
        schema = classification_schema("single_label").sized(S=length, C=2)
        before = (tmp_path / "r").stat().st_mtime_ns if (tmp_path / "r").exists() else 0
        joiner = TextJoiner(other, max_seq_length=length)
        write_split(RecordFile(path, schema), labelled(joiner, list(texts), list(labels)))
        return (tmp_path / "r").stat().st_mtime_ns != before

    assert write()
    assert not write()
    for change in (
        {"texts": [("The harbour slept.", None)]},
        {"texts": [("The harbour woke.", "It rained.")]},
        {"labels": [0]},
        {"length": 24},
        {"do_lower_case": False},
        {"strip_accents": False},
        {"do_lower_case": False, "basic_tokenize": False},
    ):
        assert write(**change), change
        assert write()
    with open(path, "ab") as sink:
        sink.write(b"x")  # not the file that the sidecar describes
    assert write()
    (tmp_path / "r.json").write_text("{")
    assert write()


def test_any_number_of_processes_writes_the_same(tokenizer, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(record_files, "_TEXTS_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(record_files, "_EXAMPLES_IN_A_BATCH", 7)
    texts = [(words(number % 30), words(number % 4) if number % 3 else None) for number in range(100)]
    labels = [number % 2 for number in range(100)]
    schema = classification_schema("single_label").sized(S=16, V=tokenizer.vocabulary.size, T=2, C=2)
    caplog.set_level("INFO", logger="absl")
    examples = labelled(TextJoiner(tokenizer, max_seq_length=16), texts, labels)
    one, several = (
        list(examples.records(RecordFile(str(tmp_path / "r"), schema), num_processes=number)) for number in (1, 3)
    )
    assert len(one) == 100 and one == several
    told = re.findall(r"\d+ of 100 examples were truncated to 16 wordpieces", caplog.text)
    assert len(told) == 2 and told[0] == told[1]
