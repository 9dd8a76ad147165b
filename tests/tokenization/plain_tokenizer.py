"""The rules of BERT's tokenizer, one after the other, as plainly as they can be said: slow, and easy to check.

The tests compare the library's tokenizer with this one. It shares no code with it.
"""

import unicodedata


def plain_words(text, do_lower_case):
    """Splits a text into words."""
    cleaned = ""
    for character in text:
        category = unicodedata.category(character)
        if character in "\t\n\r" or category == "Zs":
            cleaned += " "
        elif character in "\x00\ufffd" or category in ("Cc", "Cf"):
            continue
        elif is_ideograph(ord(character)):
            cleaned += " " + character + " "
        else:
            cleaned += character
    words = []
    for word in cleaned.split():
        if do_lower_case:
            word = unicodedata.normalize("NFD", word.lower())
            word = "".join(character for character in word if unicodedata.category(character) != "Mn")
        words.extend(split_at_punctuation(word))
    return " ".join(words).split()


def split_at_punctuation(word):
    """Splits a word before and after each punctuation character."""
    parts = [""]
    for character in word:
        code = ord(character)
        is_ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
        if is_ascii_symbol or unicodedata.category(character)[0] == "P":
            parts += [character, ""]
        else:
            parts[-1] += character
    return [part for part in parts if part]


def is_ideograph(code):
    """Tells whether a code point lies in the CJK blocks that BERT splits."""
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2A6DF
        or 0x2A700 <= code <= 0x2B73F
        or 0x2B740 <= code <= 0x2B81F
        or 0x2B820 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )


def plain_pieces(text, vocab, do_lower_case):
    """Splits a text into wordpieces."""
    pieces = []
    for word in plain_words(text, do_lower_case):
        pieces += plain_word_pieces(word, vocab)
    return pieces


def plain_word_pieces(word, vocab):
    """Splits a word into the longest pieces from left to right, or gives it up as unknown."""
    if len(word) > 200:
        return ["[UNK]"]
    pieces = []
    rest = word
    while rest:
        for length in range(len(rest), 0, -1):
            piece = rest[:length] if not pieces else "##" + rest[:length]
            if piece in vocab:
                pieces.append(piece)
                rest = rest[length:]
                break
        else:
            return ["[UNK]"]
    return pieces


def plain_alignment(text, vocab, do_lower_case):
    """Splits a text into wordpieces, each with the start and the end of the characters it was made from.

    How many letters the words of each beginning of the text have tells which character made which letter. This is wrong
    where letters change places, as some combining characters do.
    """
    num_letters = [len("".join(plain_words(text[:end], do_lower_case))) for end in range(len(text) + 1)]
    makers = [
        index for index in range(len(text)) for _ in range(num_letters[index + 1] - num_letters[index])
    ]  # of each letter
    aligned = []
    letter = 0
    for word in plain_words(text, do_lower_case):
        for number, piece in enumerate(plain_word_pieces(word, vocab)):
            start = makers[letter]
            letter += len(word) if piece == "[UNK]" else len(piece) - (2 if number else 0)
            aligned.append((piece, start, end_with_accents(text, makers[letter - 1] + 1, makers)))
    return aligned


def end_with_accents(text, end, makers):
    """Moves the end of a range behind the accents that follow it, over deleted characters between them."""
    for index in range(end, len(text)):
        if index in makers or text[index] in "\t\n\r" or unicodedata.category(text[index])[0] == "Z":
            break
        if text[index] != "\ufffd" and unicodedata.category(text[index]) not in ("Cc", "Cf"):
            end = index + 1
    return end
