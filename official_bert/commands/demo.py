"""`demo`: pretraining from end to end, on a corpus that comes with the package.

Each command is printed as it could be typed, then run: vocabulary, records, training, evaluation on documents that
training never saw, filling in masked words, and an export for TensorFlow Serving that is asked by a process with
nothing but TensorFlow in it.
"""

import os
import time
from pathlib import Path

from official_bert.config.bert_config import BertConfig
from official_bert.options.command import Command
from official_bert.options.option import MAX_SEED, Options, option, options
from official_bert.support import text_files, writing
from official_bert.support.errors import UserError
from official_bert.support.progress import format_seconds


@options(group="output")
class DemoConfig(Options):
    """Flags of `demo`."""

    output_dir: str = option("demo_output", "Folder for all files that the demo writes; emptied first.", is_path=True)
    random_seed: int = option(
        12345,
        "Random seed for masks and pairs, weights and the order of records.",
        group="rarely needed",
        minimum=0,
        maximum=MAX_SEED,
    )


VOCAB_SIZE = 1200
# Short sequences: a small model learns what stands beside a word long before it learns what stands far away.
MAX_SEQ_LENGTH = 40
MAX_PREDICTIONS_PER_SEQ = 6  # 15% of 40
TRAIN_DUPE_FACTOR = 20
HELDOUT_DUPE_FACTOR = 10  # more masks and pairs of each document, for steadier accuracies
TRAIN_BATCH_SIZE = 48
EVAL_BATCH_SIZE = 32
MAX_EVAL_STEPS = 1000  # more than there are; evaluation ends with the records
LEARNING_RATE = 1.5e-3
NUM_TRAIN_STEPS = 2000
NUM_WARMUP_STEPS = 600
LOG_STEPS = 200
# Key in eval_results.txt, its description, the required minimum.
DEMANDS = (
    ("masked_lm_accuracy", "masked-LM accuracy", 0.5),
    ("next_sentence_accuracy", "next-sentence accuracy", 0.8),
)
# The sentences with the mask are not in train.txt.
MASKED_TEXTS = (
    "Nora is the baker of Ivydale. Then she kneads the [MASK] for nut bread with both hands.",
    "The sheepdog Moss never lets a lamb out of sight. Twice she counts the [MASK], and twice she gets sixty.",
    "Passengers for the night train buy tickets. The [MASK] for the night train turns green.",
)
# The demo deletes only these.
MADE_FILES = (
    "vocab.txt",
    "bert_config.json",
    "*.tfrecord",
    "*.tfrecord.tokenizer.json",
    "*.tfrecord.vocab.txt",
    ".*.partial-*",
    "pretraining/.lock",
    "pretraining/checkpoint",
    "pretraining/model.ckpt-*",
    "pretraining/eval_results.txt",
    "pretraining/metrics.jsonl",
    "pretraining/run_config.json",
    "pretraining/bert_config.json",
    "pretraining/vocab.txt",
    "pretraining/events.out.tfevents.*",
    "pretraining/eval/events.out.tfevents.*",
    "pretraining/eval/run_config.json",
    "pretraining/.*.partial-*",
    "serving/batching_parameters.txt",
    "serving/models.config",
    "serving/*/*.json",
    "serving/*/*.pb",
    "serving/*/variables/variables.*",
    "serving/*/assets/vocab.txt",
    "serving/*/assets.extra/tf_serving_warmup_requests",
)


