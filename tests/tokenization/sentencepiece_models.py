"""Small SentencePiece models for the tests, trained on the demo's text, numbers and some other scripts."""

import base64
import random
from pathlib import Path

import sentencepiece
import tensorflow as tf

SPECIALS = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
# fairseq's models have the special tokens at other positions than ALBERT's.
FAIRSEQ = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2, "control_symbols": []}
ACROSS_SCRIPTS = {"split_by_number": False, "split_by_unicode_script": False}  # for pieces such as "2000,"
# ALBERT's type, its alternative, and options that change the treatment of spaces.
VARIANTS = {
    "albert": {**ACROSS_SCRIPTS, "user_defined_symbols": ["(", ")", '"', "-", ".", "–", "£", "€"]},
    "bpe": {**ACROSS_SCRIPTS, "model_type": "bpe"},
    "kobert": {
        **ACROSS_SCRIPTS, "unk_id": 0, "unk_piece": "[UNK]", "pad_id": 1, "pad_piece": "[PAD]",
        "user_defined_symbols": ['"'],
    },
    "deberta": {
        "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]",
        "eos_piece": "[SEP]", "unk_piece": "[UNK]", "control_symbols": [],
    },
    "spaces_kept": {
        **ACROSS_SCRIPTS, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
    },
    "space_behind": {"treat_whitespace_as_suffix": True},
    "no_first_space": {**ACROSS_SCRIPTS, "add_dummy_prefix": False, "split_by_whitespace": False},
}  # fmt: skip
VOCAB_SIZE = 500

_TEXT = Path(__file__).parents[2] / "data" / "demo" / "train.txt"


def training_lines():
    """Return lowercase lines of the demo, and lines with numbers and other scripts."""
    rng = random.Random(1)
    lines = [line for line in _TEXT.read_text().lower().splitlines()[:1500] if line]
    for _ in range(800):
        year, count = rng.choice([1999, 2000, 2008]), rng.choice([1, 2, 3, 10, 100])
        big = f"{rng.randrange(1, 60)},{rng.randrange(100, 1000)}"
        lines.append(f"in {big} of {year}, we saw {count}, 1,000,000 things ſ ﬁ é σ 한국어 값 값2,")
    return lines


def write_model(path, variant="albert", **flags):
    options = {**SPECIALS, **VARIANTS[variant], **flags}
    with open(path, "wb") as sink:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(training_lines()), model_writer=sink, vocab_size=VOCAB_SIZE, minloglevel=2,
            hard_vocab_limit=False, num_threads=1, **options,
        )  # fmt: skip
    return str(path)


def random_texts(rng, count):
    """Return texts of odd characters, and lines of the training text with odd characters inserted."""
    odd = "aAbΣσİé \u0301\u0345¨  \n\t\u00a0\x1c\u2028ﬁﬃ가½ª\u302e\u0327\u2581\u2581,,0123456789\0①²٣,\u3000[CLS]"
    lines = training_lines()
    for _ in range(count):
        if rng.random() < 0.4:
            ranges = ((1, 0xD800), (0xE000, 0x20000))
            yield "".join(
                rng.choice(odd) if rng.random() < 0.8 else chr(rng.randrange(*rng.choice(ranges)))
                for _ in range(rng.randrange(14))
            )
        else:
            line = list(rng.choice(lines))
            for _ in range(rng.randrange(4)):
                line.insert(rng.randrange(len(line) + 1), rng.choice(odd))
            yield "".join(line)


SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def as_tokenizer_json(pieces, normalizer=None):
    unk_id = next((number for number, (piece, _) in enumerate(pieces) if piece == "<unk>"), None)
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}
    return {
        "added_tokens": [{"id": 0, "content": pieces[0][0], "special": True}],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "model": {"type": "Unigram", "unk_id": unk_id, "vocab": pieces, "byte_fallback": False},
    }


def normalizer_of(model, *steps):
    """Return the normalizer of a `tokenizer.json` for a model, with some steps before it."""
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    rules = [{"type": "Precompiled", "precompiled_charsmap": charsmap}, SPACES]
    return {"type": "Sequence", "normalizers": [*({"type": step} for step in steps), *rules]}


def assert_graph_is_the_same(tokenizer, texts):
    """Assert that a tokenizer in the graph gives Python's ids and offsets; return the ids of the texts' beginnings."""
    graph, batch = tokenizer.in_graph(), tf.constant([text.encode() for text in texts])
    ids, placed = graph.encode(batch).to_list(), [field.to_list() for field in graph.encode_with_offsets(batch)]
    beginnings = graph.encode_beginnings(tf.strings.join([batch] * 3, " "), 2).to_list()
    for text, row, beginning, *encoding in zip(texts, ids, beginnings, *placed, strict=True):
        assert tuple(encoding) == tokenizer.encode_with_offsets(text), text
        assert row == encoding[0], text
        whole = tokenizer.encode(" ".join([text] * 3))
        assert beginning == whole[: len(beginning)] and len(beginning) >= min(2, len(whole)), text
    return beginnings
