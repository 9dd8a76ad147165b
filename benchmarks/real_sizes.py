r"""Models of BERT's real sizes through commands, exports and the server: seconds, and memory at most.

  python benchmarks/real_sizes.py --sizes base multilingual large

The weights are random. base is BERT-Base (12 layers, 512 positions, 30,522 wordpieces); multilingual has the vocabulary
of the multilingual model (119,547), and large the width of BERT-Large, both with two layers. The classifier has 1,000
classes, the tagger 200 tags and a CRF; files have 256 texts, the last of 100,000 words, or of 13,000 for the tagger and
as a context. A step of training is enough for a run. Each line is a process, or a request to a server, whose memory is
that of the server. It takes half an hour on two cores, and fails if a process fails or a request gets no answer.
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import string
import sys
import tempfile
import time
import urllib.request

from common import QUIET, free_port, process_tree_bytes, run_watched, running_server

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 16, "intermediate_size": 4096}
TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
SIZES = {
    "base": BASE | {"vocab_size": 30522},
    "multilingual": BASE | {"vocab_size": 119547, "num_hidden_layers": 2},
    "large": LARGE | {"vocab_size": 30522},
    "tiny": TINY | {"vocab_size": 30522},
}
NUM_CLASSES, NUM_TAGS, NUM_TEXTS, NUM_WORDS, NUM_MASKS = 1000, 200, 256, 100_000, 500
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{number}" for number in range(50)]
SHORT, LONG = " ".join(WORDS[:30]), " ".join(itertools.islice(itertools.cycle(WORDS), NUM_WORDS))
TEXTS = [SHORT] * (NUM_TEXTS - 1) + [LONG]
WRITE_MODEL = """
import sys, official_bert
config = official_bert.BertConfig.from_json_file(sys.argv[1] + "/bert_config.json")
official_bert.PretrainingModel(official_bert.BertEncoder(config)).save_checkpoint(sys.argv[1])
"""
Content = dict | list


class Trial:
    """The folder of a model, and the lines of its table."""

    def __init__(self, folder: pathlib.Path, architecture: dict[str, int]):
        self.folder, self.model = folder, folder / "model"
        self.model.mkdir(parents=True)
        config = {"max_position_embeddings": 512, "type_vocab_size": 2, **architecture}
        (self.model / "bert_config.json").write_text(json.dumps(config))
        letters = [*string.ascii_lowercase, *string.digits]
        known = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *WORDS]
        others = (f"v{number}" for number in range(config["vocab_size"] - len(known)))
        (self.model / "vocab.txt").write_text("\n".join([*known, *others]) + "\n")
        write_data(folder)
        self.run("a checkpoint", "-c", WRITE_MODEL, self.model)

    def run(self, what: str, *arguments: object) -> None:
        """Run this Python, and print a line."""
        seconds, peak, _ = run_watched([sys.executable, *map(str, arguments)])
        show(what, seconds, peak)

    def command(self, what: str, name: str, *words: object, **flags: object) -> None:
        given = [f"--{flag}" if value is True else f"--{flag}={value}" for flag, value in flags.items()]
        self.run(what, "-m", "official_bert", name, *words, "--verbosity=-1", *given)

    def train(self, task: str, **flags: object) -> None:
        """Train for a step and export; the run is in a folder named by its task."""
        self.command(
            f"{task}: a step of training, export", f"run_{task}", init_checkpoint=self.model, do_train=True,
            output_dir=self.folder / task, do_export=True, export_dir=self.folder / "serving" / task,
            train_batch_size=2, max_seq_length=512, **flags,
        )  # fmt: skip

    def serve(self, task: str, requests: dict[str, tuple[str, Content]]) -> None:
        """Start a server for an export, and send it requests: what, path and content."""
        port = free_port()
        command = [sys.executable, "-m", "official_bert", "serve", f"--export_dir={self.folder / 'serving' / task}"]
        address, began = f"http://127.0.0.1:{port}", time.perf_counter()
        with running_server([*command, f"--port={port}", "--grpc_port=0", "--verbosity=-1"], f"{address}/health"):
            (pid,) = children(os.getpid())
            show(f"{task}: server, ready", time.perf_counter() - began, process_tree_bytes(pid))
            for what, (path, content) in requests.items():
                began = time.perf_counter()
                request = urllib.request.Request(address + path, json.dumps(content).encode())
                request.add_header("Content-Type", "application/json")
                with urllib.request.urlopen(request, timeout=600) as answer:
                    answer.read()
                show(f"{task}: {what}", time.perf_counter() - began, peak_of(pid))


def children(pid: int) -> list[int]:
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def peak_of(pid: int) -> int:
    """Return the most memory that a process has had, in bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def show(what: str, seconds: float, peak: int) -> None:
    print(f"  {what:<50} {seconds:8.1f} s {peak / 2**30:8.2f} GiB", flush=True)


