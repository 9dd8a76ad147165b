"""`DatasetTokenizer`: convert strings of a `tf.data.Dataset` to model inputs inside the graph."""

import os
from collections.abc import Mapping
from typing import Literal

import tensorflow as tf

from official_bert.support.errors import UserError
from official_bert.tokenization import Tokenizer, load_tokenizer
from official_bert.tokenization.graph_joining import truncate_and_join


class DatasetTokenizer:
    """In-graph tokenizer for `dataset.map`, with the same ids as the Python tokenizer.

    Examples:
      >>> tokenize = DatasetTokenizer("uncased_L-12_H-768_A-12", max_seq_length=128)
      >>> texts = tf.data.Dataset.from_tensor_slices((["a fine film", "I was bored"], [1, 0]))
      >>> model.fit(texts.batch(32).map(lambda text, label: (tokenize(text), label)))

    Mapping batches is faster than mapping single texts.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | str | os.PathLike[str],
        *,
        max_seq_length: int = 512,
        padding: Literal["longest", "max_length"] = "longest",
    ):
        """Build the lookup tables, which takes a few seconds.

        Args:
          tokenizer: the tokenizer to reproduce, or the folder of a model (see `load_tokenizer`).
          max_seq_length: maximum length of a sequence; longer texts are truncated as the tokenizer does.
          padding: "longest" pads to the longest sequence of the batch, "max_length" to `max_seq_length`.

        Raises:
          UserError: an argument is invalid, or the folder has no tokenizer.
        """
        if isinstance(tokenizer, (str, os.PathLike)):
            tokenizer = load_tokenizer(tokenizer)
        if not isinstance(tokenizer, Tokenizer):
            raise UserError(f"tokenizer is {tokenizer!r:.80}; give a FullTokenizer, or the folder of a model")
        tokenizer([""], max_seq_length=max_seq_length, padding=padding)  # validates these arguments
        self._max_seq_length, self._padding = max_seq_length, padding
        self._specials = tokenizer.specials
        self._graph_tokenizer = tokenizer.in_graph()

    @tf.autograph.experimental.do_not_convert
    def __call__(self, texts: tf.Tensor, text_pairs: tf.Tensor | None = None) -> Mapping[str, tf.Tensor]:
        """Convert texts or text pairs to model inputs.

        Args:
          texts: UTF-8 strings of shape [B], or [] for a single text.
          text_pairs: the second texts, strings of the same shape; "" for missing ones.

        Returns:
          input_ids, input_mask and segment_ids, int32 [B, S], as the tokenizer returns them; [`max_seq_length`] for a
          single text.

        Raises:
          UserError: the texts have the wrong type or shape.
        """
        texts, *pairs = (tf.convert_to_tensor(part) for part in (texts, text_pairs) if part is not None)
        for part in (texts, *pairs):
            if part.dtype != tf.string or part.shape.rank not in (0, 1) or part.shape.rank != texts.shape.rank:
                raise UserError(
                    f"DatasetTokenizer reads strings of shape [B] or [], not {part.dtype.name} {part.shape}; if the "
                    f"dataset also has labels, write dataset.map(lambda text, label: (tokenize(text), label))"
                )
        encoded = [self._graph_tokenizer.encode(tf.reshape(part, [-1])) for part in (texts, *pairs)]
        inputs = truncate_and_join(*encoded, specials=self._specials, max_seq_length=self._max_seq_length)
        is_single = texts.shape.rank == 0
        if is_single or self._padding == "max_length":
            inputs = {name: self._padded(values) for name, values in inputs.items()}
        return {name: values[0] for name, values in inputs.items()} if is_single else inputs

    def _padded(self, values: tf.Tensor) -> tf.Tensor:
        length = self._max_seq_length
        return tf.ensure_shape(tf.pad(values, [[0, 0], [0, length - tf.shape(values)[1]]]), [None, length])
