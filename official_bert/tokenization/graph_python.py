"""Graph wrapper of tokenizers without TensorFlow operations; it calls back into Python."""

import numpy as np
import tensorflow as tf

from official_bert.tokenization.graph_operations import NUMBER, TEXTS, GraphEncoder, RaggedEncodingWithOffsets
from official_bert.tokenization.tokenizer import Tokenizer


class PythonTokenizer(GraphEncoder):
    """Encodes texts by calling a Python tokenizer; it cannot be exported to a SavedModel."""

    is_portable = False

    def __init__(self, tokenizer: Tokenizer):
        """Store the tokenizer."""
        super().__init__(name="python_tokenizer")
        self._tokenizer = tokenizer

    def _call(self, encode, texts: tf.Tensor, num_rows: int) -> list[tf.RaggedTensor]:
        """Batch the `num_rows` integer lists that `encode` returns for a text, each as int32 [B, (wordpieces)]."""

        def rows(texts: np.ndarray) -> tuple[np.ndarray, ...]:
            found = [encode(text) for text in texts]
            lengths = np.array([len(each[0]) for each in found], np.int64)
            columns = (np.array([value for each in found for value in each[row]], np.int32) for row in range(num_rows))
            return lengths, *columns

        lengths, *columns = tf.numpy_function(rows, [texts], [tf.int64, *[tf.int32] * num_rows], stateful=False)
        lengths.set_shape([None])
        for column in columns:
            column.set_shape([None])
        return [tf.RaggedTensor.from_row_lengths(column, lengths, validate=False) for column in columns]

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Split texts; see `GraphEncoder`."""
        return self._call(lambda text: [self._tokenizer.encode(text)], texts, 1)[0]

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words; see `GraphEncoder`."""
        return self._call(lambda word: [self._tokenizer.encode_word(word)], words, 1)[0]

    @tf.function(input_signature=[TEXTS, NUMBER], autograph=False)
    def encode_beginnings(self, texts: tf.Tensor, num_wordpieces: tf.Tensor) -> tf.RaggedTensor:
        """Split whole texts; see `GraphEncoder`."""
        del num_wordpieces
        return self.encode(texts)

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode_with_offsets(self, texts: tf.Tensor) -> RaggedEncodingWithOffsets:
        """Split texts with their offsets; see `Tokenizer.encode_with_offsets`."""
        return RaggedEncodingWithOffsets(*self._call(self._tokenizer.encode_with_offsets, texts, 3))
