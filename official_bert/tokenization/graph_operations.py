"""Small operations that both tokenizers of the graph are made of, and what they read and return."""

from typing import NamedTuple

import tensorflow as tf

from official_bert.tokenization.characters import SigmaContext
from official_bert.tokenization.graph_tables import PAGE_SIZE, PagedTable

TEXTS = tf.TensorSpec([None], tf.string, name="texts")


class RaggedEncodingWithOffsets(NamedTuple):
    """The wordpieces of texts and where each stands; all are int32 [B, (wordpieces)].

    Attributes:
      ids: ids of the pieces.
      starts: index of a piece's first character, among those that could be decoded.
      ends: index after the last one.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class CodePointLookup(tf.Module):
    """A `PagedTable` in the graph."""

    def __init__(self, table: PagedTable):
        """Stores a table."""
        super().__init__()
        self._page_starts = tf.constant(table.page_of * PAGE_SIZE, tf.int32)
        self._pages = tf.constant(table.pages.ravel(), tf.int32)

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        """Looks up the numbers, int32, of code points, int32."""
        return tf.gather(self._pages, tf.gather(self._page_starts, codes // PAGE_SIZE) + codes % PAGE_SIZE)


def shifted(values: tf.Tensor, places: int) -> tf.Tensor:
    """What `tf.roll` gives, which hands even a short row to several threads and waits for them."""
    return tf.concat([values[-places:], values[:-places]], axis=0)


def ended(texts: tf.Tensor) -> tf.Tensor:
    """Ends each text with a separator, so that no rule looks from one text into the next."""
    return tf.strings.join([texts, "\n"])


def final_sigmas_in(contexts: tf.Tensor, is_sigma: tf.Tensor) -> tf.Tensor:
    """Finds the capital sigmas at the end of a word.

    Args:
      contexts: int32 [C], the `SigmaContext` of each character; the last one is white space.
      is_sigma: bool [C], which are capital sigmas.

    Returns:
      int64 [sigmas], which of the characters they are.
    """
    seen = tf.where(contexts != SigmaContext.SKIPPED)[:, 0]
    is_cased = tf.gather(contexts, seen) == SigmaContext.CASED
    # As the last one is white space, the first finds nothing cased before it either.
    is_final = tf.gather(is_sigma, seen) & shifted(is_cased, 1) & ~shifted(is_cased, -1)
    return tf.boolean_mask(seen, is_final)
