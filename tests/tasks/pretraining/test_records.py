"""Records compared with the reference's, and warnings about unsuitable text."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.corpus_files import corpus_parts
from official_bert.data.documents import CorpusCounts
from official_bert.data.masking import shuffle
from official_bert.data.sentence_pairs import sentence_pairs
from official_bert.support.errors import UserError
from official_bert.support.text_files import LineReader
from official_bert.tasks.pretraining.sharded import read_corpus
from official_bert.tokenization import FullTokenizer, load_vocab
from official_bert.tokenization.sequences import join_pair
from tests.conftest import GOLDEN, golden_arrays, run_here
from tests.record_files import read_records
from tests.tasks.pretraining.plain_records import plain_records
from tests.tokenization.hard_texts import ACCENTED, CASED, PRESPLIT, UNCASED


def corpus_of(paths, tokenizer):
    return read_corpus(corpus_parts(paths), tokenizer, CorpusCounts())


@pytest.fixture
def make(tmp_path, corpus_file, vocab_file):
    """Return a function that makes records of the golden corpus or of a text, and returns them."""

    def make(text=None, **flags):
        if text is not None:
            (tmp_path / "text").write_text(text, encoding="utf-8", newline="")
        inputs = {"input_file": corpus_file if text is None else tmp_path / "text", "vocab_file": vocab_file}
        run_here("create_pretraining_data", **{**inputs, "output_file": tmp_path / "out", **flags})
        return read_records(tmp_path / "out") if "output_file" not in flags else None

    return make


CASES = json.loads((GOLDEN / "pretraining_data" / "pretraining_cases.json").read_text())
NOT_FLAGS = {"vocab_file", "num_outputs", "input_files", "name", "total_instances"}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_records_are_those_of_the_reference_in_order(case, make, tmp_path):
    outputs = [tmp_path / f"{number}.tfrecord" for number in range(case["num_outputs"])]
    flags = {name: value for name, value in case.items() if name not in NOT_FLAGS}
    make(output_file=",".join(map(str, outputs)), **flags)
    total = 0
    for number, output in enumerate(outputs):
        expected = golden_arrays(f"pretraining_data/pretraining_{case['name']}_{number}.npz")
        records = read_records(output)
        np.testing.assert_equal(records, expected)
        total += len(records["input_ids"])
    assert total == case["total_instances"]


def random_lines(rng, words):
    """Return documents with all difficulties: empty, nearly empty and long lines, odd characters."""
    lines = [rng.choice(words)]  # texts without words would be refused
    for _ in range(rng.randint(2, 60)):
        kind = rng.random()
        if kind < 0.15:
            lines.append(rng.choice(["", "  ", "\u00a0", "\x0c", "\u200b", "\t"]))
        else:
            length = rng.choice([1, 3, 10, 30, 120])
            lines.append(" ".join(rng.choice(words) for _ in range(rng.randint(1, length))))
    return lines


def test_records_are_those_of_the_plain_rules_for_any_flags(make, tmp_path, corpus_file, vocab_file):
    vocab = load_vocab(vocab_file)
    words = [*" ".join(LineReader(corpus_file)).split(), "unknowable", "中文", "ΟΔΟΣ", "a\x1cb", "e\u2028f"]
    rng = random.Random(7)
    num_records = 0
    for number in range(15):
        flags = {
            **rng.choices([UNCASED, CASED, ACCENTED, PRESPLIT], [5, 2, 1, 2])[0]._asdict(),
            "do_whole_word_mask": rng.random() < 0.5,
            "max_seq_length": rng.choice([5, 6, 16, 64, 130]),
            "max_predictions_per_seq": rng.choice([1, 5, 20]),
            "random_seed": rng.randrange(1000),
            "dupe_factor": rng.choice([1, 3]),
            "masked_lm_prob": rng.choice([0.01, 0.15, 0.8]),
            "short_seq_prob": rng.choice([0.0, 0.3, 1.0]),
        }
        if number % 3 == 0:
            shares = [(0.0, 0.0), (1.0, 0.0), (0.6, 0.4), (0.5, 0.2), (0.0, 1.0)][number // 3 % 5]
            flags["mask_replace_prob"], flags["random_replace_prob"] = shares
        lines = random_lines(rng, words)
        make("\n".join(lines), **flags)
        expected = [tf.train.Example.FromString(record) for record in plain_records(lines, vocab, flags)]
        records = tf.data.TFRecordDataset([str(tmp_path / "out")]).as_numpy_iterator()
        assert [tf.train.Example.FromString(record) for record in records] == expected, flags
        num_records += len(expected)
    assert num_records > 225


EACH_SAMPLING = pytest.mark.parametrize(
    "sampling", [{}, {"sampling": "sharded", "num_processes": 1}], ids=["serial", "sharded"]
)
SHORT = {"max_seq_length": 32, "max_predictions_per_seq": 5, "dupe_factor": 2}
SENTENCES = ("the harbour woke before the town did .", "the town did not wake .", "gulls argued over the boats .")


ONE, TWO = "\n".join(SENTENCES), "\n\n".join(["\n".join(SENTENCES)] * 2)


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (ONE, {}, "the input is a single document"),
        (ONE, {"sentence_order": True}, None),
        (ONE, {"use_next_sentence": False}, None),
        (TWO, {}, None),
        ("\n\n".join(SENTENCES * 4), {}, "12 of 12 documents have a single sentence"),
        (TWO.upper(), {"do_lower_case": False}, "[UNK]; is this the right vocabulary, and does do_lower_case=false"),
    ],
)
def test_text_that_does_not_suit_the_flags_is_warned_of(make, caplog, text, flags, message):
    make(text, **SHORT, **flags)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [message in warning for warning in warnings] == [True] * (message is not None)


@EACH_SAMPLING
def test_long_lines_are_warned_of(make, caplog, sampling):
    paragraph = " ".join(SENTENCES * 3)  # 66 wordpieces; the two segments of a record have room for 29
    make("\n\n".join([f"{paragraph}\n{paragraph}"] * 4), **SHORT, **sampling, short_seq_prob=0)
    assert "longer than a record: 78.0% of the wordpieces" in caplog.text
    assert "were cut off, and 100.0% of the pairs are random; write one sentence per line, as split_sent" in caplog.text


@EACH_SAMPLING
def test_input_without_text_is_refused(make, tmp_path, sampling):
    for text in ("", "\u200b\n"):
        with pytest.raises(UserError, match="no text in"):
            make(text, **sampling)
    assert not (tmp_path / "out").exists()


def test_a_document_continues_in_the_next_file(tmp_path, vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    paths = []
    for name, text in (("a", "the town\n\nthe harbour"), ("b", "the boats\n\n"), ("c", "the sky\n")):
        (tmp_path / name).write_text(text)
        paths.append(str(tmp_path / name))
    assert [len(document) for document in corpus_of(paths, tokenizer).documents] == [1, 2, 1]


def test_the_summary_counts_the_records(make, caplog):
    caplog.set_level("INFO", logger="absl")
    records = make(max_seq_length=48, max_predictions_per_seq=6, short_seq_prob=0.3)
    sums, size = {name: values.sum() for name, values in records.items()}, len(records["input_ids"])
    length = sums["input_mask"]
    assert (
        f"gave {size:,} records with {length:,} tokens; padding {1 - length / size / 48:.1%} "
        f"of all positions, masked {sums['masked_lm_weights'] / length:.1%} and unknown 0.00% of the tokens, "
        f"random next {sums['next_sentence_labels'] / size:.1%} of the pairs"
    ) in caplog.text


def test_records_without_masks_are_the_pairs_of_the_same_stream(make, corpus_file, vocab_file, caplog):
    caplog.set_level("INFO", logger="absl")
    records = make(masking="none", max_seq_length=48, short_seq_prob=0.3, dupe_factor=3, random_seed=5)
    tokenizer = FullTokenizer(vocab_file)
    corpus, rng = corpus_of([corpus_file], tokenizer), random.Random(5)
    corpus.shuffle_documents(rng)
    pairs = [
        pair
        for document in [*range(len(corpus.documents))] * 3
        for pair in sentence_pairs(corpus, document, max_num_wordpieces=45, short_seq_prob=0.3, rng=rng)
    ]
    shuffle(pairs, rng)
    assert records.keys() == {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"}
    assert len({str(row) for row in records["input_ids"].tolist()}) > 0.9 * len(pairs)  # each copy has its own pairs
    for row, pair in enumerate(pairs):
        joined = join_pair(pair.first, pair.second, tokenizer.specials)
        for name, values in joined.inputs.items():
            assert records[name][row].tolist() == [*values] + [0] * (48 - len(values))
        assert records["next_sentence_labels"][row].tolist() == [pair.is_negative]
    assert "masked: none; run_pretraining.py masks while training" in caplog.text
    assert "% of all positions, no masks, unknown 0.00% of the tokens" in caplog.text
    assert "[MASK]" not in caplog.text


@EACH_SAMPLING
def test_records_without_pairs_are_single_stretches_of_all_text(make, corpus_file, vocab_file, caplog, sampling):
    caplog.set_level("INFO", logger="absl")
    records = make(use_next_sentence=False, max_seq_length=48, dupe_factor=1, short_seq_prob=0.0, **sampling)
    assert ", no pairs" in caplog.text and "second part" not in caplog.text
    assert not records["segment_ids"].any() and not records["next_sentence_labels"].any()
    tokenizer = FullTokenizer(vocab_file)
    ids, lengths = records["input_ids"].copy(), records["input_mask"].sum(axis=1)
    np.put_along_axis(ids, records["masked_lm_positions"], records["masked_lm_ids"], axis=1)
    ids[:, 0] = tokenizer.cls_id  # unused slots point there
    assert (ids == tokenizer.sep_id).sum() == len(ids)
    assert (ids[np.arange(len(ids)), lengths - 1] == tokenizer.sep_id).all()
    wordpieces = np.concatenate([row[1 : length - 1] for row, length in zip(ids, lengths, strict=True)])
    assert sorted(wordpieces) == sorted(corpus_of([corpus_file], tokenizer).ids)


@EACH_SAMPLING
def test_records_of_the_order_of_sentences(make, corpus_file, vocab_file, caplog, sampling):
    caplog.set_level("INFO", logger="absl")
    records = make(sentence_order=True, max_seq_length=48, dupe_factor=4, masking="none", **sampling)
    text = "".join(f" {index}" for index in corpus_of([corpus_file], FullTokenizer(vocab_file)).ids) + " "
    labels = records["next_sentence_labels"].ravel().astype(bool)
    assert f"swapped {labels.mean():.1%} of the pairs" in caplog.text
    assert abs(labels.mean() - 0.5) < 3 * 0.5 / len(labels) ** 0.5
    for ids, segments, mask, label in zip(
        records["input_ids"], records["segment_ids"], records["input_mask"], labels, strict=True
    ):
        first = ids[1 : (mask - segments).sum() - 1]
        second = ids[(mask - segments).sum() : mask.sum() - 1]
        earlier, later = (
            " " + " ".join(map(str, part)) + " " for part in ((second, first) if label else (first, second))
        )
        places = [text.find(earlier), text.find(later)]
        assert -1 not in places
        if text.count(earlier) == text.count(later) == 1:
            assert places[0] < places[1]


def test_ngrams_are_masked_in_records(make):
    shares = []
    for max_ngram_length in (1, 3):
        records = make(max_ngram_length=max_ngram_length, max_seq_length=48, do_whole_word_mask=True)
        used = records["masked_lm_weights"] > 0
        follows = np.diff(records["masked_lm_positions"], axis=1) == 1
        shares.append((follows & used[:, 1:]).sum() / used.sum())
    assert shares[1] > 1.5 * shares[0]
