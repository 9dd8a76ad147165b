"""The three tokenizers, compared with the reference's output and a plain implementation."""

import random

import pytest

from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tokenization import BasicTokenizer, FullTokenizer, WordpieceTokenizer, full_tokenizer
from tests.tokenization.hard_texts import (
    ALL_SETTINGS,
    PRESPLIT,
    SETTINGS,
    TORTURE,
    UNCASED,
    random_text,
    write_vocabulary,
)
from tests.tokenization.plain_tokenizer import plain_pieces, plain_words


@pytest.fixture(scope="module")
def tokenizers(vocab_file):
    return {settings: FullTokenizer(vocab_file, **settings._asdict()) for settings in SETTINGS.values()}


def test_torture_file_gives_the_reference_words_pieces_and_ids(tokenizers):
    assert len(TORTURE) == 64
    for case in TORTURE:
        tokenizer = tokenizers[TextSettings(case["do_lower_case"])]
        assert BasicTokenizer(case["do_lower_case"]).tokenize(case["text"]) == case["basic"]
        assert tokenizer.tokenize(case["text"]) == case["wordpiece"]
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.convert_tokens_to_ids(case["wordpiece"]) == case["ids"]


@ALL_SETTINGS
@pytest.mark.parametrize("count", [10_000, pytest.param(40_000, marks=[pytest.mark.slow, pytest.mark.endurance])])
def test_random_strings_of_all_planes_give_what_the_plain_rules_give(tokenizers, settings, count):
    tokenizer, rng = tokenizers[settings], random.Random(20181031)
    for number in range(count):
        text = random_text(rng, number % 4)
        assert tokenizer.basic_tokenizer.tokenize(text) == plain_words(text, settings), ascii(text)
        assert tokenizer.tokenize(text) == plain_pieces(text, tokenizer.vocab, settings), ascii(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(it, marks=[pytest.mark.endurance] * (name not in ("uncased", "cased")), id=name)
        for name, it in SETTINGS.items()
    ],
)
def test_every_single_character_gives_what_the_plain_rules_give(settings):
    tokenizer = BasicTokenizer(**settings._asdict())
    for first in range(0, 0x110000, 64):
        text = " ".join(f"a{chr(code)}b" for code in range(first, first + 64))
        assert tokenizer.tokenize(text) == plain_words(text, settings), hex(first)


def test_a_capital_sigma_looks_at_its_neighbours():
    assert BasicTokenizer().tokenize("ΟΔΟΣ ΣΟΦΟΣ. ΟΔΟΣ.Α") == ["οδος", "σοφος", ".", "οδοσ", ".", "α"]


def test_spacing_marks_are_sorted_by_combining_class():
    # U+1D16D has class 226, U+1D165 has class 216: decomposition puts the lower class first.
    assert BasicTokenizer().tokenize("a\U0001d16d\U0001d165") == ["a\U0001d165\U0001d16d"]


def test_separators_that_are_control_characters_do_not_split():
    assert BasicTokenizer().tokenize("a\x0bb\x1cc\x85d e\u2028f") == ["abcd", "e", "f"]


def test_lowercasing_alone_keeps_accents_and_syllables():
    """Nothing is composed or decomposed: two characters stay two."""
    tokenizer = BasicTokenizer(strip_accents=False)
    words = ["é", "é", "e\u0301", "ö", "i\u0307", "οδος", "ångström", "!"]
    assert tokenizer.tokenize("É é e\u0301 Ö İ ΟΔΟΣ Ångström!") == words
    syllables = "".join(map(chr, range(0xAC00, 0xD7A4)))
    jamo = "".join(map(chr, range(0x1100, 0x1200)))
    assert tokenizer.tokenize(f"{syllables} {jamo}") == [syllables, jamo]
    assert BasicTokenizer().tokenize("각") == ["\u1100\u1161\u11a8"]
    for character in map(chr, range(0x20000)):
        words = tokenizer.tokenize(character)
        assert words in ([], [character.lower()]), hex(ord(character))


