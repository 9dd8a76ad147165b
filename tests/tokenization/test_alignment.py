"""Offsets of wordpieces: manual cases, a plain implementation, and properties of all texts."""

import pickle
import random
import unicodedata

import pytest

from official_bert.tokenization import EncodingWithOffsets, FullTokenizer, full_tokenizer
from tests.tokenization.hard_texts import (
    ALL_SETTINGS,
    CASED,
    SCRIPTS,
    SETTINGS,
    SPACING_MARKS,
    TORTURE,
    UNCASED,
    random_text,
    write_vocabulary,
)
from tests.tokenization.plain_tokenizer import plain_alignment, plain_words


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(20181011)
    return [
        *SCRIPTS,
        *{case["text"]: None for case in TORTURE},
        *(random_text(rng, number % 4) for number in range(1_500)),
    ]


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=list(SETTINGS))
def letter_tokenizer(request, texts, tmp_path_factory):
    """A tokenizer whose pieces are single letters, except one letter in ten, whose words are unknown."""
    letters = {letter for text in texts for word in plain_words(text, request.param) for letter in word}
    rng = random.Random(1)
    kept = [letter for letter in sorted(letters) if unicodedata.category(letter) != "Cs" and rng.random() < 0.9]
    path = write_vocabulary(
        tmp_path_factory.mktemp("letters") / "vocab.txt", [*kept, *(f"##{letter}" for letter in kept)]
    )
    return FullTokenizer(path, **request.param._asdict())


@pytest.fixture(scope="module")
def tokenizers(vocab_file):
    return {settings: FullTokenizer(vocab_file, **settings._asdict()) for settings in SETTINGS.values()}


def has_letters_that_move(text):
    """Return True for combining characters that lowercasing keeps but may reorder."""
    return not set(SPACING_MARKS).isdisjoint(unicodedata.normalize("NFD", text.lower()))


def aligned_rows(text, tokenizer):
    aligned = tokenizer.encode_with_offsets(text)
    wordpieces = tokenizer.convert_ids_to_tokens(aligned.ids)
    return list(zip(wordpieces, aligned.starts, aligned.ends, strict=True))


