"""The flags of the batches that training reads."""

from official_bert.options.option import MAX_BATCH_SIZE, MAX_PARTS, MAX_SEED, Options, option, options


@options(group="training")
class BatchOptions(Options):
    """Flags that say which examples each step of training reads."""

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
        "Maximum number of positions per training step, padding included, over all devices: a batch has as many "
        "examples of similar length as fit. 0 for batches of --train_batch_size.",
        minimum=0,
        not_with={
            "use_tpu": "--train_batch_tokens makes batches of many shapes, each of which a TPU would compile; use "
            "--train_batch_size",
            "use_xla": "--train_batch_tokens makes batches of many shapes, each of which XLA would compile; leave one "
            "of them out",
        },
        affects="order",
        sizes_run_with="do_train",
    )
    gradient_accumulation_steps: int = option(
        1,
        "Number of parts that each training batch is split into, computed one after another: less memory, same result "
        "but for the random numbers of dropout.",
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
        "Resume even if what determines the order of the examples has changed: batch size, seed or padding; with "
        "--train_batch_tokens also --gradient_accumulation_steps and the number of devices.",
        group="rarely needed",
        affects="nothing",
    )
