"""Generated sentences whose class depends on one word; all words are in the golden vocabulary."""

GOOD, BAD = ("bright", "warm"), ("empty", "broken")
NOUNS = ("harbour", "town", "bridge", "snow", "mirror", "committee", "rain", "quay")


def sentence(rng, is_good, num_words=6):
    """Return a sentence of at most `num_words` words, one of which shows whether it is good."""
    words = [rng.choice(NOUNS) for _ in range(rng.randrange(1, num_words))]
    words.insert(rng.randrange(len(words) + 1), rng.choice(GOOD if is_good else BAD))
    return "the " + " ".join(words)
