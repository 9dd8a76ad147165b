"""Words, wordpieces and their offsets, compared with the reference's output, a plain implementation and by hand."""

import random
import unicodedata

import pytest

from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tokenization import (
    BasicTokenizer,
    EncodingWithOffsets,
    FullTokenizer,
    WordpieceTokenizer,
    full_tokenizer,
)
from tests.conftest import endurance
from tests.tokenization.hard_texts import (
    ALL_SETTINGS,
    SCRIPTS,
    SETTINGS,
    SPACING_MARKS,
    TORTURE,
    UNCASED,
    random_text,
    write_vocabulary,
)
from tests.tokenization.plain_tokenizer import plain_alignment, plain_pieces, plain_words


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
def test_random_strings_of_all_planes_give_what_the_plain_rules_give(tokenizers, settings):
    tokenizer, rng = tokenizers[settings], random.Random(20181031)
    for number in range(4_000):
        text = random_text(rng, number % 4)
        assert tokenizer.basic_tokenizer.tokenize(text) == plain_words(text, settings), ascii(text)
        assert tokenizer.tokenize(text) == plain_pieces(text, tokenizer.vocab, settings), ascii(text)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [UNCASED, *endurance(*list(SETTINGS.values())[1:])], ids=list(SETTINGS))
def test_every_single_character_gives_what_the_plain_rules_give(settings):
    tokenizer = BasicTokenizer(**settings.recorded)
    # All assigned characters, and one in a hundred of the many unassigned ones.
    shown = [code for code in range(0x110000) if code % 101 == 0 or unicodedata.category(chr(code)) not in ("Cn", "Co")]
    for first in range(0, len(shown), 64):
        text = " ".join(f"a{chr(code)}b" for code in shown[first : first + 64])
        assert tokenizer.tokenize(text) == plain_words(text, settings), hex(shown[first])


def test_words_that_are_taken_as_they_are(tmp_path):
    long = "감독" * 101
    wordpieces = ["감독/NNG", "의", "##/JKG", "Zoë", "##.", long, "a", "##a", "\u3000"]
    path = write_vocabulary(tmp_path / "vocab.txt", wordpieces)
    tokenizer = FullTokenizer(path, do_lower_case=False, basic_tokenize=False)
    text = f"감독/NNG 의/JKG\u3000Zoë.  {long} a\x1faa 감독 {long}a [SEP] ##a"
    wordpieces = ["감독/NNG", "의", "##/JKG", "Zoë", "##.", long, "a", "a", "##a", "[UNK]", "[UNK]", "[SEP]", "##a"]
    assert tokenizer.tokenize(text) == tokenizer.tokenize(text.encode()) == wordpieces
    assert FullTokenizer(path, do_lower_case=False).tokenize("감독/NNG a\x1fa") == ["[UNK]"] * 3 + ["a", "##a"]


def test_bytes_are_utf8_and_undecodable_ones_are_dropped(tokenizers):
    tokenizer = tokenizers[UNCASED]
    for function in (tokenizer.tokenize, tokenizer.encode_with_offsets):
        assert function(b"the\xff caf\xc3\xa9 town") == function("the café town")
        for other in (7, ["a", "b"]):
            with pytest.raises(TypeError, match=r"must be str or bytes, not .*; for several texts, call tokenizer\("):
                function(other)


def test_wordpiece_takes_the_longest_piece_from_the_left_of_words_up_to_200_characters(vocab_file):
    tokenizer = WordpieceTokenizer({"harbour", "har", "##bour", "##mast", "##ma", "##er", "##s", "boat"})
    expected = ["harbour", "##mast", "##er", "##s", "boat", "##s", "[UNK]"]
    assert tokenizer.tokenize("harbourmasters boats boatX") == expected
    assert tokenizer.tokenize("") == []
    tokenizer = WordpieceTokenizer(FullTokenizer(vocab_file).vocab)
    assert tokenizer.tokenize("e" * 200) == ["e"] + ["##e"] * 199
    assert tokenizer.tokenize("e" * 201) == ["[UNK]"]
    assert WordpieceTokenizer({"a": 0}, unk_token="?", max_input_chars_per_word=1).tokenize("a aa") == ["a", "?"]


def test_a_vocabulary_without_special_pieces_is_refused(tmp_path):
    path = tmp_path / "vocab.txt"
    for content, message in (
        ("[PAD]\n[unk]\n[CLS]\n[SEP]\n", r"vocab\.txt lacks \[UNK\]; line 2 holds '\[unk\]'.*capitals"),
        ("hello\nworld\n", r"lacks \[UNK\], \[CLS\], \[SEP\]; is this a BERT vocabulary"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=message):
            FullTokenizer(str(path))


# Offsets


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(20181011)
    torture = {case["text"]: None for case in TORTURE}
    return [*SCRIPTS, *torture, *(random_text(rng, number % 4) for number in range(600))]


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=list(SETTINGS))
def letter_tokenizer(request, texts, tmp_path_factory):
    """A tokenizer whose pieces are single letters, except one letter in ten, whose words are unknown."""
    letters = {letter for text in texts for word in plain_words(text, request.param) for letter in word}
    rng = random.Random(1)
    kept = [letter for letter in sorted(letters) if unicodedata.category(letter) != "Cs" and rng.random() < 0.9]
    wordpieces = [*kept, *(f"##{letter}" for letter in kept)]
    path = write_vocabulary(tmp_path_factory.mktemp("letters") / "vocab.txt", wordpieces)
    return FullTokenizer(path, **request.param._asdict())


def has_letters_that_move(text):
    """Return True for combining characters that lowercasing keeps but may reorder."""
    return not set(SPACING_MARKS).isdisjoint(unicodedata.normalize("NFD", text.lower()))


