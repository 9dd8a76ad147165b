"""Whether a vocabulary fits a model, for those who join the two without a `bert_config.json` at hand."""

from official_bert.errors import UserError
from official_bert.modeling.encoder import BertEncoder
from official_bert.tokenization.vocab import Vocabulary


def check_vocabulary(vocabulary: Vocabulary, encoder: BertEncoder) -> None:
    """Raises unless the model has a row for each wordpiece.

    Raises:
      UserError: the vocabulary has more ids; the message holds both numbers.
    """
    num_rows = encoder.word_embeddings.shape[0]
    if vocabulary.size > num_rows:
        raise UserError(
            f"{vocabulary.source} has {vocabulary.size} pieces, the model only {num_rows}; "
            "use the vocabulary and bert_config.json that belong to the checkpoint"
        )
