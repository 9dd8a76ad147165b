"""Peak memory and time of a training step of a sentence encoder whose batch is computed in parts, or whole.

  python benchmarks/gradient_cache.py --sides 32 1024/32 256

A side is the number of pairs of a batch, and after a slash the number of its parts (--gradient_accumulation_steps). The
encoder has the size of MiniLM, the texts have 64 tokens, the loss is contrastive. Each side takes two steps in a
separate process; its memory is the growth of VmHWM since before the first step, when the model and the optimizer exist.
"""

import argparse
import json
import sys
import time

import numpy as np
from common import measure_in_process
from gradient_checkpointing import peak_bytes
from training_step import VOCABULARY, step_of

MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


def measure(batch_size: int, num_parts: int, length: int) -> None:
    import tensorflow as tf

    from official_bert.config.bert_config import BertConfig
    from official_bert.tasks.sentence_encoder.data import example_schema
    from official_bert.tasks.sentence_encoder.task import SentenceEncoderTask

    config = BertConfig.from_dict({"vocab_size": VOCABULARY, "type_vocab_size": 2, **MINILM})
    schema = example_schema(length, 2, config.vocab_size, config.num_segments)
    options = {"temperature": 0.05, "symmetric": False}
    task = SentenceEncoderTask(
        config, schema, loss="contrastive", loss_options=options, max_seq_length=length, num_texts=2
    )
    rng = np.random.default_rng(1)
    batch = {
        "input_ids": rng.integers(1000, VOCABULARY, [batch_size, 2 * length]),
        "input_mask": np.ones([batch_size, 2 * length]),
        "segment_ids": np.zeros([batch_size, 2 * length]),
        "text_lengths": np.full([batch_size, 2], length),
        "text_numbers": np.arange(1, 2 * batch_size + 1).reshape([batch_size, 2]),
    }
    tensors = {name: tf.constant(values, tf.int32) for name, values in batch.items()}
    step = step_of(task, tensors, gradient_accumulation_steps=num_parts)
    before = peak_bytes()
    step()
    began = time.perf_counter()
    step()
    print(json.dumps({"bytes": peak_bytes() - before, "seconds": time.perf_counter() - began}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", default=["32", "1024/32", "256"])
    parser.add_argument("--length", type=int, default=64)
    flags = parser.parse_args()
    print(f"A training step of pairs of texts of {flags.length} tokens, of an encoder of the size of MiniLM")
    for side in flags.sides:
        batch_size, _, num_parts = side.partition("/")
        found = measure_in_process(__file__, "--side", batch_size, num_parts or "1", str(flags.length))
        print(
            f"  {int(batch_size):5,} pairs in {num_parts or 1:>2} parts {found['bytes'] / 2**30:6.2f} GiB"
            f" {found['seconds']:7.1f} s/step",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure(*map(int, sys.argv[2:]))
    else:
        main()
