"""Each script of `benchmarks/` runs through its own command line, at its smallest sizes."""

import ast
import importlib
import shutil

import pytest

from tests.conftest import ROOT, run_script

FOLDER = ROOT / "benchmarks"
TEXT = ("--text", "{folder}/text.txt", "--vocab_file", str(ROOT / "vocab" / "demo_uncased.txt"))
MRPC = ("--data_dir", "{folder}")
PEERS = ("torch", "transformers")
# Script and arguments, packages beside those of the tests, and the beginning of what it prints.
RUNS = {
    "start_up": (("--rounds=1", "--num_layers=1"), (), "Start-up: median of 1"),
    "unknown_share": (TEXT, (), "20 lines, a vocabulary of"),
    "graph_tokenizer": (TEXT, (), "Graph tokenizer: 20 lines"),
    "record_making": (TEXT, (), "Record making: "),
    "squad_features": (
        ("--every=1", "--squad", "{folder}/train.json", *TEXT[2:]), (), "SQuAD features: 32 questions",
    ),
    "similarity_search": (("--num_vectors=2000",), (), "2,000 vectors"),
    "training_step": (("--shapes=1x64", "--rounds=1", "--steps=1", "--backends"), (), "Libraries: "),
    "roofline": (("--shapes=1x64", "--rounds=1"), (), "Roofline: "),
    "memory": (("parts", "--sides=2", "--length=16"), (), "A training step of pairs"),
    "long_texts": (("--lengths=300", "--num_heads=1"), PEERS, "ModernBERT of 3 layers"),
    "serving_load": (("--connections=2", "--seconds=1", "--num_layers=1", "--hidden_size=64", *TEXT), (), "2 conn"),
    "export_precision": (("--rounds=1", "--exports", "{version}", "{version}", *MRPC), (), "Export precision: "),
    "gpu_training_step": (("--preset=tiny",), (), "Training step on "),
    "gpu_pretraining": (("--preset=tiny", "--records={records}", "--output_dir={folder}/out"), (), "steps that only"),
    "real_sizes": (("--sizes", "base", "large"), (), "Real sizes: base"),
    "tokenization": (TEXT, ("nanotoken",), "Tok"),
    "finetuning": ((*MRPC, "--model={hf}", "--num_train_epochs=1", "--num_seeds=1"), (*PEERS, "accelerate"), ""),
    "serving": ((*MRPC, "--hf_dir={hf}", "--rounds=1", "--num_pairs=2"), (*PEERS, "onnxscript", "ai_edge_litert"), ""),
    "few_labels": (
        (f"--data_dir={ROOT / 'data' / 'demo_reviews'}", "--init_checkpoint={hf}", "--sizes", "4", "--num_seeds=1"), (),
        "  4 per class, seed 1: {'recipe': ",
    ),
    "sentence_vectors": (("--hf_dir={hf}", "--mrpc_file={folder}/train.tsv", "--max_texts=8"), PEERS, ""),
    "sentence_encoders": (
        ("--task=squad", "--data_dir={folder}", "--init_checkpoint={hf}", "--num_seeds=1", "--max_seq_length=32"),
        ("sentence_transformers", "datasets"), "",
    ),
}  # fmt: skip
ELSEWHERE = {"common", "answer_alignment", "summary"}  # test_many_scripts.py, test_docs.py


def test_all_names_of_the_package_that_benchmarks_and_tools_import_exist():
    for path in [*FOLDER.glob("*.py"), *ROOT.glob("tools/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("official_bert"):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name) or importlib.import_module(f"{node.module}.{alias.name}"), path


def test_every_benchmark_has_a_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == RUNS.keys() | ELSEWHERE


@pytest.fixture(scope="module")
def places(tmp_path_factory, version, corpus_file, vocab_file, files_of_model):
    """Paths of what the benchmarks read."""
    folder = tmp_path_factory.mktemp("benchmarks")
    lines = (ROOT / "data" / "demo" / "train.txt").read_text().split("\n")
    texts = [line for line in lines if line][:20]
    (folder / "text.txt").write_text("\n".join(texts))
    rows = [f"{number % 2}\t1\t2\t{text}\t{texts[19 - number % 20]}\n" for number, text in enumerate(texts * 2)]
    for name in ("train.tsv", "dev.tsv", "msr_paraphrase_test.txt"):
        (folder / name).write_text("".join(["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", *rows]))
    for name in ("train.json", "dev.json"):
        shutil.copy(ROOT / "data" / "many_scripts" / "questions.json", folder / name)
    assert run_script("convert_hf_checkpoint", "--to_hf", **files_of_model, output_dir=folder / "hf").code == 0
    records = folder / "records.tfrecord"
    flags = {"input_file": corpus_file, "output_file": records, "vocab_file": vocab_file, "dupe_factor": 2}
    assert run_script("create_pretraining_data.py", **flags, max_seq_length=128, max_predictions_per_seq=20).code == 0
    return {"folder": folder, "version": version, "records": records, "hf": folder / "hf"}


@pytest.mark.endurance
@pytest.mark.parametrize("script", sorted(RUNS))
def test_runs(script, places, monkeypatch, forked_children):
    arguments, packages, beginning = RUNS[script]
    for package in packages:
        pytest.importorskip(package)
    if script.startswith("gpu"):
        monkeypatch.setenv("KERAS_BACKEND", "jax")
    result = run_script(FOLDER / f"{script}.py", *(argument.format(**places) for argument in arguments))
    assert result.code == 0, result
    assert result.output.startswith(beginning), result
