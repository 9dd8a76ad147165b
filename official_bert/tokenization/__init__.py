"""From text to wordpieces and ids: the reference's tokenizer, faster."""

from official_bert.tokenization.vocab import Vocabulary, load_vocab
from official_bert.tokenization.wordpiece import BasicTokenizer, FullTokenizer, WordpieceTokenizer

__all__ = ["BasicTokenizer", "FullTokenizer", "Vocabulary", "WordpieceTokenizer", "load_vocab"]
