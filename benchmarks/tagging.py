r"""F1 on the test file and training speed of `run_ner.py`, compared with PyTorch's `transformers` at equal settings.

  python benchmarks/tagging.py --hf_dir encoder_hf --encoder_dir encoder --data_dir conll2003 --output_dir out/ner

Both train the same encoder on the same sentences: AdamW with bias correction, 32 sentences in a batch, at most 128
wordpieces, the tag at the first wordpiece of each word. The peer shuffles, and pads each batch to its longest sentence,
as in `transformers`' example; with `--group_by_length` it makes batches of similar lengths. Examples per second are
measured over training steps, without start-up and compilation. `--encoder_dir` is `--hf_dir`, converted by
`official-bert convert_hf_checkpoint`. Needs the `bench` extra.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time

import torch
from torch_finetuning import fine_tune
from transformers import AutoModelForTokenClassification, AutoTokenizer

from official_bert.metrics.tagging import score_tags
from official_bert.tasks.tagging.examples import TaggedSentence
from official_bert.tasks.tagging.options import TaggingConfig
from official_bert.tasks.tagging.tagged_files import read_configured, tags_of
from official_bert.training.results import read_results

BATCH_SIZE, WARMUP_PROPORTION, MAX_SEQ_LENGTH = 32, 0.1, 128
NOT_SCORED = -100  # the label that PyTorch's loss ignores
SCRIPT = os.path.join(os.path.dirname(__file__), "..", "run_ner.py")


def ours(flags: argparse.Namespace) -> tuple[float, float]:
    """Return the F1 and examples per second of `run_ner.py`, in a separate process."""
    arguments = {
        "data_dir": flags.data_dir,
        "output_dir": flags.output_dir,
        "vocab_file": f"{flags.encoder_dir}/vocab.txt",
        "bert_config_file": f"{flags.encoder_dir}/bert_config.json",
        "init_checkpoint": f"{flags.encoder_dir}/bert_model.ckpt",
        "train_batch_size": BATCH_SIZE,
        "max_seq_length": MAX_SEQ_LENGTH,
        "num_train_epochs": flags.num_epochs,
        "learning_rate": flags.learning_rate,
        "warmup_proportion": WARMUP_PROPORTION,
        "random_seed": flags.seed,
    }
    command = [sys.executable, SCRIPT, "--do_train", "--do_predict", "--adam_bias_correction", "--verbosity=-1"]
    subprocess.run([*command, *(f"--{name}={value}" for name, value in arguments.items())], check=True)
    with open(f"{flags.output_dir}/metrics.jsonl", encoding="utf-8") as source:
        speeds = [row["examples_per_second"] for row in map(json.loads, source) if "examples_per_second" in row]
    speed = len(speeds) / sum(1 / speed for speed in speeds)  # each line covers the same number of steps
    return read_results(f"{flags.output_dir}/test_results.txt")["test_f1"], speed


class Peer:
    """A tagger of `transformers`."""

    def __init__(self, hf_dir: str, tags: list[str], seed: int):
        self._tags = tags
        self._tokenizer = AutoTokenizer.from_pretrained(hf_dir)
        torch.manual_seed(seed)
        self.model = AutoModelForTokenClassification.from_pretrained(hf_dir, num_labels=len(tags))

    def _encode(self, sentences: list[TaggedSentence]):
        return self._tokenizer(
            [list(sentence.words) for sentence in sentences],
            is_split_into_words=True,
            truncation=True,
            max_length=MAX_SEQ_LENGTH,
            padding=True,
            return_tensors="pt",
        )

    @staticmethod
    def _first_pieces(encoding, row: int) -> dict[int, int]:
        """Return the position of the first wordpiece of each word, by word index."""
        places: dict[int, int] = {}
        for position, word in enumerate(encoding.word_ids(row)):
            if word is not None:
                places.setdefault(word, position)
        return places

    def loss_of(self, sentences: list[TaggedSentence]) -> torch.Tensor:
        """Return the mean loss of a batch."""
        encoding = self._encode(sentences)
        labels = torch.full(encoding["input_ids"].shape, NOT_SCORED)
        for row, sentence in enumerate(sentences):
            for word, position in self._first_pieces(encoding, row).items():
                labels[row, position] = self._tags.index(sentence.tags[word])
        return self.model(**encoding, labels=labels).loss

    @torch.inference_mode()
    def tag(self, sentences: list[TaggedSentence]) -> list[list[str]]:
        """Return the tags of all words; `O` for truncated words."""
        tagged = []
        for start in range(0, len(sentences), BATCH_SIZE):
            batch = sentences[start : start + BATCH_SIZE]
            encoding = self._encode(batch)
            numbers = self.model(**encoding).logits.argmax(-1)
            for row, sentence in enumerate(batch):
                tags = ["O"] * len(sentence.words)
                for word, position in self._first_pieces(encoding, row).items():
                    tags[word] = self._tags[numbers[row, position]]
                tagged.append(tags)
        return tagged


def peers(flags: argparse.Namespace) -> tuple[float, float]:
    """Return the F1 and examples per second of `transformers`."""
    config = TaggingConfig(data_dir=flags.data_dir, do_train=True, output_dir=".", bert_config_file=".", vocab_file=".")
    train, test = read_configured(config, "train_file"), read_configured(config, "predict_file").sentences
    peer = Peer(flags.hf_dir, tags_of(train), flags.seed)
    random.seed(flags.seed)
    began = time.perf_counter()
    num_steps = fine_tune(
        peer.model,
        train.sentences,
        peer.loss_of,
        batch_size=BATCH_SIZE,
        num_epochs=flags.num_epochs,
        learning_rate=flags.learning_rate,
        warmup_proportion=WARMUP_PROPORTION,
        seed=flags.seed,
        length_of=(lambda sentence: len(sentence.words)) if flags.group_by_length else None,
    )
    speed = num_steps * BATCH_SIZE / (time.perf_counter() - began)
    return score_tags([sentence.tags for sentence in test], peer.tag(test)).f1, speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hf_dir", required=True, help="config.json, model.safetensors, vocab.txt")
    parser.add_argument("--encoder_dir", required=True, help="bert_config.json, bert_model.ckpt.*, vocab.txt")
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--output_dir", required=True, help="output folder of run_ner.py")
    parser.add_argument("--num_epochs", type=float, default=1.0)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--group_by_length", action="store_true")
    flags = parser.parse_args()
    (our_f1, our_speed), (peer_f1, peer_speed) = ours(flags), peers(flags)
    print(f"  ours          F1 {100 * our_f1:.2f}   {our_speed:8.1f} examples/s")
    print(f"  transformers  F1 {100 * peer_f1:.2f}   {peer_speed:8.1f} examples/s")
    print(f"  ratio of speeds           {our_speed / peer_speed:8.2f}")


if __name__ == "__main__":
    main()
