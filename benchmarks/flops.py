"""Number of operations in the matrix products of a model, to compute its utilization of a chip."""

import numpy as np

from official_bert.config.bert_config import BertConfig

BACKWARD = 2  # the gradients of a matrix product are two such products


def encoder_flops(config: BertConfig, lengths: np.ndarray) -> int:
    """Return the operations of the layers in a forward pass.

    A product of [n, k] and [k, m] has 2nkm operations.

    Args:
      config: the architecture.
      lengths: int [B], number of unpadded positions of each sequence.
    """
    width, inner = config.hidden_size, config.intermediate_size
    num_tokens, num_pairs = int(lengths.sum()), int((lengths**2).sum())
    projections = 2 * num_tokens * (4 * width**2 + 2 * width * inner)  # query, key, value, output; feed-forward
    attention = 2 * num_pairs * 2 * width  # scores, and sums of values
    return config.num_hidden_layers * (projections + attention)


def pretraining_heads_flops(config: BertConfig, num_sequences: int, num_predictions: int) -> int:
    """Return the operations of the pooler and the two pretraining heads in a forward pass.

    Args:
      config: the architecture.
      num_sequences: B.
      num_predictions: number of masked positions per sequence.
    """
    width = config.hidden_size
    masked_lm = num_predictions * (width**2 + width * config.vocab_size)
    return 2 * num_sequences * (masked_lm + width**2 + width * 2)
