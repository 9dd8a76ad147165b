"""Windows of sentences: each word is tagged once, with the most context, for random Unicode and small cases."""

import itertools
import random

import pytest

from official_bert.tasks.tagging.records import make_windows
from official_bert.tokenization import FullTokenizer
from tests.tasks.tagging.random_words import random_sentences

LENGTHS = (3, 4, 5, 8, 13, 24, 64)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(vocab_file, request):
    return FullTokenizer(vocab_file, do_lower_case=request.param)


def pieces_of(tokenizer, words):
    """Return the wordpieces of a sentence, and the start of each word among them."""
    by_word = [tokenizer.encode(word) or [tokenizer.unk_id] for word in words]
    firsts = [0, *itertools.accumulate(map(len, by_word))][:-1]
    return list(itertools.chain.from_iterable(by_word)), firsts


def windows_of(sentences, tokenizer, max_seq_length, documents=None):
    """Return the windows of each sentence."""
    windows = list(make_windows(sentences, tokenizer, max_seq_length=max_seq_length, documents=documents))
    assert [window.sentence for window in windows] == sorted(window.sentence for window in windows)
    return [[window for window in windows if window.sentence == number] for number in range(len(sentences))]


def random_documents(rng, count):
    """Return ascending document numbers, with repetitions and gaps."""
    return list(itertools.accumulate(rng.choice((0, 0, 0, 1, 2)) for _ in range(count)))


@pytest.mark.parametrize("with_documents", [False, True])
def test_every_word_is_tagged_once_at_its_first_wordpiece(tokenizer, with_documents):
    rng = random.Random(1)
    for max_seq_length in LENGTHS:
        sentences = random_sentences(rng, 25)
        documents = random_documents(rng, len(sentences)) if with_documents else None
        for words, windows in zip(sentences, windows_of(sentences, tokenizer, max_seq_length, documents), strict=True):
            assert [word for window in windows for word in window.words] == list(range(len(words)))
            for window in windows:
                assert 1 <= len(window.ids) <= max_seq_length - 2
                assert len(window.words) == len(window.positions)
                for word, position in zip(window.words, window.positions, strict=True):
                    assert window.ids[position] == (tokenizer.encode(words[word]) or [tokenizer.unk_id])[0]


