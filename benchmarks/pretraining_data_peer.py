"""Speed and memory of making pretraining records, compared with Hugging Face `datasets` and `tokenizers`.

  python benchmarks/pretraining_data_peer.py --text books/*.txt --vocab_file vocab.txt

Both sides make the same records from the same text, which repeats the given books with some words exchanged: sentence
pairs of 128 tokens, half of them with a random second part from another document, 15% of the wordpieces masked (80%
[MASK], 10% random, 10% kept), shuffled, on disk. Each is a complete run of a process with up to two child processes.
Ours is `create_pretraining_data.py --sampling=sharded`; the peer is `make_peer_records()` below: two batched
`datasets.map()` with the fast tokenizer of `transformers`, masks drawn per batch with NumPy as in its
`DataCollatorForLanguageModeling`, and `save_to_disk()`. Memory is the maximum, over samples taken five times per
second, of the PSS of all processes together.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile

import numpy as np
from common import compare, run_watched
from sharded_sampling import make_corpus

ROOT = pathlib.Path(__file__).parent.parent
LENGTH = 128
NUM_PROCESSES = 2
ROUNDS = 3
LARGEST_DIFFERENCE = 0.15  # allowed relative difference of the number of records and of the masked fraction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--text", nargs="+", help="UTF-8 text files, one sentence per line, blank lines between documents"
    )
    parser.add_argument("--vocab_file", required=True, help="an uncased vocabulary")
    parser.add_argument("--corpus_mb", type=int, default=20, help="size of the corpus")
    parser.add_argument("--folder", help="folder for the files; by default a new temporary folder")
    parser.add_argument("--peer", nargs=2, metavar=("CORPUS", "FOLDER"), help="make the peer's records (internal)")
    flags = parser.parse_args()
    if flags.peer:
        print(json.dumps(make_peer_records(*flags.peer, flags.vocab_file)))
        return
    if not flags.text:
        parser.error("--text is required")
    with tempfile.TemporaryDirectory(dir=flags.folder) as folder:
        compare_with_peer(folder, flags)


def compare_with_peer(folder: str, flags: argparse.Namespace) -> None:
    corpus = f"{folder}/corpus.txt"
    num_bytes = make_corpus(corpus, flags.text, flags.corpus_mb * 10**6)
    our_command = [sys.executable, str(ROOT / "create_pretraining_data.py"), "--sampling=sharded", "--dupe_factor=1"]
    our_command += [f"--input_file={corpus}", f"--output_file={folder}/ours.tfrecord", f"--max_seq_length={LENGTH}"]
    our_command += [f"--vocab_file={flags.vocab_file}", f"--num_processes={NUM_PROCESSES}"]
    peer_command = [sys.executable, __file__, "--vocab_file", flags.vocab_file, "--peer", corpus, f"{folder}/peer"]
    made: dict[str, dict] = {"ours": {}, "peer": {}}

    def measure(side: str, command: list[str]) -> float:
        shutil.rmtree(f"{folder}/peer", ignore_errors=True)
        seconds, peak, output = run_watched(command)
        made[side] = our_figures(output) if side == "ours" else json.loads(output.splitlines()[-1])
        made[side]["peak"] = max(peak, made[side].get("peak", 0))
        return num_bytes / 1e6 / seconds

    print(f"Pretraining records: {num_bytes / 1e6:,.0f} MB of text, {LENGTH} tokens, {NUM_PROCESSES} processes, load "
          f"{os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    compare(
        "MB of text/s",
        lambda: measure("ours", our_command),
        lambda: measure("peer", peer_command),
        "datasets",
        rounds=ROUNDS,
    )
    for side, figures in made.items():
        print(
            f"  {side:<13} {figures['records']:>14,} records, {figures['masked']:.1%} masked, "
            f"peak memory {figures['peak'] / 1e6:,.0f} MB"
        )
    for name in ("records", "masked"):
        if abs(made["peer"][name] / made["ours"][name] - 1) > LARGEST_DIFFERENCE:
            raise SystemExit(f"the sides differ in {name}: this was not the same job")


def our_figures(log: str) -> dict:
    num_records = re.search(r"gave ([\d,]+) records", log)[1].replace(",", "")
    masked = re.search(r"masked ([\d.]+)%", log)[1]
    return {"records": int(num_records), "masked": float(masked) / 100}


def make_peer_records(corpus: str, folder: str, vocab_file: str) -> dict:
    """Make the records with Hugging Face's libraries; return their number and the fraction of tokens masked."""
    from datasets import disable_progress_bars, load_dataset
    from transformers import BertTokenizerFast

    disable_progress_bars()
    tokenizer = BertTokenizerFast(vocab=vocab_file, do_lower_case=True)
    documents = load_dataset(
        "text", data_files=corpus, sample_by="paragraph", split="train", cache_dir=f"{folder}/cache"
    )

    def tokenize(batch: dict) -> dict:
        texts = [text.splitlines() for text in batch["text"]]
        ids = iter(tokenizer([line for text in texts for line in text], add_special_tokens=False)["input_ids"])
        return {"sentences": [[next(ids) for _ in text] for text in texts]}

    def make_records(batch: dict, indices: list[int]) -> dict:
        rng = random.Random(indices[0])
        texts = [[sentence for sentence in text if sentence] for text in batch["sentences"]]
        texts = [text for text in texts if text]
        pairs = [pair for number in range(len(texts)) for pair in sentence_pairs(texts, number, rng)]
        return masked_records(pairs, tokenizer, np.random.default_rng(indices[0]))

    tokenized = documents.map(tokenize, batched=True, num_proc=NUM_PROCESSES, remove_columns="text")
    records = tokenized.map(
        make_records, batched=True, with_indices=True, num_proc=NUM_PROCESSES, remove_columns="sentences"
    )
    records.shuffle(seed=0).save_to_disk(f"{folder}/records", num_proc=NUM_PROCESSES)
    sample = records.select(range(min(5000, len(records)))).with_format("numpy")
    is_word = sample["attention_mask"][:] - sample["special_tokens_mask"][:]
    num_masked = (sample["labels"][:] != -100).sum()
    return {"records": len(records), "masked": num_masked / (is_word.sum() + 3 * len(sample))}


