"""The tokenizer as TensorFlow operations, compared with the Python one, which has its own tests."""

import functools
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import unicodedata

import pytest
import tensorflow as tf

from official_bert.tokenization import FullTokenizer, characters, graph_operations
from official_bert.tokenization.graph_tokenizer import GraphTokenizer
from tests.conftest import endurance, slow
from tests.tokenization.hard_texts import (
    ACCENTED,
    ACCENTS,
    ALL_SETTINGS,
    AWKWARD,
    CASED,
    PRESPLIT,
    SCRIPTS,
    SETTINGS,
    SPACING_MARKS,
    STRIPPED,
    TORTURE,
    UNCASED,
    WHOLE,
    random_text,
    write_vocabulary,
)

BATCH_SIZE = 2_000
NAMED = "aασςΑΣ.\u0301\u0345\u200b\u0e31Theté中"  # characters with explicit tests
# Unfinished, overlong, too large, lone continuations, surrogates, bytes invalid in UTF-8, and valid neighbours.
BYTES = [
    bytes([value]) for value in b"\x00\x20a\x7f\x80\xbf\xc0\xc1\xc2\xdf\xe0\xe4\xed\xef\xf0\xf4\xf5\xf8\xfc\xfe\xff"
]
ILL_FORMED = [
    *(first + second for first, second in itertools.product(BYTES, BYTES)),
    b"a\xed\xa0\x80b \xed\xbf\xbf \xed\xa0\xbd\xed\xb8\x80",  # surrogates, lone and paired
    b"\xc0\x80 \xc1\xbf a\xe0\x80\xaf b\xf0\x80\x80\xaf",  # overlong
    b"\xf4\x90\x80\x80 \xf5\x80\x80\x80 \xf8\x88\x80\x80\x80 \xfc\x84\x80\x80\x80\x80",  # beyond U+10FFFF
    b"the\xe4\xb8 town\xf0\x9f\x98\xe4\xb8\xad \xf0\x9f the\xc3",  # unfinished
    b"\xff\xe2\x80\x8bThe\xff t\xc3\xa9\xff\xe4\xb8\xad\xcc\x81 \xe4",  # U+200B, é, U+4E2D and U+0301
    b"a\x00b\x00 \x00 \xef\xbf\xbd \xef\xbb\xbfthe \xef\xbf\xbe\xf4\x8f\xbf\xbf",  # NUL, U+FFFD, U+FEFF, the last ones
]

NEIGHBOURS = [  # letters that depend on their neighbours; U+0E31 is dropped, but has class 0
    "ΑΣ.Α ΑΣ.", "ΑΣ\u0345\u200b ΑΣ\u0301α", "a\U0001d16d\U0001d165", "a\U0001d16d\u0301\u200b\U0001d165",
    "a\U0001d16d\u0e31\U0001d165",
]  # fmt: skip
EMPTY = ["", " ", "\n", "\u0301", "\u200b", "the", "", ""]


