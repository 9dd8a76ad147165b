"""The tokenizer files of a Hugging Face folder."""

import json

import pytest

from official_bert.config.text_settings import TextSettings
from official_bert.families.family_registry import load_family
from official_bert.support.errors import UserError
from official_bert.tokenization import FullTokenizer, Vocabulary
from official_bert.tokenization.hf_tokenizer import read_settings
from official_bert.tokenization.tokenizer_files import find_vocabulary
from official_bert.tokenization.vocab import vocab_lines
from tests.tokenization.hard_texts import ACCENTED, ALL_SETTINGS, CASED, PRESPLIT, UNCASED

TOKENS = ["[PAD]", "[UNK]", "the", "##s", "\u2028"]


def word_piece(ids):
    return {"model": {"type": "WordPiece", "vocab": ids}}


def write(folder, name, values):
    (folder / name).write_text(json.dumps(values))


def test_vocab_txt_goes_first(tmp_path):
    write(tmp_path, "tokenizer.json", word_piece({token: index for index, token in enumerate(TOKENS)}))
    assert vocab_lines(find_vocabulary(str(tmp_path))) == TOKENS
    (tmp_path / "vocab.txt").write_bytes("[PAD]\r\n[UNK]\nother\n\u2028\n".encode())
    assert vocab_lines(find_vocabulary(str(tmp_path))) == ["[PAD]", "[UNK]", "other", "\u2028"]


def test_tokens_of_tokenizer_json_are_in_the_order_of_their_ids(tmp_path):
    write(tmp_path, "tokenizer.json", word_piece({"b": 1, "c": 2, "a": 0}))
    assert vocab_lines(find_vocabulary(str(tmp_path))) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"type": "BPE", "vocab": {"a": 0}}}, "has no WordPiece vocabulary"),
        ({"model": None}, "has no WordPiece vocabulary"),
        (word_piece([["a", 0]]), "has no WordPiece vocabulary"),
        (word_piece({"a": 0, "b": 2}), "the ids of the 2 tokens are not 0 to 1, each exactly once"),
        (word_piece({"a": 0, "b": 0}), "the ids of the 2 tokens are not 0 to 1, each exactly once"),
        (word_piece({"a": 0, "b": -1}), "the ids of the 2 tokens are not 0 to 1, each exactly once"),
        (word_piece({"a": 0, "b": "1"}), "the id of the token 'b' is '1', not a whole number"),
        (word_piece({"a": 0, "b": [1]}), r"the id of the token 'b' is \[1\], not a whole number"),
        (word_piece({"a": 0, "b": None}), "the id of the token 'b' is None, not a whole number"),
        (word_piece({"a": 0.0, "b": 1}), "the id of the token 'a' is 0.0, not a whole number"),
        (word_piece({"a": 0, "b": True}), "the id of the token 'b' is True, not a whole number"),
        (word_piece({"a": 0, "b\nc": 1}), r"the token 'b\\nc' cannot be a line of a vocab.txt"),
        ([], "contains a JSON list; the tokenizer must be an object"),
    ],
)
def test_other_vocabularies_are_refused(tmp_path, values, message):
    with pytest.raises(UserError, match=r"neither vocab\.txt nor spiece\.model nor .* exists"):
        vocab_lines(find_vocabulary(str(tmp_path)))
    write(tmp_path, "tokenizer.json", values)
    with pytest.raises(UserError, match=rf"tokenizer\.json.*{message}"):
        vocab_lines(find_vocabulary(str(tmp_path)))


@ALL_SETTINGS
def test_settings_are_read_back(tmp_path, settings):
    assert read_settings(str(tmp_path)) == {}
    keys = {
        UNCASED: {"do_lower_case": True},
        CASED: {"do_lower_case": False},
        ACCENTED: {"do_lower_case": True, "strip_accents": False},
        PRESPLIT: {"do_lower_case": False, "do_basic_tokenize": False},
    }[settings]
    tokenizer = FullTokenizer.with_settings(Vocabulary({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}), settings)
    values = tokenizer.to_hugging_face(load_family("bert"), 64)
    assert values == {"tokenizer_class": "BertTokenizer", **keys, "model_max_length": 64}
    write(tmp_path, "tokenizer_config.json", values)
    assert TextSettings(**read_settings(str(tmp_path))) == settings


@pytest.mark.parametrize("name", ["do_lower_case", "strip_accents", "do_basic_tokenize", "tokenize_chinese_chars"])
def test_settings_of_another_kind_are_refused(tmp_path, name):
    for value in ("yes", 1, [True]):
        write(tmp_path, "tokenizer_config.json", {name: value})
        with pytest.raises(UserError, match=rf"tokenizer_config.json: {name} is .*; it must be true, false or null"):
            read_settings(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"strip_accents": None, "tokenize_chinese_chars": True}, None),
        ({"strip_accents": True}, None),
        ({"strip_accents": False}, None),
        ({"do_lower_case": False, "strip_accents": False}, None),
        ({"do_lower_case": False, "strip_accents": True}, "strip_accents"),
        ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars"),
    ],
)
def test_settings_that_we_lack_are_warned_of(tmp_path, caplog, settings, warned):
    settings = {"do_lower_case": True, **settings}
    write(tmp_path, "tokenizer_config.json", settings)
    found = read_settings(str(tmp_path))
    assert found["do_lower_case"] is settings["do_lower_case"]
    assert TextSettings(**found).check()  # the remaining settings have an effect
    assert (warned in caplog.text) if warned else not caplog.text
