"""Small stand-ins for files that the pages download or take long to create, in one table."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.commands.demo import write_demo_data
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel
from tests.conftest import GOLDEN, ROOT, run_script

# The size of the released uncased vocabulary, so that the configs of the pages fit.
_VOCAB_SIZE = 30522
# docs/tour.md shows this text tokenized.
_TOUR_PIECES = ("pre", "##train", "##ing", "isn", "'", "t", "naive", ".")
_ENCODER = BertConfig(
    vocab_size=_VOCAB_SIZE, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
)
_DEMO_STEPS = 2000  # demo


def make_encoder(folder: pathlib.Path) -> None:
    """Write a tiny random encoder in place of a pretrained one."""
    folder.mkdir(parents=True)
    wordpieces = [*(GOLDEN / "inputs" / "vocab.txt").read_text().split(), *_TOUR_PIECES]
    wordpieces += (ROOT / "vocab" / "demo_uncased.txt").read_text().split()
    wordpieces = list(dict.fromkeys(wordpieces))
    wordpieces += [f"[unused{number}]" for number in range(_VOCAB_SIZE - len(wordpieces))]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in wordpieces))
    BertEncoder(_ENCODER).save_checkpoint(folder)


def _make_demo_output(folder: pathlib.Path) -> None:
    """Write the output of `make demo`, with random weights."""
    folder.mkdir()
    shutil.copy(ROOT / "vocab" / "demo_uncased.txt", folder / "vocab.txt")
    num_wordpieces = len((folder / "vocab.txt").read_text().split())
    config = dataclasses.replace(_ENCODER, vocab_size=num_wordpieces, max_position_embeddings=40)
    (folder / "bert_config.json").write_text(config.to_json_string())
    (folder / "pretraining").mkdir()
    (folder / "pretraining" / "bert_config.json").write_text(config.to_json_string())
    weights = {variable.path: variable for variable in PretrainingModel(BertEncoder(config)).trainable_variables}
    checkpoints = CheckpointFolder(str(folder / "pretraining"), keep_max=1)
    checkpoints.save(_DEMO_STEPS, {**weights, GLOBAL_STEP: np.int64(_DEMO_STEPS)})


def _make_books(folder: pathlib.Path) -> None:
    """Write five books of four short chapters each, with wrapped paragraphs."""
    folder.mkdir()
    documents = (ROOT / "data" / "demo" / "train.txt").read_text().strip().split("\n\n")
    names = "adventures_of_huckleberry_finn", "dracula", "moby_dick", "pride_and_prejudice", "alice_in_wonderland"
    for number, name in enumerate(names):
        chapters = documents[4 * number : 4 * number + 4]
        sentences = [sentence for chapter in chapters for sentence in ("CHAPTER I", *chapter.split("\n"))]
        paragraphs = [sentence.replace(" ", "\n", 1) for sentence in sentences]
        (folder / f"{name}.txt").write_text("\n\n".join(paragraphs) + "\n")


def _make_corpus(folder: pathlib.Path) -> None:
    folder.mkdir()
    shutil.copy(ROOT / "data" / "demo" / "heldout.txt", folder)


def _make_unmasked_records(file: pathlib.Path) -> None:
    """Write the records of docs/much_text.md, with the encoder's vocabulary."""
    folder = file.parent
    for name, make in (("encoder", make_encoder), ("corpus", _make_corpus)):
        if not (folder / name).exists():
            make(folder / name)
    flags = {"input_file": folder / "corpus", "output_file": file, "vocab_file": folder / "encoder" / "vocab.txt"}
    run_script("create_pretraining_data", masking="none", dupe_factor=1, **flags)


def _make_squad(file: pathlib.Path) -> None:
    file.parent.mkdir(exist_ok=True)
    shutil.copy(GOLDEN / "inputs" / "squad_v1.json", file)


def _make_answers(file: pathlib.Path) -> None:
    articles = json.loads((GOLDEN / "inputs" / "squad_v1.json").read_text())["data"]
    questions = [question for article in articles for part in article["paragraphs"] for question in part["qas"]]
    file.write_text(json.dumps({question["id"]: question["answers"][0]["text"] for question in questions}))


