"""A made vocabulary of words and suffixes."""

from official_bert.tokenization import Vocabulary

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(50)), *(f"##s{n}" for n in range(50))]
CLS, SEP, MASK = 2, 3, 4
FIRST_WORD, FIRST_SUFFIX = 5, 55


class BareFirstWords(Vocabulary):
    """A vocabulary like that of a byte-level BPE, in which nothing marks the first word of a text."""

    marks_first_word = False
