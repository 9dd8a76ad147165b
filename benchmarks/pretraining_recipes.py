r"""Learning curves of three pretraining recipes on the same text, with the same number of wordpieces.

  python benchmarks/pretraining_recipes.py --text=sentences.txt --heldout=heldout.txt --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --output_dir=out/recipes

"bert": pairs of segments, static masks, next-sentence prediction. "roberta": sequences of whole sentences, dynamic
masks, no next-sentence prediction; once with the batch size of "bert", and once with batches eight times as large, in
eight parts, and a higher learning rate. All are evaluated at the same points by the masked-LM loss on the held-out
text, both as pairs and as single sequences ("stretches"). Finished runs in the output folder are not repeated.
"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTH, PREDICTIONS = 64, 10
POINTS = 5
RECIPES = {
    "bert": {"train_batch_size": 32, "learning_rate": 1e-3, "accumulation": 1},
    "roberta": {"train_batch_size": 32, "learning_rate": 1e-3, "accumulation": 1},
    "roberta_256": {"train_batch_size": 256, "learning_rate": 2e-3, "accumulation": 8},
}


def run(script: str, *flags: str) -> None:
    command = [sys.executable, "-m", "official_bert", script, *flags, "--verbosity=-1"]
    if subprocess.run(command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}).returncode:
        sys.exit(f"{script} failed")


def make_records(options: argparse.Namespace, name: str, text: str, *extra: str) -> str:
    path = f"{options.output_dir}/{name}.tfrecord"
    if not os.path.exists(path):
        run(
            "create_pretraining_data",
            f"--input_file={text}",
            f"--output_file={path}",
            f"--vocab_file={options.vocab_file}",
            f"--max_seq_length={LENGTH}",
            *extra,
        )
    return path


def pretrain(options: argparse.Namespace, recipe: str, records: str, *extra: str) -> None:
    numbers = RECIPES[recipe]
    num_steps = options.num_examples // numbers["train_batch_size"]
    run(
        "run_pretraining",
        "--do_train",
        f"--input_file={records}",
        f"--output_dir={options.output_dir}/{recipe}",
        f"--bert_config_file={options.bert_config_file}",
        f"--max_seq_length={LENGTH}",
        f"--max_predictions_per_seq={PREDICTIONS}",
        f"--train_batch_size={numbers['train_batch_size']}",
        f"--gradient_accumulation_steps={numbers['accumulation']}",
        f"--learning_rate={numbers['learning_rate']}",
        f"--num_train_steps={num_steps}",
        f"--num_warmup_steps={num_steps // 10}",
        f"--save_checkpoints_steps={num_steps // POINTS}",
        "--keep_checkpoint_max=0",
        f"--mixed_precision={options.mixed_precision}",
        *extra,
    )


def heldout_loss(options: argparse.Namespace, recipe: str, step: int, kind: str, records: str) -> float:
    folder = f"{options.output_dir}/{recipe}/scores-{kind}-{step}"
    results = pathlib.Path(folder, "eval_results.txt")
    if not results.exists():
        run(
            "run_pretraining",
            "--do_eval",
            f"--input_file={records}",
            f"--init_checkpoint={options.output_dir}/{recipe}/model.ckpt-{step}",
            f"--output_dir={folder}",
            f"--bert_config_file={options.bert_config_file}",
            f"--max_seq_length={LENGTH}",
            f"--max_predictions_per_seq={PREDICTIONS}",
            "--eval_batch_size=32",
            "--max_eval_steps=1000",
            "--nouse_next_sentence",
        )
    scores = dict(line.split(" = ") for line in results.read_text().splitlines())
    return float(scores["masked_lm_loss"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("text", "heldout", "vocab_file", "bert_config_file", "output_dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--num_examples", type=int, default=256_000, help="number of training sequences of each model")
    parser.add_argument("--mixed_precision", default="none", help="see run_pretraining.py")
    options = parser.parse_args()
    os.makedirs(options.output_dir, exist_ok=True)

    masked = f"--max_predictions_per_seq={PREDICTIONS}"
    heldout = {
        "pairs": make_records(options, "heldout-pairs", options.heldout, masked, "--dupe_factor=5"),
        "stretches": make_records(
            options, "heldout-stretches", options.heldout, masked, "--dupe_factor=5", "--nouse_next_sentence"
        ),
    }
    pretrain(options, "bert", make_records(options, "pairs", options.text, masked, "--dupe_factor=10"))
    stretches = make_records(
        options, "stretches", options.text, "--nouse_next_sentence", "--masking=none", "--dupe_factor=1"
    )
    for recipe in ("roberta", "roberta_256"):
        pretrain(
            options,
            recipe,
            stretches,
            "--nouse_next_sentence",
            "--dynamic_masking",
            f"--vocab_file={options.vocab_file}",
        )

    columns = [(recipe, kind) for recipe in RECIPES for kind in heldout]
    print("| sequences read | " + " | ".join(f"{recipe}, held-out {kind}" for recipe, kind in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for point in range(1, POINTS + 1):
        cells = [
            f"{heldout_loss(options, recipe, options.num_examples // batch_size // POINTS * point, kind, records):.3f}"
            for recipe, kind in columns
            for batch_size, records in [(RECIPES[recipe]["train_batch_size"], heldout[kind])]
        ]
        print(f"| {options.num_examples // POINTS * point:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
