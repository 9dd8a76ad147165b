"""Vocabularies learnt, extended for a domain, or reduced to the wordpieces of a text."""

import random
from collections import Counter

import pytest

from official_bert.config.text_settings import TextSettings
from official_bert.data import vocab_learner
from official_bert.data.vocab_learner import (
    SPECIAL_PIECES,
    count_words,
    coverage,
    extended,
    learn_vocab,
    pruned,
    tokens_by_id,
)
from official_bert.support.errors import UserError
from official_bert.tokenization import BasicTokenizer, WordpieceTokenizer
from official_bert.tokenization.vocab import MPNetVocabulary, Vocabulary


@pytest.fixture(scope="module")
def lines(corpus_file):
    with open(corpus_file, encoding="utf-8") as source:
        return source.read().split("\n")[:40]


@pytest.fixture(scope="module")
def counts(lines):
    return count_words(lines, TextSettings())


def test_words_are_counted_as_the_tokenizer_splits_them(lines):
    tokenizer = BasicTokenizer(do_lower_case=True)
    expected = Counter(word for line in lines for word in tokenizer.tokenize(line))
    assert count_words(lines, TextSettings()) == expected
    assert count_words(["a\x0bb A\u2028c"], TextSettings(False)) == Counter({"ab": 1, "A": 1, "c": 1})
    presplit = TextSettings(do_lower_case=False, basic_tokenize=False)
    assert count_words(["a\x0bb A\u2028c/X c/X"], presplit) == Counter({"a": 1, "b": 1, "A": 1, "c/X": 2})
    assert count_words(["É 한"], TextSettings(strip_accents=False)) == Counter({"é": 1, "한": 1})


def test_a_learnt_vocabulary_can_spell_its_text_whose_order_does_not_matter(lines, counts, caplog):
    caplog.set_level("INFO", logger="absl")
    wordpieces = learn_vocab(counts, vocab_size=400)
    assert f"learning wordpieces from {len(counts)} distinct words in up to " in caplog.text
    assert wordpieces[:5] == list(SPECIAL_PIECES)
    assert len(set(wordpieces)) == len(wordpieces)
    tokenizer = WordpieceTokenizer(dict.fromkeys(wordpieces))
    assert all("[UNK]" not in tokenizer.tokenize(word) for word in counts)
    assert tokenizer.tokenize("the") == ["the"]
    small = learn_vocab(count_words(reversed(lines), TextSettings()), vocab_size=120)
    assert small == learn_vocab(counts, vocab_size=120)
    assert 100 < len(small) <= 120 < len(wordpieces) <= 400
    with pytest.raises(UserError, match="vocab_size=20 is too small: the single characters"):
        learn_vocab(counts, vocab_size=20)


def test_long_words_are_learned_in_parts_and_give_all_their_characters(caplog):
    caplog.set_level("INFO", logger="absl")
    rng = random.Random(1)
    syllables = ["GATTACA", "CAT", "TAGA", "GGC"]
    text = ["".join(rng.choices(syllables, k=length)) for length in [20] * 20 + [80] * 3]
    wordpieces = learn_vocab(Counter([*text, "ก" * 51, "cat"]), vocab_size=300)
    assert set(wordpieces) >= {form for letter in "ACGTกcat" for form in (letter, f"##{letter}")}
    assert 60 < len(wordpieces) <= 300 and max(len(piece.removeprefix("##")) for piece in wordpieces[5:]) <= 12
    assert coverage(wordpieces, Counter(text[:20])).num_wordpieces < sum(map(len, text[:20])) / 2
    assert "% of the text is in words of more than max_word_length=50 characters, which are learned in p" in caplog.text
    assert "% of the text is in words of more than 200 characters, which are always [UNK]" in caplog.text
    assert "ab" * 30 in learn_vocab(Counter({"ab" * 30: 2, "cat": 3}), vocab_size=90, max_word_length=60)