def test_the_windows_of_a_sentence_hold_all_its_wordpieces(tokenizer):
    rng = random.Random(2)
    num_lost = num_long = 0
    for max_seq_length in LENGTHS:
        max_tokens = max_seq_length - 2
        sentences = random_sentences(rng, 25)
        for words, windows in zip(sentences, windows_of(sentences, tokenizer, max_seq_length), strict=True):
            ids, _ = pieces_of(tokenizer, words)
            if all(map(tokenizer.encode, words)):
                assert ids == tokenizer.encode(" ".join(words))
            else:
                num_lost += 1
            starts = [0]
            while starts[-1] + max_tokens < len(ids):
                starts.append(starts[-1] + (max_tokens + 1) // 2)
            assert [window.ids for window in windows] == [ids[start : start + max_tokens] for start in starts]
            num_long += len(starts) > 2
    assert num_lost > 10 and num_long > 10


def test_each_word_is_tagged_in_the_window_with_most_context(tokenizer):
    rng = random.Random(3)
    for max_seq_length in LENGTHS:
        max_tokens = max_seq_length - 2
        sentences = random_sentences(rng, 15)
        for words, windows in zip(sentences, windows_of(sentences, tokenizer, max_seq_length), strict=True):
            _, firsts = pieces_of(tokenizer, words)
            starts = [number * ((max_tokens + 1) // 2) for number in range(len(windows))]
            for number, window in enumerate(windows):
                for word, position in zip(window.words, window.positions, strict=True):
                    assert starts[number] + position == firsts[word]
                    poorer = {}
                    for other, start in enumerate(starts):
                        before, after = firsts[word] - start, start + len(windows[other].ids) - 1 - firsts[word]
                        if before >= 0 and after >= 0:
                            poorer[other] = min(before, after)
                    # Ties go to the first window.
                    assert number == min(other for other, value in poorer.items() if value == max(poorer.values()))


def test_context_is_the_balanced_neighbourhood_in_the_document(tokenizer):
    rng = random.Random(4)
    num_long = num_full = num_whole = 0
    for max_seq_length in LENGTHS:
        max_tokens = max_seq_length - 2
        sentences = random_sentences(rng, 25, most_words=6)
        documents = random_documents(rng, len(sentences))
        alone = windows_of(sentences, tokenizer, max_seq_length)
        for number, windows in enumerate(windows_of(sentences, tokenizer, max_seq_length, documents)):
            ids, firsts = pieces_of(tokenizer, sentences[number])
            if len(ids) > max_tokens:
                assert windows == alone[number]
                num_long += 1
                continue
            (window,) = windows
            same = [other for other, document in enumerate(documents) if document == documents[number]]
            document = [piece for other in same for piece in pieces_of(tokenizer, sentences[other])[0]]
            start = sum(len(pieces_of(tokenizer, sentences[other])[0]) for other in same if other < number)
            before, after = start, len(document) - start - len(ids)
            # Brute force: no split uses more of the space, and none that uses as much is more even.
            spare = max_tokens - len(ids)
            shares = [(left, min(spare - left, after)) for left in range(min(spare, before) + 1)]
            most = max(map(sum, shares))
            left, right = min(
                (share for share in shares if sum(share) == most), key=lambda share: abs(share[0] - share[1])
            )
            found_left = window.positions[0]
            assert len(window.ids) == len(ids) + left + right
            assert abs(found_left - (len(window.ids) - len(ids) - found_left)) == abs(left - right)
            assert window.ids == document[start - found_left : start + len(ids) + most - found_left]
            assert list(window.words) == list(range(len(sentences[number])))
            assert list(window.positions) == [found_left + first for first in firsts]
            num_full += len(window.ids) == max_tokens
            num_whole += len(window.ids) == len(document)
    assert min(num_long, num_full, num_whole) > 10


# In the golden vocabulary, the letters are words of one wordpiece.
@pytest.mark.parametrize(
    ("words", "max_seq_length", "expected"),
    [
        ("a", 4, [("a", "a")]),
        ("a b", 4, [("a b", "a b")]),
        ("a b c", 4, [("a b", "a b"), ("b c", "c")]),
        ("a b c d", 5, [("a b c", "a b c"), ("c d", "d")]),
        ("a b c", 3, [("a", "a"), ("b", "b"), ("c", "c")]),
        ("a b c d e f g", 6, [("a b c d", "a b c"), ("c d e f", "d e"), ("e f g", "f g")]),
    ],
)
def test_small_sentences(vocab_file, words, max_seq_length, expected):
    tokenizer = FullTokenizer(vocab_file)
    found = []
    for window in make_windows([words.split()], tokenizer, max_seq_length=max_seq_length):
        tagged = " ".join(words.split()[word] for word in window.words)
        assert [window.ids[position] for position in window.positions] == tokenizer.encode(tagged)
        found.append((" ".join(tokenizer.convert_ids_to_tokens(window.ids)), tagged))
    assert found == expected


@pytest.mark.parametrize(
    ("documents", "max_seq_length", "expected"),
    [
        # Half of the space on either side, an odd one after; space left at a document's edge goes to the other side.
        ((0, 0, 0), 7, ["a b c d e", "b c d e f", "b c d e f"]),
        ((0, 0, 0), 6, ["a b c d", "b c d e", "c d e f"]),
        ((0, 0, 0), 32, ["a b c d e f"] * 3),
        ((0, 0, 1), 6, ["a b c d", "a b c d", "e f"]),
        ((3, 5, 9), 6, ["a b", "c d", "e f"]),
        ((0, 0, 0), 4, ["a b", "c d", "e f"]),
    ],
)
def test_small_documents(vocab_file, documents, max_seq_length, expected):
    tokenizer = FullTokenizer(vocab_file)
    sentences = [["a", "b"], ["c", "d"], ["e", "f"]]
    windows = list(make_windows(sentences, tokenizer, max_seq_length=max_seq_length, documents=documents))
    assert [" ".join(tokenizer.convert_ids_to_tokens(window.ids)) for window in windows] == expected
    for window, words in zip(windows, sentences, strict=True):
        tagged = [window.ids[position] for position in window.positions]
        assert tokenizer.convert_ids_to_tokens(tagged) == words


def test_a_sentence_longer_than_the_window_is_context_for_its_neighbours_but_has_none(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    sentences = [["a"], ["b", "c", "d", "e", "f"], ["g"]]
    windows = list(make_windows(sentences, tokenizer, max_seq_length=6, documents=[0, 0, 0]))
    found = [("".join(tokenizer.convert_ids_to_tokens(window.ids)), window.sentence) for window in windows]
    assert found == [("abcd", 0), ("bcde", 1), ("def", 1), ("defg", 2)]


def test_no_sentences_have_no_windows(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    assert list(make_windows([], tokenizer, max_seq_length=8)) == []
    assert list(make_windows([], tokenizer, max_seq_length=8, documents=[])) == []
