"""A plain version of the rules of BERT's tokenizer: slow, but easy to check.

The tests compare the library's tokenizer with this one. It shares no code with it.
"""

import string
import unicodedata

# The blocks in which BERT treats each character as a word: the unified ideographs, their extensions A to E, and the
# compatibility ideographs with their supplement.
IDEOGRAPHS = [
    *(range(0x4E00, 0xA000), range(0x3400, 0x4DC0), range(0x20000, 0x2A6E0), range(0x2A700, 0x2B740)),
    *(range(0x2B740, 0x2B820), range(0x2B820, 0x2CEB0), range(0xF900, 0xFB00), range(0x2F800, 0x2FA20)),
]


def plain_words(text, settings):
    if not settings.basic_tokenize:
        return text.split()
    words = []
    for word in "".join(cleaned(letter, settings.tokenize_chinese_chars) for letter in text).split():
        if settings.do_lower_case:
            word = word.lower()
        if settings.strip_accents_only or (settings.do_lower_case and settings.strip_accents):
            letters = unicodedata.normalize("NFD", word)
            word = "".join(letter for letter in letters if unicodedata.category(letter) != "Mn")
        words += split_at_punctuation(word)
    return " ".join(words).split()


def cleaned(character, spaces_ideographs):
    """Clean a character: white space becomes a space, controls are dropped, ideographs may get spaces around them."""
    kind = unicodedata.category(character)
    if kind == "Zs" or character in "\t\n\r":
        return " "
    if kind in ("Cc", "Cf") or character in "\x00\ufffd":
        return ""
    return f" {character} " if spaces_ideographs and is_ideograph(character) else character


def split_at_punctuation(word):
    parts = [""]
    for character in word:
        if character in string.punctuation or unicodedata.category(character)[0] == "P":
            parts += [character, ""]
        else:
            parts[-1] += character
    return [part for part in parts if part]


def is_ideograph(character):
    return any(ord(character) in block for block in IDEOGRAPHS)


def plain_pieces(text, vocab, settings):
    wordpieces = []
    for word in plain_words(text, settings):
        wordpieces += plain_word_pieces(word, vocab, settings)
    return wordpieces


def plain_word_pieces(word, vocab, settings):
    """Split a word into the longest pieces from left to right, or treat it as unknown."""
    if not settings.basic_tokenize and word in vocab:
        return [word]
    if len(word) > 200:
        return ["[UNK]"]
    wordpieces = []
    rest = word
    while rest:
        for length in range(len(rest), 0, -1):
            piece = rest[:length] if not wordpieces else "##" + rest[:length]
            if piece in vocab:
                wordpieces.append(piece)
                rest = rest[length:]
                break
        else:
            return ["[UNK]"]
    return wordpieces


def plain_alignment(text, vocab, settings):
    """Split a text into wordpieces, each with the start and end of its characters.

    The number of letters in the words of each prefix of the text shows which character produced which letter. This is
    wrong where letters change places, as some combining characters do.
    """
    num_letters = [len("".join(plain_words(text[:end], settings))) for end in range(len(text) + 1)]
    makers = [
        index for index in range(len(text)) for _ in range(num_letters[index + 1] - num_letters[index])
    ]  # one for each letter
    aligned = []
    letter = 0
    for word in plain_words(text, settings):
        for number, piece in enumerate(plain_word_pieces(word, vocab, settings)):
            start = makers[letter]
            letter += len(word) if piece == "[UNK]" else len(piece) - (2 if number else 0)
            aligned.append((piece, start, end_with_accents(text, makers[letter - 1] + 1, makers)))
    return aligned


def end_with_accents(text, end, makers):
    """Move the end of a range past the accents that follow it, over deleted characters between them."""
    for index in range(end, len(text)):
        if index in makers or text[index] in "\t\n\r" or unicodedata.category(text[index])[0] == "Z":
            break
        if text[index] != "\ufffd" and unicodedata.category(text[index]) not in ("Cc", "Cf"):
            end = index + 1
    return end
