r"""Latency and throughput of an exported classifier on raw pairs, compared with PyTorch, ONNX Runtime and OpenVINO.

  python benchmarks/serving.py --hf_dir all-MiniLM-L6-v2 --data_dir MRPC

All engines have the encoder of --hf_dir and the same random head; their probabilities must agree first. Ours is
measured as a SavedModel, as a LiteRT export in float32 and int8, and as an ONNX export in both of its programs. The
peers tokenize with `tokenizers`, pad to the longest of the batch and truncate to 128 wordpieces, as the exports do.
Each engine runs in a new process in each round, since thread pools disturb each other, and is measured on inputs that
it has seen before. The machine must be idle: PyTorch's threads spin while they wait, so other work slows it down more
than the others. Needs the `bench` extra.
"""

import argparse
import functools
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

import numpy as np
from common import measure_in_process, medians_and_ratios

from official_bert.tasks.classification.datasets import DATASETS

# For the child processes.
os.environ["TOKENIZERS_PARALLELISM"] = "true"  # the default, without a warning when the compiler is started
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

BATCH_SIZE, MAX_SEQ_LENGTH = 32, 128
NUM_PARTS = 2  # parts of each layer of ours, the default
TOLERANCE, INT8_TOLERANCE = 1e-5, 0.05  # allowed difference of probabilities
TIME_LIMIT = 900  # seconds per process; a compiler may hang
OURS, LITE_INT8, COMPILED = "ours", "ours, int8", "torch.compile"
ONNX, ONNX_INT8 = "ONNX Runtime", "ONNX, int8"
INPUT_NAMES = ["input_ids", "attention_mask", "token_type_ids"]

Pairs = list[tuple[str, str]]
Engine = Callable[[Pairs], np.ndarray]  # gives probabilities, [B, C]


def read_pairs(data_dir: str) -> Pairs:
    return [(example.text_a, example.text_b) for example in DATASETS["mrpc"].examples(data_dir, "dev")]


def whole_batches(pairs: Pairs) -> list[Pairs]:
    return [pairs[start : start + BATCH_SIZE] for start in range(0, len(pairs) - BATCH_SIZE + 1, BATCH_SIZE)]


# TensorFlow and PyTorch are imported on use, since one process cannot always load both.


def prepare_peers(flags: argparse.Namespace) -> dict[str, float]:
    """Write the model with its head for PyTorch and ONNX Runtime; return the lengths of the pairs."""
    import torch
    from onnxruntime.quantization import quantize_dynamic
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(flags.hf_dir, num_labels=2).eval()
    model.save_pretrained(flags.folder / "hf")
    AutoTokenizer.from_pretrained(flags.hf_dir).save_pretrained(flags.folder / "hf")

    tokenize = peer_tokenizer(flags.folder, "pt")
    batches = [tokenize(batch) for batch in whole_batches(read_pairs(flags.data_dir))]
    names = [name for name in INPUT_NAMES if name in batches[0]]  # a DistilBERT has no token_type_ids
    model.config.return_dict = False  # the exporter supports only tuples
    torch.onnx.export(
        model,
        tuple(batches[0][name] for name in names),
        flags.folder / "model.onnx",
        input_names=names,
        output_names=["logits"],
        dynamic_axes={name: {0: "B", 1: "S"} for name in names},
        opset_version=17,
        dynamo=False,
    )
    quantize_dynamic(flags.folder / "model.onnx", flags.folder / "model-int8.onnx", per_channel=True)
    masks = [batch["attention_mask"] for batch in batches]
    return {
        "num_batches": len(batches),
        "num_wordpieces": statistics.mean(mask.sum().item() / BATCH_SIZE for mask in masks),
        "padded_length": statistics.mean(mask.shape[1] for mask in masks),
    }


