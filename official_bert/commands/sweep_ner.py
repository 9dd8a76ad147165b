"""`sweep_ner`: the command."""

from official_bert.commands.sweep import NerSweepConfig, run
from official_bert.options.command import Command

COMMAND = Command(
    name="sweep_ner",
    config_class=NerSweepConfig,
    summary="Runs run_ner with every combination of some settings, and names the best.",
    usage=r"""
  {command} --data_dir=conll2003 --output_dir=sweep --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --random_seed=1,2,3

Takes all flags of run_ner, of which the same four take lists as for `sweep`, whose --help says more. The runs are
compared by the F1 of the entities on the dev set or, where the tags mark none, by accuracy.
""",
    run=run,
    uses_tensorflow=False,
)
