"""CPU time and memory of a ModernBERT on long texts, beside `transformers`, each measurement in a process of its own.

  python benchmarks/long_texts.py --lengths 512 2048 8192

The encoder has random weights, three layers (one global, two local with the released window of 128), and by default
three heads of the released width. A step is a forward and a backward pass. The time is that of the second call, on one
core; the memory is the operating system's VmHWM of the process, TensorFlow or PyTorch included.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HEAD_WIDTH, NUM_LAYERS, VOCABULARY = 64, 3, 1000
SIDES, WORK = ("ours", "transformers"), ("prediction", "step")


def our_work(work: str, length: int, sizes: dict[str, int]):
    import tensorflow as tf

    from official_bert.families.modernbert import ModernBertConfig
    from official_bert.modeling.encoder import BertEncoder

    encoder = BertEncoder(ModernBertConfig(**sizes))
    ids = tf.random.uniform([1, length], maxval=VOCABULARY, dtype=tf.int32, seed=1)

    @tf.function
    def predict():
        return encoder(ids)["sequence_output"]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(encoder(ids, training=True)["sequence_output"] ** 2)
        return [
            tf.reduce_sum(gradient)
            for gradient in tape.gradient(loss, encoder.trainable_weights)
            if gradient is not None
        ]

    return predict if work == "prediction" else step


def peer_work(work: str, length: int, sizes: dict[str, int]):
    import torch
    from transformers import ModernBertConfig, ModernBertModel

    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id"), 0)
    model = ModernBertModel(ModernBertConfig(**sizes, **ends))
    ids = torch.randint(VOCABULARY, [1, length])

    def predict():
        with torch.no_grad():
            model.eval()(ids)

    def step():
        (model.train()(ids).last_hidden_state ** 2).mean().backward()

    return predict if work == "prediction" else step


def measure(side: str, work: str, length: int, num_heads: int) -> dict[str, float]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # threads that wait for others would use CPU time
    width = num_heads * HEAD_WIDTH
    sizes = {"vocab_size": VOCABULARY, "hidden_size": width, "num_attention_heads": num_heads}
    sizes |= {"num_hidden_layers": NUM_LAYERS, "intermediate_size": width * 3 // 2}
    call = (our_work if side == "ours" else peer_work)(work, length, sizes)
    call()
    began = time.process_time()
    call()
    seconds = time.process_time() - began
    peak = re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text()).group(1)
    return {"seconds": seconds, "gib": int(peak) / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--num_heads", type=int, default=3)
    parser.add_argument("--peer_python", default=sys.executable, help="a Python with transformers and torch")
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)  # for the processes that measure one side
    flags = parser.parse_args()
    if flags.side:
        side, work, length = flags.side
        print(json.dumps(measure(side, work, int(length), flags.num_heads)))
        return
    print(f"ModernBERT of {NUM_LAYERS} layers and {flags.num_heads} heads: CPU seconds, GiB")
    for length in flags.lengths:
        for work in WORK:
            for side in SIDES:
                python = sys.executable if side == "ours" else flags.peer_python
                command = [python, __file__, "--side", side, work, str(length), f"--num_heads={flags.num_heads}"]
                environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
                output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
                found = json.loads(output.splitlines()[-1])
                print(f"  {length:5} {work:10} {side:12} {found['seconds']:8.2f} s {found['gib']:6.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