@pytest.mark.parametrize(
    ("text", "do_lower_case", "expected"),
    [
        ("The town.", True, [("the", 0, 3), ("town", 4, 8), (".", 8, 9)]),
        ("Zoe\u0301's", True, [("z", 0, 1), ("o", 1, 2), ("e", 2, 4), ("'", 4, 5), ("s", 5, 6)]),
        ("Zoe\u0301", False, [("Z", 0, 1), ("o", 1, 2), ("e", 2, 3), ("\u0301", 3, 4)]),
        ("한국", True, [("ᄒ", 0, 1), ("ᅡ", 0, 1), ("ᆫ", 0, 1), ("ᄀ", 1, 2), ("ᅮ", 1, 2), ("ᆨ", 1, 2)]),
        ("한국", False, [("한", 0, 1), ("국", 1, 2)]),
        ("a中文b", True, [("a", 0, 1), ("中", 1, 2), ("文", 2, 3), ("b", 3, 4)]),
        ("中\u0301 豈", True, [("中", 0, 2), ("豈", 3, 4)]),  # the last is U+F900, which decomposes to U+8C48
        ("دٌ", True, [("د", 0, 2)]),
        ("น้ำ", True, [("น", 0, 2), ("ำ", 2, 3)]),
        ("x❤\ufe0f\u200d🔥", True, [("x", 0, 1), ("❤", 1, 3), ("🔥", 4, 5)]),  # the joiner belongs to neither
        ("İi", True, [("i", 0, 1), ("i", 1, 2)]),
        ("İ", False, [("İ", 0, 1)]),
        ("ΑΣ ΣΑ", True, [("α", 0, 1), ("ς", 1, 2), ("σ", 3, 4), ("α", 4, 5)]),
        ("ΐΣ'x", True, [("ι", 0, 1), ("σ", 1, 2), ("'", 2, 3), ("x", 3, 4)]),  # not a final sigma: a letter follows
        ("ﬁß", True, [("ﬁ", 0, 1), ("ß", 1, 2)]),
        ("Ａ！", True, [("ａ", 0, 1), ("！", 1, 2)]),
        ("a≠b", True, [("a", 0, 1), ("=", 1, 2), ("b", 2, 3)]),
        ("a≠b", False, [("a", 0, 1), ("≠", 1, 2), ("b", 2, 3)]),
        ("\xada\u200b\u0301\u200d\x00b\ufeff \x0b", True, [("a", 1, 4), ("b", 6, 7)]),
        ("a\x0bb\u2028\x85c", True, [("a", 0, 1), ("b", 2, 3), ("c", 5, 6)]),
        ("\u0301a \u0301", True, [("a", 1, 2)]),  # accents without a base belong to no piece
        ("", True, []),
        # U+302E (class 224) moves before accents of class 230, which are dropped; U+1D165 (216) before U+1D16D (226).
        ("a\u0301\u302e", True, [("a", 0, 2), ("\u302e", 2, 3)]),
        ("a\u302e\u0301", True, [("a", 0, 1), ("\u302e", 1, 3)]),
        (
            "a\U0001d16d\U0001d165b",
            True,
            [("a", 0, 1), ("\U0001d165", 1, 3), ("\U0001d16d", 1, 3), ("b", 3, 4)],
        ),
        (
            "a\U0001d16d\U0001d165b",
            False,
            [("a", 0, 1), ("\U0001d16d", 1, 2), ("\U0001d165", 2, 3), ("b", 3, 4)],
        ),
    ],
)
def test_places_by_hand(tmp_path, text, do_lower_case, expected):
    wordpieces = dict.fromkeys(piece for piece, _, _ in expected)
    path = write_vocabulary(tmp_path / "vocab.txt", [*wordpieces, *(f"##{piece}" for piece in wordpieces)])
    rows = aligned_rows(text, FullTokenizer(path, do_lower_case=do_lower_case))
    assert [(piece.removeprefix("##"), start, end) for piece, start, end in rows] == expected


def test_an_unknown_piece_is_its_whole_word(tokenizers):
    text = "x\u0302ȳz\u0303 the 한국! " + "e" * 201 + ", e\u0301\u200dё."
    assert aligned_rows(text, tokenizers[UNCASED]) == [
        ("[UNK]", 0, 5),
        ("the", 6, 9),
        ("[UNK]", 10, 12),
        ("[UNK]", 12, 13),
        ("[UNK]", 14, 215),
        (",", 215, 216),
        ("[UNK]", 217, 221),
        (".", 221, 222),
    ]


def test_ids_are_those_of_the_tokenizer(texts, tokenizers, letter_tokenizer):
    for tokenizer in (tokenizers[letter_tokenizer.settings], letter_tokenizer):
        for text in texts:
            assert tokenizer.encode_with_offsets(text).ids == tokenizer.encode(text), ascii(text)


def test_places_are_those_of_the_plain_rules(texts, tokenizers, letter_tokenizer):
    for tokenizer in (tokenizers[letter_tokenizer.settings], letter_tokenizer):
        for text in texts:
            if not (tokenizer.settings.strips_accents and has_letters_that_move(text)):
                expected = plain_alignment(text, tokenizer.vocab, tokenizer.settings)
                assert aligned_rows(text, tokenizer) == expected, ascii(text)


def test_places_ascend_and_are_not_empty(texts, letter_tokenizer):
    for text in texts:
        _, starts, ends = letter_tokenizer.encode_with_offsets(text)
        assert starts == sorted(starts), ascii(text)
        assert ends == sorted(ends), ascii(text)
        assert all(0 <= start < end <= len(text) for start, end in zip(starts, ends, strict=True)), ascii(text)


def test_every_character_that_counts_is_in_a_place(texts, letter_tokenizer):
    for text in texts:
        _, starts, ends = letter_tokenizer.encode_with_offsets(text)
        covered = {index for start, end in zip(starts, ends, strict=True) for index in range(start, end)}
        for index, character in enumerate(text):
            if plain_words(character, letter_tokenizer.settings):
                assert index in covered, ascii(text)


