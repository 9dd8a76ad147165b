"""The three tokenizers against the reference's output and against a plain implementation."""

import json
import random
import unicodedata

import pytest

from official_bert.errors import UserError
from official_bert.tokenization import BasicTokenizer, FullTokenizer, WordpieceTokenizer, wordpiece
from tests.conftest import GOLDEN
from tests.tokenization.plain_tokenizer import plain_pieces, plain_words

TORTURE = json.loads((GOLDEN / "tokenization" / "tokenization_torture.json").read_text())
BOTH_CASINGS = pytest.mark.parametrize("do_lower_case", [True, False])

# Where the rules depend on neighbours, or where str.split and the tokenizer disagree about white space.
AWKWARD = "ΣσςΑα.'’:\u00ad\u0345\u1fb3ΌςİıẞßǅﬁÅ \x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029\u200b\u3000\ufeff\ufffd\x00"
SPACING_MARKS = "".join(
    character
    for character in map(chr, range(0x110000))
    if unicodedata.combining(character) and unicodedata.category(character) == "Mc"
)
ACCENTS = "\u0300\u0323\u0327\u0345\u05b0\u0e31\u0e38\u1dce"


def random_text(rng, alphabet_kind):
    length = rng.randint(1, 14)
    if alphabet_kind == 0:  # all planes
        return "".join(chr(rng.randrange(0x110000)) for _ in range(length))
    if alphabet_kind == 1:  # scripts in use, symbols, spaces
        return "".join(chr(rng.randrange(0x3100)) for _ in range(length))
    if alphabet_kind == 2:  # words of the vocabulary's alphabet
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzÀÉüABC019-.,' ") for _ in range(length))
    return "".join(rng.choice(AWKWARD + SPACING_MARKS + ACCENTS + "aB中 ") for _ in range(length))


@pytest.fixture(scope="module")
def tokenizers(vocab_file):
    return {casing: FullTokenizer(vocab_file=vocab_file, do_lower_case=casing) for casing in (True, False)}


def test_torture_file_gives_the_reference_words_pieces_and_ids(tokenizers):
    assert len(TORTURE) == 64
    for case in TORTURE:
        tokenizer = tokenizers[case["do_lower_case"]]
        assert BasicTokenizer(case["do_lower_case"]).tokenize(case["text"]) == case["basic"]
        assert tokenizer.tokenize(case["text"]) == case["wordpiece"]
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.convert_tokens_to_ids(case["wordpiece"]) == case["ids"]


@BOTH_CASINGS
def test_random_strings_of_all_planes_give_what_the_plain_rules_give(tokenizers, do_lower_case):
    tokenizer, rng = tokenizers[do_lower_case], random.Random(20181031)
    for number in range(40_000):
        text = random_text(rng, number % 4)
        assert tokenizer.basic_tokenizer.tokenize(text) == plain_words(text, do_lower_case), ascii(text)
        assert tokenizer.tokenize(text) == plain_pieces(text, tokenizer.vocab, do_lower_case), ascii(text)


@BOTH_CASINGS
@pytest.mark.slow
def test_every_single_character_gives_what_the_plain_rules_give(do_lower_case):
    tokenizer = BasicTokenizer(do_lower_case)
    for first in range(0, 0x110000, 64):
        text = " ".join(f"a{chr(code)}b" for code in range(first, first + 64))
        assert tokenizer.tokenize(text) == plain_words(text, do_lower_case), hex(first)


def test_a_capital_sigma_looks_at_its_neighbours():
    assert BasicTokenizer().tokenize("ΟΔΟΣ ΣΟΦΟΣ. ΟΔΟΣ.Α") == ["οδος", "σοφος", ".", "οδοσ", ".", "α"]


def test_spacing_marks_are_sorted_by_combining_class():
    # U+1D16D has class 226, U+1D165 has class 216: decomposition puts the lower class first.
    assert BasicTokenizer().tokenize("a\U0001d16d\U0001d165") == ["a\U0001d165\U0001d16d"]


def test_separators_that_are_control_characters_do_not_split():
    assert BasicTokenizer().tokenize("a\x0bb\x1cc\x85d e\u2028f") == ["abcd", "e", "f"]


def test_encode_forgets_nothing_when_its_memory_is_full(tokenizers, monkeypatch, vocab_file):
    monkeypatch.setattr(wordpiece, "MAX_REMEMBERED_WORDS", 3)
    tokenizer = FullTokenizer(vocab_file=vocab_file)
    text = "the harbour woke before the town did and the harbour slept"
    assert tokenizer.encode(text) == tokenizers[True].encode(text)


def test_bytes_are_utf8_and_undecodable_ones_are_dropped(tokenizers):
    assert tokenizers[True].tokenize("café".encode()) == tokenizers[True].tokenize("café")
    assert tokenizers[True].tokenize(b"the\xff town") == tokenizers[True].tokenize("the town")
    with pytest.raises(TypeError, match="str or bytes"):
        tokenizers[True].tokenize(7)


def test_wordpiece_takes_the_longest_piece_from_the_left():
    vocab = dict.fromkeys(("un", "##aff", "##able", "##a", "want", "##ed"), 0)
    tokenizer = WordpieceTokenizer(vocab)
    assert tokenizer.tokenize("unaffable wanted unwantedX") == ["un", "##aff", "##able", "want", "##ed", "[UNK]"]
    assert tokenizer.tokenize("") == []


def test_a_word_is_unknown_beyond_200_characters(vocab_file):
    tokenizer = WordpieceTokenizer(FullTokenizer(vocab_file).vocab)
    assert tokenizer.tokenize("e" * 200) == ["e"] + ["##e"] * 199
    assert tokenizer.tokenize("e" * 201) == ["[UNK]"]
    assert WordpieceTokenizer({"a": 0}, unk_token="?", max_input_chars_per_word=1).tokenize("a aa") == ["a", "?"]


def test_ids_and_pieces_translate_back(tokenizers):
    tokenizer = tokenizers[True]
    pieces = ["[CLS]", "the", "harbour", "[SEP]"]
    assert tokenizer.convert_ids_to_tokens(tokenizer.convert_tokens_to_ids(pieces)) == pieces
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