def aligned_rows(text, tokenizer):
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    return list(zip(tokenizer.convert_ids_to_tokens(ids), starts, ends, strict=True))


@pytest.mark.parametrize(
    ("text", "do_lower_case", "expected"),
    [
        ("Zoe\u0301's", True, [("z", 0, 1), ("o", 1, 2), ("e", 2, 4), ("'", 4, 5), ("s", 5, 6)]),
        ("Zoe\u0301", False, [("Z", 0, 1), ("o", 1, 2), ("e", 2, 3), ("\u0301", 3, 4)]),
        ("한국", True, [("ᄒ", 0, 1), ("ᅡ", 0, 1), ("ᆫ", 0, 1), ("ᄀ", 1, 2), ("ᅮ", 1, 2), ("ᆨ", 1, 2)]),
        ("중\u0301문b", False, [("중", 0, 1), ("\u0301", 1, 2), ("문", 2, 3), ("b", 3, 4)]),
        ("x❤\ufe0f\u200d🔥", True, [("x", 0, 1), ("❤", 1, 3), ("🔥", 4, 5)]),  # the joiner belongs to neither
        ("ΑΣ İΣi", True, [("α", 0, 1), ("ς", 1, 2), ("i", 3, 4), ("σ", 4, 5), ("i", 5, 6)]),
        ("\xada\u200b\u0301\u200d\x00b\ufeff \x0b", True, [("a", 1, 4), ("b", 6, 7)]),
        ("\u0301a \u0301", True, [("a", 1, 2)]),  # accents without a base belong to no piece
        # U+302E (class 224) moves before accents of class 230, which are dropped; U+1D165 (216) before U+1D16D (226).
        ("a\u0301\u302e", True, [("a", 0, 2), ("\u302e", 2, 3)]),
        ("a\u302e\u0301", True, [("a", 0, 1), ("\u302e", 1, 3)]),
        ("a\U0001d16d\U0001d165b", True, [("a", 0, 1), ("\U0001d165", 1, 3), ("\U0001d16d", 1, 3), ("b", 3, 4)]),
        ("a\U0001d16d\U0001d165b", False, [("a", 0, 1), ("\U0001d16d", 1, 2), ("\U0001d165", 2, 3), ("b", 3, 4)]),
    ],
)
def test_places_by_hand(tmp_path, text, do_lower_case, expected):
    wordpieces = dict.fromkeys(piece for piece, _, _ in expected)
    path = write_vocabulary(tmp_path / "vocab.txt", [*wordpieces, *(f"##{piece}" for piece in wordpieces)])
    rows = aligned_rows(text, FullTokenizer(path, do_lower_case=do_lower_case))
    assert [(piece.removeprefix("##"), start, end) for piece, start, end in rows] == expected


def test_places_are_those_of_the_plain_rules(texts, tokenizers, letter_tokenizer):
    for tokenizer in (tokenizers[letter_tokenizer.settings], letter_tokenizer):
        for text in texts:
            encoding = tokenizer.encode_with_offsets(text)
            assert encoding.ids == tokenizer.encode(text), ascii(text)
            assert encoding.starts == sorted(encoding.starts) and encoding.ends == sorted(encoding.ends), ascii(text)
            assert all(start < end for start, end in zip(encoding.starts, encoding.ends, strict=True)), ascii(text)
            if not (tokenizer.settings.strips_accents and has_letters_that_move(text)):
                expected = plain_alignment(text, tokenizer.vocab, tokenizer.settings)
                assert aligned_rows(text, tokenizer) == expected, ascii(text)


def test_pieces_of_a_range_are_those_that_overlap_it(texts, tokenizers):
    rng = random.Random(3)
    assert EncodingWithOffsets([5, 6], [0, 3], [3, 4]).in_range(1, 1) is None
    for text in texts[:300]:
        aligned = tokenizers[UNCASED].encode_with_offsets(text)
        for _ in range(10):
            start, end = sorted(rng.choices(range(len(text) + 1), k=2))
            places = enumerate(zip(aligned.starts, aligned.ends, strict=True))
            overlapping = [number for number, (first, last) in places if max(first, start) < min(last, end)]
            expected = (overlapping[0], overlapping[-1]) if overlapping else None
            assert aligned.in_range(start, end) == expected, (ascii(text), start, end)


def test_a_tokenizer_keeps_few_words(vocab_file, tokenizers, monkeypatch):
    monkeypatch.setattr(full_tokenizer, "MAX_ALIGNED_WORDS", 3)
    monkeypatch.setattr(full_tokenizer, "MAX_CACHED_WORDS", 3)
    text = "The harbour woke before the town did and the harbour slept" + "e" * 50
    tokenizer = FullTokenizer(vocab_file)
    for _ in range(2):
        assert tokenizer.encode(text) == tokenizers[UNCASED].encode(text)
        assert aligned_rows(text, tokenizer) == aligned_rows(text, tokenizers[UNCASED])
        assert 0 < len(tokenizer._aligned_words) <= 3 and len(tokenizer._ids_of_word) <= 3
        assert max(map(len, tokenizer._aligned_words)) <= full_tokenizer.MAX_ALIGNED_LENGTH


def test_aligning_again_does_not_change_what_was_returned(tokenizers):
    first = tokenizers[UNCASED].encode_with_offsets("harbour harbour")
    starts = list(first.starts)
    tokenizers[UNCASED].encode_with_offsets("the harbour").starts.append(99)
    assert first.starts == starts
    assert tokenizers[UNCASED].encode_with_offsets("harbour harbour") == first
