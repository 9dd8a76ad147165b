"""A small pretrained BERT for the notebooks that start from one."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO

from official_bert import BertConfig

FOLDER = Path("output/pretraining")
TEXT = "../data/demo/train.txt"
MAX_SEQ_LENGTH = 40


def pretrained_folder() -> str:
    """Return the folder of the model trained by 1_pretraining.ipynb, with its vocabulary and config.

    If it is missing, the notebook's commands create it, in one to two minutes.
    Their log is output/pretraining.log.

    Raises:
      CalledProcessError: a command failed; the log says why.
    """
    if not (FOLDER / "finished").exists():
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        with open(f"{FOLDER}.log", "w", encoding="utf-8") as log:
            _pretrain(log)
        (FOLDER / "finished").touch()
    return str(FOLDER)


def _pretrain(log: IO[str]) -> None:
    vocab_file, config_file, records = FOLDER / "vocab.txt", FOLDER / "bert_config.json", FOLDER / "train.tfrecord"
    lengths = {"max_seq_length": MAX_SEQ_LENGTH, "max_predictions_per_seq": 6, "random_seed": 1}
    _run(log, "build_vocab", input_file=TEXT, vocab_file=vocab_file, vocab_size=1200)
    _run(log, "create_pretraining_data", input_file=TEXT, output_file=records, vocab_file=vocab_file, **lengths)
    config_file.write_text(small_config(vocab_file).to_json_string())
    _run(
        log,
        "run_pretraining",
        do_train=True,
        input_file=records,
        bert_config_file=config_file,
        output_dir=FOLDER,
        train_batch_size=48,
        learning_rate=1.5e-3,
        num_train_steps=1300,
        num_warmup_steps=400,
        **lengths,
    )


def small_config(vocab_file: str | Path) -> BertConfig:
    """Return the config of a BERT of two layers for a vocabulary, without dropout and with larger first weights."""
    return BertConfig(
        vocab_size=len(Path(vocab_file).read_text(encoding="utf-8").splitlines()),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=MAX_SEQ_LENGTH,
        type_vocab_size=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.05,
    )


def _run(log: IO[str], script: str, **flags) -> None:
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, "-m", "official_bert", script, *arguments]
    subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
