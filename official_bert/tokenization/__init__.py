"""Tokenizers: a faster version of the reference's WordPiece tokenizer, SentencePiece and byte-level BPE."""

from official_bert.tokenization.full_tokenizer import BasicTokenizer, FullTokenizer, WordpieceTokenizer
from official_bert.tokenization.sentencepiece_tokenizer import SentencePieceTokenizer
from official_bert.tokenization.tokenizer import (
    EncodingWithOffsets,
    Tokenizer,
    load_tokenizer,
    read_tokenizer,
    read_vocabulary,
    read_vocabulary_file,
)
from official_bert.tokenization.vocab import Vocabulary, load_vocab

__all__ = [
    "BasicTokenizer",
    "EncodingWithOffsets",
    "FullTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "Vocabulary",
    "WordpieceTokenizer",
    "load_tokenizer",
    "load_vocab",
    "read_tokenizer",
    "read_vocabulary",
    "read_vocabulary_file",
]
