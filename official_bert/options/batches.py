"""Flags for training batches."""

from official_bert.options.option import MAX_BATCH_SIZE, MAX_PARTS, MAX_SEED, Options, option, options


@options(group="training")
class BatchOptions(Options):
    """Flags that select the examples of each training step."""

    train_batch_size: int = option(
        32,
        "Number of examples per training step, over all devices.",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        not_with={
            "train_batch_tokens": "--train_batch_size cannot be used with --train_batch_tokens; leave one of them out"
        },
        affects="order",
        sizes_run_with="do_train",
    )
    train_batch_tokens: int = option(
        0,
        "Maximum number of positions per training step, padding included, over all devices; each batch is filled with "
        "examples of similar length. 0 for batches of --train_batch_size.",
        minimum=0,
        not_with={
            "use_tpu": "--train_batch_tokens makes batches of many shapes, and a TPU would compile each of them; use "
            "--train_batch_size",
            "use_xla": "--train_batch_tokens makes batches of many shapes, and XLA would compile each of them; leave "
            "one of the two out",
        },
        affects="order",
        sizes_run_with="do_train",
    )
    gradient_accumulation_steps: int = option(
        1,
        "Number of parts that each training batch is split into and computed in turn: less memory, same result except "
        "for the random numbers of dropout.",
        minimum=1,
        maximum=MAX_PARTS,
        affects="learning",
    )
    random_seed: int = option(
        12345,
        "Random seed for weights, dropout and the order of records.",
        minimum=0,
        maximum=MAX_SEED,
        affects="order",
    )
    allow_inexact_resume: bool = option(
        False,
        "Resume even if a setting that determines the order of the examples has changed: batch size, seed or padding; "
        "with --train_batch_tokens also --gradient_accumulation_steps and the number of devices.",
        group="rarely needed",
        affects="nothing",
    )