def as_bytes(texts):
    return [text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass") for text in texts]


class Pair:
    def __init__(self, vocab_file, settings):
        self.python = FullTokenizer(vocab_file, **settings._asdict())
        self.graph = GraphTokenizer(self.python)

    def assert_same(self, texts):
        """Assert that the graph gives the ids and offsets of Python."""
        texts = as_bytes(texts)
        for start in range(0, len(texts), BATCH_SIZE):
            batch = texts[start : start + BATCH_SIZE]
            found = self.graph.encode(tf.constant(batch)).to_list()
            placed = [field.to_list() for field in self.graph.encode_with_offsets(tf.constant(batch))]
            for raw, ids, *encoding in zip(batch, found, *placed, strict=True):
                assert tuple(encoding) == self.python.encode_with_offsets(raw), raw
                assert ids == encoding[0] == self.python.encode(raw), raw


def letter_pair(path, letters, settings, longer=()):
    """Return a pair whose pieces are single letters, so that ids show every letter, and some longer ones."""
    kept = [letter for letter in sorted(letters) if not letter.isspace() and unicodedata.category(letter) != "Cs"]
    kept += longer
    return Pair(write_vocabulary(path, [*kept, *(f"##{piece}" for piece in kept)]), settings)


@pytest.fixture(
    scope="module", params=[UNCASED, *slow(CASED), *endurance(ACCENTED, PRESPLIT, STRIPPED, WHOLE)], ids=[*SETTINGS]
)
def settings(request):
    return request.param


ONLY_UNCASED = pytest.mark.parametrize("settings", [UNCASED], ids=["uncased"], indirect=True)


@pytest.fixture(scope="module")
def word_pair(settings, vocab_file):
    return Pair(vocab_file, settings)


@pytest.fixture(scope="module")
def letters_pair(settings, tmp_path_factory):
    """Nearly all letters of the scripts in use, and pieces of two to five letters with awkward rules."""
    rng = random.Random(1)
    awkward = AWKWARD + SPACING_MARKS + ACCENTS + "aB中"
    texts = [*map(chr, range(0x3100)), *SCRIPTS, awkward, "".join(case["text"] for case in TORTURE)]
    letters = set(characters.rewrite("\n".join(texts), settings))
    # Other kept characters may differ between Python versions, like their Unicode tables.
    kept = [letter for letter in sorted(letters) if letter in SPACING_MARKS + NAMED or rng.random() < 0.97]
    some = [letter for letter in awkward.lower() if letter in kept and not letter.isspace()]
    longer = {"".join(rng.choices(some, k=rng.randint(2, 5))) for _ in range(300)}
    return letter_pair(tmp_path_factory.mktemp("letters") / "vocab.txt", kept, settings, sorted(longer))


def random_bytes(rng):
    """Return text with some bytes replaced, inserted or removed."""
    raw = bytearray(random_text(rng, rng.randrange(4)).encode("utf-8", "surrogatepass"))
    for _ in range(rng.randint(1, 4)):
        place = rng.randint(0, len(raw))
        raw[place : place + rng.randint(0, 2)] = b"".join(rng.choices(BYTES, k=rng.randint(0, 2)))
    return bytes(raw)


@functools.cache
def random_inputs(seed, number):
    """Return random Unicode strings of all kinds, one in five with invalid UTF-8."""
    rng = random.Random(seed)
    return [random_bytes(rng) if index % 5 == 4 else random_text(rng, index % 5) for index in range(number)]


def test_ids_and_places_are_those_of_python(word_pair, letters_pair):
    framed = [b"the " + raw + b" town" for raw in ILL_FORMED]
    texts = [*SCRIPTS, *(case["text"] for case in TORTURE), *NEIGHBOURS, *ILL_FORMED, *framed, *EMPTY]
    for pair in (word_pair, letters_pair):
        pair.assert_same([*texts, *random_inputs(20181031, 4_000)])
    for number in (0, 1, 199, 200, 201, 255, 256, 257, 1000):
        word = "e" * number
        texts = [f"{word} the {word}", f"{word},{word}", f"t{word}", f"{word}\u0378", "\u0301" * number, "." * number]
        word_pair.assert_same(texts)
    assert word_pair.graph.encode(tf.constant([], tf.string)).to_list() == []
    assert [field.to_list() for field in word_pair.graph.encode_with_offsets(tf.constant([], tf.string))] == [[]] * 3


@pytest.mark.endurance
@ALL_SETTINGS
def test_every_single_character(tmp_path, settings):
    every = "".join(map(chr, range(0x110000)))
    named = [character for character in every if unicodedata.category(character) not in ("Cn", "Co")]
    letters = set().union(*(characters.rewrite(character, settings) for character in named))
    pair = letter_pair(tmp_path / "vocab.txt", {*letters, "\U000f0000", "\U0010ffff", "\u0378"}, settings)
    # All assigned characters, and one in a hundred of the many unassigned ones.
    shown = [*named, *(every[place] for place in range(0, len(every), 101))]
    pair.assert_same(f"a{'b a'.join(shown[start : start + 16])}b" for start in range(0, len(shown), 16))


@pytest.mark.endurance
@pytest.mark.parametrize("num_wordpieces", [1, 3])
def test_beginnings_are_those_of_the_whole_texts(word_pair, letters_pair, num_wordpieces):
    rng, odd = random.Random(20181101), AWKWARD + SPACING_MARKS[:4] + ACCENTS + " ,;中(𝅥𝅭"
    alphabets = (odd, NAMED + odd, "Σ. ,α:")
    texts = ["".join(rng.choices(alphabets[number % 3], k=rng.randrange(90))) for number in range(1_500)]
    texts += [text * rng.randrange(1, 9) for text in random_inputs(20181101, 300)]
    texts = as_bytes([*texts, "", " " * 70 + "the town", "e" * 300 + " the", "the" + "́" * 60 + "town"])
    for pair in (word_pair, letters_pair):
        found = pair.graph.encode_beginnings(tf.constant(texts), num_wordpieces).to_list()
        expected = [pair.python.encode(text) for text in texts]
        for text, ids, all_ids in zip(texts, found, expected, strict=True):
            assert len(ids) >= min(num_wordpieces, len(all_ids)), text
            assert ids == all_ids[: len(ids)], text
        # The text was cut; sigmas and combining characters before the cut reveal a wrong position.
        assert sum(map(len, found)) < 0.7 * sum(map(len, expected))


def test_texts_whose_beginning_is_not_enough(vocab_file, monkeypatch):
    monkeypatch.setattr(graph_operations, "MOST_BYTES", 256)
    monkeypatch.setattr(graph_operations, "_GROUP_BYTES", 64)
    pair = Pair(vocab_file, UNCASED)
    fitting = ["the " * 1000, " " * 100 + "the " * 100, "," * 1000, "中" * 1000, "e" * 256, " " * 256, "á " * 99]
    found = pair.graph.encode_beginnings(tf.constant(fitting * 3), 10).to_list()
    assert all(len(found[number]) >= 10 for number in (0, 1, 2, 3, 6))
    assert found == [pair.python.encode(text)[: len(ids)] for text, ids in zip(fitting * 3, found, strict=True)]
    assert found[4:6] == [[pair.python.unk_id], []]
    for text in ("e" * 257, " " * 257, " " * 250 + "the " * 100, "́" * 129, "the " + "e" * 300 + " the" * 99):
        with pytest.raises(tf.errors.InvalidArgumentError, match="at most 256 bytes, unless"):
            pair.graph.encode_beginnings(tf.constant(["the", text]), 10)


@pytest.mark.slow
@ONLY_UNCASED
def test_a_long_text_beside_short_ones_takes_no_more_memory_than_it_has_to(word_pair):
    texts = [" " * 600_000 + "the " * 200_000, *["the"] * 400]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = word_pair.graph.encode_beginnings(tf.constant(texts), 10)
    assert found[0, :10].numpy().tolist() == word_pair.python.encode("the " * 10)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # KiB; a table has 4 GB


@pytest.mark.slow
def test_awkward_vocabularies(tmp_path):
    wordpieces = ["##", "#", "##a", "a", "aa", "##aaa", "a" * 33, "", "b\x0cc", "[unused1]", "##\u0301e"]
    pair = Pair(write_vocabulary(tmp_path / "vocab.txt", wordpieces), CASED)
    texts = [*("a" * number for number in range(80)), "#", "##", "##a", "[unused1]", "b\x0cc", "a\u0301e"]
    pair.assert_same(texts)
    nothing = Pair(write_vocabulary(tmp_path / "vocab.txt", []), UNCASED)
    nothing.assert_same([*SCRIPTS, "[UNK]", ""])


@pytest.mark.slow
def test_words_that_are_taken_as_they_are(tmp_path):
    long = "ab" * 150  # longer than allowed, unless the vocabulary contains it
    wordpieces = ["##", "#", "##a", "a", "##b", "##ab", "b", "[a]", "중/NNG", "중", "##/", "##NNG", "İ"]
    wordpieces += [long, f"##{long}"]
    pair = Pair(write_vocabulary(tmp_path / "vocab.txt", wordpieces), PRESPLIT)
    words = [
        *wordpieces, "###", "##aab", "[UNK]", "[UNK]a", "[SEP]", "[SEP]ab", "[a]b", "a[UNK]", "중/", "중NNG", "/", "i",
        "A", "\0", "\ufffda", f"{long}a", long[:-1], f"a{long}",
    ]  # fmt: skip
    separators = " \t\x0b\x1c\x85\u2028\u3000"  # the second to the fifth are not separators in the reference
    rng = random.Random(5)
    texts = [*words, *("".join(rng.choice(words) + rng.choice(separators) for _ in range(6)) for _ in range(500))]
    pair.assert_same(texts)


LOADS_AND_ENCODES = """
import json, sys
sys.modules.update(dict.fromkeys(("jax", "pandas", "sklearn")))  # TensorFlow imports these if installed
import tensorflow as tf
loaded = [tf.saved_model.load(path) for path in sys.argv[1:]]
texts = tf.constant([bytes(text) for text in json.load(sys.stdin)])
print(json.dumps([[field.to_list() for field in model.encode_with_offsets(texts)] for model in loaded]))
assert all(model.encode(texts).to_list() == model.encode_with_offsets(texts)[0].to_list() for model in loaded)
assert not {"official_bert", "tensorflow_text"} & {name.split(".")[0] for name in sys.modules}
"""


@pytest.mark.slow
@ONLY_UNCASED
def test_saved_models_give_the_same_in_a_process_that_knows_tensorflow_only(word_pair, letters_pair, tmp_path):
    """Load all at once: their tables must not be mixed up."""
    texts = as_bytes([*SCRIPTS, *(case["text"] for case in TORTURE), *random_inputs(1, 200)])
    pairs = {str(tmp_path / "words"): word_pair, str(tmp_path / "letters"): letters_pair}
    for path, pair in pairs.items():
        tf.saved_model.save(pair.graph, path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = subprocess.run(
        [sys.executable, "-c", LOADS_AND_ENCODES, *pairs], input=json.dumps([list(text) for text in texts]),
        capture_output=True, text=True, cwd=tmp_path, env={**environment, "CUDA_VISIBLE_DEVICES": ""}, check=True,
    ).stdout  # fmt: skip
    for fields, pair in zip(json.loads(output.splitlines()[-1]), pairs.values(), strict=True):
        for text, *encoding in zip(texts, *fields, strict=True):
            assert tuple(encoding) == pair.python.encode_with_offsets(text), text
