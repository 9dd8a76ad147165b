"""From text to wordpieces and ids: the reference's tokenizer, faster."""

from official_bert.tokenization.alignment import EncodingWithOffsets
from official_bert.tokenization.full_tokenizer import FullTokenizer
from official_bert.tokenization.vocab import Vocabulary, load_vocab
from official_bert.tokenization.wordpiece import BasicTokenizer, WordpieceTokenizer

__all__ = [
    "BasicTokenizer",
    "EncodingWithOffsets",
    "FullTokenizer",
    "Vocabulary",
    "WordpieceTokenizer",
    "load_vocab",
]
