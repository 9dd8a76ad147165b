"""Makes japanese.json: texts, a vocabulary, and the ids of `transformers` 5 for folders of BertJapaneseTokenizer."""

import json
import os
import tempfile
import unicodedata

from transformers import BertJapaneseTokenizer

TEXTS = [
    "東京都の人口は約1400万人です。",
    "ｶﾞﾗｽのｺｯﾌﾟと㍿、①②③、ＡＢＣ　全角の空白",
    "ひらがなの が と か\u3099、cafe\u0301、A\u030a、각, 가",
    "ΟΔΟΣ İstanbul Straße ﬁn  two  blanks\tand a tab",
    "すもももももももものうち ☃ 😀 " + "ア" * 120,
    "区切り\u2028文字\x1cと\x85空\u200b白",
    "Machine Learning入門（第2版）は3,300円。",
]
NAMES = ["mecab-ipadic", "mecab-ipadic,lower,characters", "mecab-unidic_lite,lower", "mecab-unidic_lite,characters"]
WORDS = ["東京", "人口", "図書", "##書館", "読ん", "です", "ました", "カップ", "learning", "##も", "##ア"]

characters = {
    character for text in TEXTS for form in ("NFC", "NFKC") for character in unicodedata.normalize(form, text)
}
characters = sorted(c for c in characters | {*"".join(characters).lower()} if not c.isspace() and c not in "☃\u200b")
inner = [f"##{character}" for character in characters[::2]]
vocabulary = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *WORDS, *inner]))
settings, ids = {}, {}
with tempfile.NamedTemporaryFile("w") as vocab_file:
    vocab_file.write("".join(f"{token}\n" for token in vocabulary))
    vocab_file.flush()
    for name in NAMES:
        dictionary, *steps = name.removeprefix("mecab-").split(",")
        of_words = {"word_tokenizer_type": "mecab", "mecab_kwargs": {"mecab_dic": dictionary}}
        of_words["subword_tokenizer_type"] = "character" if "characters" in steps else "wordpiece"
        settings[name] = {**of_words, "do_lower_case": "lower" in steps}
        tokenizer = BertJapaneseTokenizer(vocab_file.name, **settings[name])
        ids[name] = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
rows = {"texts": TEXTS, "vocabulary": vocabulary, "settings": settings, "ids": ids}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "japanese.json"), "w") as sink:
    sink.write("{\n" + ",\n".join(f'"{name}": {json.dumps(row)}' for name, row in rows.items()) + "\n}\n")
