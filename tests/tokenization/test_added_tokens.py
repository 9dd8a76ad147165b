"""Added tokens of WordPiece vocabularies, in Python and in the graph, compared with the library `tokenizers`."""

import itertools
import json
import random

import pytest
import tensorflow as tf
import tokenizers

from official_bert.config.text_settings import TextSettings
from official_bert.tokenization import FullTokenizer, Vocabulary, characters, load_tokenizer
from official_bert.tokenization.full_tokenizer import is_of_word
from official_bert.tokenization.graph_tokenizer import GraphTokenizer
from official_bert.tokenization.tokenizer_files import content_of_copy, name_of_copy
from tests.tokenization.hard_texts import PRESPLIT, SCRIPTS, SPECIALS, UNCASED, random_text, write_folder

CONTENTS = ("<e1>", "</e1>", "<E2>", "foo", "New York", "中国", "[X]", "a_b", "é!", "_m_", "##zz", "Q:", "<e")
BESIDE = (" ", "_", " _ ", "x", ",", "\t", "\u3000", "\u0301", "ab", "é", "Ⅷ", "²", "ⓐ", "\u200d", "中")
COMBINATIONS = itertools.product((True, False), repeat=3)
EVERY = [TextSettings(lower, strip or not lower, True, cjk, strip and not lower) for lower, strip, cjk in COMBINATIONS]
EVERY.append(PRESPLIT)


def make(settings, seed):
    """Return a tokenizer with random added tokens, and the one of the library."""
    rng = random.Random(seed)
    letters = [*"abcdefghijklmnopqrstuvwxyzABCDEé中国我가가각<>/1._!", *map(chr, range(0x390, 0x3D0))]
    words = ["".join(rng.choices("abcdefoé1中", k=rng.randint(2, 4))) for _ in range(50)]
    pieces = dict.fromkeys([*SPECIALS, *letters, *words, *(f"##{piece}" for piece in [*letters, *words])])
    ids = {piece: index for index, piece in enumerate(pieces)}
    added = [
        {"id": len(ids) + index, "content": content}
        | {flag: rng.random() < 0.3 for flag in ("single_word", "lstrip", "rstrip")}
        | {"normalized": rng.random() < 0.6, "special": rng.random() < 0.3}
        for index, content in enumerate(rng.sample([c for c in CONTENTS if settings.basic_tokenize or " " not in c], 7))
    ]
    tokenizer = FullTokenizer.with_settings(Vocabulary(ids, added=added), settings)
    content = tokenizer.to_tokenizer_json()
    content["added_tokens"] = added  # not the special tokens, which the library would find in text
    return tokenizer, tokenizers.Tokenizer.from_str(json.dumps(content))


def random_texts(rng, number):
    for _ in range(number):
        parts = []
        for _ in range(rng.randint(1, 6)):
            content = rng.choice(CONTENTS)
            similar = (content, content, content.upper(), content[:-1], content.replace("1", "\u200b1"))
            other = rng.choice(BESIDE) if rng.random() < 0.5 else random_text(rng, rng.randrange(2, 4))
            parts.append(rng.choice(similar) if rng.random() < 0.5 else other)
        yield "".join(parts).encode("utf-8", "ignore").decode()


def are_alike(text, settings, splitter):
    """Return True if the library treats each character alike; it has older Unicode tables and no final sigma."""
    for character in set(text):
        word = f"a{character}b"
        normalized = splitter.normalizer.normalize_str(word) if splitter.normalizer else word
        found = [part for part, _ in splitter.pre_tokenizer.pre_tokenize_str(normalized)]
        if character in "Σ" or found != characters.rewrite(word, settings).split():
            return False
    return True


@pytest.mark.parametrize("settings", EVERY, ids=str)
def test_ids_are_those_of_tokenizers(settings):
    compared = 0
    for seed in range(4):
        tokenizer, splitter = make(settings, seed)
        for text in (*SCRIPTS, *random_texts(random.Random(seed), 150)):
            ids = tokenizer.encode(text)
            assert tokenizer.encode_with_offsets(text).ids == ids
            if are_alike(text, settings, splitter):
                compared += 1
                assert ids == splitter.encode(text, add_special_tokens=False).ids, ascii(text)
    assert compared > 300


@pytest.mark.slow
@pytest.mark.parametrize("settings", [UNCASED, PRESPLIT], ids=str)
def test_the_graph_finds_the_same_tokens(settings):
    tokenizer, _ = make(settings, seed=0)
    graph = GraphTokenizer(tokenizer)
    texts = [*SCRIPTS, *random_texts(random.Random(0), 250)]
    found = [field.to_list() for field in graph.encode_with_offsets(tf.constant(texts))]
    for text, *encoding in zip(texts, *found, strict=True):
        assert tuple(encoding) == tokenizer.encode_with_offsets(text), ascii(text)
    long = [text * 60 for text in texts[:20]]
    for text, ids in zip(long, graph.encode_beginnings(tf.constant(long), 9).to_list(), strict=True):
        expected = tokenizer.encode(text)
        assert ids == expected[: len(ids)], ascii(text)
        assert len(ids) >= min(9, len(expected))


def test_a_folder_adds_tokens_to_its_copies(tmp_path):
    decoder = {"8": {"content": "[X]", "normalized": False, "special": True}, "4": {"content": "[MASK]"}}
    config = {"added_tokens_decoder": decoder}
    write_folder(tmp_path, [*SPECIALS, "a", "ship"], added_tokens={"<e1>": 7}, tokenizer_config=config)
    source = str(tmp_path / "vocab.txt")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / name_of_copy(source)).write_bytes(content_of_copy(source))
    assert [path.name for path in copy.iterdir()] == ["wordpiece.json"]
    first, second = load_tokenizer(tmp_path), load_tokenizer(copy)
    assert first.vocabulary.fingerprint == second.vocabulary.fingerprint
    assert first.vocabulary.size == 9
    for tokenizer in (first, second):
        assert tokenizer.tokenize("A <E1>ship[X][x] [MASK]") == ["a", "<e1>", "ship", "[X]", *["[UNK]"] * 6]
    assert not Vocabulary(first.vocab).continues(first.vocabulary)
    assert first.vocabulary.continues(Vocabulary(first.vocabulary.wordpieces))


def test_characters_of_words_are_those_of_tokenizers():
    splitter = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, "[UNK]"))
    splitter.add_tokens([tokenizers.AddedToken("q", single_word=True, normalized=False)])
    for character in (*BESIDE, *map(chr, range(0x21, 0x250))):
        assert (1 in splitter.encode(f"{character}q").ids) != is_of_word(character[-1]), ascii(character)
