"""Reading vocabulary files."""

import pytest

from official_bert.support.errors import UserError
from official_bert.tokenization import load_vocab


def write(tmp_path, data):
    path = tmp_path / "vocab.txt"
    path.write_bytes(data)
    return str(path)


def test_a_line_is_a_piece_and_its_number_the_id(tmp_path):
    path = write(tmp_path, b"[PAD]\r\n  the \n\nend")
    assert load_vocab(path) == {"[PAD]": 0, "the": 1, "": 2, "end": 3}


def test_only_newline_ends_a_line(tmp_path):
    # The released Chinese vocabulary contains a line that is only U+2028.
    path = write(tmp_path, "a\n\u2028\nb\x0cc\n".encode())
    assert load_vocab(path) == {"a": 0, "": 1, "b\x0cc": 2}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"good\nb\xe4d\n", r"vocab\.txt, line 2: byte 0xe4 .* not UTF-8"),
        (
            b"a\nb\n a\nc\n\n\n",
            r"vocab\.txt contains 2 wordpiece\(s\) twice: 'a' \(lines 1 and 3\), '' \(lines 5 and 6\)",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path, data, message):
    with pytest.raises(UserError, match=message):
        load_vocab(write(tmp_path, data))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*absent\.txt: No such file"):
        load_vocab(str(tmp_path / "absent.txt"))
