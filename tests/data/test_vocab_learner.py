"""Learning vocabularies."""

from collections import Counter

import pytest

from official_bert.config.text_settings import TextSettings
from official_bert.data.vocab_learner import SPECIAL_PIECES, count_words, learn_vocab
from official_bert.support.errors import UserError
from official_bert.tokenization import BasicTokenizer, WordpieceTokenizer


@pytest.fixture(scope="module")
def lines(corpus_file):
    with open(corpus_file, encoding="utf-8") as source:
        return source.read().split("\n")


def test_words_are_counted_as_the_tokenizer_splits_them(lines):
    tokenizer = BasicTokenizer(do_lower_case=True)
    expected = Counter(word for line in lines for word in tokenizer.tokenize(line))
    assert count_words(lines, TextSettings()) == expected
    assert count_words(["a\x0bb A\u2028c"], TextSettings(False)) == Counter({"ab": 1, "A": 1, "c": 1})
    presplit = TextSettings(do_lower_case=False, basic_tokenize=False)
    assert count_words(["a\x0bb A\u2028c/X c/X"], presplit) == Counter({"a": 1, "b": 1, "A": 1, "c/X": 2})
    assert count_words(["É 한"], TextSettings(strip_accents=False)) == Counter({"é": 1, "한": 1})


def test_a_learnt_vocabulary_can_spell_its_text(lines, caplog):
    caplog.set_level("INFO", logger="absl")
    counts = count_words(lines, TextSettings())
    wordpieces = learn_vocab(counts, vocab_size=400)
    assert f"learning wordpieces from {len(counts)} distinct words in up to " in caplog.text
    assert len(wordpieces) <= 400
    assert wordpieces[:5] == list(SPECIAL_PIECES)
    assert len(set(wordpieces)) == len(wordpieces)
    tokenizer = WordpieceTokenizer(dict.fromkeys(wordpieces))
    assert all("[UNK]" not in tokenizer.tokenize(word) for word in counts)
    assert tokenizer.tokenize("the") == ["the"]


def test_the_order_of_the_text_does_not_matter(lines):
    forwards = learn_vocab(count_words(lines, TextSettings()), vocab_size=300)
    backwards = learn_vocab(count_words(reversed(lines), TextSettings()), vocab_size=300)
    assert forwards == backwards


def test_a_larger_size_gives_more_pieces(lines):
    counts = count_words(lines, TextSettings())
    assert 100 < len(learn_vocab(counts, vocab_size=200)) <= 200 < len(learn_vocab(counts, vocab_size=600)) <= 600


def test_too_small_a_size_is_refused(lines):
    with pytest.raises(UserError, match="vocab_size=20 is too small: the single characters"):
        learn_vocab(count_words(lines, TextSettings()), vocab_size=20)
