"""Peak memory and time of a pretraining step of BERT-Base, 8 x 512 tokens, with and without gradient checkpointing.

  python benchmarks/gradient_checkpointing.py

Each side takes two steps in a separate process; its memory is the operating system's VmHWM.
"""

import argparse
import json
import pathlib
import re
import sys
import time

import training_step
from common import measure_in_process

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text()).group(1))


def measure(side: str, batch_size: int, length: int, num_layers: int) -> None:
    architecture = {**BASE, "num_hidden_layers": num_layers}
    batch = training_step.make_batch(batch_size, length)
    step = training_step.our_step(architecture, batch, recompute_layers=side == "recomputed")
    step()
    began = time.perf_counter()
    step()
    print(json.dumps({"bytes": peak_bytes(), "seconds": time.perf_counter() - began}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int, default=BASE["num_hidden_layers"])
    flags = parser.parse_args()
    print(f"Gradient checkpointing: {flags.layers} layers of BERT-Base, {flags.batch_size} x {flags.length} tokens")
    for side in ("stored", "recomputed"):
        arguments = map(str, (flags.batch_size, flags.length, flags.layers))
        found = measure_in_process(__file__, "--side", side, *arguments)
        print(f"  {side:<12} {found['bytes'] / 2**30:6.2f} GiB {found['seconds']:8.2f} s/step", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
