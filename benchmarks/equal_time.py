r"""Objectives of pretraining after equal time: scores of the same fine-tuning.

  python benchmarks/equal_time.py --corpus corpus/*.txt --sst2=glue/SST-2 --mrpc=glue/MRPC --conll=conll2003 \
      --output_dir=out/equal_time --minutes=30 --seeds 1 2 3

Each variant differs from BERT's pretraining of 2018 in what its row says; ELECTRA also has new masks and no pairs. The
corpus has a sentence or paragraph a line, and blank lines between documents. The same command resumes. It prints the
mean over the seeds and each of them, on development sets; SST-2 has 8,000 examples to train.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys

SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
BERT = SIZES | {"vocab_size": 8000, "max_position_embeddings": 128, "type_vocab_size": 2}
CONFIGS = {"bert": BERT, "electra": BERT | {"family": "electra", "embedding_size": 128}}
NUM_SST2, RATE, NUM_WARMUP_STEPS = 8000, 5e-4, 200
NO_PAIRS, UNMASKED, MASKS = "--nouse_next_sentence", "--masking=none", "--max_predictions_per_seq="
SHORT = ("--max_seq_length=64", f"{MASKS}10")
RECORDS = {
    "pairs": (), "whole words": ("--do_whole_word_mask",), "unmasked pairs": (UNMASKED,), "spans": (NO_PAIRS,),
    "unmasked spans": (UNMASKED, NO_PAIRS), "short pairs": SHORT,
}  # fmt: skip
NEW = ("--dynamic_masking",)
ELECTRA = (*NEW, "--objective=replaced_tokens", "--mask_replace_prob=0.85", "--random_replace_prob=0")
# Stages: the records, the fractions of the time and of the learning rate at the beginning and the end, and the flags.
VARIANTS = {
    "not pretrained": [("pairs", 0, 1, 0, ())],
    "BERT as in 2018": [("pairs", 1, 1, 0, ())],
    "whole words": [("whole words", 1, 1, 0, ())],
    "new masks, 15%": [("unmasked pairs", 1, 1, 0, NEW)],
    "new masks, 30%": [("unmasked pairs", 1, 1, 0, (*NEW, "--masked_lm_prob=0.3", f"{MASKS}39"))],
    "no next sentence": [("spans", 1, 1, 0, (NO_PAIRS,))],
    "growing batches and lengths": [
        ("short pairs", 0.5, 1, 0.5, (*SHORT, "--batch_ramp_up_steps=300")),
        ("pairs", 0.5, 0.5, 0, ()),
    ],
    "ELECTRA": [("unmasked spans", 1, 1, 0, ELECTRA)],
}
TASKS = {
    "SST-2": ("run_classifier", "eval_accuracy", ("--task_name=SST-2", "--max_seq_length=64")),
    "MRPC": ("run_classifier", "eval_accuracy", ("--task_name=MRPC", "--max_seq_length=128")),
    "CoNLL": ("run_ner", "eval_f1", ("--max_seq_length=128",)),
}


def bert(command: str, *switches: str, **flags: object) -> None:
    given = [f"--{name}={value}" for name, value in flags.items()]
    subprocess.run([sys.executable, "-m", "official_bert", command, *given, *switches, "--verbosity=-1"], check=True)


def prepare(corpus: list[str], sst2: pathlib.Path, work: pathlib.Path, variants: list[str]) -> None:
    sentences, vocab = work / "sentences.txt", work / "vocab.txt"
    if not vocab.exists():
        bert("split_sentences", input_file=",".join(corpus), output_file=sentences)
        bert("build_vocab", input_file=sentences, vocab_file=vocab, vocab_size=BERT["vocab_size"])
    for name in {stage[0] for variant in variants for stage in VARIANTS[variant]}:
        if not (output := work / f"{name}.tfrecord").exists():
            bert("create_pretraining_data", *RECORDS[name], input_file=sentences, vocab_file=vocab, output_file=output)
    for name, config in CONFIGS.items():
        (work / f"{name}.json").write_text(json.dumps(config))
    (work / "SST-2").mkdir(exist_ok=True)
    for split, count in (("train", 1 + NUM_SST2), ("dev", None)):
        with open(sst2 / f"{split}.tsv", encoding="utf-8") as source:
            (work / "SST-2" / f"{split}.tsv").write_text("".join(itertools.islice(source, count)), encoding="utf-8")


def pretrain(name: str, seconds: float, seed: int, work: pathlib.Path, run: pathlib.Path) -> pathlib.Path:
    """Train the stages of a variant, each from the weights of the one before; return the folder of the last."""
    config = work / ("electra.json" if name == "ELECTRA" else "bert.json")
    more, out = {"num_warmup_steps": NUM_WARMUP_STEPS}, run
    for number, (records, time, begin, end, flags) in enumerate(VARIANTS[name]):
        out, limit = run / f"stage{number}", max(1, round(seconds * time))
        bert(
            "run_pretraining", "--do_train", "--lr_schedule=budget", "--mixed_precision=auto", *flags, output_dir=out,
            input_file=work / f"{records}.tfrecord", bert_config_file=config, max_train_seconds=limit,
            learning_rate=RATE * begin, end_learning_rate=RATE * end, num_train_steps=1000000, random_seed=seed, **more,
        )  # fmt: skip
        more = {"num_warmup_steps": 0, "init_checkpoint": out}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs="+", required=True)
    for name in ("sst2", "mrpc", "conll", "output_dir"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--num_train_epochs", type=float, default=3, help="of fine-tuning")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    (work := args.output_dir).mkdir(parents=True, exist_ok=True)
    prepare(args.corpus, args.sst2, work, args.variants)
    data = {"SST-2": work / "SST-2", "MRPC": args.mrpc, "CoNLL": args.conll}
    tuning = {"learning_rate": 2e-4, "num_train_epochs": args.num_train_epochs, "mixed_precision": "auto"}
    print(f"| {args.minutes:g} minutes of pretraining | {' | '.join(TASKS)} |\n|---|{'---:|' * len(TASKS)}", flush=True)
    for name in args.variants:
        scores: dict[str, list[float]] = {task: [] for task in TASKS}
        for seed in args.seeds:
            run = work / name / str(seed)
            model = pretrain(name, 60 * args.minutes, seed, work, run)
            for task, (command, score, flags) in TASKS.items():
                files = {"init_checkpoint": model, "data_dir": data[task], "output_dir": run / task}
                bert(command, "--do_train", "--do_eval", *flags, **files, **tuning, random_seed=seed)
                lines = dict(line.split(" = ") for line in (run / task / "eval_results.txt").read_text().splitlines())
                scores[task].append(100 * float(lines[score]))
        cells = (f"{statistics.mean(each):.1f} ({', '.join(f'{one:.1f}' for one in each)})" for each in scores.values())
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
