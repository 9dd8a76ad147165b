r"""Fine-tunes with every combination of some settings, by default the BERT paper's, and names the best one on dev.

python tools/sweep.py --task_name=mrpc --data_dir=MRPC --output_dir=sweep --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --random_seed=1,2,3

Takes all flags of run_classifier.py; --train_batch_size, --learning_rate, --num_train_epochs and --random_seed take
lists. Each run is a process of run_classifier.py in its own folder of --output_dir; sweep.tsv there holds the scores so
far. The same command goes on where an earlier one ended; finished runs are not run again. A run that fails ends the
sweep.
"""

from pathlib import Path

from official_bert.config.run_configs import SweepConfig
from official_bert.script import run_script

SCRIPT = Path(__file__).resolve().parent.parent / "run_classifier.py"


def main(config: SweepConfig) -> None:
    """Runs the tool."""
    from official_bert.runs import sweep

    sweep.run(config, str(SCRIPT))


if __name__ == "__main__":
    run_script(SweepConfig, main, uses_tensorflow=False)
