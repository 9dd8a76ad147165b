"""Random sentences of words that are hard to separate, count or tokenize."""

HARD_WORDS = (
    "harbour", "town", "The", "bridge", "mirrors", "quay", "x", "2,000", "it's", "(rain)", "...", "!?", "½", "ﬁre",
    "Zoë", "Zoe\u0301", "ÅNGSTRÖM", "naïve-café", "İstanbul", "Straße", "ΣΊΣΥΦΟΣ",
    "서울은", "각하", "\u1100\u1161\u11a8", "東京都", "中", "日本語です", "한국어漢字mix",
    "👍🏽", "👨\u200d👩\u200d👧", "❤\ufe0f", "\U0001f1e9\U0001f1ea",
    "\u200b", "\x07", "\x7f\x9f", "\ufffd", "\ufeff", "\u0301", "\x00", "a\x00b",
    "town\u200bbridge", "\x0eharbour\x1b",
    "a" * 150, "harbourtownbridge" * 5, "the.the,the;the:the", "-" * 30, "中" * 12, "x1y2z3w4v5u6",
)  # fmt: skip


def random_sentences(rng, count, most_words=14):
    """Return sentences of at least one word; one in four is long."""
    sizes = [rng.randint(1, most_words * (5 if rng.random() < 0.25 else 1)) for _ in range(count)]
    return [[random_word(rng) for _ in range(size)] for size in sizes]


def random_word(rng):
    if rng.random() < 0.8:
        return rng.choice(HARD_WORDS)
    # Any characters except separators of words and surrogates.
    ranges = ((0x0E, 0x1F), (0x21, 0x7E), (0x80, 0x24F), (0x300, 0x36F), (0x600, 0x6FF), (0x2000, 0x206F))
    ranges += ((0x4E00, 0x4E80), (0xAC00, 0xAC80), (0xFE00, 0xFFFD), (0x1F600, 0x1F64F))
    letters = [chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 6))]
    return "".join(letter for letter in letters if not letter.isspace()) or "x"
