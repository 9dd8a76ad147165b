"""A small `tokenizer.json` in the form of ModernBERT's, with the merges of the golden RoBERTa."""

import json
import pathlib

from official_bert.tokenization.hf_tokenizer import template_of

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "families" / "roberta" / "tokenizer"
# In the published file, too, the first ids are placeholders, and runs of spaces and special tokens follow the others.
FIRST = ("|||IP_ADDRESS|||", "<|padding|>", "|||EMAIL_ADDRESS|||", "|||PHONE_NUMBER|||", "<|endoftext|>")
LAST = (*(" " * length for length in range(8, 1, -1)), "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[unused0]")


def modernbert_json() -> bytes:
    ids = json.loads((FOLDER / "vocab.json").read_text())
    merges = [line for line in (FOLDER / "merges.txt").read_text().split("\n") if line and not line.startswith("#")]
    first = {token: index for index, token in enumerate(FIRST)}  # instead of RoBERTa's special tokens
    numbers = first | {token: len(ids) + place for place, token in enumerate(LAST)}
    added = []
    for token, index in numbers.items():
        is_special = not (token.isspace() or token.startswith(("|", "[unused")))
        flags = {"single_word": False, "lstrip": token == "[MASK]", "rstrip": False}
        added.append({"id": index, "content": token, **flags, "normalized": not is_special, "special": is_special})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    cls, sep = ((name, numbers[name]) for name in ("[CLS]", "[SEP]"))
    values = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "post_processor": template_of(cls, sep, num_between=1, second_segment=1),
        "model": {
            "type": "BPE",
            **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
            **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
            "vocab": first | {token: index for token, index in ids.items() if index >= len(FIRST)},
            "merges": merges,
        },
    }
    return json.dumps(values).encode()
