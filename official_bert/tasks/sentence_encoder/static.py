"""Static vectors: a sentence encoder computes one for each wordpiece, and a text needs only their sum."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.sentence import SentenceModel, StaticEncoder
from official_bert.options.groups import FLOAT32, check_vector_size
from official_bert.support.console import Progress
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.servable import SentenceServable
from official_bert.tokenization.sequences import join_texts
from official_bert.tokenization.tokenizer import pad
from official_bert.tokenization.vocab import CLS, MASK, PAD, SEP, UNK

_USUAL_SIZE = 256
_RARITY = 1e-4  # `a` of SIF
_UNUSED = "[unused"
_AT_ONCE = 1024


def static_servable(
    servable: SentenceServable, size: int = 0, vector_types: Sequence[str] = (FLOAT32,)
) -> SentenceServable:
    """Return a `SentenceServable` whose vector of a text is the normalized sum of static vectors of its wordpieces.

    The encoder reads each wordpiece alone, between [CLS] and [SEP]. The principal components of its vectors before
    normalization, `size` of them or 256, are weighted by a / (a + p) with a = 1e-4 (SIF). The probability p of a
    wordpiece follows Zipf's law: vocabularies are ordered by frequency. Special tokens have no vector.

    Source: Arora et al., "A Simple but Tough-to-Beat Baseline for Sentence Embeddings" (2017); Model2Vec (2024).
    """
    if servable.is_sparse:
        raise UserError("static vectors are computed from dense vectors, and this model has sparse ones")
    check_vector_size(size, servable.width)
    config, vocabulary, specials = servable.bert_config, servable.vocabulary, servable.tokenizer.specials
    left_out = set(map(vocabulary.name_of, (CLS, SEP, MASK)))
    names = sorted(vocabulary.token_to_id.items(), key=lambda item: item[1])
    ids = [number for name, number in names if name not in left_out and not name.startswith(_UNUSED)]
    vectors = []
    with Progress("computing static vectors", len(ids), "wordpieces") as progress:
        for start in range(0, len(ids), _AT_ONCE):
            rows = [join_texts([number], [], specials) for number in ids[start : start + _AT_ONCE]]
            inputs = {name: tf.constant(array) for name, array in pad(rows, 3, specials.pad_id).items()}
            vectors.append(servable.unnormalized(inputs).numpy())
            progress.update(start + len(rows))
    table = np.zeros((config.vocab_size, size or min(_USUAL_SIZE, servable.width)), np.float32)
    table[ids] = _weighted_components(np.concatenate(vectors), table.shape[1])
    table[vocabulary.require(PAD, UNK)] = 0
    of_table = BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=table.shape[1],
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=1,
        max_position_embeddings=config.max_length,
        type_vocab_size=config.num_segments,
    )
    model = SentenceModel(StaticEncoder(of_table, table), layers_after=[None])
    length = servable.max_seq_length
    return SentenceServable(model, of_table, servable.tokenizer, max_seq_length=length, vector_types=vector_types)


def _weighted_components(vectors: np.ndarray, size: int) -> np.ndarray:
    """Return the principal components of vectors, float [V, D], in the order of frequency, with weights of SIF."""
    centered = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centered.T @ centered)  # by ascending variance
    shares = 1 / np.arange(2, len(vectors) + 2)
    weights = (_RARITY / (_RARITY + shares / shares.sum())).astype(np.float32)
    return centered @ directions[:, : -size - 1 : -1] * weights[:, np.newaxis]
