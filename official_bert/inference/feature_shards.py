"""Features in shards: files with a fixed number of texts; a later run keeps the finished ones.

Next to each shard, `features-00000.npz`, is its `Manifest`, `features-00000.npz.json`.
"""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.data.feature_files import Write
from official_bert.data.text_inputs import TextOrPair
from official_bert.inference.sentence_index import Sentence
from official_bert.inference.text_encoder import TextEncoder
from official_bert.support import files, writing
from official_bert.support.manifest import Manifest
from official_bert.tokenization import Vocabulary


def shard_path(path: str, number: int) -> str:
    """Return the path of a shard: shard 12 of `features.npz` is `features-00012.npz`."""
    stem, ending = os.path.splitext(path)
    return f"{stem}-{number:05d}{ending}"


def write_shards(
    path: str,
    texts: Iterable[TextOrPair],
    encoder: TextEncoder,
    open_writer: Callable[[str], AbstractContextManager[Write]],
    *,
    shard_size: int,
    provenance: Mapping[str, Any],
    report: Callable[[int], None],
) -> int:
    texts = iter(texts)
    number_of_texts = num_kept = 0
    for number in itertools.count():
        first = next(texts, None)
        if first is None:
            break
        shard, name = itertools.chain([first], itertools.islice(texts, shard_size - 1)), shard_path(path, number)
        note = f"{name}.json"
        known = Manifest.read_or_none(note)
        digest = _Digest()
        if known and not known.find_damage(os.path.dirname(name)):
            shard = list(shard)
            if not known.find_differences({**provenance, "texts": _Digest().hash_texts(shard)}):
                number_of_texts += len(shard)
                num_kept += 1
                report(number_of_texts)
                continue
        writing.remove(note)
        num_before = number_of_texts
        with open_writer(name) as write:
            for features in encoder.features(digest.iterate(shard), first_index=num_before):
                write(features)
                number_of_texts += 1
                report(number_of_texts)
        Manifest.write(note, {**provenance, "texts": digest.value}, [os.path.basename(name)])
    logging.info("%s: %d shards, %d of them from an earlier run", path, number, num_kept)
    _warn_of_old_shards(path, number)
    return number_of_texts


class _Digest:
    """Hashes texts while iterating over them."""

    def __init__(self):
        self._hash = hashlib.sha256()

    def iterate(self, texts: Iterable[TextOrPair]) -> Iterator[TextOrPair]:
        """Yield the texts unchanged."""
        for text in texts:
            self._hash.update(json.dumps(text).encode() + b"\n")
            yield text

    def hash_texts(self, texts: Iterable[TextOrPair]) -> str:
        for _ in self.iterate(texts):
            pass
        return self.value

    @property
    def value(self) -> str:
        """The hash of the texts so far."""
        return self._hash.hexdigest()


def _warn_of_old_shards(path: str, num_shards: int) -> None:
    """Warn of shards left by a run over more texts, which a glob would mix with this run's."""
    folder = os.path.dirname(path)
    stem, ending = os.path.splitext(os.path.basename(path))
    pattern = re.compile(rf"{re.escape(stem)}-(\d{{5,}}){re.escape(ending)}")
    matches = [pattern.fullmatch(name) for name in files.list_folder(folder or ".")]
    old = [match[0] for match in matches if match and int(match[1]) >= num_shards]
    if old:
        logging.warning("%d shards of an earlier run over more texts remain, from %s on; delete them", len(old), old[0])


class Occurrence(NamedTuple):
    """A word in a sentence."""

    sentence: Sentence  # the sentence
    vector: np.ndarray  # float32 [D], the mean over the word's wordpieces and the chosen layers


def find_occurrences(word: str, sentences: Iterable[Sentence], encoder: TextEncoder) -> Iterator[Occurrence]:
    wanted = encoder.tokenizer.encode(word)
    kept = list(sentences)
    for sentence, features in zip(kept, encoder.features(each.text for each in kept), strict=True):
        for start in _places(wanted, encoder.tokenizer.vocabulary, features.input_ids):
            vectors = features.vectors[start : start + len(wanted)]  # [wordpieces, K, D]
            yield Occurrence(sentence, vectors.mean(axis=(0, 1)))


def _places(wanted: Sequence[int], vocabulary: Vocabulary, input_ids: Sequence[int]) -> Iterator[int]:
    """Find the wordpieces of whole words: `bank` is not found in `bank ##er`."""
    continues_word = list(map(vocabulary.continues_word, vocabulary.tokens(input_ids)))
    for start in range(len(input_ids) - len(wanted)):  # [SEP] is after the last word
        end = start + len(wanted)
        if list(input_ids[start:end]) == list(wanted) and not continues_word[end]:
            yield start
