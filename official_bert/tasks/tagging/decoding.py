"""Tags that fit together: the most likely sequence of a sentence, by a CRF or the rules of the tagging scheme."""

from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from official_bert.metrics.tagging import allowed_pairs, has_entities, scheme_of
from official_bert.modeling.crf import Transitions, marginals, viterbi
from official_bert.modeling.heads import CRF
from official_bert.modeling.tagging import TaggingModel
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.tagging.options import TaggingConfig

_FORBIDDEN = -1e4  # not infinite: if every sequence is forbidden, the one with the fewest breaks is the best

# B: sentences, W: words of all sentences, C: tags.


def check_constrainable(tags: Sequence[str], sentences: Iterable[Sequence[str]] = ()) -> None:
    """Raise unless the tags have a scheme whose rules can guide decoding.

    Args:
      tags: the tags of the model.
      sentences: tagged sentences, if there are any.

    Raises:
      UserError: they mark no entities, or the sentences are in IOB1.
    """
    if not has_entities(tags):
        raise UserError(
            f"constrained_decoding needs tags of entities, such as B-PER and I-PER; the tags are {format_names(tags)}"
        )
    if scheme_of(sentences) == "IOB1":
        raise UserError(
            "constrained_decoding needs tags in IOB2 or IOBES; these are in IOB1, where entities begin with I, so that "
            "almost every sequence is allowed"
        )


def scheme_transitions(tags: Sequence[str]) -> Transitions:
    """Return transitions that forbid sequences which break the rules of IOB2 or IOBES; see `allowed_pairs`."""
    scores = np.where(allowed_pairs(tags), 0, _FORBIDDEN).astype(np.float32)
    return Transitions(scores[-1, :-1], scores[:-1, :-1], scores[:-1, -1])


def transitions_of(model: TaggingModel, tags: Sequence[str], config: TaggingConfig) -> Transitions | None:
    """Return the transitions to decode with: those of the CRF and of the scheme, as the flags say; None for neither."""
    sources = [
        *([Transitions(*map(np.asarray, model.transitions))] if config.head == CRF else []),
        *([scheme_transitions(tags)] if config.constrained_decoding else []),
    ]
    return Transitions(*(sum(parts) for parts in zip(*sources, strict=True))) if sources else None


def decode_words(scores: tf.Tensor, row_splits: tf.Tensor, transitions: Transitions) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the tags of the most likely sequences, and their probabilities over all sequences.

    Args:
      scores: float32 [W, C], logits or log-probabilities.
      row_splits: int64 [B + 1], number of words before each sentence, and in total.
      transitions: the scores of transitions.

    Returns:
      Tag numbers, int64 [W], and probabilities, float32 [W].
    """
    ragged = tf.RaggedTensor.from_row_splits(scores, row_splits, validate=False)
    padded = tf.pad(ragged.to_tensor(), [[0, 0], [0, 1], [0, 0]])  # [B, S, C], with at least one position
    is_word = tf.sequence_mask(ragged.row_lengths(), tf.shape(padded)[1])
    numbers = viterbi(padded, is_word, transitions)  # [B, S]
    probabilities = tf.gather(marginals(padded, is_word, transitions), numbers, batch_dims=2)
    return tf.cast(tf.boolean_mask(numbers, is_word), tf.int64), tf.boolean_mask(probabilities, is_word)