def test_a_place_holds_what_the_piece_was_made_from(texts, letter_tokenizer):
    for text in texts:
        for piece, start, end in aligned_rows(text, letter_tokenizer):
            letters = "".join(plain_words(text[start:end], letter_tokenizer.settings)).replace(
                "ς", "σ"
            )  # cut out of its word
            assert letters, ascii(text)
            if piece != "[UNK]":
                assert piece.removeprefix("##").replace("ς", "σ") in letters, ascii(text)


@ALL_SETTINGS
def test_pieces_of_a_range_are_those_that_overlap_it(texts, tokenizers, settings):
    rng = random.Random(3)
    for text in texts[:300]:
        aligned = tokenizers[settings].encode_with_offsets(text)
        for _ in range(10):
            start, end = sorted(rng.choices(range(len(text) + 1), k=2))
            overlapping = [
                number
                for number, (first, last) in enumerate(zip(aligned.starts, aligned.ends, strict=True))
                if max(first, start) < min(last, end)
            ]
            expected = (overlapping[0], overlapping[-1]) if overlapping else None
            assert aligned.in_range(start, end) == expected, (ascii(text), start, end)


def test_pieces_of_ranges_by_hand():
    aligned = EncodingWithOffsets(ids=[5, 6, 7, 8], starts=[0, 3, 3, 7], ends=[3, 4, 4, 9])
    assert aligned.in_range(0, 9) == (0, 3)
    assert aligned.in_range(2, 3) == (0, 0)
    assert aligned.in_range(3, 4) == (1, 2)
    assert aligned.in_range(2, 8) == (0, 3)
    assert aligned.in_range(4, 7) is None
    assert aligned.in_range(9, 12) is None
    assert aligned.in_range(1, 1) is None
    assert EncodingWithOffsets([], [], []).in_range(0, 5) is None


def test_each_tokenizer_keeps_its_own_words_and_few_of_them(vocab_file, tokenizers, monkeypatch):
    monkeypatch.setattr(full_tokenizer, "MAX_ALIGNED_WORDS", 3)
    text = "The harbour woke before the town did and the harbour slept" + "e" * 50
    tokenizer = FullTokenizer(vocab_file)
    expected = {settings: aligned_rows(text, tokenizers[settings]) for settings in SETTINGS.values()}
    assert expected[UNCASED] != expected[CASED]
    for _ in range(2):
        assert aligned_rows(text, tokenizer) == expected[UNCASED]
        assert aligned_rows(text, tokenizers[CASED]) == expected[CASED]
        assert 0 < len(tokenizer._aligned_words) <= 3
        assert max(map(len, tokenizer._aligned_words)) <= full_tokenizer.MAX_ALIGNED_LENGTH


def test_another_process_gets_the_tokenizer_without_its_words(vocab_file):
    tokenizer = FullTokenizer(vocab_file, do_lower_case=False)
    new = pickle.dumps(tokenizer)
    encoding = tokenizer.encode_with_offsets("The harbour woke before the town did")
    tokenizer.encode("The harbour woke before the town did")
    assert len(pickle.dumps(tokenizer)) == len(new)
    assert pickle.loads(new).encode_with_offsets("The harbour woke before the town did") == encoding


def test_bytes_are_decoded_and_offsets_count_characters(tokenizers):
    encoding = tokenizers[UNCASED].encode_with_offsets(b"the\xff caf\xc3\xa9 town")
    assert encoding == tokenizers[UNCASED].encode_with_offsets("the café town")
    assert encoding.starts[-1] == len("the café ")


def test_aligning_again_does_not_change_what_was_returned(tokenizers):
    first = tokenizers[UNCASED].encode_with_offsets("harbour harbour")
    starts = list(first.starts)
    tokenizers[UNCASED].encode_with_offsets("the harbour").starts.append(99)
    assert first.starts == starts
    assert tokenizers[UNCASED].encode_with_offsets("harbour harbour") == first