def write_data(folder: pathlib.Path) -> None:
    """Write training and evaluation files of all tasks."""
    labelled = [f"{SHORT}\tlabel{number}\n" for number in range(NUM_CLASSES)]
    (folder / "train.tsv").write_text("".join(["text\tlabel\n", *labelled]))
    (folder / "dev.tsv").write_text("".join(["text\tlabel\n", *labelled[:32]]))
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (folder / "short.txt").write_text("".join(f"{text}\n" for text in [*TEXTS[:-1], LONG[: NUM_WORDS // 2]]))
    tags = itertools.cycle(["O", *(f"{mark}-T{number}" for number in range(NUM_TAGS // 2) for mark in "BI")])
    sentences = ("".join(f"{word} {next(tags)}\n" for word in WORDS) for _ in range(8))
    (folder / "train.txt").write_text("\n".join(sentences))
    answers = [{"text": WORDS[3], "answer_start": SHORT.index(WORDS[3])}]
    questions = [{"id": str(number), "question": WORDS[4], "answers": answers} for number in range(4)]
    articles = {"version": "1.1", "data": [{"title": "", "paragraphs": [{"context": SHORT, "qas": questions}]}]}
    (folder / "squad.json").write_text(json.dumps(articles))
    (folder / "context.txt").write_text(LONG[: NUM_WORDS // 2])
    (folder / "questions.txt").write_text(f"{WORDS[4]}\n")


def inputs(task: str, **texts: list[str]) -> tuple[str, Content]:
    return f"/v1/models/{task}:predict", {"signature_name": "text", "inputs": texts}


def try_size(trial: Trial) -> None:
    folder, model, texts, hf_dir = trial.folder, trial.model, trial.folder / "texts.txt", trial.folder / "hf"
    trial.command("to Hugging Face", "convert_hf_checkpoint", to_hf=True, init_checkpoint=model, output_dir=hf_dir)
    trial.command("from Hugging Face", "convert_hf_checkpoint", hf_dir=hf_dir, output_dir=folder / "converted")
    # [MASK] has id 4
    ids = {name: [[number] * 512] * 32 for name, number in (("input_ids", 4), ("input_mask", 1), ("segment_ids", 0))}
    for name, export_format in (("masks", "saved_model"), ("masks-lite", "tflite"), ("masks-onnx", "onnx")):
        trial.command(f"{name}: export", "export", hf_dir, folder / "serving" / name, export_format=export_format)
        trial.serve(name, {
            f"32 texts of {NUM_MASKS} masks": inputs(name, text=["[MASK] " * NUM_MASKS] * 32),
            "ids, 32 x 512 masks": (f"/v1/models/{name}:predict", {"inputs": ids}),
        })  # fmt: skip

    columns = {"text_a_column": "text", "label_column": "label", "train_file": "train.tsv", "eval_file": "dev.tsv"}
    few = 2 / NUM_CLASSES
    trial.train("classifier", data_dir=folder, task_name="custom", **columns, do_eval=True, num_train_epochs=few)
    trial.command("classifier: predict", "predict", folder / "classifier", texts, output_file=folder / "classes.tsv")
    lite = folder / "lite"
    trial.command("classifier: LiteRT, int8", "export", folder / "classifier", lite, export_format="tflite",
                  export_precision="int8")  # fmt: skip
    trial.command("classifier: predict, LiteRT", "predict", lite, texts, output_file=folder / "lite.tsv")
    trial.serve("classifier", {
        "a text": inputs("classifier", text_a=[SHORT]),
        f"{NUM_TEXTS} texts, one of {NUM_WORDS:,} words": inputs("classifier", text_a=TEXTS),
        "ids, 32 x 512": ("/v1/models/classifier:predict", {"inputs": ids}),
        "/predict, 32 texts": ("/predict", {"inputs": [[SHORT]] * 32}),
    })  # fmt: skip

    trial.train("ner", data_dir=folder, head="crf", num_train_epochs=0.25)
    trial.command("ner: predict", "predict", folder / "ner", folder / "short.txt", output_file=folder / "tags.tsv")
    trial.serve("ner", {
        "a text": inputs("ner", text=[SHORT]),
        f"{NUM_TEXTS} texts, one of {NUM_WORDS // 100:,} words": inputs("ner", text=[*TEXTS[:-1], LONG[:4000]]),
    })  # fmt: skip

    trial.train("squad", train_file=folder / "squad.json", num_train_epochs=0.5)
    trial.command("squad: predict, a context of 13,000 words", "predict", folder / "squad", folder / "questions.txt",
                  context_file=folder / "context.txt", output_file=folder / "answers.tsv")  # fmt: skip
    trial.serve("squad", {"a question": inputs("squad", question=[WORDS[4]], context=[SHORT])})

    embeddings, dense = folder / "serving" / "embeddings", {"init_checkpoint": model, "max_seq_length": 512}
    trial.command("embeddings: export", "export_embeddings", **dense, export_dir=embeddings)
    trial.serve("embeddings", {
        f"/embed, {NUM_TEXTS} texts": ("/embed", {"inputs": TEXTS, "truncate": True}),
        "/embed_all, a long text": ("/embed_all", {"inputs": LONG, "truncate": True}),
        "/v1/embeddings, 32 texts": ("/v1/embeddings", {"model": "embeddings", "input": [SHORT] * 32}),
        "/similarity, 32 sentences": (
            "/similarity", {"inputs": {"source_sentence": SHORT, "sentences": [SHORT] * 32}},
        ),
    })  # fmt: skip
    sparse = folder / "serving" / "sparse"
    trial.command("sparse: export", "export_embeddings", **dense, export_dir=sparse, pooling="splade")
    trial.serve("sparse", {
        "/embed_sparse, 32 texts": ("/embed_sparse", {"inputs": [SHORT] * 32}),
        "vectors of 32 texts": inputs("sparse", text=[SHORT] * 32),
    })  # fmt: skip
    for export_format in ("tflite", "onnx"):
        for precision in ("float32", "int8"):
            trial.command(
                f"embeddings: {export_format}, {precision}", "export_embeddings", **dense, export_format=export_format,
                export_precision=precision, export_dir=folder / f"{export_format}-{precision}",
            )  # fmt: skip

    trial.command("extract_features", "extract_features", init_checkpoint=model, input_file=texts, pooling="mean",
                  output_file=folder / "features.jsonl", layers="-1", max_seq_length=512)  # fmt: skip
    trial.command("sentence_similarity", "sentence_similarity", init_checkpoint=model, candidates_file=texts,
                  query=SHORT, max_seq_length=512)  # fmt: skip
    trial.command("fill_mask, 500 masks", "fill_mask", init_checkpoint=model, text="[MASK] " * NUM_MASKS)
    trial.command("score_sentences", "score_sentences", init_checkpoint=model, max_seq_length=128,
                  input_file=folder / "questions.txt", output_file=folder / "scores.tsv")  # fmt: skip
    trial.command("view_attention, 200 words", "view_attention", init_checkpoint=model, text=" ".join(WORDS * 4),
                  output_file=folder / "attention.html")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["base", "multilingual", "large"])
    flags = parser.parse_args()
    os.environ.update(QUIET)
    for size in flags.sizes:
        print(f"Real sizes: {size}, {SIZES[size]}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try_size(Trial(pathlib.Path(folder), SIZES[size]))


if __name__ == "__main__":
    main()
