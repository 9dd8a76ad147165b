"""Vocabulary files, and checks of `do_lower_case` against vocabulary and checkpoint."""

import pytest

from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tokenization import Vocabulary, load_vocab
from official_bert.tokenization.tokenizer_files import check_casing


def write(tmp_path, data):
    path = tmp_path / "vocab.txt"
    path.write_bytes(data)
    return str(path)


def test_a_line_is_a_token_and_its_number_the_id(tmp_path):
    # Only a newline ends a line: the released Chinese vocabulary contains a line that is only U+2028.
    path = write(tmp_path, "[PAD]\r\n  the \n\u2028\nb\x0cc\nend".encode())
    assert load_vocab(path) == {"[PAD]": 0, "the": 1, "": 2, "b\x0cc": 3, "end": 4}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"good\nb\xe4d\n", r"vocab\.txt, line 2: byte 0xe4 .* not UTF-8"),
        (b"a\nb\n a\nc\n\n\n", r"contains 2 wordpiece\(s\) twice: 'a' \(lines 1 and 3\), '' \(lines 5 and 6\)"),
    ],
)
def test_bad_files_are_refused(tmp_path, data, message):
    with pytest.raises(UserError, match=message):
        load_vocab(write(tmp_path, data))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*absent\.txt: No such file"):
        load_vocab(str(tmp_path / "absent.txt"))


def vocabulary(*words):
    return Vocabulary({word: index for index, word in enumerate(words)}, "vocab.txt")


LOWER = vocabulary("the", "##ing", "ß", "한")
CASED = vocabulary("the", "The", "##ing")


@pytest.mark.parametrize(
    ("checkpoint", "is_lower"),
    [
        ("a/uncased_L-12_H-768_A-12/bert_model.ckpt", True), ("wwm_uncased_L-24_H-1024_A-16/bert_model.ckpt", True),
        ("/multilingual_L-12_H-768_A-12/bert_model.ckpt", True), ("a/chinese_L-12_H-768_A-12/bert_model.ckpt", True),
        ("a/cased_L-12_H-768_A-12/bert_model.ckpt", False), ("multi_cased_L-12_H-768_A-12/bert_model.ckpt", False),
    ],
)  # fmt: skip
def test_released_checkpoints_are_known_by_name(checkpoint, is_lower):
    words = LOWER if is_lower else CASED
    check_casing(words, TextSettings(is_lower), init_checkpoint=checkpoint)
    with pytest.raises(UserError, match=f"give do_lower_case={str(is_lower).lower()}"):
        check_casing(vocabulary(), TextSettings(not is_lower), init_checkpoint=checkpoint)
    check_casing(vocabulary(), TextSettings(not is_lower), init_checkpoint=checkpoint.replace("bert_", "my_"))


def test_a_cased_vocabulary_is_not_for_lowercased_text():
    check_casing(CASED, TextSettings(False), init_checkpoint=None)
    with pytest.raises(UserError, match=r"vocab.txt is cased \(1 wordpieces have capital .* give do_lower_case=false"):
        check_casing(CASED, TextSettings(), init_checkpoint=None)
    many = vocabulary(*(f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(300)), "PLACEHOLDER")
    check_casing(many, TextSettings(), init_checkpoint=None)


@pytest.mark.parametrize(
    ("words", "settings", "is_warned"),
    [
        (LOWER, TextSettings(False, basic_tokenize=False), True),
        (CASED, TextSettings(False, basic_tokenize=False), False),  # words may be lowercased already
        (LOWER, TextSettings(False), True),
        (CASED, TextSettings(False), False),
        (LOWER, TextSettings(), False),
        (vocabulary("한", "##국"), TextSettings(False), False),
    ],
)
def test_capital_letters_without_a_vocabulary_for_them_are_warned_of(caplog, words, settings, is_warned):
    checkpoint = None if settings.basic_tokenize else "a/uncased_L-12_H-768_A-12/bert_model.ckpt"
    check_casing(words, settings, init_checkpoint=checkpoint)
    assert (f"{settings}, but vocab.txt has no capital letters" in caplog.text) == is_warned
