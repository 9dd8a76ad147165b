"""Windows of sentences: each word is tagged once, with the most context, for random Unicode and small cases."""

import itertools
import random

import pytest

from official_bert.tasks.tagging.records import make_windows, tags_of_characters
from official_bert.tokenization import FullTokenizer
from tests.tasks.tagging.random_words import random_sentences

LENGTHS = (3, 4, 5, 8, 13, 24, 64)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(vocab_file, request):
    return FullTokenizer(vocab_file, do_lower_case=request.param)


def plain_windows(tokenizer, words, max_tokens):
    """Return the windows of a sentence by the rules: ids, and the words that they tag, with their positions."""
    ids, firsts = pieces_of(tokenizer, words)
    starts = [0]
    while starts[-1] + max_tokens < len(ids):
        starts.append(starts[-1] + (max_tokens + 1) // 2)
    windows = [(ids[start : start + max_tokens], []) for start in starts]
    for word, first in enumerate(firsts):
        poorer = {
            number: min(first - start, start + len(windows[number][0]) - 1 - first)
            for number, start in enumerate(starts)
        }
        best = max(poorer, key=poorer.get)  # the first of equals
        windows[best][1].append((word, first - starts[best]))
    return windows


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


def test_each_word_is_tagged_once_in_the_window_with_most_context(tokenizer):
    rng = random.Random(1)
    num_lost = num_long = 0
    for max_seq_length in LENGTHS:
        sentences = random_sentences(rng, 25)
        for words, windows in zip(sentences, windows_of(sentences, tokenizer, max_seq_length), strict=True):
            found = [(window.ids, list(zip(window.words, window.positions, strict=True))) for window in windows]
            assert found == plain_windows(tokenizer, words, max_seq_length - 2)
            assert sorted(word for _, tagged in found for word, _ in tagged) == list(range(len(words)))
            num_lost += not all(map(tokenizer.encode, words))
            num_long += len(windows) > 2
    assert num_lost > 10 and num_long > 10


@pytest.mark.parametrize("documents", [None, [0, 0]])
def test_characters_are_read_as_text_and_tagged_at_their_wordpieces(tokenizer, documents):
    sentences = [list(" the harbour zzz  town"), list("a bridge")]
    windows = make_windows(sentences, tokenizer, max_seq_length=40, documents=documents, of_characters=True)
    for characters, window in zip(sentences, windows, strict=True):
        encoding = tokenizer.encode_with_offsets("".join(characters))
        assert list(window.words) == encoding.starts
        assert [window.ids[position] for position in window.positions] == encoding.ids


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("한강은 ", {0: "B-LC", 2: "O"}, "B-LC I-LC O O"),
        ("한 강", {0: "B-LC", 2: "I-LC"}, "B-LC I-LC I-LC"),
        ("한  강이", {0: "B-LC", 3: "B-PS"}, "B-LC O O B-PS I-PS"),
        (" \x00강", {2: "I-LC"}, "O O I-LC"),
    ],
)
def test_characters_inside_wordpieces_and_spaces_continue_entities(text, given, expected):
    tags = [given.get(index) for index in range(len(text))]
    assert tags_of_characters(text, tags) == expected.split()


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
