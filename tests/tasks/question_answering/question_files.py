"""Question files: golden ones with the reference's results, and random ones with odd words."""

import json

from official_bert.tasks.question_answering.data import WindowOptions
from tests.conftest import GOLDEN

HARD_WORDS = [
    "(1871–1902).", "Zoë", "e\u0301", "東京都", "서울은", "\u200b", "\u200bx", "unknowable", "😀", "a\x0bb", "it's",
]  # fmt: skip


def golden(name):
    """Return the reference's results for a file, its options, and the file's path."""
    case = json.loads((GOLDEN / "squad" / f"{name}.json").read_text())
    options = WindowOptions(*(case["config"][key] for key in ("max_seq_length", "doc_stride", "max_query_length")))
    return case, options, str(GOLDEN / "inputs" / f"{name}.json")


def random_content(rng, words):
    """Return the contents of a file whose answers are arbitrary parts of odd contexts."""
    paragraphs = []
    for number in range(6):
        spaces = [" ", " ", " ", "  ", "\n", "\t", "\r", "\u202f", "\u3000", "\u00a0", "-", ""]
        context = "".join(rng.choice(words) + rng.choice(spaces) for _ in range(rng.choice([1, 5, 40, 150])))
        entries = []
        for part in range(3):
            start = rng.randrange(len(context))
            text = context[start : start + rng.randint(1, 30)]
            entries.append(
                {
                    "id": f"{number}-{part}",
                    "question": " ".join(rng.choice(words) for _ in range(rng.randint(0, 12))),
                    "answers": [{"text": text, "answer_start": start}] if text.strip() else [],
                    "is_impossible": not text.strip() or rng.random() < 0.2,
                }
            )
        paragraphs.append({"context": context, "qas": entries})
    return {"data": [{"paragraphs": paragraphs}]}
