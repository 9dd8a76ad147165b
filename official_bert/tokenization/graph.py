"""Makes the TensorFlow operations that do what a tokenizer does."""

from typing import TYPE_CHECKING

from official_bert.support.extras import folder_of_tensorflow_text
from official_bert.tokenization.graph_tokenizer import GraphTokenizer
from official_bert.tokenization.sentencepiece_tokenizer import SentencePieceTokenizer
from official_bert.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from official_bert.tokenization.graph_sentencepiece import GraphSentencePieceTokenizer


def make_graph_tokenizer(tokenizer: Tokenizer) -> "GraphTokenizer | GraphSentencePieceTokenizer":
    """Make the graph's tokenizer that gives every text the same ids.

    Raises:
      UserError: it needs tensorflow-text, which is not installed.
    """
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return GraphTokenizer(tokenizer)
    folder_of_tensorflow_text("the graph of a SentencePiece model")
    from official_bert.tokenization.graph_sentencepiece import GraphSentencePieceTokenizer

    return GraphSentencePieceTokenizer(tokenizer)
