"""Number of parameters and speed of training and inference of ALBERT, compared with BERT of the same shape.

  python benchmarks/albert.py

Both have the same number and width of layers and so about the same computation; ALBERT has fewer weights. The shapes of
the first table are those of the ALBERT paper's table 1, with 30,000 wordpieces. The speeds are those of BERT-Base and
ALBERT-base, alternating in one process: a pretraining step, and the pooled output of the encoder. Both use dropout,
unlike the released ALBERTs of version 2.
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import training_step
from common import compare

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder

EMBEDDING_SIZE = 128
SHAPES = {  # layers, hidden size, heads
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
    "xlarge": (24, 2048, 16),
    "xxlarge": (12, 4096, 64),
}
DROPOUT = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1)  # as in BERT
SHARING = {"embedding_size": EMBEDDING_SIZE, "num_hidden_groups": 1, **DROPOUT}
BYTES_TO_TRAIN = 12  # per parameter: the weight and Adam's two moments


def architecture(name: str) -> dict[str, int]:
    layers, width, heads = SHAPES[name]
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }


def print_parameters() -> None:
    print(f"  {'':<8}{'BERT':>16}{'ALBERT':>16}{'ratio':>8}{'to train':>22}")
    for name in SHAPES:
        config = {"vocab_size": 30_000, "type_vocab_size": 2, **architecture(name)}
        bert, albert = (BertConfig.from_dict(config | own).num_parameters for own in ({}, SHARING))
        memory = " / ".join(f"{BYTES_TO_TRAIN * number / 2**30:.1f}" for number in (bert, albert))
        print(f"  {name:<8}{bert:>16,}{albert:>16,}{bert / albert:>8.1f}{memory + ' GiB':>22}")


def measured(call: Callable[[], object], num_tokens: int) -> Callable[[], float]:
    call()  # compiles

    def measure() -> float:
        began = time.perf_counter()
        call()
        return num_tokens / (time.perf_counter() - began)

    return measure


def pooling(sizes: dict[str, int], ids: tf.Tensor) -> Callable[[], object]:
    encoder = BertEncoder(BertConfig.from_dict({"vocab_size": training_step.VOCABULARY, "type_vocab_size": 2, **sizes}))
    pool = tf.function(encoder.pool)
    return lambda: pool(ids).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    print("Parameters of the encoder, and memory of weights and Adam's state")
    print_parameters()
    batch = training_step.make_batch(flags.batch_size, flags.length)
    num_tokens = flags.batch_size * flags.length
    bert = architecture("base")
    albert = {**bert, **SHARING}
    print(f"A pretraining step of the base shape, {flags.batch_size} x {flags.length} tokens: ours is ALBERT")
    sides = (measured(training_step.our_step(sizes, batch), num_tokens) for sizes in (albert, bert))
    compare("tokens/s", *sides, "BERT", flags.rounds)
    print("Pooled outputs of the same batch: ours is ALBERT")
    ids = tf.constant(batch["input_ids"], tf.int32)
    sides = (measured(pooling(sizes, ids), num_tokens) for sizes in (albert, bert))
    compare("tokens/s", *sides, "BERT", flags.rounds)


if __name__ == "__main__":
    main()
