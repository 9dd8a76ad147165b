"""The tokenizer files of a Hugging Face folder."""

import json

import pytest

from official_bert.config.text_settings import TextSettings
from official_bert.families.family import load_family
from official_bert.support.errors import UserError
from official_bert.tokenization import FullTokenizer, Vocabulary, load_tokenizer, load_vocab
from official_bert.tokenization.tokenizer_files import find_vocabulary, read_settings
from tests.tokenization.hard_texts import (
    ACCENTED,
    ALL_SETTINGS,
    CASED,
    PRESPLIT,
    SPECIALS,
    STRIPPED,
    UNCASED,
    WHOLE,
    write_folder,
)


def word_piece(ids):
    return {"model": {"type": "WordPiece", "vocab": ids}}


def write(folder, name, values):
    (folder / name).write_text(json.dumps(values))


def test_a_vocabulary_is_in_vocab_txt_or_in_tokenizer_json_in_the_order_of_its_ids(tmp_path):
    write(tmp_path, "tokenizer.json", word_piece({"b": 1, "\u2028": 2, "a": 0}))
    assert list(load_vocab(find_vocabulary(str(tmp_path)))) == ["a", "b", ""]
    (tmp_path / "vocab.txt").write_bytes("[PAD]\r\n[UNK]\nother\n\u2028\n".encode())
    assert list(load_vocab(find_vocabulary(str(tmp_path)))) == ["[PAD]", "[UNK]", "other", ""]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"type": "BPE", "vocab": {"a": 0}}}, "has no WordPiece vocabulary"),
        (word_piece([["a", 0]]), "has no WordPiece vocabulary"),
        (word_piece({"a": 0, "b": 2}), "the ids of the 2 tokens are not 0 to 1, each exactly once"),
        (word_piece({"a": 0, "b": 0}), "the ids of the 2 tokens are not 0 to 1, each exactly once"),
        (word_piece({"a": 0, "b": True}), r"model.vocab\['b'\] is True; it must be a whole number"),
        (word_piece({"a": 0, "b\nc": 1}), r"the token 'b\\nc' cannot be a line of a vocab.txt"),
        ([], "contains a JSON list; the tokenizer must be an object"),
    ],
)
def test_other_vocabularies_are_refused(tmp_path, values, message):
    write(tmp_path, "tokenizer.json", values)
    with pytest.raises(UserError, match=rf"tokenizer\.json.*{message}"):
        load_vocab(find_vocabulary(str(tmp_path)))


@ALL_SETTINGS
def test_settings_are_read_back(tmp_path, settings):
    assert read_settings(str(tmp_path)) == {}
    keys = {
        UNCASED: {"do_lower_case": True},
        CASED: {"do_lower_case": False},
        ACCENTED: {"do_lower_case": True, "strip_accents": False},
        PRESPLIT: {"do_lower_case": False, "do_basic_tokenize": False},
        STRIPPED: {"do_lower_case": False, "strip_accents": True},
        WHOLE: {"do_lower_case": True, "tokenize_chinese_chars": False},
    }[settings]
    tokenizer = FullTokenizer.with_settings(Vocabulary({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}), settings)
    values = tokenizer.to_hugging_face(load_family("bert"), 64)
    assert values == {"tokenizer_class": "BertTokenizer", **keys, "model_max_length": 64}
    write(tmp_path, "tokenizer_config.json", values)
    assert TextSettings(**read_settings(str(tmp_path))) == settings


BERT_SPLIT = {"type": "BertPreTokenizer"}
BERT_STEPS = {"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": BERT_SPLIT}
NO_CJK = {"normalizer": {"type": "BertNormalizer", "handle_chinese_chars": False}}


def folder_of(folder, tokens=("a", "##s"), **json_files):
    tokens = [*SPECIALS, *tokens]
    if values := json_files.get("tokenizer"):
        model = word_piece({token: index for index, token in enumerate(tokens)})["model"] | values.get("model", {})
        json_files["tokenizer"] = values | {"model": model}
    return write_folder(folder, tokens, **json_files)


def bert_json(**normalizer):
    return {"tokenizer": {**BERT_STEPS, "normalizer": {"type": "BertNormalizer", **normalizer}}}


def config(**values):
    return {"tokenizer_config": values}


def run(**flags):
    return {"run_config": {"flags": flags}}