def test_words_that_are_taken_as_they_are(tmp_path):
    long = "감독" * 101
    wordpieces = ["감독/NNG", "의", "##/JKG", "Zoë", "##.", long, "a", "##a", "\u3000"]
    path = write_vocabulary(tmp_path / "vocab.txt", wordpieces)
    tokenizer = FullTokenizer(path, do_lower_case=False, basic_tokenize=False)
    text = f"감독/NNG 의/JKG\u3000Zoë.  {long} a\x1faa 감독 {long}a [SEP] ##a"
    wordpieces = ["감독/NNG", "의", "##/JKG", "Zoë", "##.", long, "a", "a", "##a", "[UNK]", "[UNK]", "[SEP]", "##a"]
    assert tokenizer.tokenize(text) == tokenizer.tokenize(text.encode()) == wordpieces
    assert FullTokenizer(path, do_lower_case=False).tokenize("감독/NNG a\x1fa") == ["[UNK]"] * 3 + ["a", "##a"]


def test_words_end_where_python_splits(tokenizers):
    every = "x".join(map(chr, range(0x110000)))
    tokenizer = tokenizers[PRESPLIT]
    assert tokenizer.basic_tokenizer.tokenize(every) == every.split()
    starts = tokenizer.encode_with_offsets(every).starts
    assert len(starts) == len(tokenizer.encode(every)) == len(every.split()) > 20
    assert all(every[start - 1].isspace() for start in starts[1:])


def test_encode_forgets_nothing_when_its_memory_is_full(tokenizers, monkeypatch, vocab_file):
    monkeypatch.setattr(full_tokenizer, "MAX_CACHED_WORDS", 3)
    tokenizer = FullTokenizer(vocab_file=vocab_file)
    text = "the harbour woke before the town did and the harbour slept"
    assert tokenizer.encode(text) == tokenizers[UNCASED].encode(text)


def test_bytes_are_utf8_and_undecodable_ones_are_dropped(tokenizers):
    assert tokenizers[UNCASED].tokenize("café".encode()) == tokenizers[UNCASED].tokenize("café")
    assert tokenizers[UNCASED].tokenize(b"the\xff town") == tokenizers[UNCASED].tokenize("the town")
    with pytest.raises(TypeError, match="str or bytes"):
        tokenizers[UNCASED].tokenize(7)


def test_wordpiece_takes_the_longest_piece_from_the_left():
    tokenizer = WordpieceTokenizer({"harbour", "har", "##bour", "##mast", "##ma", "##er", "##s", "boat"})
    expected = ["harbour", "##mast", "##er", "##s", "boat", "##s", "[UNK]"]
    assert tokenizer.tokenize("harbourmasters boats boatX") == expected
    assert tokenizer.tokenize("") == []


def test_a_word_is_unknown_beyond_200_characters(vocab_file):
    tokenizer = WordpieceTokenizer(FullTokenizer(vocab_file).vocab)
    assert tokenizer.tokenize("e" * 200) == ["e"] + ["##e"] * 199
    assert tokenizer.tokenize("e" * 201) == ["[UNK]"]
    assert WordpieceTokenizer({"a": 0}, unk_token="?", max_input_chars_per_word=1).tokenize("a aa") == ["a", "?"]


def test_ids_and_pieces_translate_back(tokenizers):
    tokenizer = tokenizers[UNCASED]
    wordpieces = ["[CLS]", "the", "harbour", "[SEP]"]
    assert tokenizer.convert_ids_to_tokens(tokenizer.convert_tokens_to_ids(wordpieces)) == wordpieces
    assert all(tokenizer.vocab[piece] == index for index, piece in tokenizer.inv_vocab.items())
    with pytest.raises(KeyError, match="'no such piece' is not in"):
        tokenizer.convert_tokens_to_ids(["no such piece"])


def test_a_vocabulary_without_special_pieces_is_refused(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[unk]\n[CLS]\n[SEP]\n")
    with pytest.raises(UserError, match=r"vocab\.txt lacks \[UNK\]; line 2 holds '\[unk\]'.*capitals"):
        FullTokenizer(str(path))
    path.write_text("hello\nworld\n")
    with pytest.raises(UserError, match=r"lacks \[UNK\], \[CLS\], \[SEP\]; is this a BERT vocabulary"):
        FullTokenizer(str(path))