def run(config: DemoConfig) -> None:
    """Runs the demo.

    Raises:
      UserError: the folder is not the demo's, a command fails, or an accuracy is too low.
    """
    from official_bert.commands.shared.demonstration import demo_data, prepare_folder, run_alone, run_command, say_title
    from official_bert.training.results import read_results

    began = time.monotonic()
    prepare_folder(Path(config.output_dir), MADE_FILES)
    made = {
        "vocabulary": os.path.join(config.output_dir, "vocab.txt"),
        "training records": os.path.join(config.output_dir, "train.tfrecord"),
        "held-out records": os.path.join(config.output_dir, "heldout.tfrecord"),
        "model config": os.path.join(config.output_dir, "bert_config.json"),
        "checkpoint": os.path.join(config.output_dir, "pretraining", f"model.ckpt-{NUM_TRAIN_STEPS}"),
        "training log": os.path.join(config.output_dir, "pretraining", "metrics.jsonl"),
        "results": os.path.join(config.output_dir, "pretraining", "eval_results.txt"),
        "export": os.path.join(config.output_dir, "serving", "1"),
    }

    say_title("1. Learn a vocabulary of wordpieces from the training text")
    train_text = demo_data("corpus/train.txt")
    run_command("build_vocab", input_file=train_text, vocab_file=made["vocabulary"], vocab_size=VOCAB_SIZE)

    say_title("2. Make training records: sentence pairs with masked words")
    lengths = {"max_seq_length": MAX_SEQ_LENGTH, "max_predictions_per_seq": MAX_PREDICTIONS_PER_SEQ}
    run_command(
        "create_pretraining_data",
        input_file=train_text,
        output_file=made["training records"],
        vocab_file=made["vocabulary"],
        **lengths,
        dupe_factor=TRAIN_DUPE_FACTOR,
        random_seed=config.random_seed,
    )

    say_title("3. Make records of the held-out documents in the same way")
    run_command(
        "create_pretraining_data",
        input_file=demo_data("corpus/heldout.txt"),
        output_file=made["held-out records"],
        vocab_file=made["vocabulary"],
        **lengths,
        dupe_factor=HELDOUT_DUPE_FACTOR,
        random_seed=config.random_seed,
    )

    say_title(f"4. Describe a small model in {made['model config']}")
    write_model_config(made["vocabulary"], made["model config"])

    say_title(
        "5. Train: it learns to fill in words from step 500 on, and which sentences belong together from step 800 on"
    )
    model = {"bert_config_file": made["model config"], "output_dir": os.path.dirname(made["checkpoint"]), **lengths}
    run_command(
        "run_pretraining",
        do_train=True,
        input_file=made["training records"],
        **model,
        train_batch_size=TRAIN_BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        num_train_steps=NUM_TRAIN_STEPS,
        num_warmup_steps=NUM_WARMUP_STEPS,
        log_steps=LOG_STEPS,
        random_seed=config.random_seed,
    )

    say_title("6. Evaluate the last checkpoint on all held-out records")
    run_command(
        "run_pretraining",
        do_eval=True,
        input_file=made["held-out records"],
        **model,
        eval_batch_size=EVAL_BATCH_SIZE,
        max_eval_steps=MAX_EVAL_STEPS,
    )

    for number, text in enumerate(MASKED_TEXTS, start=7):
        say_title(f"{number}. Fill in a masked word")
        run_command(
            "fill_mask",
            bert_config_file=made["model config"],
            vocab_file=made["vocabulary"],
            init_checkpoint=made["checkpoint"],
            text=text,
        )

    say_title(f"{number + 1}. Export the model for TensorFlow Serving: it reads raw text")
    run_command(
        "run_pretraining",
        do_export=True,
        export_dir=os.path.dirname(made["export"]),
        vocab_file=made["vocabulary"],
        **model,
    )

    say_title(f"{number + 2}. Ask the export in a process that has TensorFlow and nothing of this project")
    run_alone(f"""
import tensorflow as tf
export = tf.saved_model.load("{made["export"]}")
answer = export.signatures["text"](text=tf.constant(["{MASKED_TEXTS[0]}"]))
print(answer["words"].numpy()[0, 0])""")

    report(read_results(made["results"]), made, seconds=time.monotonic() - began)


def write_model_config(vocab_file: str, config_file: str) -> None:
    """Writes and shows the config of a model of two layers.

    Args:
      vocab_file: the vocabulary, which says how many wordpieces there are.
      config_file: where to write.
    """
    from official_bert.commands.shared.demonstration import say

    config = BertConfig(
        vocab_size=sum(1 for _ in text_files.LineReader(vocab_file)),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=MAX_SEQ_LENGTH,
        type_vocab_size=2,
        # Without dropout and with larger first weights so small a model learns in far fewer steps.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.05,
    )
    text = config.to_json_string()
    with writing.atomic_write(config_file) as sink:
        sink.write(text)
    say(text.rstrip("\n"))


def report(results: dict[str, float], made: dict[str, str], *, seconds: float) -> None:
    """Shows the accuracies, the time and the files.

    Args:
      results: what eval_results.txt says.
      made: what a file is, to its path.
      seconds: how long it all took.

    Raises:
      UserError: an accuracy is too low.
    """
    from official_bert.commands.shared.demonstration import say, say_title

    say_title(f"Done in {format_seconds(seconds)} (hours:minutes:seconds)")
    say(f"{'on held-out documents':<24}{'reached':>9}{'required':>10}")
    for key, label, demanded in DEMANDS:
        say(f"{label:<24}{results[key]:>9.3f}{demanded:>10.3f}")
    say("")
    for label, path in made.items():
        say(f"{label:<24}{path}")
    missed = [f"{label} {results[key]:.3f}" for key, label, demanded in DEMANDS if results[key] < demanded]
    if missed:
        raise UserError(f"below the required minimum: {', '.join(missed)}")


COMMAND = Command(
    name="demo",
    config_class=DemoConfig,
    summary="Shows pretraining from end to end: a small model learns in three to five minutes on two cores.",
    usage="""
  {command}

Each command is printed as it could be typed, then run, on a corpus that comes with this package: vocabulary, records,
training, evaluation, filling in masked words, and an export. Exit code 1 if one fails or an accuracy is too low.
""",
    run=run,
    uses_tensorflow=False,
)