def test_what_is_left_out_is_logged(caplog, monkeypatch):
    caplog.set_level("INFO", logger="absl")
    wordpieces = learn_vocab(Counter({"aab": 3, "az": 1, "[MASK]": 9}), vocab_size=30, max_characters=2)
    assert {"a", "b"} < set(wordpieces) and {"z", "M"}.isdisjoint(wordpieces)
    assert "18.2% of the text is in words with one of the 1 rarest characters, read as [UNK]; raise" in caplog.text
    assert "is learned" not in caplog.text
    monkeypatch.setattr(vocab_learner, "_SUBSTRINGS_OF_LONG_WORDS", 12 * 13 // 2)
    wordpieces = learn_vocab(Counter({"abcdefghijkl" * 5: 2, "mnopqrstuvwx" * 5: 3}), vocab_size=90)
    assert "mnopqrstuvwx" in wordpieces and "abcdefghijkl" not in wordpieces and {"a", "##l"} < set(wordpieces)
    assert "60.0% of the text is learned, the most frequent words and parts of words" in caplog.text


def test_wordpieces_that_occur_more_often_than_any_word_make_no_vocabulary_too_small():
    """Every word occurs once, so that all of them exceed the size at the frequency of the most frequent word."""
    rng = random.Random(1)
    words = Counter({"".join(rng.choices("ab", k=8)): 1 for _ in range(60)})
    assert 9 < len(learn_vocab(words, vocab_size=20)) <= 20


LETTERS = [letter for character in "abcdeh" for letter in (character, f"##{character}")]
TOKENS = ["[PAD]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
TOKENS += ["cab", "##cab", "##bed", "bad"]
VOCABULARY = Vocabulary({token: index for index, token in enumerate(TOKENS)})
WORDS = Counter({"cabbed": 5, "ache": 4, "dad": 3, "zed": 2, "bad": 9})


def test_the_wordpieces_that_save_most_are_added_first():
    """cabbed is cab ##bed: saves one; ache is four letters: saves three; zed is unknown: three characters."""
    learned = ["bad", "cabbed", "ache", "zed", "##xyz"]
    change = extended(VOCABULARY, learned, WORDS, num_new_tokens=2)
    assert change.tokens == ["[PAD]", "ache", "zed", *TOKENS[3:]]
    assert change.sources[1:3] == [VOCABULARY.ids(["a", "##c", "##h", "##e"]), VOCABULARY.ids(["[UNK]"])]
    assert change.sources[3:] == [[index] for index in range(3, len(TOKENS))]
    all_of_them = extended(VOCABULARY, learned, WORDS, num_new_tokens=9)
    assert all_of_them.tokens == [*change.tokens, "cabbed"]  # ##xyz would save nothing
    one = extended(VOCABULARY, ["ache"], WORDS, num_new_tokens=3)
    assert one.tokens == ["[PAD]", "ache", "[unused2]", *TOKENS[3:]]  # unused tokens that are not needed stay


def test_a_continuation_consists_of_continuations():
    change = extended(VOCABULARY, ["##ache"], Counter({"dache": 2}), num_new_tokens=1)
    assert change.tokens[1] == "##ache"
    assert change.sources[1] == VOCABULARY.ids(["##a", "##c", "##h", "##e"])


def test_pruning_keeps_what_the_text_uses_and_splits_it_as_before():
    change = pruned(VOCABULARY, WORDS)
    assert change.tokens == [token for token in TOKENS if not token.startswith("[unused") and token != "##cab"]
    assert change.sources == [[VOCABULARY.token_to_id[token]] for token in change.tokens]
    old, new = WordpieceTokenizer(set(TOKENS)), WordpieceTokenizer(set(change.tokens))
    for word in WORDS:
        assert old.split_word(word) == new.split_word(word)
    lines = [*MPNetVocabulary.first_tokens, *TOKENS, "<mask>"]
    left = pruned(MPNetVocabulary({line: index for index, line in enumerate(lines)}), WORDS).tokens
    assert [*left[:3], left[-1]] == [*lines[:3], "<mask>"] and "[CLS]" not in left


def test_coverage_counts_words_and_their_pieces():
    found = coverage(TOKENS, WORDS)
    assert found == (23, 5 * 2 + 4 * 4 + 3 * 3 + 2 + 9, 2)
    assert str(found) == "2.000 wordpieces per word, 8.70% of the words unknown"
    repeated = Vocabulary({"[PAD]": 0, "b": 2, "a": 3})  # line 2 of the file was also b
    assert tokens_by_id(repeated) == ["[PAD]", "[unused_line_2]", "b", "a"]