def sentence_pairs(texts: list[list[list[int]]], number: int, rng: random.Random) -> list[tuple]:
    """Return the pairs of a document: first part, second part, and whether the second part is random."""
    text, max_tokens = texts[number], LENGTH - 3
    target = rng.randint(2, max_tokens) if rng.random() < 0.1 else max_tokens
    pairs, chunk, length, position = [], [], 0, 0
    while position < len(text):
        chunk.append(text[position])
        length += len(text[position])
        if position == len(text) - 1 or length >= target:
            end = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            first = [piece for sentence in chunk[:end] for piece in sentence]
            second = []
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                other = texts[(number + rng.randrange(1, max(2, len(texts)))) % len(texts)]
                for sentence in other[rng.randrange(len(other)) :]:
                    second += sentence
                    if len(second) >= target - len(first):
                        break
                position -= len(chunk) - end  # the sentences that were not used
            else:
                second = [piece for sentence in chunk[end:] for piece in sentence]
            while len(first) + len(second) > max_tokens:
                longer = first if len(first) > len(second) else second
                del longer[0 if rng.random() < 0.5 else -1]
            pairs.append((first, second, is_random))
            chunk, length = [], 0
        position += 1
    return pairs


def masked_records(pairs: list[tuple], tokenizer, rng: np.random.Generator) -> dict:
    """Join, pad and mask pairs, as `DataCollatorForLanguageModeling` does."""
    ids = np.full([len(pairs), LENGTH], tokenizer.pad_token_id, np.int32)
    types, attention, special = (np.zeros([len(pairs), LENGTH], np.int8) for _ in range(3))
    for row, (first, second, _) in enumerate(pairs):
        middle, end = len(first) + 1, len(first) + len(second) + 2
        ids[row, : end + 1] = [
            tokenizer.cls_token_id, *first, tokenizer.sep_token_id, *second, tokenizer.sep_token_id
        ]  # fmt: skip
        types[row, middle + 1 : end + 1] = attention[row, : end + 1] = 1
        special[row, [0, middle, end]] = 1
    labels = ids.copy()
    is_masked = (rng.random(ids.shape) < 0.15) & (attention == 1) & (special == 0)
    labels[~is_masked] = -100
    draw = rng.random(ids.shape)
    ids[is_masked & (draw < 0.8)] = tokenizer.mask_token_id
    is_replaced = is_masked & (draw >= 0.9)
    ids[is_replaced] = rng.integers(len(tokenizer), size=is_replaced.sum())
    return {
        "input_ids": ids,
        "token_type_ids": types,
        "attention_mask": attention,
        "special_tokens_mask": special,
        "labels": labels,
        "next_sentence_label": np.array([is_random for _, _, is_random in pairs], np.int8),
    }


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
