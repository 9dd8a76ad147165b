"""Vectors from any layers of an encoder, for texts without end: `FeatureExtractor`."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.data.feature_files import TextFeatures
from official_bert.data.text_inputs import TextOrPair
from official_bert.inference.sequence_batches import SequenceFunction
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pooling import max_over_positions, mean_over_positions
from official_bert.tokenization import FullTokenizer
from official_bert.tokenization.joining import JoinedSequence, join_texts, split_windows, truncate_pair

# Texts are computed in pools, in which those of similar length come together: so many batches' worth of texts, or fewer
# if their vectors fill so many bytes.
_POOLED_BATCHES = 64
_POOLED_BYTES = 1 << 27

# K: chosen layers, S: wordpieces, D: hidden width.


class ExtractionSettings(NamedTuple):
    """What is made of a text.

    Attributes:
      layers: the K layers, 0 the first, -1 the last.
      pooling: "none" for the vectors of all wordpieces; "cls", "mean", "max" or "mean_no_special" ([CLS] and [SEP] left
        out; zeros for an empty text) for one vector a layer.
      max_seq_length: maximum number of positions of a sequence.
      use_windows: read longer texts in overlapping windows and average, or with "max" take the largest of, what these
        give; otherwise truncate them.
      dtype: "float32" or "float16".
    """

    layers: Sequence[int]
    pooling: str = "none"
    max_seq_length: int = 128
    use_windows: bool = False
    dtype: str = "float32"


class _EncodedText(NamedTuple):
    """A text as the encoder reads it.

    Attributes:
      input_ids: all that is read of the text.
      windows: one sequence, or the windows of a long text.
      positions: for each window the places of its ids among `input_ids`.
    """

    input_ids: list[int]
    windows: list[JoinedSequence]
    positions: list[np.ndarray]


class FeatureExtractor:
    """Computes vectors of texts, in their order, with memory for a pool of them.

    Attributes:
      num_texts: texts so far.
      num_wordpieces: wordpieces of them that were read, [CLS] and [SEP] included.
      num_long: texts that were truncated, or read in windows.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        tokenizer: FullTokenizer,
        settings: ExtractionSettings,
        *,
        batch_size: int = 32,
        strategy: tf.distribute.Strategy | None = None,
        fixed_shape: tuple[int, int] | None = None,
    ):
        """Prepares; nothing is computed.

        Args:
          encoder: the encoder.
          tokenizer: turns texts into its ids.
          settings: what is made of a text.
          batch_size: see `SequenceFunction`.
          strategy: see `SequenceFunction`.
          fixed_shape: see `SequenceFunction`.
        """
        self._encoder, self._tokenizer, self._settings, self._batch_size = encoder, tokenizer, settings, batch_size
        self._specials = {"cls_id": tokenizer.cls_id, "sep_id": tokenizer.sep_id}
        self._vectors = SequenceFunction(self._compute, strategy=strategy, fixed_shape=fixed_shape)
        self.num_texts = self.num_wordpieces = self.num_long = 0

    def extract(self, texts: Iterable[TextOrPair], first_index: int = 0) -> Iterator[TextFeatures]:
        """Computes the vectors of texts; a pool is read before the first of its texts is given.

        Args:
          texts: may be endless.
          first_index: the number of the first text.

        Yields:
          For each text its features: vectors float [S, K, D], or pooled [K, D].
        """
        indices = itertools.count(first_index)
        for pool in self._pools(texts):
            sequences = [window for text in pool for window in text.windows]
            vectors = iter(self._vectors(sequences, self._batch_size))
            for text in pool:
                self.num_texts += 1
                self.num_wordpieces += len(text.input_ids)
                of_windows = list(itertools.islice(vectors, len(text.windows)))
                yield TextFeatures(next(indices), text.input_ids, self._joined(text, of_windows))

    def _compute(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Gives float [B, K, D], or for each position [B, S, K, D]."""
        encoder_layers = self._encoder(batch)["encoder_layers"]
        layers = [encoder_layers[index] for index in self._settings.layers]
        is_counted = batch["input_mask"]
        if self._settings.pooling == "mean_no_special":
            for special in self._specials.values():
                is_counted *= tf.cast(batch["input_ids"] != special, tf.int32)
        pool = {
            "none": lambda layer: layer,
            "cls": lambda layer: layer[:, 0],
            "mean": lambda layer: mean_over_positions(layer, is_counted),
            "mean_no_special": lambda layer: mean_over_positions(layer, is_counted),
            "max": lambda layer: max_over_positions(layer, is_counted),
        }[self._settings.pooling]
        return tf.stack([tf.cast(pool(layer), self._settings.dtype) for layer in layers], axis=-2)

    def _pools(self, texts: Iterable[TextOrPair]) -> Iterator[list[_EncodedText]]:
        bytes_of_vector = len(self._settings.layers) * self._encoder.config.hidden_size * 4
        pool, num_vectors = [], 0
        for text in texts:
            pool.append(self._encoded(text))
            is_pooled = self._settings.pooling != "none"
            num_vectors += sum(1 if is_pooled else len(window.input_ids) for window in pool[-1].windows)
            if len(pool) == _POOLED_BATCHES * self._batch_size or num_vectors * bytes_of_vector >= _POOLED_BYTES:
                yield pool
                pool, num_vectors = [], 0
        if pool:
            yield pool

    def _encoded(self, text: TextOrPair) -> _EncodedText:
        first = self._tokenizer.encode(text.text_a)
        second = self._tokenizer.encode(text.text_b) if text.text_b else []
        room = self._settings.max_seq_length - (3 if second else 2)
        if len(first) + len(second) > room:
            self.num_long += 1
            if self._settings.use_windows:
                return self._windowed(first, second, room)
            first, second = truncate_pair(first, second, room)
        whole = join_texts(first, second, **self._specials)
        return _EncodedText(whole.input_ids, [whole], [np.arange(len(whole.input_ids))])

    def _windowed(self, first: list[int], second: list[int], room: int) -> _EncodedText:
        parts = split_windows(len(first), len(second), room)
        # Of the shorter text all windows hold the same.
        first, second = first[: max(a.stop for a, _ in parts)], second[: max(b.stop for _, b in parts)]
        whole = join_texts(first, second, **self._specials)
        windows, positions = [], []
        for a, b in parts:
            windows.append(join_texts(first[a.start : a.stop], second[b.start : b.stop], **self._specials))
            places = [0, *(1 + place for place in a), 1 + len(first)]
            if second:
                places += [*(2 + len(first) + place for place in b), 2 + len(first) + len(second)]
            positions.append(np.array(places))
        return _EncodedText(whole.input_ids, windows, positions)

    def _joined(self, text: _EncodedText, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """Brings together what the windows of a text gave, and leaves out padding."""
        if self._settings.pooling == "none":
            vectors = [rows[: len(places)] for rows, places in zip(vectors, text.positions, strict=True)]
        if len(vectors) == 1:
            return vectors[0]
        if self._settings.pooling == "max":
            return np.max(vectors, axis=0)
        if self._settings.pooling != "none":
            return np.mean(vectors, axis=0, dtype=np.float32).astype(self._settings.dtype)
        total = np.zeros((len(text.input_ids), *vectors[0].shape[1:]), np.float32)
        count = np.zeros((len(text.input_ids), 1, 1), np.float32)
        for rows, places in zip(vectors, text.positions, strict=True):
            total[places] += rows
            count[places] += 1
        return (total / count).astype(self._settings.dtype)