def prepare_ours(flags: argparse.Namespace) -> None:
    """Convert the peers' model and export it for all engines."""
    from official_bert.checkpoints.bundle import CheckpointReader
    from official_bert.checkpoints.loading import load
    from official_bert.commands import convert_hf_checkpoint
    from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
    from official_bert.config.bert_config import BertConfig
    from official_bert.modeling.encoder import create_encoder
    from official_bert.modeling.encoder_options import PLAIN, UNPADDED
    from official_bert.modeling.heads import ClassificationModel
    from official_bert.serving.exports import write_export, write_lite, write_onnx
    from official_bert.tasks.classification.servable import ClassificationServable
    from official_bert.tasks.classification.task import ClassOutputs
    from official_bert.tokenization import FullTokenizer

    hf_dir, converted = str(flags.folder / "hf"), str(flags.folder / "converted")
    conversion = HfConversionConfig(hf_dir=hf_dir, output_dir=converted)
    convert_hf_checkpoint.run(conversion, convert_hf_checkpoint.prepare(conversion))
    config = BertConfig.from_json_file(f"{converted}/bert_config.json")
    tokenizer = FullTokenizer(f"{converted}/vocab.txt")
    task = {"outputs": ClassOutputs("single_label", ("0", "1")), "is_pair": True, "max_seq_length": MAX_SEQ_LENGTH}

    def make_servable(options):
        model = ClassificationModel(create_encoder(config, options), num_outputs=2)
        load(CheckpointReader(f"{converted}/bert_model.ckpt"), model.trainable_variables)
        return ClassificationServable(model, config, tokenizer, **task)

    servable = make_servable(UNPADDED)
    servable.use_export_stack(NUM_PARTS)
    write_export(str(flags.folder / "export"), servable)
    write_lite(str(flags.folder / "lite"), make_servable(PLAIN))
    write_lite(str(flags.folder / "lite-int8"), make_servable(PLAIN), "int8")
    write_onnx(str(flags.folder / "onnx"), make_servable(PLAIN))


def load_export(folder: pathlib.Path):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)  # as in official-bert serve
    return tf.saved_model.load(str(folder / "export" / "1"))


def our_engine(folder: pathlib.Path) -> Engine:
    return text_engine(load_export(folder))


def text_engine(export) -> Engine:
    import tensorflow as tf

    def run(pairs: Pairs) -> np.ndarray:
        first, second = map(tf.constant, zip(*pairs, strict=True))
        return export.signatures["text"](text_a=first, text_b=second)["probabilities"].numpy()

    return run


def light_engine(folder: pathlib.Path, *, export: str, program: str | None = None) -> Engine:
    from official_bert.serving.engine_model import load_engine_model

    model = load_engine_model(str(folder / export / "1"), engine=program)

    def run(pairs: Pairs) -> np.ndarray:
        first, second = zip(*pairs, strict=True)
        return model.answer({"text_a": first, "text_b": second})["probabilities"]

    return run


def peer_tokenizer(folder: pathlib.Path, tensors: str) -> Callable[[Pairs], dict]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "hf")
    options = {"padding": True, "truncation": True, "max_length": MAX_SEQ_LENGTH, "return_tensors": tensors}
    return lambda pairs: tokenizer(*map(list, zip(*pairs, strict=True)), **options)


def torch_engine(folder: pathlib.Path, is_compiled: bool = False) -> Engine:
    import torch
    from transformers import AutoModelForSequenceClassification

    tokenize = peer_tokenizer(folder, "pt")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "hf").eval()
    if is_compiled:
        model = torch.compile(model, dynamic=True)

    @torch.inference_mode()
    def run(pairs: Pairs) -> np.ndarray:
        return model(**tokenize(pairs)).logits.softmax(-1).numpy()

    return run


def compiled_engine(folder: pathlib.Path) -> Engine:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "compiled")  # the next process finds it there
    return torch_engine(folder, is_compiled=True)


