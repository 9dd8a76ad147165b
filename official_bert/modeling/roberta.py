"""RoBERTa's embeddings; the rest of the model is BERT's. `families/roberta.py` names `RobertaEmbeddings`."""

import keras
from keras import ops

from official_bert.modeling.encoder import Embeddings


@keras.saving.register_keras_serializable(package="official_bert")
class RobertaEmbeddings(Embeddings):
    """BERT's three tables, with positions counted from 2 over non-padding tokens; padding has position 1.

    Source: transformers, `create_position_ids_from_input_ids`, after fairseq's `make_positions`.
    """

    def _positions(self, input_ids):
        """Look up the embeddings of positions, float [B, S, E]."""
        pad_id = self.config.first_position - 1
        is_real = ops.cast(input_ids != pad_id, "int32")
        positions = ops.cumsum(is_real, axis=1) * is_real + pad_id
        return ops.take(self.position_embeddings, positions, axis=0)

    def _segments(self, segment_ids, training):
        if self.config.type_vocab_size == 1:  # pairs from BERT's tokenizer have two segments
            segment_ids = ops.zeros_like(segment_ids)
        return super()._segments(segment_ids, training)