@pytest.mark.parametrize(
    ("json_files", "given", "settings"),
    [
        (bert_json(lowercase=True, strip_accents=False), {}, ACCENTED),
        (bert_json(lowercase=False, strip_accents=True), {}, STRIPPED),
        ({"tokenizer": {**NO_CJK, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [BERT_SPLIT]}}}, {}, WHOLE),
        ({"tokenizer": {"normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}}}, {}, PRESPLIT),
        ({"tokenizer": BERT_STEPS, **config(do_lower_case=True, never_split=["[SEP]"])}, {}, UNCASED),
        (config(strip_accents=False), {}, ACCENTED), (config(do_lower_case=True, strip_accents=False), {}, ACCENTED),
        (config(do_lower_case=False, strip_accents=False), {}, CASED),
        (config(do_lower_case=False, strip_accents=True), {}, STRIPPED),
        (config(tokenizer_class="BertTokenizerFast", tokenize_chinese_chars=False), {}, WHOLE),
        (config(do_lower_case=True, do_basic_tokenize=False), {}, PRESPLIT),
        (config(strip_accents=False), {"do_lower_case": False}, CASED),
        (config(do_lower_case=True), {"do_lower_case": False}, CASED),
        ({**config(do_lower_case=False), "sentence_bert_config": {"do_lower_case": True}}, {}, ACCENTED),
        (run(do_lower_case=True, strip_accents=False), {}, ACCENTED),
        (run(do_lower_case=False, basic_tokenize=False), {}, PRESPLIT),
        (run(do_lower_case=False, basic_tokenize=False), {"basic_tokenize": True}, CASED),
        (run(do_lower_case=True), {"basic_tokenize": False}, PRESPLIT), ({}, {"basic_tokenize": False}, PRESPLIT),
        ({}, {"strip_accents": False}, ACCENTED),
    ],
)  # fmt: skip
def test_folders_say_how_text_is_normalized(tmp_path, json_files, given, settings):
    assert load_tokenizer(folder_of(tmp_path, **json_files), **given).settings == settings


@pytest.mark.parametrize(
    ("values", "tokens"), [({}, ["<x>", "<y>"]), ({"extra_special_tokens": ["s"], "added_tokens_decoder": {}}, ["s"])]
)
def test_special_tokens_that_a_folder_names_are_added(tmp_path, values, tokens):
    specials = {"eos_token": {"content": "<y>"}, "additional_special_tokens": ["<x>"], "cls_token": "[CLS]"}
    values = values | {"do_lower_case": True}
    folder_of(tmp_path, ("<x>", "s", "<y>"), special_tokens_map=specials, tokenizer_config=values)
    tokenizer = load_tokenizer(tmp_path)
    assert sorted(token["content"] for token in tokenizer.vocabulary.added) == tokens


@pytest.mark.parametrize(
    ("json_files", "message"),
    [
        (config(strip_accents=1), "tokenizer_config.json: strip_accents is 1; it must be true or false or null"),
        ({"config": {"tokenizer_class": "KoBertTokenizer"}}, "tokenizer_class is 'KoBertTokenizer'"),
        (config(subword_tokenizer_type="character"), "subword_tokenizer_type is 'character'"),
        (config(cls_token={"content": "<s>"}), "cls_token is '<s>'"),
        ({"special_tokens_map": {"unk_token": "<unk>"}}, "unk_token is '<unk>'"),
        (config(never_split=["C++"]), "never_split has 'C[+][+]'"),
        ({"tokenizer": {**BERT_STEPS, "normalizer": {"type": "NFKC"}}}, "normalizer.type is 'NFKC'"),
        ({"tokenizer": {**BERT_STEPS, "normalizer": None}}, "the steps are BertPreTokenizer; a WordPiece model needs"),
        (bert_json(clean_text=False), "clean_text is False"),
        ({"tokenizer": {**BERT_STEPS, "pre_tokenizer": {"type": "WhitespaceSplit"}}}, "are BertNormalizer, Whitespa"),
        ({"tokenizer": {"model": {"continuing_subword_prefix": "@@"}}}, "model.continuing_subword_prefix is '@@'"),
        ({"tokenizer": {"model": {"max_input_chars_per_word": 50}}}, "model.max_input_chars_per_word is 50"),
        ({"tokenizer": {"model": {"type": "WordLevel"}}}, "model.type is 'WordLevel'"),
        ({"tokenizer": {"post_processor": {"type": "ByteLevel2"}}}, "post_processor.type is 'ByteLevel2'"),
        (
            {"tokenizer": {"post_processor": None}, **config(tokenizer_class="PreTrainedTokenizerFast")},
            "tokenizer.json: post_processor is missing, so PreTrainedTokenizerFast adds no special tokens",
        ),
        ({"tokenizer": {"truncation": {"direction": "Left"}}}, "tokenizer.json: truncation.direction is 'Left'"),
        (config(truncation_side="left"), "truncation_side is 'left', which is not supported"),
        ({"tokenizer": {"rewriter": "x"}}, "tokenizer.json: rewriter is 'x', which is not supported"),
        ({"tokenizer": {"model": {"vocab": {"a": 0}}}}, "have different ids for 'a'"),
        ({"tokenizer": BERT_STEPS, **config(do_lower_case=False)}, "means do_lower_case=false, but .* true"),
        ({"added_tokens": {"<e1>": 9}}, "'<e1>' has the id 9; it must have 7, the first free one"),
        ({"added_tokens": {"a": 7}}, "'a' has the id 7; it must have 5, as in the vocabulary"),
        ({"added_tokens": {" b": 7}}, "' b' is empty, or begins or ends with white space"),
        ({"added_tokens": {"<E1>": 7, "<e1>": 8}}, "'<E1>' and '<e1>' are the same with do_lower_case=true"),
        (config(additional_special_tokens=["<x>"]), "'<x>' has no id"),
    ],
)
def test_other_tokenizers_are_refused_by_name(tmp_path, json_files, message):
    with pytest.raises(UserError, match=message):
        load_tokenizer(folder_of(tmp_path, **json_files))
