"""Documents to sentence pairs."""

import itertools
import random

import numpy as np
import pytest

from official_bert.data.sentence_pairs import Corpus, full_sentences, ordered_pairs, sentence_pairs

MAX_NUM_PIECES = 20


def corpus_of(*documents):
    corpus = Corpus()
    for sentences in documents:
        corpus.add_document(np.array([*map(len, sentences)], np.int32), np.concatenate(sentences).astype(np.int32))
    return corpus


def make_corpus(rng, num_documents=8):
    """Return documents whose ids encode their origin: document * 10,000 + running number."""
    corpus = Corpus()
    for document in range(num_documents):
        lengths = [rng.randint(1, 15) for _ in range(rng.randint(1, 12))]
        first = document * 10_000
        corpus.add_document(np.array(lengths, np.int32), np.arange(first, first + sum(lengths), dtype=np.int32))
    return corpus


def pairs_of(corpus, index, rng, short_seq_prob=0.2, make=sentence_pairs, longest=MAX_NUM_PIECES, **options):
    return list(make(corpus, index, max_num_wordpieces=longest, short_seq_prob=short_seq_prob, rng=rng, **options))


def is_stretch(ids):
    return list(ids) == list(range(ids[0], ids[0] + len(ids)))


@pytest.mark.parametrize(("make", "least", "most"), [(sentence_pairs, 0.5, 0.7), (ordered_pairs, 0.47, 0.53)])
def test_pairs_are_stretches_of_text_and_never_too_long(make, least, most):
    rng = random.Random(1)
    are_negative = []
    for _ in range(100):
        corpus = make_corpus(rng)
        for index in range(len(corpus.documents)):
            for pair in pairs_of(corpus, index, rng, make=make):
                assert 1 <= len(pair.first) and 1 <= len(pair.second)
                assert len(pair.first) + len(pair.second) <= MAX_NUM_PIECES
                assert is_stretch(pair.first) and is_stretch(pair.second)
                assert pair.first[0] // 10_000 == index
                if pair.is_negative and make is sentence_pairs:
                    assert pair.second[0] // 10_000 != index  # ten tries among eight documents
                else:
                    before, after = (pair.second, pair.first) if pair.is_negative else (pair.first, pair.second)
                    assert before[-1] < after[0] and pair.second[0] // 10_000 == index
                are_negative.append(pair.is_negative)
    assert least < np.mean(are_negative) < most


def test_every_sentence_is_used():
    rng = random.Random(2)
    corpus = make_corpus(rng)
    for index, document in enumerate(corpus.documents):
        pairs = pairs_of(corpus, index, rng, 0.0, longest=10_000)
        pieces = [piece for pair in pairs for part in (pair.first, pair.second) for piece in part]
        used = {piece for piece in pieces if piece // 10_000 == index}
        assert used == set(corpus.ids[corpus.starts[document.start] : corpus.starts[document.stop]])
    alone = make_corpus(rng, num_documents=1)  # which pairs with itself
    assert any(pair.is_negative for _ in range(20) for pair in pairs_of(alone, 0, rng))


def test_ordered_pairs_use_each_piece_once_and_join_where_sentences_do():
    rng = random.Random(6)
    corpus = make_corpus(rng)
    for index, document in enumerate(corpus.documents):
        pairs = pairs_of(corpus, index, rng, 0.0, ordered_pairs, longest=10_000)
        parts = [(pair.second, pair.first) if pair.is_negative else (pair.first, pair.second) for pair in pairs]
        used = [piece for pair in parts for part in pair for piece in part]
        assert used == list(corpus.ids[corpus.starts[document.start] : corpus.starts[document.stop]])
        starts = {corpus.ids[corpus.starts[sentence]] for sentence in document}
        assert all(second[0] in starts for _, second in parts) or len(document) == 1


def test_a_sentence_alone_is_cut_between_two_words():
    corpus = corpus_of([[1, 2, 50, 51, 3, 52]], [[1, 50, 51]])
    rng, cuts = random.Random(7), set()
    for _ in range(100):
        (pair,) = pairs_of(corpus, 0, rng, 0.0, ordered_pairs, continues_word={50, 51, 52})
        first, second = (pair.second, pair.first) if pair.is_negative else (pair.first, pair.second)
        assert [*first, *second] == [1, 2, 50, 51, 3, 52]
        cuts.add(second[0])
    assert cuts == {2, 3}
    assert pairs_of(corpus, 1, rng, make=ordered_pairs, continues_word={50, 51, 52}) == []


@pytest.mark.parametrize("short_seq_prob", [0.0, 1.0])
def test_full_sentences_lose_no_text_and_end_where_sentences_end(short_seq_prob):
    rng = random.Random(4)
    for _ in range(100):
        corpus = make_corpus(rng)
        for index, document in enumerate(corpus.documents):
            stretches = pairs_of(corpus, index, rng, short_seq_prob, full_sentences)
            text = corpus.ids[corpus.starts[document.start] : corpus.starts[document.stop]]
            assert [piece for stretch in stretches for piece in stretch] == list(text)
            assert all(1 <= len(stretch) <= MAX_NUM_PIECES for stretch in stretches)
            if not short_seq_prob:
                ends = {corpus.ids[start - 1] for start in corpus.starts[1:]}
                assert all(stretch[-1] in ends for stretch in stretches)  # no sentence is longer than a stretch
                lengths = {corpus.ids[start]: end - start for start, end in itertools.pairwise(corpus.starts)}
                for stretch, following in itertools.pairwise(stretches):
                    assert len(stretch) + lengths[following[0]] > MAX_NUM_PIECES  # one more sentence would not have fit


def test_a_long_document_has_short_stretches_among_full_ones():
    corpus = corpus_of([range(1)] * 2000)
    lengths = [len(stretch) for stretch in pairs_of(corpus, 0, random.Random(1), 0.2, full_sentences)][:-1]
    short = [length for length in lengths if length < MAX_NUM_PIECES]
    assert 0.1 < len(short) / len(lengths) < 0.3
    assert min(short) == 2
    corpus = corpus_of([range(3), range(100, 125), range(200, 204)])  # a long sentence is cut where it is full
    found = pairs_of(corpus, 0, random.Random(1), 0.0, full_sentences, longest=10)
    expected = [range(3), range(100, 110), range(110, 120)]
    assert list(map(list, found)) == [*map(list, expected), [*range(120, 125), *range(200, 204)]]
