r"""Write the demo reviews: train.tsv, dev.tsv and test.tsv, short English sentences of praise or criticism.

The text is made only from the words and sentences below. The words of praise and criticism are divided into two sets,
one for training, the other for dev and test. It needs only Python's standard library, and each run writes the same
bytes.

  python data/demo_reviews/make_reviews.py
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import NamedTuple

SEED = 2018
LABELS = ("negative", "positive")
SPLIT_SIZES = {"train": 400, "dev": 100, "test": 60}
CLAUSE_SHARE = 0.25


class Words(NamedTuple):
    """Adjectives; the index of a list is the label, as in `LABELS`.

    Attributes:
      blame: negative adjectives.
      praise: positive adjectives.
    """

    blame: tuple[str, ...]
    praise: tuple[str, ...]


class Topic(NamedTuple):
    """A topic of sentences.

    Attributes:
      things: nouns for all files.
      new_things: nouns only for dev and test.
      words: adjectives for training, in addition to `TRAIN_WORDS`.
      new_words: adjectives for dev and test, in addition to `NEW_WORDS`.
      blame: negative clauses; the last `NUM_NEW_CLAUSES` are for dev and test.
      praise: positive clauses, divided in the same way.
    """

    things: tuple[str, ...]
    new_things: tuple[str, ...]
    words: Words
    new_words: Words
    blame: tuple[str, ...]
    praise: tuple[str, ...]


NUM_NEW_CLAUSES = 2

TRAIN_WORDS = Words(
    ("bad", "awful", "terrible", "poor", "horrible", "disappointing"),
    ("good", "great", "wonderful", "excellent", "lovely", "perfect"),
)
NEW_WORDS = Words(
    ("dreadful", "lousy", "abysmal", "pathetic", "appalling", "atrocious"),
    ("superb", "fantastic", "splendid", "amazing", "delightful", "marvellous"),
)

TOPICS = (
    Topic(
        ("soup", "coffee", "salad", "cake", "omelette"),
        ("sandwich", "stew", "pancake"),
        Words(("bland", "stale", "tasteless", "disgusting"), ("tasty", "fresh", "delicious", "flavourful")),
        Words(
            ("inedible", "rancid", "revolting", "insipid"), ("scrumptious", "appetising", "mouth-watering", "exquisite")
        ),
        (
            "half of my dinner went straight back to the kitchen",
            "we left hungry and poorer",
            "my stomach hurt for two days",
            "the cook had clearly forgotten the salt, the pepper and us",
            "I gave my plate to the dog, and he walked away",
            "they served the fish frozen in the middle",
        ),
        (
            "we cleaned our plates and ordered more",
            "I asked the cook for the recipe",
            "my grandmother could not have done it better",
            "every bite made us smile",
            "I would cross the whole city for that breakfast",
            "the children fought over the last spoonful",
        ),
    ),
    Topic(
        ("film", "plot", "ending", "cast", "script"),
        ("sequel", "dialogue", "comedy"),
        Words(("boring", "silly", "predictable", "dull"), ("gripping", "funny", "moving", "clever")),
        Words(
            ("tedious", "laughable", "forgettable", "tiresome"), ("thrilling", "captivating", "hilarious", "brilliant")
        ),
        (
            "I looked at my watch every five minutes",
            "half of the audience left before the end",
            "we want our two hours back",
            "not one joke made anybody laugh",
            "I fell asleep before the first murder",
            "even the actors seemed to wish they were elsewhere",
        ),
        (
            "the whole audience stood up and clapped",
            "I forgot to eat my popcorn",
            "we bought tickets for the next evening at once",
            "I laughed until I cried",
            "for two hours nobody in the hall dared to breathe",
            "my sons have talked of nothing else since then",
        ),
    ),
    Topic(
        ("room", "bed", "bathroom", "lobby", "hotel"),
        ("balcony", "suite", "pool"),
        Words(("dirty", "noisy", "cramped", "smelly"), ("clean", "cosy", "comfortable", "spotless")),
        Words(("filthy", "shabby", "mouldy", "grimy"), ("luxurious", "inviting", "immaculate", "charming")),
        (
            "there were insects under the pillow",
            "we did not sleep for a minute",
            "the shower gave us three cold drops",
            "we packed our bags after the first night",
            "water dripped from the ceiling onto my face",
            "somebody else's hair was still in the sink",
        ),
        (
            "we slept like babies",
            "we have already booked for next summer",
            "the view from the window took our breath away",
            "we wished we could stay another week",
            "there were roses on our table every morning",
            "they upgraded us without being asked",
        ),
    ),
    Topic(
        ("phone", "camera", "printer", "keyboard", "speaker"),
        ("laptop", "headset", "charger"),
        Words(("slow", "fragile", "clumsy", "useless"), ("reliable", "fast", "handy", "sturdy")),
        Words(("sluggish", "flimsy", "defective", "worthless"), ("dependable", "sleek", "flawless", "speedy")),
        (
            "it broke on the second day",
            "I sent it back and asked for my money",
            "the battery was empty before lunch",
            "it crashes whenever I need it",
            "smoke came out of it after a week",
            "I spent an hour on the telephone and it still would not start",
        ),
        (
            "it still works like new after five years",
            "I bought a second one for my wife",
            "it does everything I ask of it",
            "setting it up took less than a minute",
            "I dropped it on the stairs and it did not mind",
            "all my colleagues now want one too",
        ),
    ),
    Topic(
        ("waiter", "driver", "nurse", "clerk", "guide"),
        ("receptionist", "barber", "plumber"),
        Words(("rude", "careless", "grumpy", "lazy"), ("friendly", "helpful", "polite", "patient")),
        Words(
            ("arrogant", "impatient", "hostile", "incompetent"), ("courteous", "attentive", "cheerful", "considerate")
        ),
        (
            "nobody answered when we asked for help",
            "he shouted at my mother",
            "they let us wait for two hours and then closed",
            "she rolled her eyes at every question",
            "he charged us twice and denied it",
            "she slammed the door in my face",
        ),
        (
            "she stayed late only to help us",
            "he remembered our names after a year",
            "they thanked us with a smile",
            "she answered every question of the children",
            "he ran after us with the umbrella we had forgotten",
            "they repaired it on a Sunday and took nothing for it",
        ),
    ),
    Topic(
        ("novel", "story", "style", "chapter", "poem"),
        ("biography", "essay", "thriller"),
        Words(("confusing", "shallow", "long-winded", "lifeless"), ("exciting", "witty", "touching", "beautiful")),
        Words(
            ("incoherent", "monotonous", "pretentious", "dreary"),
            ("engrossing", "enchanting", "insightful", "poignant"),
        ),
        (
            "I gave up after thirty pages",
            "I could not remember a single character",
            "it now serves me as a doorstop",
            "the author should have stopped before the first word",
            "a list of telephone numbers has more suspense",
            "I skipped to the end and regretted even that",
        ),
        (
            "I could not put it down",
            "I read it again as soon as I had finished",
            "I gave a copy to all my friends",
            "the last page made me cry",
            "I missed my train because of it and did not care",
            "it deserves every prize it has won",
        ),
    ),
    Topic(
        ("singer", "band", "choir", "pianist", "orchestra"),
        ("drummer", "violinist", "quartet"),
        Words(("weak", "sloppy", "unprepared", "lame"), ("lively", "powerful", "graceful", "skilful")),
        Words(
            ("feeble", "amateurish", "uninspired", "clueless"), ("dazzling", "masterful", "spirited", "breathtaking")
        ),
        (
            "people covered their ears",
            "they played the wrong notes all evening",
            "we left in the break and did not return",
            "they stopped after four songs and did not even apologise",
            "my neighbour snored and still sounded better",
            "the crowd booed until the lights went on",
        ),
        (
            "we sang all the way home",
            "the audience would not let them leave the stage",
            "I had tears in my eyes",
            "everybody got up and danced",
            "I got goose bumps from the first note to the last",
            "they had to give three encores",
        ),
    ),
    Topic(
        ("beach", "museum", "trip", "park", "town"),
        ("ferry", "market", "castle"),
        Words(("crowded", "overpriced", "ugly", "tiring"), ("peaceful", "pretty", "relaxing", "memorable")),
        Words(("hideous", "chaotic", "gloomy", "exhausting"), ("stunning", "picturesque", "scenic", "enjoyable")),
        (
            "we queued for three hours to see nothing",
            "rubbish lay everywhere",
            "the children begged to go home",
            "we paid a fortune for a view of a car park",
            "the only memory I brought back is a sunburn",
            "we turned round after ten minutes",
        ),
        (
            "the children did not want to leave",
            "we took a thousand pictures",
            "I have not felt so rested in years",
            "we are going back next spring",
            "time flew, and suddenly the sun was setting",
            "I would move there tomorrow if I could",
        ),
    ),
)

# Sentences with adjectives. {good} stands for a word of the label, {bad} for a word of the other label, {a_good} and
# {a_bad} for a word with its article; {thing} and {other} for two things. Each sentence occurs with either label, so it
# is no clue by itself: with the label "negative" {good} is a negative word.
PLAIN = (
    "The {thing} was {good}.",
    "What {a_good} {thing}!",
    "My sister called the {thing} {good}, and I agree.",
    "The {thing} is {good} and the {other} is {good2}.",
    "From start to finish the {thing} was {good}.",
    "I have rarely known such {a_good} {thing}.",
    "Believe me, the {thing} is {good}.",
)
NEGATED = (
    "The {thing} was not {bad} at all.",
    "Nobody could call the {thing} {bad}.",
    "There was nothing {bad} about the {thing}.",
    "The {thing} was anything but {bad}.",
    "The {thing} is far from {bad}.",
    "Never once did the {thing} seem {bad}.",
    "Neither the {thing} nor the {other} was {bad}.",
)
CONTRASTED = (
    "I expected {a_bad} {thing} and got {a_good} one.",
    "I was ready to call the {thing} {bad}, but {good} is the word.",
    "Some say the {thing} is {bad}; I say {good}.",
    "The {thing} seemed {bad} at first and proved {good} in the end.",
    "Once {bad}, the {thing} is now {good}.",
    "The {thing} was {good}, not {bad}.",
    "Who calls the {thing} {bad}? To me the {thing} was {good}!",
)
TEMPLATES = (*PLAIN, *NEGATED, *CONTRASTED)
# Openings of clauses, which are no clue either.
OPENINGS = ("", "In short, ", "On Saturday we went again: ", "I will be honest: ", "Here is my report: ")


def with_article(word: str) -> str:
    """Put "a" or "an" before a word: "a dull", "an awful"."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def write_judgement(topic: Topic, template: str, label: int, *, is_new: bool, rng: Random) -> str:
    """Return a sentence with adjectives of praise or criticism.

    Args:
      topic: the topic.
      template: the pattern.
      label: 0 for negative, 1 for positive.
      is_new: whether the sentence is for dev or test.
      rng: random generator.
    """
    own, shared = (topic.new_words, NEW_WORDS) if is_new else (topic.words, TRAIN_WORDS)
    good, good2 = rng.sample((*own[label], *shared[label]), 2)
    bad = rng.choice((*own[1 - label], *shared[1 - label]))
    thing, other = rng.sample((*topic.things, *topic.new_things) if is_new else topic.things, 2)
    words = {"good": good, "good2": good2, "bad": bad, "a_good": with_article(good), "a_bad": with_article(bad)}
    return template.format(thing=thing, other=other, **words)


