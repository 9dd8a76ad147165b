"""Flags for evaluation."""

from official_bert.options.option import MAX_BATCH_SIZE, Options, option, options


@options(group="evaluation")
class EvaluationOptions(Options):
    """Flags of every command that evaluates after training."""

    do_eval: bool = option(False, "Run evaluation on the dev set.", affects="run")
    eval_batch_size: int = option(
        8,
        "Number of examples per evaluation batch, over all devices.",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        affects="nothing",
        sizes_run_with="do_eval",
    )