def onnx_runtime(path: pathlib.Path) -> Callable[[dict[str, np.ndarray], str], np.ndarray]:
    """Return a function from the inputs of an ONNX model and the name of an output to that output."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs, output: session.run([output], inputs)[0]


def openvino(path: pathlib.Path) -> Callable[[dict[str, np.ndarray], str], np.ndarray]:
    """Return the same as `onnx_runtime`."""
    from openvino import Core

    # Its default on some processors is bfloat16.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": os.cpu_count()}
    model = Core().compile_model(path, "CPU", settings)
    return lambda inputs, output: model(inputs)[output]


def peer_onnx_engine(runtime: Callable, folder: pathlib.Path, model: str = "model") -> Engine:
    tokenize, model = peer_tokenizer(folder, "np"), runtime(folder / f"{model}.onnx")

    def run(pairs: Pairs) -> np.ndarray:
        inputs = tokenize(pairs)
        logits = model({name: inputs[name].astype(np.int64) for name in INPUT_NAMES if name in inputs}, "logits")
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    return run


ENGINES = {
    OURS: our_engine,
    "ours, LiteRT": functools.partial(light_engine, export="lite"),
    LITE_INT8: functools.partial(light_engine, export="lite-int8"),
    "ours, ONNX": functools.partial(light_engine, export="onnx"),
    "ours, OpenVINO": functools.partial(light_engine, export="onnx", program="openvino"),
    "PyTorch": torch_engine,
    COMPILED: compiled_engine,
    ONNX: functools.partial(peer_onnx_engine, onnx_runtime),
    ONNX_INT8: functools.partial(peer_onnx_engine, onnx_runtime, model="model-int8"),
    "OpenVINO": functools.partial(peer_onnx_engine, openvino),
}


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def answer(flags: argparse.Namespace) -> list[list[float]]:
    """Return the probabilities of a batch, and of each of its pairs separately."""
    engine, pairs = ENGINES[flags.engine](flags.folder), read_pairs(flags.data_dir)[:BATCH_SIZE]
    return np.concatenate([engine(pairs), *(engine([pair]) for pair in pairs)]).tolist()


def measure(flags: argparse.Namespace) -> dict[str, float]:
    """Return the latency of single pairs in milliseconds, and the examples per second in batches."""
    engine, pairs = ENGINES[flags.engine](flags.folder), read_pairs(flags.data_dir)

    def times(batches: list[Pairs], num_warm_ups: int) -> list[float]:
        for batch in batches * num_warm_ups:
            engine(batch)
        return [seconds(lambda batch=batch: engine(batch)) for batch in batches]

    p50, p99 = np.percentile(times([[pair] for pair in pairs[: flags.num_pairs]], num_warm_ups=2), [50, 99])
    rate = BATCH_SIZE / statistics.median(times(whole_batches(pairs), num_warm_ups=1))
    return {"p50": 1000 * p50, "p99": 1000 * p99, "rate": rate}


def start(flags: argparse.Namespace) -> dict[str, float]:
    """Return the seconds for loading the export, its warm-up requests (with --replay), and the first answer."""
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    began = time.perf_counter()
    export = load_export(flags.folder)
    loaded = time.perf_counter()
    if flags.replay:
        path = flags.folder / "export" / "1" / "assets.extra" / "tf_serving_warmup_requests"
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            request = PredictionLog.FromString(record).predict_log.request
            inputs = {name: tf.constant(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()}
            export.signatures[request.model_spec.signature_name](**inputs)
    replayed = time.perf_counter()
    engine, pairs = text_engine(export), read_pairs(flags.data_dir)
    return {"load": loaded - began, "replay": replayed - loaded, "first": seconds(lambda: engine(pairs[:1]))}


JOBS = {job.__name__: job for job in (prepare_peers, prepare_ours, answer, measure, start)}


def check_answers(do_job: Callable, names: list[str]) -> list[str]:
    """Return the working engines: torch.compile may fail, but wrong probabilities end the benchmark."""
    expected, engines = np.array(do_job("answer", "--engine", OURS)), [OURS]
    for engine in names:
        if engine == OURS:
            continue
        try:
            found = np.array(do_job("answer", "--engine", engine))
        except SystemExit:
            if engine != COMPILED:
                raise
            print(f"skipping {engine}: it failed (see above) or took more than {TIME_LIMIT} s")
            continue
        difference = np.abs(found - expected).max()
        if not difference <= (INT8_TOLERANCE if engine in (LITE_INT8, ONNX_INT8) else TOLERANCE):
            sys.exit(f"the probabilities of {engine} differ by {difference:.1e} from ours")
        engines.append(engine)
    return engines


def median(rows: list[dict[str, float]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def ratios(unit: str, pairs: Iterable[tuple[float, float]], engine: str) -> str:
    """Format the ratio of our rate to that of an engine, with its range over the rounds."""
    *_, ratio, least, most = medians_and_ratios(unit, list(pairs), engine)
    return f"{ratio:.2f} ({least:.2f} to {most:.2f})"


def report(measured: dict[str, list[dict[str, float]]]) -> None:
    """Print one line per engine; a ratio over 1 means that ours is faster."""
    print(f"  {'':<14}{'p50 ms':>8}{'p99 ms':>8}{'p50, peer/ours':>26}{'examples/s':>13}{'ours/peer':>26}")
    ours = measured[OURS]
    for engine, rows in measured.items():
        single = batched = ""
        if engine != OURS:
            pairs = list(zip(ours, rows, strict=True))
            single = ratios("pairs/s, one by one", ((1000 / a["p50"], 1000 / b["p50"]) for a, b in pairs), engine)
            batched = ratios("pairs/s, batches of 32", ((a["rate"], b["rate"]) for a, b in pairs), engine)
        print(
            f"  {engine:<14}{median(rows, 'p50'):>8.2f}{median(rows, 'p99'):>8.2f}{single:>26}"
            f"{median(rows, 'rate'):>13.1f}{batched:>26}"
        )
    peers = [engine for engine in measured if not engine.startswith(OURS)]
    for engine in peers if LITE_INT8 in measured else ():  # for the table of `make bench`
        pairs = list(zip(measured[LITE_INT8], measured[engine], strict=True))
        ratios("pairs/s, int8, one by one", ((1000 / a["p50"], 1000 / b["p50"]) for a, b in pairs), engine)
        ratios("pairs/s, int8, batches of 32", ((a["rate"], b["rate"]) for a, b in pairs), engine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--hf_dir", required=True, help="config.json, model.safetensors, vocab.txt of an uncased BERT or DistilBERT"
    )
    parser.add_argument("--data_dir", required=True, help="MRPC")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), help="default: all")
    parser.add_argument("--num_pairs", type=int, default=200, help="number of pairs to measure one by one")
    # With these, a process does one job for the benchmark.
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.job:
        signal.alarm(TIME_LIMIT)
        print(json.dumps(JOBS[flags.job](flags)))
        return

    num_pairs = len(read_pairs(flags.data_dir)[: flags.num_pairs])
    with tempfile.TemporaryDirectory() as folder:

        def do_job(job: str, *arguments: str):
            return measure_in_process(__file__, *sys.argv[1:], "--job", job, "--folder", folder, *arguments)

        sizes = do_job("prepare_peers")
        do_job("prepare_ours")
        print(f"Serving: {pathlib.Path(flags.hf_dir).resolve().name}, {os.cpu_count()} cores, {flags.rounds} rounds")
        print(
            f"{num_pairs} pairs of MRPC one by one, then {sizes['num_batches']} batches of {BATCH_SIZE}, of "
            f"{sizes['num_wordpieces']:.0f} wordpieces per pair, padded to {sizes['padded_length']:.0f} on average",
            flush=True,
        )
        engines = check_answers(do_job, flags.engines)
        measured = {engine: [] for engine in engines}
        cold, warm = [], []
        for _ in range(flags.rounds):
            for engine in engines:
                measured[engine].append(do_job("measure", "--engine", engine))
            cold.append(do_job("start"))
            warm.append(do_job("start", "--replay"))

    report(measured)
    print(f"Start of ours: loads in {median(cold + warm, 'load'):.1f} s, warms up in {median(warm, 'replay'):.1f} s")
    print(f"  first answer          {1000 * median(cold, 'first'):>8.1f} ms")
    print(f"  first after warm-up   {1000 * median(warm, 'first'):>8.1f} ms")


if __name__ == "__main__":
    main()
