r"""Gain from the wordpieces of a domain: a model trained further on domain text with and without them.

  python benchmarks/domain_vocabulary.py --text=domain.txt --heldout=domain_heldout.txt --model_dir=out/pretrained \
      --vocab_file=vocab.txt --output_dir=out/domain

`--model_dir` is the output folder of `run_pretraining.py`. The two vocabularies have different wordpieces, so losses
per wordpiece cannot be compared; the table has the loss per word: the mean loss of the wordpieces of whole masked
words, times the number of wordpieces per word. Both models are trained for the same number of steps and records.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTH, PREDICTIONS = 64, 12


def run(script: str, *flags: str) -> str:
    command = [sys.executable, "-m", "official_bert", script, *flags]
    process = subprocess.run(
        command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, stderr=subprocess.PIPE, text=True
    )
    if process.returncode:
        sys.exit(f"{script} failed:\n{process.stderr}")
    return process.stderr


def make_records(options: argparse.Namespace, name: str, text: str, vocab_file: str, *extra: str) -> str:
    path = f"{options.output_dir}/{name}.tfrecord"
    run(
        "create_pretraining_data",
        f"--input_file={text}",
        f"--output_file={path}",
        f"--vocab_file={vocab_file}",
        f"--max_seq_length={LENGTH}",
        "--nouse_next_sentence",
        *extra,
    )
    return path


def loss_per_piece(
    options: argparse.Namespace, name: str, checkpoint: str, model: dict[str, str], records: str
) -> float:
    folder = f"{options.output_dir}/scores-{name}"
    run(
        "run_pretraining",
        "--do_eval",
        f"--input_file={records}",
        f"--init_checkpoint={checkpoint}",
        f"--output_dir={folder}",
        f"--bert_config_file={model['bert_config_file']}",
        f"--max_seq_length={LENGTH}",
        f"--max_predictions_per_seq={PREDICTIONS}",
        "--eval_batch_size=32",
        "--max_eval_steps=1000",
        "--nouse_next_sentence",
    )
    results = dict(line.split(" = ") for line in pathlib.Path(folder, "eval_results.txt").read_text().splitlines())
    return float(results["masked_lm_loss"])


def pieces_per_word(vocab_file: str, text: str) -> tuple[float, float]:
    from official_bert.config.text_settings import TextSettings
    from official_bert.data.vocab_learner import count_words, coverage
    from official_bert.tokenization import load_vocab

    with open(text, encoding="utf-8") as lines:
        found = coverage(load_vocab(vocab_file), count_words((line.rstrip("\n") for line in lines), TextSettings()))
    return found.num_wordpieces / found.num_words, 100 * found.num_unknown / found.num_words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("text", "heldout", "model_dir", "vocab_file", "output_dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--num_new_tokens", type=int, default=1000)
    parser.add_argument("--num_train_steps", type=int, default=1000)
    parser.add_argument("--learning_rate", type=float, default=5e-4)
    parser.add_argument("--mixed_precision", default="none", help="see run_pretraining.py")
    options = parser.parse_args()
    os.makedirs(options.output_dir, exist_ok=True)

    plain = {
        "init_checkpoint": options.model_dir,
        "bert_config_file": f"{options.model_dir}/bert_config.json",
        "vocab_file": options.vocab_file,
    }
    folder = f"{options.output_dir}/extended"
    log = run(
        "edit_checkpoint",
        f"--input_file={options.text}",
        f"--num_new_tokens={options.num_new_tokens}",
        f"--output_dir={folder}",
        *(f"--{name}={value}" for name, value in plain.items()),
    )
    print(re.search("adding .*", log)[0])
    extended = {
        "init_checkpoint": f"{folder}/bert_model.ckpt",
        "bert_config_file": f"{folder}/bert_config.json",
        "vocab_file": f"{folder}/vocab.txt",
    }
    print("| vocabulary | wordpieces per word | words unknown | loss per word before | after |")
    print("|---|---|---|---|---|")
    for name, model in (("as it was", plain), ("extended", extended)):
        key = name.split()[0]
        vocab_file = model["vocab_file"]
        heldout = make_records(
            options,
            f"heldout-{key}",
            options.heldout,
            vocab_file,
            "--do_whole_word_mask",
            f"--max_predictions_per_seq={PREDICTIONS}",
            "--dupe_factor=5",
        )
        text = make_records(options, f"text-{key}", options.text, vocab_file, "--masking=none", "--dupe_factor=1")
        before = loss_per_piece(options, f"{key}-before", model["init_checkpoint"], model, heldout)
        trained = f"{options.output_dir}/trained-{key}"
        run(
            "run_pretraining",
            "--do_train",
            "--nouse_next_sentence",
            "--dynamic_masking",
            "--do_whole_word_mask",
            f"--input_file={text}",
            f"--output_dir={trained}",
            f"--max_seq_length={LENGTH}",
            f"--max_predictions_per_seq={PREDICTIONS}",
            f"--learning_rate={options.learning_rate}",
            f"--num_train_steps={options.num_train_steps}",
            f"--num_warmup_steps={options.num_train_steps // 10}",
            f"--mixed_precision={options.mixed_precision}",
            *(f"--{flag}={value}" for flag, value in model.items()),
        )
        after = loss_per_piece(options, f"{key}-after", trained, model, heldout)
        wordpieces, unknown = pieces_per_word(vocab_file, options.heldout)
        print(
            f"| {name} | {wordpieces:.3f} | {unknown:.2f}% | {wordpieces * before:.3f} | {wordpieces * after:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
