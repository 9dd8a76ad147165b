"""Splitting running text into sentences: only white space may change, and usual sentence ends are found."""

import random
import sys

import pytest

from official_bert.data import corpus_files
from official_bert.data.corpus_files import load_splitter, split_sentences
from official_bert.support.errors import UserError

_ALPHABETS = [
    "abcABC .!? ",
    "…。！？．」』”’\"'()«»؟।",
    "\u200d\u200c\u200b\ufeff\u00ad\u2060\u0301\u0300",  # joiners and other zero-width characters
    "\x00\x01\x1b\x7f\x80\x9f",
    "\u2028\u2029\x85\u3000\u00a0\x1c\x0b\n\r\t",  # white space of all kinds
    "한국어中文日本अरعربि🎉👨‍👩‍👧🇩🇪",
    "\U0010ffff\ue000\ufffe\uffff\ufffd\U000e0001",
]


def random_text(rng):
    length = rng.choice([1, 3, 10, 60])
    if rng.random() < 0.3:
        codes = (rng.randrange(0x110000) for _ in range(length))
        return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
    alphabets = rng.sample(_ALPHABETS, rng.randrange(1, 4))
    return "".join(rng.choice(rng.choice(alphabets)) for _ in range(length))


def assert_kept(text):
    """Assert that the sentences contain the whole text, with single spaces."""
    text = " ".join(text.split())
    position = 0
    for sentence in split_sentences(text):
        assert sentence == sentence.strip() != "", ascii(text)
        start = text.find(sentence, position)
        assert start >= 0, ascii(text)
        assert not text[position:start].strip(), ascii(text)
        position = start + len(sentence)
    assert position == len(text), ascii(text)


@pytest.mark.parametrize(("window", "num_texts", "parts"), [(10**5, 2000, 1), (1, 60, 9), (40, 100, 9), (300, 100, 9)])
def test_the_characters_of_random_text_are_kept_also_where_it_is_cut(window, num_texts, parts, monkeypatch):
    monkeypatch.setattr(corpus_files, "_WINDOW", window)
    rng = random.Random(1)
    for _ in range(num_texts):
        assert_kept(". ".join(random_text(rng) for _ in range(parts)))


def test_a_long_text_is_split_as_a_short_one(monkeypatch):
    texts = ["The snow came early. Nobody, e.g. Dr. Wu, minded it! Why not? ", "雪来得早。没人介意！为什么？"]
    for text in texts:
        expected = split_sentences(text)
        assert len(expected) == 3
        for window in (30, 100, 1000):
            monkeypatch.setattr(corpus_files, "_WINDOW", window)
            assert split_sentences(text * 300) == expected * 300


def test_white_space_counts_as_one_space_and_other_characters_stay():
    for text, sentences in (
        ("", []),
        (" \n\u3000\t", []),
        (" The snow\n came\u3000 early.\r\n Why? ", ["The snow came early.", "Why?"]),
        ("The sn\0w came early. Nobody minded.", ["The sn\0w came early.", "Nobody minded."]),  # the splitter drops it
    ):
        assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith went to Washington, D.C. on Jan. 5th.", "He met Dr. Jones at 3 p.m. on Monday.", "It cost $3.50!"],
        ['"Yes," he said.', '"The rain has stopped."', "They left."], ["“Who is it?” she said.", "Nobody answered."],
        ["See e.g. the third figure.", "Smith et al. disagree."],
        ["오늘은 날씨가 좋다.", "내일은 비가 올까?", "기온이 3.5도 내려간다고 한다."],
        ["今天天气很好。", "明天会下雨吗？", "他走了！"], ["今日は天気がいい。", "明日は雨ですか？", "雪が降った。"],
        ["هذا كتاب.", "هل قرأته؟", "نعم!"], ["यह किताब है।", "क्या तुमने पढ़ी?", "हाँ।"],
        ["یہ کتاب ہے۔", "کیا تم نے پڑھی؟", "ہاں۔"], ["Սա գիրք է։", "Դու կարդացե՞լ ես։"], ["ይህ መጽሐፍ ነው።", "አንብበሃል።"],
    ],
)  # fmt: skip
def test_sentences_of_many_languages(sentences):
    is_spaced = not any("\u3000" <= character <= "\u9fff" for character in "".join(sentences))
    assert split_sentences((" " if is_spaced else "").join(sentences)) == sentences


def test_a_package_that_cannot_be_loaded_is_named(monkeypatch, tmp_path):
    """For example on ARM processors, where the package can be installed but has no library."""
    (tmp_path / "blingfire.py").write_text("raise OSError('wrong ELF class')")
    monkeypatch.delitem(sys.modules, "blingfire", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="blingfire, which splits sentences, cannot be used here: wrong ELF class"):
        load_splitter()
