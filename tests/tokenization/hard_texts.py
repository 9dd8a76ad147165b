"""Texts that are hard to tokenize, and small vocabularies for them."""

import json
import unicodedata

import pytest

from official_bert.config.text_settings import TextSettings
from tests.conftest import GOLDEN

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TORTURE = json.loads((GOLDEN / "tokenization" / "tokenization_torture.json").read_text())
UNCASED, CASED = TextSettings(), TextSettings(do_lower_case=False)  # the reference's settings
ACCENTED, PRESPLIT = TextSettings(strip_accents=False), TextSettings(do_lower_case=False, basic_tokenize=False)
STRIPPED = TextSettings(do_lower_case=False, strip_accents_only=True)
WHOLE = TextSettings(tokenize_chinese_chars=False)
SETTINGS = {"uncased": UNCASED, "cased": CASED, "accented": ACCENTED, "presplit": PRESPLIT}
SETTINGS |= {"stripped": STRIPPED, "whole": WHOLE}
ALL_SETTINGS = pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))

# Characters with rules that depend on neighbours, or about which str.split and the tokenizer disagree.
AWKWARD = "ΣσςΑα.'’:\u00ad\u0345\u1fb3ΌςİıẞßǅﬁÅ \x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029\u200b\u3000\ufeff\ufffd\x00"
COMBINING = filter(unicodedata.combining, map(chr, range(0x110000)))
SPACING_MARKS = "".join(character for character in COMBINING if unicodedata.category(character) == "Mc")
ACCENTS = "\u0300\u0323\u0327\u0345\u05b0\u0e31\u0e38\u1dce"

SCRIPTS = (
    "서울은 대한민국의 수도이다. (ㅎㅎ) \u1112\u1161\u11ab 각\u11a8",
    "人中國한국어 mixed 中文text東京都とうきょう、が\u3099。", "مُحَمَّدٌ رَسُولُ اللّٰه، لِلْعَالَمِ ١٢٣",
    "สวัสดีชาวโลก น้ำ กำลัง", "नमस्ते दुनिया क़",
    "👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 👍🏽 1\ufe0f\u20e3 🏴\U000e0067\U000e0062\U000e007f",
    "İstanbul ISPARTA ığdır İİ", "ΟΔΟΣ ΣΟΦΟΣ. ΟΔΟΣ.Α ᾼΣ Άρης", "ﬁne eﬀect ﬆ ǅ ß ẞ", "ＦＵＬＬ　ｗｉｄｔｈ！ ｶﾞ",
    "Zoe\u0301 e\u0301\u0323 \u0301abc !\u0301 中\u0301 a \u0301", "≠ ≮ \u037e \u1fef \u0344 \u0f73 Å ½",
)  # fmt: skip


def random_text(rng, alphabet_kind):
    length = rng.randint(1, 14)
    if alphabet_kind == 0:  # all planes
        return "".join(chr(rng.randrange(0x110000)) for _ in range(length))
    if alphabet_kind == 1:  # scripts in use, symbols, spaces
        return "".join(chr(rng.randrange(0x3100)) for _ in range(length))
    if alphabet_kind == 2:  # words of the vocabulary's alphabet
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzÀÉüABC019-.,' ") for _ in range(length))
    return "".join(rng.choice(AWKWARD + SPACING_MARKS + ACCENTS + "aB中 ") for _ in range(length))


def write_vocabulary(path, wordpieces):
    """Write a vocabulary of the special tokens and these wordpieces; return its path."""
    path.write_text("\n".join([*SPECIALS, *wordpieces]))
    return str(path)


def write_folder(folder, tokens, **json_files):
    """Write a folder of a vocabulary and JSON files, given by their names; return it."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    for name, values in json_files.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return folder
