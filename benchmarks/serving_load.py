r"""Model server under many concurrent connections, compared with direct calls of the export in batches.

  python benchmarks/serving_load.py --text data/demo/train.txt --vocab_file vocab/demo_uncased.txt

A classifier with random weights (by default with the 6 layers and 384 units of MiniLM) gets one text per request over
REST, on loopback; each connection sends its next request when it has the response. The clients are one process, which
also uses the cores. All sides read the same texts. Needs the extras `serve` and `lite`.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys
import tempfile
import time

from common import free_port, measure_in_process, measure_load, running_server

BATCH_SIZE, MAX_SEQ_LENGTH, NUM_TEXTS = 32, 128, 2048
ROOT = pathlib.Path(__file__).parent.parent


def read_texts(flags: argparse.Namespace) -> list[str]:
    lines = itertools.cycle([line for line in flags.text.read_text().splitlines() if line.strip()])
    return [" ".join(itertools.islice(lines, flags.lines)) for _ in range(NUM_TEXTS)]


def prepare(flags: argparse.Namespace) -> None:
    """Write the SavedModel, and a model of the same size for LiteRT in int8."""
    from official_bert.config.bert_config import BertConfig
    from official_bert.modeling.encoder import create_encoder
    from official_bert.modeling.encoder_options import PLAIN, UNPADDED
    from official_bert.modeling.heads import ClassificationModel
    from official_bert.serving.exports import write_export, write_lite
    from official_bert.tasks.classification.servable import ClassificationServable
    from official_bert.tasks.classification.task import ClassOutputs
    from official_bert.tokenization import FullTokenizer

    tokenizer = FullTokenizer(str(flags.vocab_file))
    config = BertConfig(
        vocab_size=tokenizer.vocabulary.size,
        hidden_size=flags.hidden_size,
        num_hidden_layers=flags.num_layers,
        num_attention_heads=flags.hidden_size // 32,
        intermediate_size=4 * flags.hidden_size,
    )
    saved, lite = (
        ClassificationServable(
            ClassificationModel(create_encoder(config, options), num_outputs=2),
            config,
            tokenizer,
            outputs=ClassOutputs("single_label", ("0", "1")),
            is_pair=False,
            max_seq_length=MAX_SEQ_LENGTH,
        )
        for options in (UNPADDED, PLAIN)
    )
    saved.use_export_stack(2)  # as by default
    write_export(str(flags.folder / "saved_model"), saved)
    write_lite(str(flags.folder / "lite"), lite, "int8")


def direct(flags: argparse.Namespace) -> float:
    """Return the examples per second of direct calls of the export in batches."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)  # as in the server
    signature = tf.saved_model.load(str(flags.folder / "saved_model" / "1")).signatures["text"]
    texts = read_texts(flags)
    batches = [tf.constant(texts[start : start + BATCH_SIZE]) for start in range(0, len(texts), BATCH_SIZE)]
    for batch in batches[:4]:
        signature(text_a=batch)
    began, number = time.perf_counter(), 0
    while (seconds := time.perf_counter() - began) < flags.seconds:
        signature(text_a=batches[number % len(batches)])["logits"].numpy()
        number += 1
    return number * BATCH_SIZE / seconds


def load(flags: argparse.Namespace) -> dict[str, float]:
    """Return the rate of responses and percentiles of the latency in milliseconds."""
    contents = [{"signature_name": "text", "inputs": {"text_a": [text]}} for text in read_texts(flags)]
    return measure_load(flags.port, f"/v1/models/{flags.name}:predict", contents, flags.connections, flags.seconds)


JOBS = {job.__name__: job for job in (prepare, direct, load)}


def measure_server(do_job, folder: str, name: str, *flags: str) -> dict[str, float]:
    """Start a server and measure it under load."""
    port = free_port()
    command = [sys.executable, "-m", "official_bert", "serve", f"--export_dir={folder}/{name}", f"--port={port}"]
    with running_server([*command, "--grpc_port=0", "--verbosity=-1", *flags], f"http://127.0.0.1:{port}/health"):
        return do_job("load", "--port", str(port), "--name", name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--vocab_file", type=pathlib.Path, required=True)
    parser.add_argument("--lines", type=int, default=4, help="lines per request")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--num_layers", type=int, default=6)
    parser.add_argument("--hidden_size", type=int, default=384)
    # With these, a process does one job for the benchmark.
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--name", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.job:
        print(json.dumps(JOBS[flags.job](flags)))
        return

    with tempfile.TemporaryDirectory() as folder:

        def do_job(job: str, *arguments: str):
            return measure_in_process(__file__, *sys.argv[1:], "--job", job, "--folder", folder, *arguments)

        do_job("prepare")
        print(
            f"{flags.connections} connections, {flags.num_layers} layers of {flags.hidden_size}, "
            f"{os.cpu_count()} cores",
            flush=True,
        )
        before = do_job("direct")
        servers = {
            "server": measure_server(do_job, folder, "saved_model"),
            "server without batching": measure_server(do_job, folder, "saved_model", "--max_execution_batch_size=1"),
            "server, LiteRT in int8": measure_server(do_job, folder, "lite"),
        }
        rate = (before + do_job("direct")) / 2
    print(f"  {'':<24}{'examples/s':>11}{'ratio':>7}{'p50 ms':>9}{'p90 ms':>9}{'p99 ms':>9}")
    print(f"  {f'direct, batches of {BATCH_SIZE}':<24}{rate:>11.1f}{1:>7.2f}")
    for name, row in servers.items():
        latencies = "".join(f"{row[key]:>9.1f}" for key in ("p50", "p90", "p99"))
        print(f"  {name:<24}{row['rate']:>11.1f}{row['rate'] / rate:>7.2f}{latencies}")


if __name__ == "__main__":
    main()