def make_mrpc(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    sentences = (ROOT / "data" / "demo" / "train.txt").read_text().split("\n")
    for split, count in (("train", 32), ("dev", 8), ("test", 8)):
        rows = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        rows += [f"{row % 2}\t{row}\t{row}\t{sentences[row]}\t{sentences[row % 2 + row]}" for row in range(count)]
        (folder / f"{split}.tsv").write_text("".join(f"{row}\n" for row in rows))


def make_nsmc(folder: pathlib.Path) -> None:
    folder.mkdir()
    for split, count in (("train", 40), ("test", 8)):
        rows = [f"{row}\t{('좋은', '나쁜')[row % 2]} 영화였다\t{row % 2}" for row in range(count)]
        (folder / f"ratings_{split}.txt").write_text("\n".join(["id\tdocument\tlabel", *rows]) + "\n")


class StandIn(NamedTuple):
    """A replacement for something in a page's commands."""

    page: str
    real: str  # a file or folder, or a part of a command
    instead: Callable[[pathlib.Path], None] | str  # creates the file or folder; or the replacement text


_FILES = {  # what is made instead, and the names of the pages
    "demo_output": (_make_demo_output, "tour attention models distillation sentence_scores vocabularies"),
    "demo_classifier_output/encoder": (make_encoder, "README tour"),
    "demo_classifier_output/data": (write_demo_data, "README tour"),
    "encoder": (
        make_encoder,
        "attention classification distillation features python much_text multiple_choice serving similarity retrieval "
        "sentence_encoders squad tagging",
    ),
    "bert": (make_encoder, "classification"),
    "books": (_make_books, "tour"),
    "corpus": (_make_corpus, "much_text large_batches vocab"),
    "unmasked.tfrecord": (_make_unmasked_records, "devices memory large_batches"),
    "glue/MRPC": (make_mrpc, "classification distillation serving"),
    "nsmc": (make_nsmc, "classification korean"),
    "squad/train-v1.1.json": (_make_squad, "README tour"),
    "squad/dev-v1.1.json": (_make_squad, "README tour squad"),
    "squad/train.json": (_make_squad, "squad"),
    "squad/dev.json": (_make_squad, "squad"),
    "squad/predictions.json": (_make_answers, "squad"),
}
_FEW_STEPS = "--num_train_steps=4 --num_warmup_steps=2 --train_batch_size=4"
_EIGHT_STEPS = "--num_train_steps=8 --num_warmup_steps=2 --save_checkpoints_steps=4 --train_batch_size=4"
_PARTS = {  # parts of commands: what replaces them, and the names of the pages
    '"num_hidden_layers": 2': ('"num_hidden_layers": 1', "ablations classification korean pretraining tour"),
    '"num_hidden_layers": 4': ('"num_hidden_layers": 2', "models"),
    "--num_train_steps=100": ("--num_train_steps=10", "README"),
    "--num_train_epochs=10": ("--num_train_epochs=1", "README tour tagging"),
    "--num_train_epochs=8": ("--num_train_epochs=1", "README tagging"),
    "--num_train_steps=2000 --num_warmup_steps=200": (_EIGHT_STEPS, "tour korean"),
    "--log_steps=500": ("--log_steps=2", "tour"),
    "--num_train_steps=100000 --num_warmup_steps=10000": (_FEW_STEPS, "much_text devices memory"),
    "--train_batch_size=2048 --num_train_steps=112500 --num_warmup_steps=1400": (_FEW_STEPS, "large_batches"),
    "--train_batch_size=512 --num_train_steps=12500 --num_warmup_steps=40": (_FEW_STEPS, "large_batches"),
    "--train_batch_tokens=131072": ("--train_batch_tokens=512", "large_batches"),
    "--num_train_steps=60000 --num_warmup_steps=400": ("--num_train_steps=4 --num_warmup_steps=1", "large_batches"),
    "--feature_layers=concat_last_four": ("--feature_layers=weighted_sum", "tagging"),
}
_OTHER_PLACES = {"README": "README.md", "vocab": "vocab/README.md"}
STAND_INS = tuple(
    StandIn(_OTHER_PLACES.get(page, f"docs/{page}.md"), real, instead)
    for real, (instead, pages) in (_FILES | _PARTS).items()
    for page in pages.split()
)


def prepare(page: str, folder: pathlib.Path) -> None:
    """Create the files that a page's commands need, unless an earlier page created them."""
    for stand_in in STAND_INS:
        if stand_in.page == page and callable(stand_in.instead) and not (folder / stand_in.real).exists():
            stand_in.instead(folder / stand_in.real)


def replaced(page: str, command: str) -> str:
    """Return a command of a page with the replacements of the table."""
    for stand_in in STAND_INS:
        if stand_in.page == page and isinstance(stand_in.instead, str):
            command = command.replace(stand_in.real, stand_in.instead)
    return command
