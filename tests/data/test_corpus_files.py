"""Corpora in files of all formats, whole and in parts: the parts of a file have each document exactly once."""

import bz2
import gzip
import lzma
import random
import re

from backports import zstd

from official_bert.data.corpus_files import CorpusReader, corpus_parts

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}


def documents(parts):
    """The documents of parts, each a list of lines with their positions."""
    found = [[]]
    for part in parts:
        for position, line in CorpusReader(part):
            if line:
                found[-1].append((position, line))
            elif found[-1]:
                found.append([])
    return [document for document in found if document]


def random_text(rng):
    """Sentences and runs of blank lines, with several kinds of blanks, line ends and characters."""
    lines = []
    for _ in range(rng.randrange(12)):
        lines += [rng.choice(["", " ", "\t", "\u3000", "\x0c"]) for _ in range(rng.choice([0, 0, 1, 1, 2, 5]))]
        lines += [rng.choice(["a", "bcd e", " é", "中文 𝄞", "x\ry"]) for _ in range(rng.randrange(4))]
    text = "".join(line + rng.choice(["\n", "\n", "\r\n"]) for line in lines)
    return text.rstrip("\r\n") if rng.random() < 0.5 else text


def expected_documents(text):
    """What the parts must give, found without them."""
    found, position = [[]], 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        sentence = line.replace("\r", "").strip()
        if sentence:
            found[-1].append((position, sentence))
        else:
            found.append([])
        position += len(line.encode())
    return [document for document in found if document]


def test_parts_of_a_text_have_each_document_once(tmp_path):
    path = tmp_path / "text.txt"
    rng = random.Random(1)
    for _ in range(40):
        text = random_text(rng)
        path.write_bytes(text.encode())
        expected = expected_documents(text)
        for part_bytes in [None, *range(1, len(text.encode()) + 2)]:
            parts = corpus_parts([str(path)], part_bytes=part_bytes)
            assert documents(parts) == expected, (text, part_bytes)
            by_part = [document for part in parts for document in documents([part])]
            assert by_part == expected, (text, part_bytes)  # no document lies in two parts