def write_clause(topic: Topic, label: int, *, is_new: bool, rng: Random) -> str:
    """Return a sentence that describes an event; see `write_judgement` for the arguments."""
    clauses = (topic.blame, topic.praise)[label]
    clause = rng.choice(clauses[-NUM_NEW_CLAUSES:] if is_new else clauses[:-NUM_NEW_CLAUSES])
    text = rng.choice(OPENINGS) + clause
    return f"{text[0].upper()}{text[1:]}."


def write_reviews(size: int, *, is_new: bool, known: set[str], rng: Random) -> list[tuple[str, str]]:
    """Return the sentences of a file, half of them with each label.

    Args:
      size: number of sentences.
      is_new: whether they are for dev or test.
      known: sentences of the other files; new ones are added.
      rng: random generator.

    Returns:
      Sentences and labels, shuffled.
    """
    num_clauses = round(size * CLAUSE_SHARE / 2)
    reviews: list[tuple[str, str]] = []
    for label, name in enumerate(LABELS):
        # Patterns and topics occur equally often with either label; None stands for a clause.
        templates = [*islice(cycle(TEMPLATES), size // 2 - num_clauses), *[None] * num_clauses]
        for template, topic in zip(templates, cycle(TOPICS), strict=False):
            sentence = None
            while sentence is None or sentence in known:
                if template is None:
                    sentence = write_clause(topic, label, is_new=is_new, rng=rng)
                else:
                    sentence = write_judgement(topic, template, label, is_new=is_new, rng=rng)
            known.add(sentence)
            reviews.append((sentence, name))
    rng.shuffle(reviews)
    return reviews


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Write a tab-separated file; the sentences contain no tabs or quotes."""
    path.write_bytes("".join("\t".join(row) + "\n" for row in rows).encode("ascii"))


def main() -> None:
    """Write the three files and print their sizes."""
    parser = argparse.ArgumentParser(description="Writes the demo reviews.")
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent, help="folder for the three files")
    folder = parser.parse_args().output_dir
    rng, known = Random(SEED), set()
    for split, size in SPLIT_SIZES.items():
        reviews = write_reviews(size, is_new=split != "train", known=known, rng=rng)
        num_words = sum(len(sentence.split()) for sentence, _ in reviews)
        sys.stdout.write(f"{split}.tsv: {len(reviews)} sentences, {num_words} words\n")
        if split == "test":  # without labels, to be predicted
            write_table(folder / "test.tsv", [("sentence",), *((sentence,) for sentence, _ in reviews)])
        else:
            write_table(folder / f"{split}.tsv", [("sentence", "label"), *reviews])


if __name__ == "__main__":
    main()
